"""Links each device event to its launch, a runtime call with the same correlation id, and to the op around that call.

``External id`` would link new traces directly, but in traces of 2022 and 2023 device events have the correlation id there, which would
silently give wrong ops.
"""

import numpy as np
from msgspec import Struct

from .host import Host, Launches
from .read.arrays import Integers
from .read.columns import NONE, OP, Columns

COMPARED_WITH_ITSELF = ("aten::isnan",)  # runs x != x; the trace does not record that both operands are the same tensor


class Work(Struct):
    """Events of all devices in order of time, each with its launch and the op around that, or `NONE`.

    ``kernel`` is a row of ``kernels``: name, kind, grid and bytes, of which name and grid are numbers into lists.
    """

    device: Integers
    queue: Integers
    start: Integers
    end: Integers
    kernel: Integers
    extra: Integers
    launch: Integers
    op: Integers
    kernels: Integers

    def __len__(self) -> int:
        return len(self.start)

    @property
    def name(self) -> Integers:
        names: Integers = self.kernels[self.kernel, 0]
        return names

    @property
    def kind(self) -> Integers:
        kinds: Integers = self.kernels[self.kernel, 1]
        return kinds


def work_of(columns: Columns, origin: int, host: Host, launches: Launches) -> Work:
    """The devices' events, each linked to its launch and op."""
    table = columns.device
    start = table.take("start") - origin
    order = np.argsort(start, kind="stable")
    start = start[order]
    end = start + table.take("length")[order]
    launch = _matched(table.take("correlation")[order], start, launches)
    used = used_launches(launch, launches)
    inside = np.full(len(launches.start) + 1, NONE)  # the last is for `NONE`, which is -1
    inside[used] = host.nearest(host.enclosing(launches.thread[used], launches.start[used]), OP)
    op = _with_whole_comparisons(inside, columns, host)[launch]
    rest = {name: table.take(name)[order] for name in ("device", "queue", "kernel", "extra")}
    kernels = np.array(list(columns.kernels) or [(NONE,) * 4], np.int64)
    return Work(start=start, end=end, launch=launch, op=op, kernels=kernels, **rest)


def _with_whole_comparisons(ops: Integers, columns: Columns, host: Host) -> Integers:
    """The ops; one inside an op of `COMPARED_WITH_ITSELF` is replaced by that."""
    names = [number for number, name in enumerate(columns.names) if str(name) in COMPARED_WITH_ITSELF]
    inner = np.flatnonzero(ops != NONE)
    outer = host.parent[ops[inner]]
    twice = (outer != NONE) & np.isin(host.name[outer], names)
    ops[inner[twice]] = outer[twice]
    return ops


def used_launches(launch: Integers, launches: Launches) -> Integers:
    """The launches of some events, each once."""
    used = np.zeros(len(launches.start), bool)
    used[launch[launch != NONE]] = True
    return np.flatnonzero(used)


def _matched(correlation: Integers, start: Integers, launches: Launches) -> Integers:
    """The launch with each correlation id; if an id was used several times, the last launch before the work began."""
    order = np.lexsort((launches.start, launches.correlation))
    ids = launches.correlation[order]
    first, last = np.searchsorted(ids, correlation, side="left"), np.searchsorted(ids, correlation, side="right")
    linked = np.full(len(correlation), NONE)
    known = (last > first) & (correlation > 0)
    linked[known] = order[first[known]]
    for place in np.flatnonzero(known & (last - first > 1)).tolist():
        same = order[first[place] : last[place]]
        before = int(np.searchsorted(launches.start[same], start[place], side="right"))
        linked[place] = same[max(before - 1, 0)]
    return linked
