"""Changes to a program, given as words: the cost and time of each op after them.

    roofline whatif run.xplane.pb scale batch=x4 dtype fp8

A change is a module here and a line in `CHANGES`. Each is applied to the ops as the changes before it left them.
"""

from collections.abc import Callable, Sequence
from operator import is_not

from ...errors import UsageError, did_you_mean
from .avoided import donate
from .change_words import Words
from .chips import chip, set_rate
from .dtype import dtype
from .flash import kernel
from .fuse import fuse
from .grouped import grouped
from .remat import remat
from .scale import scale, shard
from .state import State

__all__ = ["CHANGES", "change"]


def _no_idle(state: State, words: Words) -> None:
    state.no_idle = True


def _graph(state: State, words: Words) -> None:
    if state.recording.is_on_host:
        state.notes.append("graph: a CPU runs its ops itself, so there are no launches to put into a graph")
    else:
        state.one_graph = True


# word -> the change, its syntax, and its meaning
CHANGES: dict[str, tuple[Callable[[State, Words], None], str, str]] = {
    "scale": (
        scale,
        "scale DIM=xN ...",
        "make dimensions N times as large (x4, x1/2; a bare 4 is x4): batch, sequence, hidden, experts, layers, vocabulary, tok[0]",
    ),
    "shard": (shard, "shard DIM=N", "split a dimension of the inputs over N devices, with the all-reduces that this needs"),
    "dtype": (dtype, "dtype [SCOPE=]FORMAT", "compute matmuls in another number format: fp8, bf16, fp16, tf32, fp32, or int8-weights"),
    "kernel": (kernel, "kernel attention=flash", "compute attention in one kernel that keeps its scores on chip"),
    "fuse": (fuse, "fuse all|SCOPE", "fuse chains of kernels, or of small programs, that pass arrays to each other into one kernel"),
    "remat": (remat, "remat on|off", "recompute every layer's forward pass in the backward pass, or recompute nothing"),
    "grouped": (grouped, "grouped", "compute each token with its own experts only, in grouped matmuls"),
    "donate": (donate, "donate", "update in place arguments that are now copied"),
    "no-idle": (
        _no_idle,
        "no-idle",
        "remove the device's idle time, except for what the host needs to launch a step (with graph, also that)",
    ),
    "chip": (chip, "chip NAME", "run on another chip"),
    "set": (set_rate, "set RESOURCE=xN|RATE", "change a rate of the chip, such as hbm=x1.5"),
    "graph": (_graph, "graph", "launch all kernels in one graph, without gaps between launches"),
}


SEVERAL = " ..."  # suffix of the syntax of a change that takes several words

# Chips come first, because shards use the chip's links; then sizes, which are computed from the program as it was compiled. Recomputation
# comes last, because the arrays stored for gradients depend on the remaining kernels.
ORDER = {"chip": 0, "set": 0, "scale": 1, "shard": 1, "remat": 3}
DEFAULT_ORDER = 2


def _parts(word: str) -> list[str]:
    """The words of a change that was quoted as a whole, ``"dtype bf16"``; others as they are, such as a rate with its unit."""
    return word.split() if word.partition(" ")[0] in CHANGES else [word]


def change(state: State, words: Sequence[str]) -> None:
    """Apply changes in the order given, except that chips and sizes come first and recomputation last."""
    reader = Words([part for word in words for part in _parts(word)])
    if not words:
        raise UsageError(f"no change given; changes: {', '.join(CHANGES)}")
    asked: list[tuple[str, list[str]]] = []
    while (word := reader.next()) is not None:
        if word not in CHANGES:
            raise UsageError(f"no change named {word!r}{did_you_mean(word, CHANGES) or '; changes: ' + ', '.join(CHANGES)}")
        reader.usage = CHANGES[word][1]
        asked.append((word, [reader.need()] if " " in reader.usage else []))
        while reader.usage.endswith(SEVERAL) and "=" in (reader.first or ""):
            asked.append((word, [reader.need()]))
    for word, argument in sorted(asked, key=lambda one: ORDER.get(one[0], DEFAULT_ORDER)):
        apply, usage, _ = CHANGES[word]
        ops, added = list(state.ops), len(state.added)
        apply(state, Words(argument, usage))
        if ORDER.get(word, DEFAULT_ORDER) >= DEFAULT_ORDER and (len(state.added) > added or any(map(is_not, ops, state.ops))):
            state.memory = None  # the live arrays or their formats change, and no compiled program shows how
