"""Loops in Python around calls that one call could replace: a recurrent cell per time step, a network per sample of a batch, the update of
each parameter, or any few operators again and again; and in PyTorch's own code, where cuDNN or MIOpen is not used, around the images of a
convolution.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from ...workload import Op
from ..op_times import OpTimes, values_at
from .clock import Clock
from .evidence import Evidence, Saving
from .reachable import reachable

# The thresholds are choices: a model has fewer equal layers, or other ops between them.
LEAST_CALLS = 8  # of a cell, or a convolution of one image, in a step
CELLS = frozenset(("aten::_thnn_fused_lstm_cell", "aten::_thnn_fused_gru_cell", "aten::lstm_cell", "aten::gru_cell"))
MANY_ROWS = 32  # calls of a matmul of one row: fewer may be equal layers
MATMULS = ("mm", "addmm")  # their last two arrays are multiplied
MANY_CALLS, FEW_OPS, MOST_LAUNCHES = 100, 8, 0.8  # at most so many ops, each called so often, have this share of all launches of a step
_UPDATE, _SEVERAL = ".step", re.compile("_foreach_|_fused_")  # the scope of an optimizer's ops, and those on several parameters at once
LEAST_UPDATES = 0.3  # of all launches (a choice: fusing fewer saves little)
BY_TIME, BY_SAMPLE, BY_ITERATION = "time steps", "samples", "iterations"  # what the loop goes over: groups of words
IMAGES = "images"  # the group of words about convolutions that run as several kernels for each image of a batch
CONVOLUTION = "convolution"
LEAST_IMAGES = 4  # libraries run a few kernels for a convolution: layouts, transforms, sums


class Loops(Struct, frozen=True):
    """What loops in Python launch: what one is ``around``, and the share of the launches with which an optimizer is ``updating`` one
    parameter each, if many.
    """

    around: str = ""
    updating: float = 0.0


def loops_of(op_times: OpTimes, ids: Sequence[int], steps: int) -> Loops:
    """The loops in Python of a step."""
    return Loops(_loop_around(op_times, ids, steps), _updating(op_times, ids))


def _updating(op_times: OpTimes, ids: Sequence[int]) -> float:
    """The share of all launches that update one parameter each; 0 if they are few."""
    names, scopes = op_times.words("name"), op_times.words("scope")
    single = [id for id in ids if scopes[id].endswith(_UPDATE) and not _SEVERAL.search(names[id])]
    updating, every = (sum(values_at(op_times.launches, those)) for those in (single, ids))
    return updating / every if single and updating >= LEAST_UPDATES * every else 0.0


def _loop_around(op_times: OpTimes, ids: Sequence[int], steps: int) -> str:
    """What a step loops over: cells, in training convolutions or matmuls of one sample, or any few operators; empty if nothing."""
    names, phases = op_times.words("name"), op_times.words("phase")
    if any(names[id] in CELLS and _calls(op_times, id, steps) for id in ids):
        return BY_TIME
    convolutions = [id for id in ids if op_times.category[id] == CONVOLUTION and phases[id] == "forward"]
    looped = [id for id in convolutions if _is_of_one_image(op_times.ops[id]) and _calls(op_times, id, steps)]
    rows = [id for id in ids if phases[id] == "forward" and _is_of_one_row(op_times.ops[id])]
    by_row = any(_calls(op_times, id, steps, MANY_ROWS) for id in rows)
    if by_row or (looped and 2 * len(looped) > len(convolutions)):
        return BY_SAMPLE
    repeated = [id for id in ids if _calls(op_times, id, steps, MANY_CALLS)]
    if not all(op_times.ops[id].shapes for id in repeated):  # without shapes, calls of all sizes are one op
        return ""
    mine, every = (sum(values_at(op_times.launches, those)) for those in (repeated, ids))
    return BY_ITERATION if 0 < len(repeated) <= FEW_OPS and mine >= MOST_LAUNCHES * every else ""


def _is_of_one_image(op: Op) -> bool:
    """Whether the first array of an op is a batch of one image."""
    return bool(op.shapes) and len(op.shapes[0]) > 3 and op.shapes[0][0] == 1


def _is_of_one_row(op: Op) -> bool:
    """Whether an op is a matmul with one row."""
    return op.label.does in MATMULS and len(op.shapes) > 1 and op.shapes[-2][0] == 1


def _calls(op_times: OpTimes, id: int, steps: int, least: int = LEAST_CALLS) -> bool:
    return op_times.ops[id].count >= least * max(steps, 1)


def images_one_by_one(op_times: OpTimes, ids: Sequence[int], clock: Clock) -> list[Evidence]:
    """The evidence of convolutions of one image after the other, with the time above that of good ones."""
    apart = [id for id in ids if op_times.category[id] == CONVOLUTION and _images(op_times, id)]
    saved_s = [max(op_times.spent_s[id] - op_times.floor_s[id] / reachable(CONVOLUTION, op_times.unit[id]), 0.0) for id in apart]
    saved = Saving.of(apart, saved_s, clock)
    if not apart or saved.steps_s < clock.notable_s:
        return []
    ordered = sorted(apart, key=lambda id: -op_times.spent_s[id])
    facts = {"images": _images(op_times, ordered[0]), "kernels": op_times.launches[ordered[0]] / op_times.ops[ordered[0]].count}
    return [Evidence(kind="low-batch", group=IMAGES, ops=tuple(ordered), saved=saved, facts=facts)]


def _images(op_times: OpTimes, id: int) -> int:
    """The images of a batch that has at least one kernel for each; 0 for other ops."""
    op = op_times.ops[id]
    images = next((shape[0] for shape in op.shapes if len(shape) > 2), 0)
    return images if images >= LEAST_IMAGES and op_times.launches[id] >= images * op.count else 0
