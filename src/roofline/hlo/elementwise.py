"""Elementwise opcodes: what each does to one element, and under which convention.

A multiply, an add or a division is 1 FLOP on the vector unit, in the number format of the result; integers count too, in theirs. A
comparison, a selection, a sign flip, a conversion or a rounding is none, nor is logic between truth values. A transcendental is 1
on ``vector/transcendental``. XLA's own cost analysis counts every one of these as 1: `CONVENTIONS` names the difference, opcode by
opcode.
"""

from functools import cache

from ..cost import Cost
from ..dtypes import DType
from ..formulas.chains import POINTWISE
from ..resource import TRANSCENDENTAL, Resource, vector
from ..value import value
from .bill import Site
from .shapes import Shape
from .work import NO_WORK, Inner, Work


@value(kw_only=False)
class PerElement:
    """FLOP and transcendentals an element."""

    flops: int = 0
    transcendentals: int = 0


_FREE = PerElement()
_ONE = PerElement(1)
_ROOT = PerElement(0, 1)
_SIGMOID = PerElement(POINTWISE["sigmoid"].flops, POINTWISE["sigmoid"].transcendentals)

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

# Why our count of an opcode differs from XLA's, which is 1 an element: the name of the convention in docs/hlo.md.
CONVENTIONS: dict[str, str] = {
    **dict.fromkeys(COMPARISONS, "comparisons"),
    **dict.fromkeys(SIGNS, "signs"),
    **dict.fromkeys(CONVERSIONS, "conversions"),
    "logistic": "logistic",
}
PREDICATES = "predicates"  # logic between truth values, for opcodes that are arithmetic on integers
COMPLEX = "complex"  # a complex operation is several real ones

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


def per_element(opcode: str, shape: Shape) -> PerElement:
    """What an elementwise opcode does to make one element of an array of this number format."""
    if shape.dtype == "pred":
        return _FREE
    if shape.dtype in ("c64", "c128"):
        return _COMPLEX.get(opcode, _COMPLEX_ROOT if opcode in TRANSCENDENTALS else _FREE)
    if opcode == "logistic":
        return _SIGMOID
    if opcode in TRANSCENDENTALS or opcode in SPECIAL:
        return _ROOT
    return _ONE if opcode in ARITHMETIC or opcode in BITS else _FREE


def elementwise(site: Site, inner: Inner) -> Work:
    """As many FLOP and transcendentals an element as `per_element` says."""
    shape = site.instruction.shape
    opcode = site.instruction.opcode
    each = per_element(opcode, shape)
    if opcode == "abs" and site.operands and site.operands[0].shape.dtype in ("c64", "c128"):
        each = _COMPLEX["abs"]  # whose result is real
    if each is _FREE:
        return NO_WORK
    elements = shape.elements
    return Work(Cost.of({_unit(shape.number): each.flops * elements, TRANSCENDENTAL: each.transcendentals * elements}))


@cache
def _unit(number: DType) -> Resource:
    return vector(number)
