"""Elementwise opcodes: FLOP and transcendentals per element, and the convention for counting them.

A multiply, an add or a division is 1 FLOP on the vector unit, in the number format of the result; integers count too, in theirs. A
comparison, a selection, a sign flip, a conversion or a rounding is 0 FLOP, and so is logic between booleans. A transcendental is 1 on
``vector/transcendental``. XLA's own cost analysis counts each of these as 1: docs/hlo.md explains each difference.
"""

from functools import cache

from msgspec import Struct

from ...cost import Amount, Cost
from ...formulas.pointwise_counts import POINTWISE
from ...resource import TRANSCENDENTAL, Resource, vector
from ..ir.module import Computation, Instruction
from ..ir.shapes import Shape
from .types import Site
from .work import NO_WORK, Inner, Work

Amounts = tuple[tuple[Resource, Amount], ...]


class PerElement(Struct, frozen=True):
    """FLOP and transcendentals per element."""

    flops: int = 0
    transcendentals: int = 0


_FREE = PerElement()
_ONE = PerElement(1)
_ROOT = PerElement(0, 1)

_WORDS = {
    "arithmetic": "add subtract multiply divide remainder mulhi",
    "bits": "and or xor not shift-left shift-right-arithmetic shift-right-logical popcnt count-leading-zeros",
    "transcendentals": "acos acosh asin asinh atan2 atanh cbrt cosine cosh erf exponential exponential-minus-one log log-plus-one logistic "
    "power rsqrt sine sinh sqrt tan tanh",
    "comparisons": "compare select clamp maximum minimum is-finite",
    "signs": "negate abs sign",
    # Not opcodes of XLA, but of the CHLO dialect that StableHLO programs use.
    "special functions": "bessel-i1e digamma erf-inv erfc lgamma polygamma zeta",
    "special comparisons": "is-inf is-neg-inf is-pos-inf next-after",
    "conversions": "convert bitcast-convert reduce-precision stochastic-convert ceil floor round-nearest-afz round-nearest-even real imag "
    "complex",
}
ARITHMETIC, BITS, TRANSCENDENTALS, COMPARISONS, SIGNS, SPECIAL, SPECIAL_COMPARISONS, CONVERSIONS = (
    frozenset(words.split()) for words in _WORDS.values()
)
CHLO = SPECIAL | SPECIAL_COMPARISONS
ELEMENTWISE = ARITHMETIC | BITS | TRANSCENDENTALS | COMPARISONS | SIGNS | CONVERSIONS | CHLO

# Complex operations in real ones. Division multiplies by the conjugate (6), squares the modulus (3) and divides twice (2).
_COMPLEX = {
    "add": PerElement(2),
    "subtract": PerElement(2),
    "multiply": PerElement(6),
    "divide": PerElement(11),
    "abs": PerElement(3, 1),
    "exponential": PerElement(2, 3),
    "log": PerElement(3, 2),
}
_COMPLEX_ROOT = PerElement(0, 2)


def per_element(opcode: str, dtype: str) -> PerElement:
    """The work of an elementwise opcode per element of this number format."""
    if dtype == "pred":
        return _FREE
    if dtype in ("c64", "c128"):
        return _COMPLEX.get(opcode, _COMPLEX_ROOT if opcode in TRANSCENDENTALS else _FREE)
    if opcode == "logistic":
        return PerElement(POINTWISE["sigmoid"].flops, POINTWISE["sigmoid"].transcendentals)
    if opcode in TRANSCENDENTALS or opcode in SPECIAL:
        return _ROOT
    return _ONE if opcode in ARITHMETIC or opcode in BITS else _FREE


def each_element(computation: Computation, instruction: Instruction) -> Amounts:
    """The work of an elementwise instruction per element of its result; empty if it only compares or converts."""
    if instruction.opcode == "abs" and any(operand.shape.dtype in ("c64", "c128") for operand in computation.operands(instruction)[:1]):
        return _amounts("complex abs", instruction.shape.dtype)  # its result is real
    return _amounts(instruction.opcode, instruction.shape.dtype)


def elementwise(site: Site, inner: Inner) -> Work:
    """`per_element` times the elements of the result."""
    each = each_element(site.computation, site.instruction)
    if not each:
        return NO_WORK
    elements = site.instruction.shape.elements
    return Work(Cost(tuple((resource, amount * elements) for resource, amount in each) if elements else ()))


@cache
def _amounts(opcode: str, dtype: str) -> Amounts:
    """The work of an opcode per element, sorted by resource; cached, because a program repeats a few such pairs thousands of times."""
    each = _COMPLEX["abs"] if opcode == "complex abs" else per_element(opcode, dtype)
    if each is _FREE:
        return ()
    return Cost.of({vector(Shape(dtype).number): each.flops, TRANSCENDENTAL: each.transcendentals}).amounts
