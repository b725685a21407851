"""Counting pairs of integers whose weighted sum lies in a range and is divisible, in time logarithmic in the numbers."""

from math import gcd

Line = tuple[int, int]  # (a, b) is the line a + b·u


def points(stride: int, dilation: int, low: int, base: int, outs: int, taps: int, last: int) -> int:
    """Pairs 0 ≤ o < outs, 0 ≤ j < taps for which x = o·stride + j·dilation − low is a multiple of ``base`` and 0 ≤ x ≤ last.

    >>> points(1, 1, 0, 1, 5, 3, 4), points(2, 3, 1, 2, 10, 10, 12)
    (12, 9)
    """
    if outs <= 0 or taps <= 0 or last < 0:
        return 0
    shared = gcd(stride, base)
    # o·stride ≡ low − j·dilation has solutions where that is a multiple of what stride and base share: at every ``jump``-th tap.
    common = gcd(dilation, shared)
    if low % common:
        return 0
    jump = shared // common
    first = low // common * pow(dilation // common, -1, jump) % jump if jump > 1 else 0
    period = base // shared
    inverse = pow(stride // shared, -1, period) if period > 1 else 0
    # With j = first + jump·u the outputs are o = start + turn·u + period·v for whole v.
    start = (low - first * dilation) // shared * inverse % period if period > 1 else 0
    turn = -(jump * dilation // shared) * inverse % period if period > 1 else 0
    count = -(-(taps - first) // jump)
    scale = stride * period
    offset, slope = stride * start + dilation * first - low, stride * turn + dilation * jump
    lowers = [(-start * stride, -turn * stride), (-offset, -slope)]
    uppers = [((outs - 1 - start) * stride, -turn * stride), (last - offset, -slope)]
    return _between(lowers, uppers, scale, count)


def _between(lowers: list[Line], uppers: list[Line], scale: int, count: int) -> int:
    """Whole v with every lower ≤ scale·v ≤ every upper, summed over 0 ≤ u < count."""
    begin, end = 0, count
    for low in lowers:
        for high in uppers:
            begin, end = _where_not_negative((high[0] - low[0], high[1] - low[1]), begin, end)
    total, at = 0, begin
    while at < end:
        # The tightest bounds at this u, and how far they stay the tightest. Of bounds that are equal here, the slope decides.
        low = max(lowers, key=lambda line: (line[0] + line[1] * at, line[1]))
        high = min(uppers, key=lambda line: (line[0] + line[1] * at, line[1]))
        stop = end
        for other in lowers:
            _, stop = _where_not_negative((low[0] - other[0], low[1] - other[1]), at, stop)
        for other in uppers:
            _, stop = _where_not_negative((other[0] - high[0], other[1] - high[1]), at, stop)
        total += _sum(high, scale, at, stop) + _sum((-low[0], -low[1]), scale, at, stop) + stop - at
        at = stop
    return total


def _where_not_negative(line: Line, begin: int, end: int) -> tuple[int, int]:
    """The part of begin ≤ u < end in which a + b·u ≥ 0."""
    a, b = line
    if b > 0:
        return max(begin, -(a // b)), end
    if b < 0:
        return begin, min(end, a // -b + 1)
    return (begin, end) if a >= 0 else (begin, begin)


def _sum(line: Line, scale: int, begin: int, end: int) -> int:
    """The sum of ⌊(a + b·u) / scale⌋ over begin ≤ u < end, which may be empty."""
    return floor_sum(end - begin, scale, line[1], line[0] + line[1] * begin) if end > begin else 0


def floor_sum(count: int, scale: int, slope: int, offset: int) -> int:
    """The sum of ⌊(offset + slope·u) / scale⌋ over 0 ≤ u < count, by Euclid's algorithm on slope and scale.

    >>> floor_sum(4, 3, 2, 1), sum((1 + 2 * u) // 3 for u in range(4))
    (4, 4)
    """
    total = 0
    while count > 0:
        total += (count - 1) * count // 2 * (slope // scale) + count * (offset // scale)
        slope, offset = slope % scale, offset % scale
        top = slope * count + offset
        if top < scale:
            break
        count, offset = top // scale, top % scale
        slope, scale = scale, slope
    return total
