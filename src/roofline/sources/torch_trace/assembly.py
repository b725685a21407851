"""Turns a trace into a part of a recording: links events to ops, prices them and sums them up."""

from collections.abc import Sequence
from os.path import basename
from typing import Any

import numpy as np
from msgspec.structs import replace

from ...errors import NoActivity, SourceError
from ...formulas.network import Network
from ...units import percent
from ...workload import UNPRICED, Device, Hardware
from ..merging import warm_up
from ..parts import DevicePart, Mark, Part
from ..target import Target, network_for
from ..timeline import spans, with_host, with_lanes, with_timeline
from .compilations import capturing_steps, compiled_steps
from .context import Contexts
from .earlier_launches import recorded_twins
from .executions import executions_of
from .graphs import replays_of
from .host import host_of, launches_of
from .idle import IdleDevice, explain
from .linking import used_launches, work_of
from .lower.execution_trace import tensors_by_execution_trace
from .lower.tensor_ids import read_ids, tensors_by_ids
from .lower.used_tensors import NEVER_FREED, UsedTensors
from .pricing import Prices, priced_executions
from .ranks import waiting_included
from .read.arrays import distinct
from .read.columns import NONE
from .read.properties import device_of, rank_of, unrecorded_steps, world_size_of
from .read.reading import Trace
from .recording_cost import slowed_note
from .rows import ORDERED_STEPS, PS, DeviceRows
from .steps import steps_of
from .trials import tried_events

LEAST_NOTED = 0.001  # the share of unpriced busy time above which there is a note
LAST_LAUNCHES = 3  # a step is complete if one of its last launches ran


def part_of(trace: Trace, target: Target | None, *, timeline: bool = False) -> Part:
    """The part of a recording from a trace; ``target`` is the machine to analyze for."""
    return _Reader(trace, target).part(timeline)


class _Reader:
    """Turns one trace into a part of a recording."""

    def __init__(self, trace: Trace, target: Target | None) -> None:
        self.trace, columns = trace, trace.columns
        if not len(columns.device) and not len(columns.host):
            raise NoActivity(f"{trace.name}: no ops and no device activity in this trace; record it while the program runs")
        origin = columns.begin()
        self.on_cpu = not len(columns.device)
        if self.on_cpu and columns.unread:
            categories = ", ".join(sorted(columns.unread))
            raise SourceError(f"{trace.name}: recorded on an accelerator whose events roofline does not read ({categories})")
        if self.on_cpu and len(columns.launches):
            raise SourceError(
                f"{trace.name}: no device activity in this trace, though the program launched some; record with ProfilerActivity.CUDA"
            )
        self.host = host_of(columns, origin)
        if self.on_cpu:
            from .cpu import work_on_cpu  # here because its patterns take 2 ms to compile

            self.launches, self.work = work_on_cpu(columns, self.host)
        else:
            self.launches = launches_of(columns, origin)
            self.work = work_of(columns, origin, self.host, self.launches)
        if not len(self.work):
            raise NoActivity(f"{trace.name}: no ops and no device activity in this trace; record it while the program runs")
        self.names: list[Any] = list(columns.names)
        self.steps = steps_of(self.host, self.names, self.launches.start[used_launches(self.work.launch, self.launches)])
        linked = self.work.launch != NONE
        self.marks = np.full(len(self.work), NONE)
        self.marks[linked] = self.steps.at(self.launches.start[self.work.launch[linked]])
        self.target = target

    def _device_rows(self) -> list[DeviceRows]:
        """The priced executions of each device."""
        columns, work = self.trace.columns, self.work
        prices = Prices(columns, self.host, self.launches, work, self._network(), world_size_of(self.trace.head))
        accumulating = np.flatnonzero(self.host.name == columns.names.get("torch::autograd::AccumulateGrad", NONE))
        prices.accumulate(self.steps.at(self.host.start[accumulating]).tolist(), accumulating)
        twins = recorded_twins(work, self.marks, self.host)
        graphs = replays_of(work, self.host, self.launches, self.names, list(columns.extras))
        tried = tried_events(work, self.host, self.launches, self.names)
        taken = executions_of(work, self.marks, twins, graphs.ops, graphs.replayed, tried)
        executions, priced = priced_executions(*taken, prices, self.host)
        contexts, tensors = Contexts(self.host, self.names), self._tensors(prices)
        return [DeviceRows(number, work, executions, priced, prices, contexts, tried, tensors) for number in distinct(work.device).tolist()]

    def _tensors(self, prices: Prices) -> UsedTensors | None:
        """The tensors that ops used, if an execution trace has them, or the trace has ids of them."""
        if self.trace.observed is not None:
            return tensors_by_execution_trace(self.trace.observed, self.trace.columns.functions, self.host)
        if self.trace.head.tensors is None:
            return None
        try:
            ids = read_ids(self.trace.head.tensors)
        except SourceError as error:
            self.trace.notes.append(f"{self.trace.name}: {error}")
            return None
        later = distinct(self.marks[self.marks != NONE])[ORDERED_STEPS:]
        until = int(self.steps.begins[later[0]]) if len(later) else NEVER_FREED
        return tensors_by_ids(ids, self.host, self.names, prices.arguments, until)

    def _network(self) -> Network | None:
        """The network of the first device."""
        if self.on_cpu:
            return None
        number, *others = distinct(self.work.device).tolist()
        name, hardware = device_of(self.trace.head, number, not others)
        return network_for(self.target, Device(id=number, name=name, hardware=hardware))

    def part(self, timeline: bool) -> Part:
        columns, work = self.trace.columns, self.work
        rank = rank_of(self.trace.head)
        rows = self._device_rows()
        devices = []
        for row in rows:
            name, hardware = ("CPU", Hardware()) if self.on_cpu else device_of(self.trace.head, row.number, len(rows) == 1)
            part = row.part("CPU" if self.on_cpu else f"GPU {row.number}", name, hardware, self._complete(), self.marks)
            if self.on_cpu:
                for tally in part.rows.values():
                    tally.launched.clear()  # these are ops, not kernels that could be matched to counters
            devices.append(part if rank is None or len(rows) > 1 else replace(part, ordinal=rank))
        failures = [note for row in rows for note in row.failures]
        idle_devices = [IdleDevice(row.number, row.busy, part) for row, part in zip(rows, devices, strict=True)]
        unrecorded = unrecorded_steps(self.trace.head)
        idle = explain(
            *(idle_devices, work, self.host, self.launches, self.names, columns.captured),
            unrecorded=unrecorded,
            on_cpu=self.on_cpu,
        )
        slowed = slowed_note(self.steps.begins[1:], unrecorded)  # the first step waits for the profiler
        devices = [replace(part, idle=device_idle.reasons) for part, device_idle in zip(devices, idle, strict=True)]
        compiled = compiled_steps(self.host, self.names, self.steps)
        capturing = capturing_steps(self.launches, self.names, self.steps, list(columns.captured))
        if timeline:
            shown = spans(devices, warm_up(len(self.steps.names), compiled, capturing))
            lanes = [with_host(row.lanes(shown), device_idle.pauses) for row, device_idle in zip(with_timeline(rows), idle, strict=False)]
            devices = with_lanes(devices, lanes)
        begun = int(self.steps.begins[0]) * PS if len(self.steps.begins) else None
        return Part(
            file=self.trace.name,
            host=_host_name(self.trace),
            devices=tuple(devices),
            instances=self.steps.instances,
            notes=tuple(
                dict.fromkeys(
                    (*self.trace.notes, *slowed, *_missing(devices), *_waiting(devices, world_size_of(self.trace.head)), *failures)
                )
            ),
            annotated_ps=begun,
            compiled=compiled,
            capturing=capturing,
            launches={} if self.on_cpu else self._launch_times(),
            launch_calls={} if self.on_cpu else self._launch_calls(),
            allocated=columns.allocated,
            reserved=columns.reserved,
            graphs=tuple([graph for row in rows if (graph := row.graph("this trace")) is not None]),
        )

    def _launch_times(self) -> dict[Mark, tuple[int, int]]:
        """The times of the first and last launch of each step whose work ran."""
        starts = self.launches.start[distinct(self.work.launch[self.work.launch != NONE])]
        starts.sort()
        marks = self.steps.at(starts)  # sorted as well, except for launches in no step
        starts, marks = starts[marks != NONE], marks[marks != NONE]
        distinct_marks, firsts, counts = np.unique(marks, return_index=True, return_counts=True)
        times = zip(starts[firsts].tolist(), starts[firsts + counts - 1].tolist(), strict=True)
        return {mark: (first * PS, last * PS) for mark, (first, last) in zip(distinct_marks.tolist(), times, strict=True)}

    def _launch_calls(self) -> dict[Mark, int]:
        """The median duration of the calls of each step that launched a kernel."""
        names = [number for number in distinct(self.launches.name).tolist() if "LaunchKernel" in str(self.names[number])]
        places = np.flatnonzero(np.isin(self.launches.name, names))
        marks, lengths = self.steps.at(self.launches.start[places]), (self.launches.end - self.launches.start)[places]
        return {mark: int(np.median(lengths[marks == mark]) * PS) for mark in distinct(marks).tolist() if mark != NONE}

    def _complete(self) -> dict[Mark, bool]:
        """Whether one of the last kernels that each step launched was recorded."""
        calls = [number for number in distinct(self.launches.name).tolist() if "Launch" in str(self.names[number])]
        places = np.flatnonzero(np.isin(self.launches.name, calls))
        places = places[np.argsort(self.launches.start[places], kind="stable")]
        marks = self.steps.at(self.launches.start[places])
        order = np.argsort(marks, kind="stable")
        distinct_marks, firsts = np.unique(marks[order], return_index=True)
        ran = np.split(np.isin(places, self.work.launch)[order], firsts[1:])
        return {
            mark: bool(last[-LAST_LAUNCHES:].any()) for mark, last in zip(distinct_marks.tolist(), ran, strict=False) if mark != NONE
        }  # not strict: without launches, np.split returns one empty part


def _missing(devices: Sequence[DevicePart]) -> list[str]:
    """Notes on busy time without a known cost, with the recording options that would have given it."""
    busy = sum(device.busy_ps for device in devices)
    lost: dict[str, int] = {}
    for device in devices:
        for subject, tally in device.rows.items():
            for note in subject.notes:
                if note.startswith(UNPRICED):
                    lost[note] = lost.get(note, 0) + tally.self_ps
    return [
        f"{percent(time_ps / busy)} of busy time has no known cost: {note.removeprefix(UNPRICED)}"
        for note, time_ps in sorted(lost.items(), key=lambda pair: -pair[1])
        if time_ps > LEAST_NOTED * busy
    ]


def _waiting(devices: Sequence[DevicePart], world: int | None) -> list[str]:
    """Notes on collectives in the trace of one rank."""
    exchanged = any("collective" in subject.category for device in devices for subject in device.rows)
    return [waiting_included(world)] if exchanged else []


def _host_name(trace: Trace) -> str:
    """The name of a trace among those of a run: its rank, or else its file."""
    rank = rank_of(trace.head)
    if rank is not None:
        return f"rank {rank}"
    name = basename(trace.name).removesuffix(".gz").removesuffix(".json")
    return name.removesuffix(".trace").removesuffix(".pt")
