"""Sliding windows along one dimension, against walking over every pair of an output and a tap."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from roofline.errors import FormulaError
from roofline.ops.convolution import WindowDimension, inputs_read, outputs_with_input, pairs, pairs_within, whole_windows

SMALL = st.integers(1, 4)


@st.composite
def windows(draw: st.DrawFn) -> tuple[WindowDimension, int, int]:
    """A window, the size of its input, and how many outputs it makes."""
    size, taps = draw(st.integers(1, 9)), draw(st.integers(1, 5))
    pad = st.integers(-3, 6)
    window = WindowDimension(taps, draw(SMALL), draw(pad), draw(pad), draw(SMALL), draw(SMALL))
    padded = (size - 1) * window.base_dilation + 1 + window.low + window.high
    reach = (taps - 1) * window.window_dilation + 1
    assume(padded >= reach)
    return window, size, (padded - reach) // window.stride + 1


def walked(window: WindowDimension, size: int, place: int) -> list[int]:
    """The inputs that one output meets, one by one."""
    positions = (place * window.stride - window.low + tap * window.window_dilation for tap in range(window.size))
    return [at // window.base_dilation for at in positions if at % window.base_dilation == 0 and 0 <= at // window.base_dilation < size]


@given(windows())
def test_pairs_are_those_one_meets_on_the_way(case: tuple[WindowDimension, int, int]) -> None:
    window, size, out = case
    each = [walked(window, size, place) for place in range(out)]
    assert pairs(window, size, out) == sum(map(len, each))
    assert pairs_within(window, size, range(out)) == pairs(window, size, out)
    assert outputs_with_input(window, size, out) == sum(map(bool, each))
    inputs = len({place for places in each for place in places})
    # With holes between the inputs the count may over-state, never under-state.
    assert inputs_read(window, size, out) == inputs or (window.base_dilation > 1 and inputs_read(window, size, out) > inputs)


def test_reversing_a_window_changes_nothing() -> None:
    plain = WindowDimension(3, 2, 1, 2)
    turned = WindowDimension(3, 2, 1, 2, reversed=True)
    assert pairs(plain, 9, 5) == pairs(turned, 9, 5)


def test_a_window_as_long_as_memory_is_counted_at_once() -> None:
    # A running total over 2^40 elements: the first output meets one input, the last all of them.
    size = 2**40
    assert pairs(WindowDimension(size, 1, size - 1, 0), size, size) == size * (size + 1) // 2


def test_windows_that_do_not_move_are_refused() -> None:
    with pytest.raises(FormulaError, match="stride 0"):
        pairs(WindowDimension(3, 0), 9, 5)


@given(st.integers(0, 6), st.integers(1, 4), st.integers(-3, 5), st.integers(1, 4), st.integers(1, 4), st.integers(0, 8), st.integers(0, 8))
def test_every_window_is_counted_as_if_walked(size: int, stride: int, low: int, base: int, dilation: int, inputs: int, out: int) -> None:
    window = WindowDimension(size, stride, low, 0, base, dilation)
    places = {
        (o, j): o * stride - low + j * dilation
        for o in range(out)
        for j in range(size)
        if 0 <= o * stride - low + j * dilation <= (inputs - 1) * base and (o * stride - low + j * dilation) % base == 0
    }
    assert pairs(window, inputs, out) == len(places)
    assert outputs_with_input(window, inputs, out) == len({o for o, _ in places})
    assert base > 1 or inputs_read(window, inputs, out) == len({*places.values()})
    whole = sum({places[o, j] for j in range(size) if (o, j) in places} == {*range(inputs)} for o in range(out))
    assert whole_windows(window, inputs, out) == (whole if inputs > 1 and base == dilation == 1 else 0)
    assert pairs_within(window, inputs, range(1, out, 2)) == sum(o % 2 for o, _ in places)


def test_windows_of_any_length_are_counted_at_once() -> None:
    # A file may claim any size; walking this one would take longer than the universe has lasted.
    huge = WindowDimension(10**17, 3, 5, 5, 7, 11)
    assert pairs(huge, 10**18, 10**17) > outputs_with_input(huge, 10**18, 10**17) > 0
