"""A PyTorch profiler trace as a part of a recording; the traces of all ranks make up a run."""

from collections.abc import Iterable
from mmap import mmap
from os.path import basename
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import SourceError
from ...machine import Machine
from ...workload import Recording
from ..merging import merge as merge_parts
from ..parts import Part
from .columns import NONE
from .context import Contexts
from .executions import executions_of
from .host import host_of, launches_of
from .inheritance import inherited
from .linking import work_of
from .pricing import Prices, priced_executions
from .properties import device_of, rank_of
from .reading import Progress, Trace, read_trace
from .recognition import looks_like_trace
from .rows import PS, DeviceRows
from .steps import steps_of

FORMAT = "torch"


def sniff(head: bytes, path: Path | str) -> bool:
    """Whether the first (unpacked) bytes of a file are those of a trace."""
    return looks_like_trace(head)


def read_part(
    path: Path | str,
    target: Machine | None = None,
    *,
    data: bytes | mmap | None = None,
    salvage: bool = False,
    shared: bool = False,
    timeline: bool = False,
    known: Any = None,
    progress: Progress | None = None,
) -> Part:
    """What one trace says, or its ``data`` where those are in memory already."""
    trace = read_trace(path, data, salvage=salvage, progress=progress)
    return _Reader(trace, target).part(timeline)


def merge(parts: Iterable[Part]) -> Recording:
    """The recording that the traces of a run's ranks make up."""
    return merge_parts(parts, FORMAT)


class _Reader:
    """A trace on its way to a part."""

    def __init__(self, trace: Trace, target: Machine | None) -> None:
        self.trace, columns = trace, trace.columns
        if not len(columns.device):
            raise SourceError(
                f"{trace.name}: no device activity in this trace; record it with ProfilerActivity.CUDA while the program runs"
            )
        origin = columns.begin()
        self.names: list[Any] = list(columns.names)
        self.host, self.launches = host_of(columns, origin), launches_of(columns, origin)
        self.work = work_of(columns, origin, self.host, self.launches)
        linked = self.work.launch != NONE
        self.steps = steps_of(self.host, self.names, self.launches.start[np.unique(self.work.launch[linked])])
        self.marks = np.full(len(self.work), NONE)
        self.marks[linked] = self.steps.at(self.launches.start[self.work.launch[linked]])
        self.target = target

    def part(self, timeline: bool) -> Part:
        columns, work = self.trace.columns, self.work
        prices = Prices(columns, self.host, self.launches, work, _network(self.target))
        accumulating = np.flatnonzero(self.host.name == columns.names.get("torch::autograd::AccumulateGrad", NONE))
        prices.accumulate(self.steps.at(self.host.start[accumulating]).tolist(), accumulating.tolist())
        twins = inherited(work, self.marks, self.host)
        replayed = np.zeros(len(work), np.int64)
        executions = priced_executions(executions_of(work, self.marks, twins, {}, replayed), prices, self.host)
        contexts = Contexts(self.host, self.names)
        devices = []
        numbers = np.unique(work.device).tolist()
        for number in numbers:
            rows = DeviceRows(number, work, executions, prices, contexts)
            name, hardware = device_of(self.trace.head, number, len(numbers) == 1)
            devices.append(rows.part(f"GPU {number}", name, hardware, {}, self.marks))
        begun = int(self.steps.begins[0]) * PS if len(self.steps.begins) else None
        return Part(
            file=self.trace.name,
            host=_host_name(self.trace),
            devices=tuple(devices),
            instances=self.steps.instances,
            notes=tuple(dict.fromkeys(self.trace.notes)),
            annotated_ps=begun,
        )


def _network(target: Machine | None) -> Any:
    if target is None:
        return None
    from ...formulas.network import network_of

    return network_of(target)


def _host_name(trace: Trace) -> str:
    """What a trace is called among those of a run: its rank, else its file."""
    rank = rank_of(trace.head)
    if rank is not None:
        return f"rank {rank}"
    name = basename(trace.name).removesuffix(".gz").removesuffix(".json")
    return name.removesuffix(".trace").removesuffix(".pt")
