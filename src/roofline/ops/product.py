"""Products: their FLOP between real and complex numbers."""

from fractions import Fraction
from typing import TypeVar

from ..dtypes import DType

Size = TypeVar("Size", int, Fraction, int | float | Fraction)


def real_flops(multiply_adds: Size, *factors: DType) -> Size:
    """2 FLOP for a multiply and an add, 8 between complex numbers: 6 to multiply and 2 to add.

    >>> from roofline.dtypes import dtype
    >>> real_flops(10, dtype("bf16")), real_flops(10, dtype("fp32"), dtype("complex64"))
    (20, 80)
    """
    return multiply_adds * (8 if any(number.is_complex for number in factors) else 2)
