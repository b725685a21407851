"""Normalisations, losses and reductions: operations that need a whole row before they can write any of it."""

from typing import Annotated, Literal, TypedDict, Unpack

from ..cost import plain_number
from ..ledger import Ledger, Row, read, write
from ..operation import RowWise
from ..ops.elementwise import POINTWISE
from ..ops.reduction import REDUCTION_FLOPS, reduced
from .compute_units import number, vector_work
from .notation import Dim, Format
from .pointwise import COMPARISONS
from .registry import formula


class NormOptions(TypedDict, total=False):
    """The options of a normalisation."""

    reads: Annotated[Dim, 1]
    dtype: Annotated[Format, "bf16"]
    out: Format
    weights: Format
    compute: Format


@formula("layernorm", group="normalisation", example=(65536, 4096), aliases=("layer_norm", "aten::layer_norm"))
def layernorm(rows: Dim, columns: Dim, *, flops: Dim = POINTWISE["layernorm"].flops, **options: Unpack[NormOptions]) -> Ledger:
    """(x − mean)/σ · scale + shift over each row: 10 FLOP per element, one read and one write, plus scale and shift.

    bytes = (reads + 1)·rows·columns + 2·columns elements. One read assumes that a row stays on chip between its statistics and its
    use; `reads=2` is a kernel that cannot keep it.
    """
    return _normalisation("layernorm", rows, columns, ("scale", "shift"), flops, options)


@formula("rmsnorm", group="normalisation", example=(65536, 4096), aliases=("rms_norm",))
def rmsnorm(rows: Dim, columns: Dim, *, flops: Dim = POINTWISE["rmsnorm"].flops, **options: Unpack[NormOptions]) -> Ledger:
    """x/rms · scale over each row: 4 FLOP per element, one read and one write, plus scale.

    bytes = (reads + 1)·rows·columns + columns elements.
    """
    return _normalisation("rmsnorm", rows, columns, ("scale",), flops, options)


def _normalisation(name: str, rows: Dim, columns: Dim, parameters: tuple[str, ...], flops: Dim, options: NormOptions) -> Ledger:
    dtype = options["dtype"]
    operand, facts = number(dtype), POINTWISE[name]
    moved = (
        read("x", (rows, columns), operand, passes=options["reads"]),
        *(read(tensor, (columns,), number(options["weights"], dtype)) for tensor in parameters),
        write("out", (rows, columns), number(options["out"], dtype)),
    )
    work = vector_work(rows * columns * flops, rows * facts.per_row, options["compute"], operand)
    notes = (f"{flops} FLOP per element: {facts.why}", "one root per row counts as a transcendental")
    return Ledger(name, work, moved, notes, operation=_rows(rows, columns, "layernorm"))


@formula("softmax", group="normalisation", example=(65536, 4096), aliases=("aten::softmax",))
def softmax(
    rows: Dim,
    columns: Dim,
    *,
    reads: Dim = 1,
    dtype: Format = "bf16",
    out: Format = None,
    compute: Format = None,
    comparisons: bool = False,
) -> Ledger:
    """exp(x − max)/sum over each row: 3 FLOP and 1 transcendental per element, one read and one write.

    bytes = (reads + 1)·rows·columns elements. One read assumes that a row stays on chip.
    """
    operand, facts = number(dtype), POINTWISE["softmax"]
    elements = rows * columns
    moved = (read("x", (rows, columns), operand, passes=reads), write("out", (rows, columns), number(out, dtype)))
    work = vector_work(elements * (facts.flops + facts.comparisons * comparisons), elements * facts.transcendentals, compute, operand)
    notes = (facts.why, *((COMPARISONS,) if comparisons else ()))
    return Ledger("softmax", work, moved, notes, operation=_rows(rows, columns, "softmax"))


@formula("cross_entropy", group="normalisation", example=(8192, 128256), aliases=("cross_entropy_loss", "softmax_cross_entropy"))
def cross_entropy(
    tokens: Dim,
    vocabulary: Dim,
    *,
    gradient: bool = False,
    reads: Dim = 1,
    dtype: Format = "bf16",
    indices: Format = "int32",
    out: Format = "fp32",
    compute: Format = None,
) -> Ledger:
    """log Σ exp(x) − x[target] of each token: 2 FLOP and 1 transcendental per logit, 2 FLOP and a log per token.

    bytes = the logits and the targets read, one loss per token written. With `gradient`, softmax(x) − onehot(target) is written in
    the same pass: 1 more FLOP per logit (times 1/sum) and 1 per token.
    """
    operand = number(dtype)
    logits = tokens * vocabulary
    rows: tuple[Row, ...] = (
        read("logits", (tokens, vocabulary), operand, passes=reads),
        read("targets", (tokens,), number(indices)),
        write("loss", (tokens,), number(out)),
    )
    work = vector_work(2 * logits + 2 * tokens, logits + tokens, compute, operand)
    if gradient:
        rows += (write("gradient", (tokens, vocabulary), operand),)
        work += vector_work(logits + tokens, 0, compute, operand)
    notes = ("subtract the maximum, exp, sum; comparisons for the maximum are 0 FLOP",)
    return Ledger("cross_entropy", work, rows, notes, operation=_rows(tokens, vocabulary, "softmax"))


@formula("reduction", group="normalisation", example=(65536, 4096), aliases=("reduce", "aten::sum"))
def reduction(
    rows: Dim,
    columns: Dim,
    *,
    kind: Literal["sum", "mean", "norm", "max", "min", "argmax", "argmin"] = "sum",
    dtype: Format = "bf16",
    out: Format = None,
    compute: Format = None,
    comparisons: bool = False,
) -> Ledger:
    """One value of each row: columns − 1 adds for a sum, one more FLOP for a mean, comparisons only for a maximum.

    FLOP per row of n = n − 1 (sum), n (mean), 2n − 1 and a root (norm), 0 (max, min, argmax, argmin: n − 1 comparisons, which
    `comparisons` counts). bytes = rows·columns elements read, one per row written: an int32 index for argmax and argmin.
    """
    operand = number(dtype)
    is_free = REDUCTION_FLOPS[kind] == (0, 0)
    compares = comparisons and is_free
    flops = rows * (columns - 1) if compares else reduced(kind, rows, columns)
    result = number(out, "int32" if kind.startswith("arg") else dtype)
    moved = (read("x", (rows, columns), operand), write("out", (rows,), result))
    work = vector_work(flops, rows if kind == "norm" else 0, compute, operand)
    notes = (COMPARISONS,) if compares else ("comparisons are 0 FLOP",) if is_free else ()
    return Ledger("reduction", work, moved, notes, operation=_rows(rows, columns, "sum"))


def _rows(rows: Dim, columns: Dim, kind: str) -> RowWise:
    return RowWise(rows=plain_number(rows), columns=plain_number(columns), kind=kind)
