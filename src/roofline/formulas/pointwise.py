"""Pointwise operations: a few FLOP per element on the vector unit, each tensor crossing main memory once."""

from collections.abc import Callable

from ..errors import FormulaError
from ..ledger import Ledger, read, write
from ..operation import Streamed
from ..ops.elementwise import POINTWISE, PerElement
from .compute_units import number, vector_work
from .notation import Dim, Format
from .registry import formula

COMPARISONS = "comparisons are counted as 1 FLOP each"
ALIKE = Streamed(kind="elementwise")
MOST_TENSORS = 1_000  # read or written by one operation


@formula("elementwise", group="pointwise", example=(2**24,), aliases=("map", "loop_fusion"), zero=("flops", "transcendentals", "inputs"))
def elementwise(
    elements: Dim,
    *,
    inputs: int = 1,
    outputs: int = 1,
    flops: Dim = 1,
    transcendentals: Dim = 0,
    passes: Dim = 1,
    dtype: Format = "bf16",
    out: Format = None,
    compute: Format = None,
) -> Ledger:
    """Any operation that treats elements alike: `flops` and `transcendentals` per element, `inputs` tensors read, `outputs` written.

    FLOP = elements · flops, in the result's format; bytes = passes · inputs · elements read, and outputs · elements written, in theirs.
    """
    if max(inputs, outputs) > MOST_TENSORS:
        raise FormulaError(f"elementwise: too many tensors; at most {MOST_TENSORS:,} inputs and as many outputs")
    operand, result = number(dtype), number(out, dtype)
    rows = (
        *(read(f"in{index}", (elements,), operand, passes=passes) for index in range(inputs)),
        *(write(f"out{index}", (elements,), result) for index in range(outputs)),
    )
    work = vector_work(elements * flops, elements * transcendentals, compute or result.name)
    return Ledger("elementwise", work, rows, operation=ALIKE)


def _pointwise(name: str, *aliases: str) -> Callable[..., Ledger]:
    """The formula of one operation of the table."""
    facts = POINTWISE[name]

    def operation(
        elements: Dim, *, dtype: Format = "bf16", out: Format = None, compute: Format = None, comparisons: bool = False
    ) -> Ledger:
        ledger = elementwise(
            elements,
            inputs=1 + facts.inputs,
            flops=facts.flops + facts.comparisons * comparisons,
            transcendentals=facts.transcendentals,
            dtype=dtype,
            out=out,
            compute=compute,
        )
        return ledger.named(name, facts.why, *((COMPARISONS,) if comparisons and facts.comparisons else ()))

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = f"{facts.why}.\n\n{_words(facts)}."
    return formula(name, group="pointwise", example=(2**24,), aliases=aliases)(operation)


def _words(facts: PerElement) -> str:
    roots = f"{facts.transcendentals} transcendental{'' if facts.transcendentals == 1 else 's'}"
    return f"{facts.flops} FLOP and {roots} per element, {1 + facts.inputs} read and 1 written"


cast = _pointwise("cast", "convert", "convert_element_type", "astype")
scale = _pointwise("scale")
bias = _pointwise("bias", "bias_add")
add = _pointwise("add", "residual", "aten::add")
sub = _pointwise("sub", "subtract")
mul = _pointwise("mul", "multiply")
div = _pointwise("div", "divide")
fma = _pointwise("fma", "addcmul")
square = _pointwise("square")
maximum = _pointwise("maximum")
relu = _pointwise("relu")
leaky_relu = _pointwise("leaky_relu")
exp = _pointwise("exp", "exponential")
log = _pointwise("log")
sqrt = _pointwise("sqrt")
rsqrt = _pointwise("rsqrt")
tanh = _pointwise("tanh")
erf = _pointwise("erf")
sigmoid = _pointwise("sigmoid", "logistic")
silu = _pointwise("silu", "swish")
softplus = _pointwise("softplus")
gelu = _pointwise("gelu", "gelu_tanh", "aten::gelu")
gelu_erf = _pointwise("gelu_erf")
swiglu = _pointwise("swiglu")
geglu = _pointwise("geglu")
rope = _pointwise("rope", "rotary_embedding")


@formula("dropout", group="pointwise", example=(2**28,))
def dropout(elements: Dim, *, dtype: Format = "bf16", out: Format = None, mask: Format = None, compute: Format = None) -> Ledger:
    """x times 0 or 1/keep: 1 FLOP per element; a mask kept for the backward pass is one more tensor written.

    bytes = elements read and written; with `mask`, also elements of that format written. Random numbers are not counted.
    """
    operand, facts = number(dtype), POINTWISE["dropout"]
    kept = (write("mask", (elements,), mask),) if mask else ()
    result = number(out, dtype)
    rows = (read("x", (elements,), operand), write("out", (elements,), result), *kept)
    return Ledger("dropout", vector_work(elements * facts.flops, 0, compute or result.name), rows, (facts.why,), operation=ALIKE)
