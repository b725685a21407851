"""Convolutions that convert layouts: cuDNN computes with channels last, and converts tensors with channels first to that and back.

Batch norms between them are slower with channels first too: on an H200, ResNet's take 1.4 to 2.8 times as long forward, and 1.5 to 8 times
as long backward.
"""

import re
from collections.abc import Callable, Iterable

from ....torch_prices import Tensor
from ....workload import Avoidable
from ..executions import Execution
from ..pricing import PricedOp

_CONVERTS = re.compile(r"n(?:c(?:d?hw|x))To_?n(?:d?hwc|xc)|n(?:d?hwc|xc)To_?nc(?:d?hw|x)", re.IGNORECASE)
_NORMS = re.compile(r"aten::(?:native_|cudnn_|miopen_)?batch_norm(?:_backward)?$")
SLOWER = 2.0  # the time of a batch norm with channels first, relative to channels last
WHY = "leaves channels first, which convolutions convert to channels last and back"


def converted_shares(
    executions: Iterable[tuple[Execution, PricedOp]], name: Callable[[int], str], time: Callable[[int], int]
) -> dict[int, float]:
    """The share of each priced op's time in kernels that convert layouts, by ``id`` of the op.

    ``name`` gives the name of an event's kernel, ``time`` its duration.
    """
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
    if converting and not share and _NORMS.match(priced.name) and _has_channels_first(priced):
        share = 1 - 1 / SLOWER
    if cost is None or not 0 < share < 1:
        return ()
    return (Avoidable(kind="layout-copies", instead=cost * (1 - share), why=WHY, group=_group(priced)),)


def _group(priced: PricedOp) -> str:
    """The group of an op by the number of its spatial axes, as memory formats differ; cuDNN takes one axis as two, of which one is 1."""
    shapes = [one.shape for one in priced.args if isinstance(one, Tensor) and len(one.shape) > 2]
    axes = max((len(shape) for shape in shapes), default=4) - 2
    is_line = axes == 1 or (axes == 2 and all(shape[2] == 1 for shape in shapes))
    return "channels of sequences" if is_line else "channels of volumes" if axes == 3 else "channels"


def _has_channels_first(priced: PricedOp) -> bool:
    """Whether a batch norm has channels first and may have them last. One of a single image is an instance norm, which has all images in it
    as channels.
    """
    images = [one for one in priced.args if isinstance(one, Tensor) and len(one.shape) > 3]
    is_first = all(one.strides is not None and one.shape[1] > 1 and one.strides[1] > one.strides[-1] for one in images)
    return bool(images) and is_first and images[0].shape[0] > 1
