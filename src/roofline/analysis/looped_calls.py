"""Loops in Python around calls that one call could replace: a recurrent cell per time step, a network per sample of a batch, or the
update of each parameter.
"""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from ..columns.lazy_rows import values_at
from ..units import percent
from .finding_kinds import Kind
from .op_times import OpTimes

LEAST_CALLS = 8  # in a step
CELLS = frozenset(("aten::_thnn_fused_lstm_cell", "aten::_thnn_fused_gru_cell", "aten::lstm_cell", "aten::gru_cell"))
_ONE_SAMPLE = re.compile(r"\S+ 1x\d+x\d+x\d+")  # a convolution's input: one image
_UPDATE, _SEVERAL = ".step", re.compile("_foreach_|_fused_")  # the scope of an optimizer's ops, and those on several parameters at once
LEAST_UPDATES = 0.3  # of all launches
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
    """The loop that a step has around cells, or in training around convolutions of one image; ``None`` if it has neither."""
    names, phases, labels = op_times.words("name"), op_times.words("phase"), op_times.words("label")
    if any(names[id] in CELLS and _calls(op_times, id, steps) for id in ids):
        return BY_TIME
    convolutions = [id for id in ids if op_times.category[id] == "convolution" and phases[id] == "forward"]
    looped = [id for id in convolutions if _ONE_SAMPLE.match(labels[id].rpartition("  ")[2]) and _calls(op_times, id, steps)]
    return BY_SAMPLE if looped and 2 * len(looped) > len(convolutions) else None


def _calls(op_times: OpTimes, id: int, steps: int) -> bool:
    return op_times.ops[id].count >= LEAST_CALLS * max(steps, 1)
