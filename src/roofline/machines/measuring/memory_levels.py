"""Plateaus in a sweep over working-set sizes: the memory levels that a device's bandwidth shows.

The logarithms of the rates are fitted by segments of constant rate, with a penalty per segment, so that noise creates no level. A segment
that is slower than a later one (of larger sizes) is a start-up cost, not a level, and one that is not flat is a transition between two
levels. A level's capacity is the size at which the rate is half-way, in logarithms, to that of the next level. That is right for LRU
caches: a set that is read repeatedly fits, or misses completely. Other caches, such as those of GPUs, miss only in part, and the rate falls
over a doubling or two of the size. For these, `Plateau.serves` is the number of bytes served by the level: the share of a working set that
follows from its time, which is between those at the two rates.
"""

import math
from collections.abc import Sequence
from statistics import median

from msgspec import Struct

PENALTY = 0.02  # penalty of a segment, in squared logarithms: three sizes that are 8% off
LEAST = 3  # sizes in a segment
APART = 1.25  # least ratio of a level's rate to that of the next slower level
HALF = 0.5  # of a working set
STEEP = 0.25  # change of the rate's logarithm per doubling of the size: a steeper segment is not a level


class Plateau(Struct, frozen=True):
    """A memory level: its rate in B/s, and the smallest and the largest working set on it.

    ``holds`` is its capacity from where the rate falls, ``serves`` the most bytes of a working set that it serves; both ``None`` for the
    last level.
    """

    rate: float
    first: float
    last: float
    holds: float | None
    serves: float | None = None


def plateaus(points: Sequence[tuple[float, float]], most: int | None = None) -> tuple[Plateau, ...]:
    """The levels in a sweep of (bytes, B/s), the innermost first.

    If there are more than ``most``, the neighbours that differ least are merged, because a computer may be busy for a while.

    >>> levels = plateaus([(2.0**n, 9e12 if n < 26 else 4e12) for n in range(20, 33)])
    >>> [(level.rate, level.holds) for level in levels]
    [(9000000000000.0, 47453132.81212578), (4000000000000.0, None)]
    """
    ordered = sorted(dict(points).items())  # unique sizes
    segments = _segments([math.log(rate) for _, rate in ordered])
    levels: list[tuple[int, int, float]] = []
    for start, end in reversed(segments):  # from the largest sizes inwards: each level is faster than all larger ones
        rate = median(each for _, each in ordered[start:end])
        if not levels or (rate > APART * levels[0][2] and _slope(ordered[start:end]) < STEEP):
            levels.insert(0, (start, end, rate))
    while most and len(levels) > most:
        closest = min(range(len(levels) - 1), key=lambda place: levels[place][2] / levels[place + 1][2])
        start, end = levels[closest][0], levels[closest + 1][1]
        levels[closest : closest + 2] = [(start, end, median(each for _, each in ordered[start:end]))]
    found = []
    for place, (start, end, rate) in enumerate(levels):
        slower = levels[place + 1] if place + 1 < len(levels) else None
        holds = _falls(ordered, start, math.sqrt(rate * slower[2])) if slower else None
        serves = _serves(ordered[start:], rate, slower[2]) if slower else None
        found.append(Plateau(rate, ordered[start][0], ordered[end - 1][0], holds, serves))
    return tuple(found)


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """The change of the rate's logarithm per doubling of the size, from the first half of a segment to the second."""
    if len(points) == 1:
        return 0.0
    halves = points[: len(points) // 2], points[len(points) // 2 :]
    (size, rate), (next_size, next_rate) = ((median(one[0] for one in half), median(one[1] for one in half)) for half in halves)
    return abs(math.log(next_rate / rate)) / math.log2(next_size / size)


def _segments(values: Sequence[float]) -> list[tuple[int, int]]:
    """The segmentation with the least squared deviation plus penalties."""
    best = [0.0] + [math.inf] * len(values)
    came_from = [0] * (len(values) + 1)
    for end in range(1, len(values) + 1):
        for start in range(end):
            if end - start < min(LEAST, len(values)):
                continue
            middle = median(values[start:end])
            penalized = best[start] + PENALTY + sum((value - middle) ** 2 for value in values[start:end])
            if penalized < best[end]:
                best[end], came_from[end] = penalized, start
    cuts, end = [], len(values)
    while end:
        cuts.append((came_from[end], end))
        end = came_from[end]
    return cuts[::-1]


def _falls(points: Sequence[tuple[float, float]], start: int, half_way: float) -> float:
    """The size at which the rate falls below ``half_way`` for good, between two sizes of the sweep."""
    last = max(place for place in range(start, len(points)) if points[place][1] >= half_way)
    (size, rate), (next_size, next_rate) = points[last], points[min(last + 1, len(points) - 1)]
    if next_rate >= rate or next_size == size:
        return size
    share = math.log(rate / half_way) / math.log(rate / next_rate)
    return float(size * (next_size / size) ** share)


def _serves(points: Sequence[tuple[float, float]], rate: float, next_rate: float) -> float:
    """The most bytes of a working set that a level with this rate serves, while the rest comes from the next level.

    Only sets with at least half from this level count: for far larger ones, noise would dominate.
    """
    shares = [(size, min(1.0, (1 / next_rate - 1 / measured) / (1 / next_rate - 1 / rate))) for size, measured in points]
    return max(share * size for size, share in shares if share >= HALF)
