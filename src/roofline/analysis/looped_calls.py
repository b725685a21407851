"""Loops in Python around calls that one call could replace: a recurrent cell per time step, a network per sample of a batch, the update of
each parameter, or any few operators again and again.
"""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from ..columns.lazy_rows import values_at
from ..units import percent
from .finding_kinds import Kind
from .op_times import OpTimes

# The thresholds are choices: a model has fewer equal layers, or other ops between them.
LEAST_CALLS = 8  # of a cell, or a convolution of one image, in a step
CELLS = frozenset(("aten::_thnn_fused_lstm_cell", "aten::_thnn_fused_gru_cell", "aten::lstm_cell", "aten::gru_cell"))
MANY_ROWS = 32  # calls of a matmul of one row: fewer may be equal layers
_ONE_SAMPLE = re.compile(r"\S+ 1x\d+x\d+x\d+")  # a convolution's input: one image
_ONE_ROW = re.compile(r"(?:addmm \d+, |mm )1x\d+, ")
_SIZED = re.compile(r" \d")
MANY_CALLS, FEW_OPS, MOST_LAUNCHES = 100, 8, 0.8  # at most so many ops, each called so often, have this share of all launches of a step
_UPDATE, _SEVERAL = ".step", re.compile("_foreach_|_fused_")  # the scope of an optimizer's ops, and those on several parameters at once
LEAST_UPDATES = 0.3  # of all launches (a choice: fusing fewer saves little)
_LAUNCHING = "the host was launching kernels one by one, in {activity}"

BY_TIME = Kind(
    "the loop that calls a recurrent cell for each time step, so that the host launches its kernels one by one",
    "Run all time steps in one call, if each needs only the state of the one before",
    _LAUNCHING,
    ("nn.LSTM or nn.GRU for the whole sequence, which runs in cuDNN, in place of nn.LSTMCell or nn.GRUCell in a loop",),
)
BY_SAMPLE = Kind(
    "the loop that calls the network for each sample, so that the host launches its kernels one by one",
    "Run it once for the whole batch, if the samples are independent",
    _LAUNCHING,
    ("model(torch.stack(samples)) in place of [model(sample) for sample in samples]; torch.func.vmap for functions of one sample",),
)
BY_ITERATION = Kind(
    "the loop that calls the same few operators again and again, so that the host launches their kernels one by one",
    "Compute all iterations with operators on whole tensors, or in one kernel with the loop inside",
    _LAUNCHING,
    (
        "iterations that do not depend on each other: one call for a tensor of all of them; running sums and products: cumsum, cumprod",
        "where each needs the one before: a scan in Triton; torch.compile unrolls the loop, so that it takes long to compile",
    ),
)


def with_optimizer(kind: Kind, op_times: OpTimes, ids: Sequence[int]) -> Kind:
    """The kind for launches, with the advice to fuse the optimizer first if it launches many of them, for one parameter at a time."""
    names, scopes = op_times.words("name"), op_times.words("scope")
    single = [id for id in ids if scopes[id].endswith(_UPDATE) and not _SEVERAL.search(names[id])]
    mine, all_launches = (sum(values_at(op_times.launches, those)) for those in (single, ids))
    if not single or mine < LEAST_UPDATES * all_launches:
        return kind
    share = f"{percent(mine / all_launches)} of the kernels update one parameter each"
    lever = f"an optimizer with fused=True, or with foreach=True, the default unless fused=False is given: {share}"
    return replace(kind, levers=(lever, *kind.levers))


def loop_around(op_times: OpTimes, ids: Sequence[int], steps: int) -> Kind | None:
    """The loop that a step has around cells, in training around convolutions or matmuls of one sample, or around any few operators;
    ``None`` if it has none.
    """
    names, phases, labels = op_times.words("name"), op_times.words("phase"), op_times.words("label")
    if any(names[id] in CELLS and _calls(op_times, id, steps) for id in ids):
        return BY_TIME
    convolutions = [id for id in ids if op_times.category[id] == "convolution" and phases[id] == "forward"]
    looped = [id for id in convolutions if _ONE_SAMPLE.match(labels[id].rpartition("  ")[2]) and _calls(op_times, id, steps)]
    rows = [id for id in ids if phases[id] == "forward" and _ONE_ROW.match(labels[id].rpartition("  ")[2])]
    by_row = any(_calls(op_times, id, steps, MANY_ROWS) for id in rows)
    if by_row or (looped and 2 * len(looped) > len(convolutions)):
        return BY_SAMPLE
    repeated = [id for id in ids if _calls(op_times, id, steps, MANY_CALLS)]
    if not all(_SIZED.search(labels[id]) for id in repeated):  # without shapes, calls of all sizes are one op
        return None
    mine, every = (sum(values_at(op_times.launches, those)) for those in (repeated, ids))
    return BY_ITERATION if 0 < len(repeated) <= FEW_OPS and mine >= MOST_LAUNCHES * every else None


def _calls(op_times: OpTimes, id: int, steps: int, least: int = LEAST_CALLS) -> bool:
    return op_times.ops[id].count >= least * max(steps, 1)
