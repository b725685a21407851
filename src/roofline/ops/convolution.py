"""Convolutions and other sliding windows: how many pairs of an output and a tap read an input that exists, along one dimension.

Output o and tap j read position o·stride − low + j·dilation of the dilated input, where every base_dilation-th position is an element and
the others are holes. Padding and holes are not counted; negative padding removes inputs.
"""

from math import gcd

from msgspec import Struct

from ..errors import FormulaError
from .integer_pairs import points
from .product import Size


class WindowDimension(Struct, frozen=True):
    """One dimension of a sliding window. Padding may be negative; dilation d puts d - 1 holes between elements."""

    size: int
    stride: int = 1
    low: int = 0
    high: int = 0
    base_dilation: int = 1
    window_dilation: int = 1
    reversed: bool = False


def multiply_adds(images: Size, features: Size, taps: int) -> Size:
    """Images · (input channels of a group · output channels) · valid taps, which is the product of those along each dimension.

    The gradients of the input and of the weights do the same multiplications.
    """
    return images * features * taps


def pairs(window: WindowDimension, size: int, out: int) -> int:
    """Pairs of an output and a tap whose input exists.

    >>> pairs(WindowDimension(3, 1, 1, 1), 5, 5), pairs(WindowDimension(3, 1, 2, 2, base_dilation=2), 3, 7)
    (13, 9)
    """
    _check(window)
    return _hits(window, window.stride, window.low, out, window.size, (size - 1) * window.base_dilation)


def pairs_within(window: WindowDimension, size: int, outputs: range) -> int:
    """Pairs of one of these outputs and a tap whose input exists."""
    _check(window)
    stride, low = window.stride * outputs.step, window.low - window.stride * outputs.start
    return _hits(window, stride, low, len(outputs), window.size, (size - 1) * window.base_dilation)


def inputs_read(window: WindowDimension, size: int, out: int) -> int:
    """Inputs that some window reads: all of them, unless windows skip some or negative padding removes some."""
    _check(window)
    if window.base_dilation > 1:
        cut = sum(-(-max(0, -pad) // window.base_dilation) for pad in (window.low, window.high))
        return max(0, size - cut)
    # The pairs that read one input form a chain: each is a fixed number of outputs later and taps earlier. The ends of chains are counted.
    shared = gcd(window.stride, window.window_dilation)
    later, earlier = window.window_dilation // shared, window.stride // shared
    going_on = _hits(window, window.stride, window.low - earlier * window.window_dilation, out - later, window.size - earlier, size - 1)
    return _hits(window, window.stride, window.low, out, window.size, size - 1) - going_on


def outputs_with_input(window: WindowDimension, size: int, out: int) -> int:
    """Outputs whose window reads an input: all of them, unless padding is as long as the window."""
    _check(window)
    # The inputs of one output are a fixed number of taps apart; the last input of each output is counted.
    step = window.base_dilation // gcd(window.base_dilation, window.window_dilation)
    last = (size - 1) * window.base_dilation
    going_on = _hits(window, window.stride, window.low, out, window.size - step, last - step * window.window_dilation)
    return _hits(window, window.stride, window.low, out, window.size, last) - going_on


def whole_windows(window: WindowDimension, size: int, out: int) -> int:
    """Outputs whose window reads every input: XLA for TPUs writes the sum of a row, kept for each of its elements, as such windows.

    >>> whole_windows(WindowDimension(15, 1, 7, 7), 8, 8), whole_windows(WindowDimension(3, 1, 1, 1), 8, 8)
    (8, 0)
    """
    _check(window)
    if size < 2 or window.base_dilation > 1 or window.window_dilation > 1:
        return 0
    first = max(0, -(-(window.low + size - window.size) // window.stride))
    last = min(out - 1, window.low // window.stride)
    return max(0, last - first + 1)


def _hits(window: WindowDimension, stride: int, low: int, outs: int, taps: int, last: int) -> int:
    """Pairs of 0 ≤ o < outs and 0 ≤ j < taps whose position o·stride − low + j·dilation is an element between 0 and ``last``."""
    return points(stride, window.window_dilation, low, window.base_dilation, outs, taps, last)


def _check(window: WindowDimension) -> None:
    if window.size < 0 or window.stride < 1 or window.base_dilation < 1 or window.window_dilation < 1:
        raise FormulaError(
            f"a window of size {window.size}, stride {window.stride} and dilations {window.base_dilation} and {window.window_dilation}"
        )


class Axis(Struct, frozen=True, kw_only=True):
    """One spatial axis: its size and how the kernel moves along it; ``low`` and ``high`` are the padding on either side."""

    size: int
    kernel: int
    stride: int = 1
    low: int = 0
    high: int = 0
    dilation: int = 1

    @classmethod
    def same(cls, size: int, kernel: int, stride: int = 1, dilation: int = 1) -> "Axis":
        """An axis padded so that its output has ceil(size/stride) positions; an odd zero is at the end."""
        reach = (-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1
        total = max(0, reach - size)
        return cls(size=size, kernel=kernel, stride=stride, low=total // 2, high=total - total // 2, dilation=dilation)

    @property
    def out(self) -> int:
        """Output positions; 0 if the kernel is longer than the padded input."""
        return max(0, (self.size + self.low + self.high - (self.kernel - 1) * self.dilation - 1) // self.stride + 1)

    @property
    def _window(self) -> WindowDimension:
        return WindowDimension(self.kernel, self.stride, self.low, self.high, window_dilation=self.dilation)

    @property
    def taps(self) -> int:
        """Pairs of an output and a tap whose input exists."""
        return pairs(self._window, self.size, self.out)

    @property
    def inputs_read(self) -> int:
        """Inputs that some pair needs: all of them, unless the stride skips some."""
        return inputs_read(self._window, self.size, self.out)
