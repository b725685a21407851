"""Training steps: forward, backward, gradients, saved activations, and the optimizer's update."""

from math import prod
from typing import Any, Literal

from msgspec.structs import replace

from ..cost import tidy
from ..errors import FormulaError
from ..ledger import Ledger, Row, read, write
from ..ops.optimizer import RULES
from .compute_units import arithmetic, matrix_work, number, vector_work
from .notation import Dim, Format
from .parts import part
from .registry import formula

Optimizer = Literal["sgd", "momentum", "adam", "adamw"]


@formula("optimizer_update", group="training", example=(2**33,), aliases=("optimizer", "adamw_update"))
def optimizer_update(
    parameters: Dim,
    *,
    optimizer: Optimizer = "adamw",
    weights: Format = "bf16",
    gradients: Format = None,
    state: Format = "fp32",
    master: Format = None,
    compute: Format = None,
) -> Ledger:
    """One update of every parameter: gradient and state read, state and weight written.

    FLOP per parameter = 2 (SGD), 4 (momentum), 12 and a root (Adam), 13 and a root (AdamW). bytes = the gradient read; each of 0, 1
    or 2 state tensors read and written; the weights read and written or, with a `master` copy, the copy read and written and the weights
    only written.
    """
    rule, each = RULES[optimizer], (parameters,)
    own = number(weights)
    rows: list[Row] = [read("gradients", each, number(gradients, weights))]
    for tensor in rule.state:
        rows += [read(tensor, each, number(state)), write(tensor, each, number(state))]
    if master:
        rows += [read("master weights", each, master), write("master weights", each, master)]
    else:
        rows += [read("weights", each, own)]
    rows += [write("weights", each, own)]
    work = vector_work(rule.flops * parameters, rule.transcendentals * parameters, compute, own, number(state))
    return Ledger("optimizer_update", work, tuple(rows), (f"{optimizer}: {rule.why}",))


def backward(forward: Ledger, *, gradients: Format = None) -> Ledger:
    """The backward pass of a forward one: twice its work, and for each tensor the traffic of two products.

    dX = dY·Wᵀ and dW = Xᵀ·dY read every operand of the forward pass once more, write its gradient, and read the gradient of the
    result twice: twice the forward traffic. Gradients of parameters are written in the format of ``gradients``, others in their
    tensor's own.
    """
    rows: list[Row] = []
    for row in forward.rows:
        if row.access == "send":
            rows.append(replace(row, passes=2 * row.passes))
        elif row.access == "write":
            rows.append(_gradient(row, access="read", passes=2 * row.passes))
        else:
            wanted = number(gradients) if gradients and row.reads_parameter else row.dtype
            rows.append(row if row.reads_parameter else replace(row, note="saved by forward"))
            rows.append(_gradient(row, access="write", dtype=wanted))
    note = "backward is twice forward: each matmul once for its input's gradient and once for its weights'"
    return Ledger(f"backward of {forward.name}", forward.work * 2, tuple(rows), (*forward.notes, note), forward.kernels * 2)


def _gradient(row: Row, **changes: Any) -> Row:
    """The row of a tensor's gradient."""
    same_as = f"gradient of {row.same_as}" if row.same_as else ""
    return replace(row, tensor=f"gradient of {row.tensor}", same_as=same_as, **changes)


def count_parameters(forward: Ledger) -> Dim:
    """The number of trained parameters that a forward pass reads."""
    counted: Dim = sum((prod(row.shape) * row.passes for row in forward.rows if row.reads_parameter), 0)
    return tidy(counted)


def training_step(
    forward: Ledger,
    *,
    parameters: Dim | None = None,
    optimizer: Optimizer = "adamw",
    weights: Format = "bf16",
    gradients: Format = None,
    state: Format = "fp32",
    master: Format = None,
    compute: Format = None,
    recompute: bool = False,
) -> Ledger:
    """A training step from any forward pass: forward, backward, and the update of its parameters.

    Without ``parameters``, those that the forward pass reads are updated. With ``recompute`` the forward pass runs again before the
    backward one, and its activations are not kept. Micro-batches are a scaled forward pass, ``training_step(8 * forward, parameters=…)``.
    """
    count = count_parameters(forward) if parameters is None else parameters
    if not count > 0:
        raise FormulaError(f"training_step: {forward.name} reads no weights; give the number of trained weights with parameters=")
    update = optimizer_update(count, optimizer=optimizer, weights=weights, gradients=gradients, state=state, master=master, compute=compute)
    passes = forward + forward if recompute else forward
    whole = passes + backward(forward, gradients=gradients) + part("update", update)
    updated = {row.tensor for row in forward.rows if row.reads_parameter}
    whole = replace(whole, rows=tuple(_as_updated(row, updated) for row in whole.rows))
    return whole.named(f"training step of {forward.name}")


def _as_updated(row: Row, parameters: set[str]) -> Row:
    """A row of the passes; a weight or its gradient is the same tensor as in the update."""
    if row.tensor in parameters:
        return replace(row, same_as="update.weights")
    return replace(row, same_as="update.gradients") if row.tensor.removeprefix("gradient of ") in parameters else row


@formula("training", group="training", example=(2**33, 2**24), aliases=("training_step", "train"), zero=("saved",))
def training(
    parameters: Dim,
    tokens: Dim,
    *,
    optimizer: Optimizer = "adamw",
    saved: Dim = 0,
    recompute: bool = False,
    dtype: Format = "bf16",
    weights: Format = None,
    gradients: Format = None,
    state: Format = "fp32",
    master: Format = None,
    compute: Format = None,
) -> Ledger:
    """A training step of a dense model from its size: 6 · parameters · tokens FLOP, weights, gradients, activations and optimizer.

    Forward 2·P·T, backward 4·P·T (and 2·P·T more with `recompute`). Weights are read in each pass; gradients are written once and
    read by the update; `saved` activation elements per token are written forward and read backward. Products of activations
    (attention) are not in 6·P·T.
    """
    kept, own = (tokens, saved), number(weights, dtype)
    passes = 4 if recompute else 3
    unit = arithmetic(compute, number(dtype), own)
    rows: tuple[Row, ...] = (
        read("weights", (parameters,), own, passes=passes - 1, note="once in each pass"),
        write("gradients", (parameters,), number(gradients, weights, dtype)),
    )
    if saved:
        rows += (write("activations", kept, number(dtype)), read("activations", kept, number(dtype)))
    model = Ledger("training", matrix_work(2 * passes * parameters * tokens, unit), rows)
    update = optimizer_update(parameters, optimizer=optimizer, weights=own.name, gradients=gradients, state=state, master=master)
    notes = ("matmuls of activations, as in attention, are not counted",)
    return (model + update).named("training", *notes, *(() if saved else ("saved activations are not counted; give saved",)))
