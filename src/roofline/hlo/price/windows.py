"""Sliding windows: how many pairs of an output and a tap meet an input that exists, along one dimension.

Output o and tap j meet position o·stride − low + j·dilation of the input after dilation, where every base_dilation-th position is an
element and the others are holes. Padding and holes are not counted; negative padding cuts inputs off.
"""

from math import gcd

from ...errors import FormulaError
from ...formulas.convolution import Axis
from ..ir.attributes import WindowDimension

MOST_STEPS = 2**22  # taps or outputs that are worth walking one by one; no program has windows as long


def pairs(window: WindowDimension, size: int, out: int) -> int:
    """Pairs of an output and a tap whose input exists.

    >>> pairs(WindowDimension(3, 1, 1, 1), 5, 5), pairs(WindowDimension(3, 1, 2, 2, base_dilation=2), 3, 7)
    (13, 9)
    """
    _check(window)
    if window.stride == window.base_dilation == window.window_dilation == 1:
        # o + j − low runs over a rectangle; those below a bound are two triangles less two.
        return _below(size + window.low, out, window.size) - _below(window.low, out, window.size)
    if window.size > MOST_STEPS:
        raise FormulaError(f"a window of {window.size:,} taps is too large to count")
    if window.base_dilation == 1:
        return _axis(window, size).taps
    return sum(_met(window, tap, size, out) for tap in range(window.size))


def pairs_within(window: WindowDimension, size: int, outputs: range) -> int:
    """Pairs of one of these outputs and a tap whose input exists."""
    _check(window)
    if len(outputs) * (window.size if window.base_dilation > 1 else 1) > MOST_STEPS:
        raise FormulaError(f"{len(outputs):,} windows of {window.size:,} taps are too many to count")
    return sum(_taps_at(window, size, place) for place in outputs)


def touched(window: WindowDimension, size: int, out: int) -> int:
    """Inputs that some window meets: all of them, unless windows step over some or padding cuts some off."""
    _check(window)
    if window.base_dilation > 1:
        cut = sum(-(-max(0, -pad) // window.base_dilation) for pad in (window.low, window.high))
        return max(0, size - cut)
    if window.size > MOST_STEPS:
        return size
    return _axis(window, size).touched


def met(window: WindowDimension, size: int, out: int) -> int:
    """Outputs whose window meets an input: all of them, unless padding is as long as the window."""
    _check(window)
    reach = (window.size - 1) * window.window_dilation
    plain = window.window_dilation == window.base_dilation == 1
    if size and plain and window.low <= reach and window.high <= reach:
        return out
    if out * window.size > MOST_STEPS:
        raise FormulaError(f"{out:,} windows of {window.size:,} taps are too many to count")
    return sum(_meets(place * window.stride - window.low, window, size) for place in range(out))


def _check(window: WindowDimension) -> None:
    if window.size < 0 or window.stride < 1 or window.base_dilation < 1 or window.window_dilation < 1:
        raise FormulaError(
            f"a window of size {window.size}, stride {window.stride} and dilations {window.base_dilation} and {window.window_dilation}"
        )


def _below(bound: int, columns: int, rows: int) -> int:
    """Pairs of 0 <= o < columns and 0 <= j < rows with o + j < bound."""
    return _triangle(bound) - _triangle(bound - columns) - _triangle(bound - rows) + _triangle(bound - columns - rows)


def _triangle(side: int) -> int:
    return side * (side + 1) // 2 if side > 0 else 0


def _axis(window: WindowDimension, size: int) -> Axis:
    """The window as a convolution's axis; what negative padding cuts off is no input."""
    return Axis(
        size=max(0, size + min(0, window.low) + min(0, window.high)),
        kernel=window.size,
        stride=window.stride,
        low=max(0, window.low),
        high=max(0, window.high),
        dilation=window.window_dilation,
    )


def _met(window: WindowDimension, tap: int, size: int, out: int) -> int:
    """Outputs that meet an element, not a hole, at this tap."""
    shift = tap * window.window_dilation - window.low
    shared = gcd(window.stride, window.base_dilation)
    if shift % shared or not size:
        return 0
    period = window.base_dilation // shared
    # o·stride + shift must be a multiple of base_dilation.
    first = -(shift // shared) * pow(window.stride // shared, -1, period) % period if period > 1 else 0
    low = max(0, -(shift // window.stride))
    high = min(out - 1, ((size - 1) * window.base_dilation - shift) // window.stride)
    first += -(-max(0, low - first) // period) * period
    return max(0, (high - first) // period + 1)


def _taps_at(window: WindowDimension, size: int, place: int) -> int:
    """Taps of one output whose input exists."""
    first, step = place * window.stride - window.low, window.window_dilation
    if window.base_dilation > 1:
        last = (size - 1) * window.base_dilation
        return sum(0 <= (at := first + tap * step) <= last and at % window.base_dilation == 0 for tap in range(window.size))
    low, high = max(0, -(first // step)), min(window.size - 1, (size - 1 - first) // step)
    return max(0, high - low + 1)


def _meets(first: int, window: WindowDimension, size: int) -> bool:
    positions = range(first, first + (window.size - 1) * window.window_dilation + 1, window.window_dilation)
    step = window.base_dilation
    return any(position % step == 0 and 0 <= position <= (size - 1) * step for position in positions)
