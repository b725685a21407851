"""Convolutions: valid taps against enumeration, and the identities with matmuls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline.errors import FormulaError
from roofline.formulas import Axis, conv1d, conv2d, conv3d, convolution, matmul


@st.composite
def axes(draw: st.DrawFn) -> Axis:
    return Axis(
        size=draw(st.integers(1, 20)),
        kernel=draw(st.integers(1, 6)),
        stride=draw(st.integers(1, 7)),
        low=draw(st.integers(0, 8)),
        high=draw(st.integers(0, 8)),
        dilation=draw(st.integers(1, 5)),
    )


def enumerated(axis: Axis) -> tuple[int, int, int]:
    """Outputs, valid pairs and touched inputs, one by one."""
    reach = (axis.kernel - 1) * axis.dilation
    starts = [start for start in range(-axis.low, axis.size + axis.high - reach) if (start + axis.low) % axis.stride == 0]
    met = [start + tap * axis.dilation for start in starts for tap in range(axis.kernel)]
    inside = [place for place in met if 0 <= place < axis.size]
    return len(starts), len(inside), len(set(inside))


@given(axes())
def test_taps_are_counted_as_if_one_by_one(axis: Axis) -> None:
    assert (axis.out, axis.taps, axis.inputs_read) == enumerated(axis)


@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 4), st.integers(1, 3))
def test_same_padding_keeps_the_size_over_the_stride(size: int, kernel: int, stride: int, dilation: int) -> None:
    assert Axis.same(size, kernel, stride, dilation).out == -(-size // stride)


def test_padding_is_not_multiplied() -> None:
    # Three taps over 5 inputs with one zero on either side: 5 outputs of 3 taps, less the two that fall on zeros.
    ledger = conv1d(1, 1, 1, 5, padding=1)
    assert ledger.cost.flops == 2 * 13
    assert conv1d(1, 1, 1, 5, same=True).cost == ledger.cost
    assert conv1d(1, 1, 1, 5).cost.flops == 2 * 3 * 3


def test_an_imagenet_layer() -> None:
    # 3 x 3 over 56 x 56, one zero around: 3·56 − 2 = 166 valid taps an axis.
    ledger = conv2d(32, 64, 64, 56, 56, padding=1)
    assert ledger.cost.flops == 2 * 32 * 64 * 64 * 166 * 166
    assert [row.shape for row in ledger.rows] == [(32, 64, 56, 56), (64, 64, 3, 3), (32, 64, 56, 56)]


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 64), st.integers(1, 64), st.integers(1, 64))
def test_a_kernel_of_one_is_a_matmul(batch: int, channels: int, out: int, height: int, width: int) -> None:
    assert conv2d(batch, channels, out, height, width, kernel=1).cost == matmul(batch * height * width, channels, out).cost


def test_a_stride_beyond_the_kernel_reads_only_what_it_needs() -> None:
    # Kernel 1, stride 2: a quarter of a 56 x 56 image.
    rows = conv2d(1, 64, 128, 56, 56, kernel=1, stride=2).rows
    assert rows[0].bytes == 2 * 64 * 28 * 28
    assert rows[2].bytes == 2 * 128 * 28 * 28


@every("direction", ["input-gradient", "weight-gradient"])
def test_gradients_do_the_same_multiplications(direction: str) -> None:
    forward = conv2d(8, 64, 128, 28, 28, padding=1)
    backward = conv2d(8, 64, 128, 28, 28, padding=1, direction=direction)  # type: ignore[arg-type]
    assert backward.work == forward.work
    assert backward.cost == forward.cost  # the same three tensors, one of them written


def test_groups_share_the_channels() -> None:
    # Depthwise: each output channel looks at one input channel.
    whole, depthwise = conv2d(1, 64, 64, 28, 28), conv2d(1, 64, 64, 28, 28, groups=64)
    assert depthwise.cost.flops == whole.cost.flops // 64  # type: ignore[operator]
    assert depthwise.rows[1].shape == (64, 1, 3, 3)
    with pytest.raises(FormulaError, match="64 in_channels cannot be divided among 5 groups"):
        conv2d(1, 64, 64, 28, 28, groups=5)


def test_one_two_and_three_axes_agree() -> None:
    line = conv1d(4, 8, 16, 32)
    flat = conv2d(4, 8, 16, 32, 1, kernel=3, kernel_width=1)
    deep = convolution(4, 8, 16, (Axis(size=32, kernel=3), Axis(size=1, kernel=1), Axis(size=1, kernel=1)))
    assert line.cost == flat.cost == deep.cost
    assert conv3d(1, 1, 1, 3, 3, 3).cost.flops == 2 * 27


def test_a_kernel_longer_than_its_input_is_refused() -> None:
    with pytest.raises(FormulaError, match="conv1d: the kernel is longer than the padded input"):
        conv1d(1, 1, 1, 2)
    with pytest.raises(FormulaError, match=r"conv2d: height is 1.5; give a whole number"):
        conv2d(1, 1, 1, 1.5, 8)
    with pytest.raises(FormulaError, match="same=True sets the padding"):
        conv1d(1, 1, 1, 8, padding=1, same=True)
