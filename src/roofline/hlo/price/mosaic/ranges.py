"""Whole numbers over a grid: the least and the greatest value that a scalar of a kernel has in each step.

A `Range` has an axis for each dimension of the grid, of size 1 where the value does not depend on it; the axes of loops are before them.
Where the two ends are one array the value is known. Bounds stay within 32 bits, so that no sum or product of two overflows.
"""

from collections.abc import Callable
from functools import lru_cache
from math import prod

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
MOST_POINTS = 2**20  # of an array; a value that depends on more steps is known only by its bounds
LEAST, GREATEST = -(2**31), 2**31 - 1
_MANY = 2**12  # numbers for which a look at the extremes is faster than a new array


class Range(Struct, frozen=True):
    """The bounds of a whole number in each step. A ``coarse`` one has one pair for all steps, which are too many to tell apart."""

    low: Numbers
    high: Numbers
    coarse: bool = False

    @property
    def is_known(self) -> bool:
        return self.low is self.high

    @property
    def constant(self) -> int | None:
        """The value, if it is known and the same in all steps."""
        return int(self.low.flat[0]) if self.is_known and self.low.size == 1 else None

    @property
    def hull(self) -> "Range":
        """One bound for all steps."""
        if self.low.size == self.high.size == 1:
            return self
        return Range(np.array(self.low.min(initial=GREATEST)), np.array(self.high.max(initial=LEAST)), coarse=True)

    @property
    def shape(self) -> tuple[int, ...]:
        low, high = self.low.shape, self.high.shape
        return low if low == high else np.broadcast_shapes(low, high)


def _within(values: Numbers) -> Numbers:
    if values.size > _MANY and values.min() >= LEAST and values.max() <= GREATEST:
        return values
    return np.minimum(np.maximum(values, LEAST), GREATEST)  # np.clip takes three times as long for a few numbers


def known(values: Numbers) -> Range:
    within = _within(values)
    return Range(within, within)


@lru_cache(maxsize=1_000)
def constant(value: int) -> Range:
    within = np.array(min(max(value, LEAST), GREATEST), np.int64)
    return Range(within, within)


def unknown(shape: tuple[int, ...] = (), low: int = LEAST, high: int = GREATEST, *, coarse: bool = False) -> Range:
    """A value of which only bounds are known, but along which axes it may change."""
    return Range(np.full(shape, low, np.int64), np.full(shape, high, np.int64), coarse)


def bounded(low: Numbers, high: Numbers, *, coarse: bool = False) -> Range:
    low, high = _within(low), _within(high)
    return Range(low, low) if np.array_equal(low, high) else Range(low, high, coarse)


def fitted(*ranges: Range) -> tuple[Range, ...]:
    """The same, each with one bound for all steps if together they have too many."""
    if prod([factor.low.size * factor.high.size for factor in ranges]) <= MOST_POINTS:
        return ranges
    return (
        ranges
        if prod(np.broadcast_shapes(*[factor.shape for factor in ranges])) <= MOST_POINTS
        else tuple(factor.hull for factor in ranges)
    )


def joined(condition: Range, yes: Range, no: Range) -> Range:
    """One value or the other, by a condition that may be unknown."""
    if condition.constant is not None:
        return yes if condition.constant else no
    condition, yes, no = fitted(condition, yes, no)
    coarse = condition.coarse or yes.coarse or no.coarse
    if condition.is_known and yes.is_known and no.is_known:
        return known(np.where(condition.low != 0, yes.low, no.low))
    surely, never = condition.low > 0, condition.high < 1
    low = np.where(surely, yes.low, np.where(never, no.low, np.minimum(yes.low, no.low)))
    high = np.where(surely, yes.high, np.where(never, no.high, np.maximum(yes.high, no.high)))
    return bounded(low, high, coarse=coarse)


def _truncated(left: Numbers, right: Numbers) -> Numbers:
    """Division towards zero; by zero it gives zero."""
    whole = np.abs(left) // np.maximum(np.abs(right), 1)
    return np.where(right == 0, 0, np.where((left < 0) != (right < 0), -whole, whole))


def _remainder(left: Numbers, right: Numbers) -> Numbers:
    return left - _truncated(left, right) * right


def _shift(amount: Numbers) -> Numbers:
    return np.minimum(np.maximum(amount, 0), 31)


_EXACT: dict[str, Callable[[Numbers, Numbers], Numbers]] = {
    "addi": np.add,
    "subi": np.subtract,
    "muli": np.multiply,
    "divsi": _truncated,
    "divui": _truncated,
    "floordivsi": lambda left, right: np.where(right == 0, 0, left // np.where(right == 0, 1, right)),
    "ceildivsi": lambda left, right: np.where(right == 0, 0, -(-left // np.where(right == 0, 1, right))),
    "remsi": _remainder,
    "remui": _remainder,
    "minsi": np.minimum,
    "minui": np.minimum,
    "maxsi": np.maximum,
    "maxui": np.maximum,
    "andi": np.bitwise_and,
    "ori": np.bitwise_or,
    "xori": np.bitwise_xor,
    "shli": lambda left, right: np.left_shift(left, _shift(right)),
    "shrsi": lambda left, right: np.right_shift(left, _shift(right)),
    "shrui": lambda left, right: np.right_shift(np.where(left < 0, left + 2**32, left), _shift(right)),
}
_GROWING = ("minsi", "maxsi", "minui", "maxui", "addi")  # in both operands
_NEUTRAL = {"addi": 0, "subi": 0, "muli": 1, "divsi": 1, "divui": 1, "floordivsi": 1, "ceildivsi": 1, "shli": 0, "shrsi": 0, "shrui": 0}
_MIRRORED = ("addi", "muli")
# The predicates of arith.cmpi by their numbers: eq, ne, slt, sle, sgt, sge, and the last four without sign.
_PREDICATES = ("equal", "not_equal", *("less", "less_equal", "greater", "greater_equal") * 2)
_ORDERS = ("=", "<>", "<", "<=", ">", ">=")  # of the first number to the second, for which a comparison with sign holds
ARITHMETIC = frozenset(_EXACT)


def computed(name: str, left: Range, right: Range) -> Range:
    """An integer operation of the dialect arith. Adding 0 or multiplying by 1 gives the same object, so that equal bounds of loops show."""
    if _NEUTRAL.get(name) == right.constant is not None:
        return left
    if name in _MIRRORED and _NEUTRAL[name] == left.constant is not None:
        return right
    left, right = fitted(left, right)
    apply, coarse = _EXACT[name], left.coarse or right.coarse
    if left.is_known and right.is_known:
        return known(apply(left.low, right.low))
    if name in _GROWING:
        return bounded(apply(left.low, right.low), apply(left.high, right.high), coarse=coarse)
    if name == "subi":
        return bounded(left.low - right.high, left.high - right.low, coarse=coarse)
    is_flag = min(left.low.min(initial=0), right.low.min(initial=0)) >= 0 and max(left.high.max(initial=0), right.high.max(initial=0)) <= 1
    if is_flag and name in ("andi", "ori"):
        return bounded(apply(left.low, right.low), apply(left.high, right.high), coarse=coarse)
    if is_flag and name == "xori":
        return unknown(np.broadcast_shapes(left.shape, right.shape), 0, 1, coarse=coarse)
    if name == "muli" or (right.is_known and right.low.min(initial=1) > 0 and name not in ("andi", "ori", "xori", "remsi", "remui")):
        corners = [apply(ours, other) for ours in (left.low, left.high) for other in (right.low, right.high)]
        low, high = corners[0], corners[0]
        for corner in corners[1:]:
            low, high = np.minimum(low, corner), np.maximum(high, corner)
        return bounded(low, high, coarse=coarse)
    shape = np.broadcast_shapes(left.shape, right.shape)
    if name in ("remsi", "remui") and right.is_known and right.low.min(initial=1) > 0:
        most = int(right.low.max(initial=1)) - 1
        return unknown(shape, 0 if left.low.min(initial=0) >= 0 else -most, most, coarse=coarse)
    return unknown(shape, coarse=coarse)


def compared(predicate: int, left: Range, right: Range) -> Range:
    """A comparison of the dialect arith: 1, 0, or unknown."""
    name = _PREDICATES[predicate] if 0 <= predicate < len(_PREDICATES) else ""
    left, right = fitted(left, right)
    coarse = left.coarse or right.coarse
    if name and left.is_known and right.is_known:
        flags = getattr(np, name)(left.low, right.low).astype(np.int64)
        return Range(flags, flags)
    if name.startswith("greater"):
        left, right, name = right, left, name.replace("greater", "less")
    if name == "less":
        surely, possibly = left.high < right.low, left.low < right.high
    elif name == "less_equal":
        surely, possibly = left.high <= right.low, left.low <= right.high
    elif name:
        surely = (left.low == left.high) & (right.low == right.high) & (left.low == right.low)
        possibly = (left.low <= right.high) & (right.low <= left.high)
        if name == "not_equal":
            surely, possibly = ~possibly, ~surely
    else:
        return unknown(np.broadcast_shapes(left.shape, right.shape), 0, 1, coarse=coarse)
    return bounded(np.asarray(surely, np.int64), np.asarray(possibly, np.int64), coarse=coarse)


def implied(predicate: int, holds: bool, other: int) -> bool | None:
    """What another comparison of the same two numbers gives where one holds, or does not; ``None`` if it may give either."""
    if predicate == other:
        return holds
    if not (0 <= predicate < len(_ORDERS) and 0 <= other < len(_ORDERS)):
        return None
    possible = {order for order in "<=>" if (order in _ORDERS[predicate]) == holds}
    answers = {order in _ORDERS[other] for order in possible}
    return answers.pop() if len(answers) == 1 else None
