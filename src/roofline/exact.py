"""Exact numbers: integers as long as they go, then fractions, never rounded on the way.

A fraction is a `fractions.Fraction`. Importing that takes two milliseconds, a fiftieth of a short command, and most programs have
whole amounts alone, so it is imported when the first one is made.

>>> part_of(6, 1, 3), part_of(1, 2, 3)
(2, Fraction(2, 3))
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fractions import Fraction
    from typing import TypeGuard

    Amount = int | float | Fraction
else:
    Amount = int | float  # or a fraction


def is_fraction(number: object) -> "TypeGuard[Fraction]":
    """Whether a number is a fraction; there is none before the module of fractions was imported."""
    fractions = sys.modules.get("fractions")
    return fractions is not None and isinstance(number, fractions.Fraction)


def is_amount(number: object) -> "TypeGuard[Amount]":
    """Whether something can be an amount."""
    return isinstance(number, (int, float)) or is_fraction(number)


def part_of(amount: Amount, count: float, of: float) -> Amount:
    """An amount times a count of so many, exactly: a whole number where it is one."""
    if isinstance(amount, int) and isinstance(count, int) and isinstance(of, int):
        whole, rest = divmod(amount * count, of)
        if not rest:
            return whole
    from fractions import Fraction

    return amount * (Fraction(count) / Fraction(of))


def tidy(amount: Amount) -> Amount:
    """The same number, as an int when it is a whole fraction.

    >>> from fractions import Fraction
    >>> tidy(Fraction(6, 2)), tidy(Fraction(1, 2)), tidy(2.0)
    (3, Fraction(1, 2), 2.0)
    """
    if isinstance(amount, (int, float)):
        return amount
    return amount.numerator if amount.denominator == 1 else amount
