"""Convolutions that run as several kernels for each image of a batch: PyTorch's own code, where cuDNN or MIOpen is not used."""

from collections.abc import Sequence

from ..op_times import OpTimes
from .clock import Clock
from .evidence import Evidence, Saving
from .reachable import reachable

KIND, GROUP = "low-batch", "images"
CONVOLUTION = "convolution"
LEAST_IMAGES = 4  # libraries run a few kernels for a convolution: layouts, transforms, sums


def images_one_by_one(op_times: OpTimes, ids: Sequence[int], clock: Clock) -> list[Evidence]:
    """The evidence, with the time above that of good convolutions."""
    apart = [id for id in ids if op_times.category[id] == CONVOLUTION and _images(op_times, id)]
    saved_s = [max(op_times.spent_s[id] - op_times.floor_s[id] / reachable(CONVOLUTION, op_times.unit[id]), 0.0) for id in apart]
    saved = Saving.of(apart, saved_s, clock)
    if not apart or saved.steps_s < clock.notable_s:
        return []
    ordered = sorted(apart, key=lambda id: -op_times.spent_s[id])
    facts = {"images": _images(op_times, ordered[0]), "kernels": op_times.launches[ordered[0]] / op_times.ops[ordered[0]].count}
    return [Evidence(kind=KIND, group=GROUP, ops=tuple(ordered), saved=saved, facts=facts)]


def _images(op_times: OpTimes, id: int) -> int:
    """The images of a batch that has at least one kernel for each; 0 for other ops."""
    op = op_times.ops[id]
    images = next((shape[0] for shape in op.shapes if len(shape) > 2), 0)
    return images if images >= LEAST_IMAGES and op_times.launches[id] >= images * op.count else 0
