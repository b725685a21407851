"""Fourier transforms: the usual estimate of their FLOP."""

from fractions import Fraction
from math import log2


def flops(transforms: int, points: int, real: bool) -> int:
    """5 · n · log₂ n for each complex transform of n points, half of it if one side is real.

    >>> flops(3, 8, real=False), flops(3, 8, real=True), flops(3, 1, real=False)
    (360, 180, 0)
    """
    whole = 5 * transforms * points * Fraction(log2(points) if points > 1 else 0)
    return round(whole / 2 if real else whole)
