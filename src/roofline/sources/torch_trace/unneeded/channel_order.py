"""Convolutions that convert layouts: cuDNN computes with channels last, and converts tensors with channels first to that and back.

Batch norms between them are slower with channels first too: on an H200, ResNet's take 1.4 to 2.8 times as long forward, and 1.5 to 8 times
as long backward. Group and instance norms take channels first only, so that networks of these are 10% to 31% slower with channels last
(three convolutions with such norms, in 2 and 3 dimensions, bf16 and fp32). Convolutions along one axis gain nothing: they take as long as
two-dimensional ones with channels last.

Depthwise convolutions with channels first mostly run in PyTorch's own kernel, with channels last in cuDNN's: on an H200, windows of 7x7 in
bf16 take 1.36 ms and 0.33 ms (64 images of 56x56 with 192 channels, forward).
"""

import re
from collections.abc import Callable, Sequence

from ....torch_prices import Tensor
from ....workload import Avoidable, Usual
from ..executions import Execution
from ..pricing import PricedOp

_CONVERTS = re.compile(r"n(?:c(?:d?hw|x))To_?n(?:d?hwc|xc)|n(?:d?hwc|xc)To_?nc(?:d?hw|x)", re.IGNORECASE)
_NORMS = re.compile(r"aten::(?:native_|cudnn_|miopen_)?batch_norm(?:_backward)?$")
_GROUPS = re.compile(r"aten::native_group_norm")
DEPTHWISE, LARGE = "aten::_conv_depthwise2d", 7  # PyTorch's own kernel, and the side of windows for which it was compared
FASTER = 0.25  # the time of such a convolution with channels last, relative to channels first
SLOWER = 2.0  # the time of a batch norm with channels first, relative to channels last


def converted_shares(
    executions: Sequence[tuple[Execution, PricedOp]], name: Callable[[int], str], time: Callable[[int], int]
) -> dict[int, float]:
    """The share of each priced op's time in kernels that convert layouts, by ``id`` of the op; empty if most norms need channels first.

    ``name`` gives the name of an event's kernel, ``time`` its duration.
    """
    norms = [priced for _, priced in executions if _NORMS.match(priced.name) or _GROUPS.match(priced.name)]
    if 2 * sum(map(_needs_channels_first, norms)) > len(norms):
        return {}
    whole, converted = dict[int, int](), dict[int, int]()
    for one, priced in executions:
        if len(one.events) < 2:
            continue
        for event in one.events:
            whole[id(priced)] = whole.get(id(priced), 0) + time(event)
            if _CONVERTS.search(name(event)):
                converted[id(priced)] = converted.get(id(priced), 0) + time(event)
    return {key: spent / whole[key] for key, spent in converted.items() if whole[key]}


def channels_first(priced: PricedOp, share: float, *, converting: bool) -> tuple[Avoidable, ...]:
    """The cost of an op without conversions, which take ``share`` of its time.

    ``converting`` is whether any convolution converts: then a batch norm with channels first would be faster with channels last too.
    """
    cost = priced.priced.cost
    if cost is not None and _is_slow_depthwise(priced):
        return (Avoidable(kind="layout-copies", instead=cost * FASTER, group="depthwise", usual=Usual.UNLESS_ASKED),)
    if converting and not share and _NORMS.match(priced.name) and _has_channels_first(priced):
        share = 1 - 1 / SLOWER
    if cost is None or not 0 < share < 1 or (axes := _axes(priced)) < 2:
        return ()
    group = "channels" if axes == 2 else "channels of volumes"
    return (Avoidable(kind="layout-copies", instead=cost * (1 - share), group=group, usual=Usual.UNLESS_ASKED),)


def _axes(priced: PricedOp) -> int:
    """The number of spatial axes of a convolution or norm; cuDNN takes one axis as two, the first of which is 1 long."""
    shapes = [one.shape for one in priced.args if isinstance(one, Tensor) and len(one.shape) > 2]
    axes = max((len(shape) for shape in shapes), default=4) - 2
    return 1 if axes == 2 and all(shape[2] == 1 for shape in shapes) else axes


def _is_slow_depthwise(priced: PricedOp) -> bool:
    """Whether an op is a depthwise convolution with large windows in a 16-bit format, with channels first."""
    images = _images(priced)
    if priced.name != DEPTHWISE or len(images) < 2 or images[0].dtype is None or images[0].dtype.bits != 16:
        return False
    return min(images[1].shape[2:]) >= LARGE and _is_first(images[0])


def _images(priced: PricedOp) -> list[Tensor]:
    return [one for one in priced.args if isinstance(one, Tensor) and len(one.shape) > 3]


def _needs_channels_first(priced: PricedOp) -> bool:
    """Whether a norm is a group norm, or an instance norm, which runs as a batch norm of one image with the channels of all images."""
    images = _images(priced)
    return bool(_GROUPS.match(priced.name)) or bool(images and images[0].shape[0] == 1)


def _has_channels_first(priced: PricedOp) -> bool:
    images = _images(priced)
    return bool(images) and all(map(_is_first, images)) and not _needs_channels_first(priced)


def _is_first(image: Tensor) -> bool:
    """Whether an image has its channels first."""
    return image.strides is not None and image.shape[1] > 1 and image.strides[1] > image.strides[-1]
