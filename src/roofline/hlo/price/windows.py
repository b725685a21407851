"""Sliding windows: how many pairs of an output and a tap meet an input that exists, along one dimension.

Output o and tap j meet position o·stride − low + j·dilation of the input after dilation, where every base_dilation-th position is an
element and the others are holes. Padding and holes are not counted; negative padding cuts inputs off.
"""

from math import gcd

from ...errors import FormulaError
from ..ir.attributes import WindowDimension
from .lattice import points


def pairs(window: WindowDimension, size: int, out: int) -> int:
    """Pairs of an output and a tap whose input exists.

    >>> pairs(WindowDimension(3, 1, 1, 1), 5, 5), pairs(WindowDimension(3, 1, 2, 2, base_dilation=2), 3, 7)
    (13, 9)
    """
    return pairs_within(window, size, range(out))


def pairs_within(window: WindowDimension, size: int, outputs: range) -> int:
    """Pairs of one of these outputs and a tap whose input exists."""
    _check(window)
    stride, low = window.stride * outputs.step, window.low - window.stride * outputs.start
    return _hits(window, stride, low, len(outputs), window.size, (size - 1) * window.base_dilation)


def touched(window: WindowDimension, size: int, out: int) -> int:
    """Inputs that some window meets: all of them, unless windows step over some or padding cuts some off."""
    _check(window)
    if window.base_dilation > 1:
        cut = sum(-(-max(0, -pad) // window.base_dilation) for pad in (window.low, window.high))
        return max(0, size - cut)
    # Pairs that meet one input form a chain: so many outputs later, so many taps earlier. Those that end a chain are counted.
    shared = gcd(window.stride, window.window_dilation)
    later, earlier = window.window_dilation // shared, window.stride // shared
    going_on = _hits(
        window,
        window.stride,
        window.low - earlier * window.window_dilation,
        out - later,
        window.size - earlier,
        size - 1,
    )
    return _hits(window, window.stride, window.low, out, window.size, size - 1) - going_on


def met(window: WindowDimension, size: int, out: int) -> int:
    """Outputs whose window meets an input: all of them, unless padding is as long as the window."""
    _check(window)
    # The inputs that one output meets are so many taps apart; the last of them are counted.
    step = window.base_dilation // gcd(window.base_dilation, window.window_dilation)
    last = (size - 1) * window.base_dilation
    going_on = _hits(window, window.stride, window.low, out, window.size - step, last - step * window.window_dilation)
    return _hits(window, window.stride, window.low, out, window.size, last) - going_on


def _hits(window: WindowDimension, stride: int, low: int, outs: int, taps: int, last: int) -> int:
    """Pairs of 0 ≤ o < outs and 0 ≤ j < taps whose position o·stride − low + j·dilation is an element between 0 and ``last``."""
    return points(stride, window.window_dilation, low, window.base_dilation, outs, taps, last)


def _check(window: WindowDimension) -> None:
    if window.size < 0 or window.stride < 1 or window.base_dilation < 1 or window.window_dilation < 1:
        raise FormulaError(
            f"a window of size {window.size}, stride {window.stride} and dilations {window.base_dilation} and {window.window_dilation}"
        )
