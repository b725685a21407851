"""Convolutions over any number of axes, without the multiplications by padding.

Only the pairs of an output and a tap whose input exists are counted, and only the inputs that some pair needs are read.
"""

from collections.abc import Mapping
from math import prod
from typing import Annotated, Literal, Unpack

from ..errors import FormulaError
from ..ledger import Ledger, read, write
from ..ops.convolution import Axis, multiply_adds
from .dense import ProductFormats
from .notation import Dim, OperandFormats, ratio, require_shared, require_whole
from .registry import formula

Direction = Literal["forward", "input-gradient", "weight-gradient"]


def convolution(
    batch: Dim,
    in_channels: Dim,
    out_channels: Dim,
    axes: tuple[Axis, ...],
    *,
    groups: int = 1,
    direction: Direction = "forward",
    name: str = "convolution",
    **formats: Unpack[OperandFormats],
) -> Ledger:
    """A convolution over any axes: 2 · batch · out · in/groups · valid taps FLOP; every element it needs crosses once.

    valid taps is the product over the axes of the pairs (output, tap) whose input exists. The gradients of the input and of the
    weights do the same multiplications; they read two of the three tensors and write the third.
    """
    return _convolution(name, batch, in_channels, out_channels, axes, groups, direction, ProductFormats.of(**formats))


def _convolution(
    name: str,
    batch: Dim,
    in_channels: Dim,
    out_channels: Dim,
    axes: tuple[Axis, ...],
    groups: int,
    direction: Direction,
    formats: ProductFormats,
) -> Ledger:
    require_shared(name, "in_channels", in_channels, "groups", groups)
    require_shared(name, "out_channels", out_channels, "groups", groups)
    if any(axis.out < 1 for axis in axes):
        raise FormulaError(f"{name}: the kernel is longer than the padded input; make it smaller, or pad more")
    depth = ratio(in_channels, groups)
    sizes, needed, results = (tuple(getattr(axis, what) for axis in axes) for what in ("size", "inputs_read", "out"))
    x = ("activations", (batch, in_channels, *needed), formats.activations)
    w = ("weights", (out_channels, depth, *(axis.kernel for axis in axes)), formats.weights)
    y = ("out", (batch, out_channels, *results), formats.out)
    if direction == "forward":
        rows = (read(*x), read(*w), write(*y))
    elif direction == "input-gradient":
        whole = (batch, in_channels, *sizes)
        rows = (read("gradient of out", *y[1:]), read(*w), write("gradient of activations", whole, formats.activations))
    else:
        rows = (read("gradient of out", *y[1:]), read(*x), write("gradient of weights", *w[1:]))
    work = formats.work(multiply_adds(batch, out_channels * depth, prod(axis.taps for axis in axes)))
    return Ledger(name, work, rows, ("multiplications by padding are not counted", *formats.notes))


class ConvolutionOptions(OperandFormats, total=False):
    """The options of a convolution."""

    kernel: Annotated[Dim, 3]
    stride: Annotated[int, 1]
    padding: Annotated[int, 0]
    dilation: Annotated[int, 1]
    same: Annotated[bool, False]
    groups: Annotated[int, 1]
    direction: Annotated[Direction, "forward"]


def _along(
    name: str, batch: Dim, in_channels: Dim, out_channels: Dim, sizes: Mapping[str, tuple[Dim, Dim]], options: ConvolutionOptions
) -> Ledger:
    """A convolution along axes of some sizes, each with the taps of its kernel."""
    axes = tuple(_axis(name, option, size, kernel, options) for option, (size, kernel) in sizes.items())
    formats = ProductFormats.of(options["dtype"], options["activations"], options["weights"], options["out"], options["compute"])
    return _convolution(name, batch, in_channels, out_channels, axes, options["groups"], options["direction"], formats)


def _axis(name: str, option: str, size: Dim, kernel: Dim, options: ConvolutionOptions) -> Axis:
    require_whole(name, **{option: size, "kernel": kernel})
    stride, padding, dilation = options["stride"], options["padding"], options["dilation"]
    if not options["same"]:
        return Axis(size=int(size), kernel=int(kernel), stride=stride, low=padding, high=padding, dilation=dilation)
    if padding:
        raise FormulaError(f"{name}: same=True sets the padding; leave out padding")
    return Axis.same(int(size), int(kernel), stride, dilation)


@formula("conv1d", group="convolution", example=(32, 256, 256, 4096), aliases=("aten::conv1d",), zero=("padding",))
def conv1d(batch: Dim, in_channels: Dim, out_channels: Dim, length: Dim, **options: Unpack[ConvolutionOptions]) -> Ledger:
    """A convolution along one axis: 2 · batch · out · in/groups · valid taps FLOP, padding excluded.

    valid taps = pairs of an output and a kernel tap whose input exists; without padding, outputs · kernel.
    """
    sizes = {"length": (length, options["kernel"])}
    return _along("conv1d", batch, in_channels, out_channels, sizes, options)


@formula("conv2d", group="convolution", example=(32, 256, 256, 56, 56), aliases=("conv", "convolution", "aten::conv2d"), zero=("padding",))
def conv2d(
    batch: Dim,
    in_channels: Dim,
    out_channels: Dim,
    height: Dim,
    width: Dim,
    *,
    kernel_width: Dim | None = None,
    **options: Unpack[ConvolutionOptions],
) -> Ledger:
    """A convolution over two axes: 2 · batch · out · in/groups · valid taps FLOP, padding excluded.

    valid taps = those along the height times those along the width. A 1 x 1 kernel is a matmul of (batch·height·width, in, out).
    """
    kernel = options["kernel"]
    sizes = {"height": (height, kernel), "width": (width, kernel if kernel_width is None else kernel_width)}
    return _along("conv2d", batch, in_channels, out_channels, sizes, options)


@formula("conv3d", group="convolution", example=(2, 64, 64, 16, 56, 56), aliases=("aten::conv3d",), zero=("padding",))
def conv3d(
    batch: Dim, in_channels: Dim, out_channels: Dim, depth: Dim, height: Dim, width: Dim, **options: Unpack[ConvolutionOptions]
) -> Ledger:
    """A convolution over three axes: 2 · batch · out · in/groups · valid taps FLOP, padding excluded.

    valid taps = the product of those along depth, height and width.
    """
    kernel = options["kernel"]
    sizes = {"depth": (depth, kernel), "height": (height, kernel), "width": (width, kernel)}
    return _along("conv3d", batch, in_channels, out_channels, sizes, options)
