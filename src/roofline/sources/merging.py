"""Merges the parts of one run, one per host or rank, into a recording. The result does not depend on their order, to the last digit."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile

from msgspec import Struct, field
from msgspec.structs import replace

from ..cost import Cost
from ..peak_memory import RECORDED_ALLOCATIONS, PeakMemory
from ..workload import Coverage, Device, IdleReason, KernelUse, Op, ProgramGraph, Recording, Step, StepsOnDevice, Workload
from ..workload import Share as OpShare
from .parts import PICOSECOND, DevicePart, Extent, IdleKey, IdleTally, Instance, Mark, Part, Subject, Tally, known_sum
from .timeline import in_seconds, omission_notes


def warm_up(steps: int, compiled: Collection[Mark], capturing: Collection[Mark] = ()) -> set[Mark]:
    """The steps of the warm-up: the first steps, up to one in which nothing was compiled; none if more than half of all steps compiled.

    A step in which a graph was captured, and all steps before it, which ran without the graph, are warm-up too if at least a third of all
    steps come after it.

    >>> sorted(warm_up(6, [0, 1, 4])), sorted(warm_up(4, [0, 1, 2])), sorted(warm_up(6, [], [1, 5])), len(warm_up(9, [], [4]))
    ([0, 1], [], [0, 1], 5)
    """
    before = max((mark + 1 for mark in capturing if 3 * (steps - mark - 1) >= steps), default=0)
    compiling = takewhile(lambda mark: mark in compiled, range(steps)) if 2 * len(compiled) <= steps else ()
    return {*range(before), *compiling}


def merge(parts: Iterable[Part], format: str) -> Recording:
    """The recording of a run from its parts, in any order; ``format`` is the name of their source."""
    ordered = sorted(parts, key=lambda part: (part.host, part.file))
    hosts = _hosts(ordered)
    devices = [(host, part, device) for host, part in zip(hosts, ordered, strict=True) for device in part.devices]
    numbers = _numbers([device for _, _, device in devices])
    keys = _step_keys(ordered)
    summed: dict[Subject, _Row] = {}
    programs: dict[str, set[str]] = {}
    for number, (_, part, device) in zip(numbers, devices, strict=True):
        marks = [keys[instance] for instance in part.instances]
        for subject, tally in device.rows.items():
            row = summed.get(subject)
            if row is None:
                row = summed[subject] = _Row()
            row.add(number, tally, marks)
            programs.setdefault(subject.module, set()).add(subject.program)
    rows = sorted(summed.items(), key=_order)
    idle = _idle(ordered, keys)
    places = {subject: place for place, (subject, _) in enumerate(rows)}
    reasons = {IdleKey(one.kind, one.activity, one.location, one.cause): place for place, one in enumerate(idle)}
    return Recording(
        programs={module: next(iter(each)) for module, each in programs.items() if module and len(each) == 1},
        workload=Workload(tuple([_op(subject, row, len(programs[subject.module]) > 1, len(devices) > 1) for subject, row in rows])),
        format=format,
        files=tuple(part.file for part in ordered),
        hosts=tuple(hosts),
        devices=tuple(
            Device(id=number, name=device.name, host=host, rates=dict(device.rates), hardware=device.hardware)
            for number, (host, _, device) in zip(numbers, devices, strict=True)
        ),
        steps=_steps(ordered, keys),
        coverage=_coverage(ordered),
        kernels=tuple(
            [
                KernelUse(place, launched.kernel, launched.first_ps, launched.grid, launched.count, launched.nth, launched.block)
                for place, (_, row) in enumerate(rows)
                for launched in row.total.launched
            ]
        ),
        measured=_measured(ordered),
        idle=idle,
        memory=_memory(ordered),
        timeline=in_seconds(ordered, numbers, keys, places, reasons),
        graphs=_graphs(ordered, places),
        notes=tuple(dict.fromkeys((*(note for part in ordered for note in part.notes), *omission_notes(ordered)))),
    )


def _graphs(parts: Sequence[Part], places: Mapping[Subject, int]) -> tuple[ProgramGraph, ...]:
    """The graphs of the programs that ran, each once, if several hosts ran it."""
    merged: dict[object, ProgramGraph] = {}
    for host, part in enumerate(parts):
        for number, found in enumerate(part.graphs):
            key = (found.program, found.identity) if found.identity else (host, number)
            before = merged[key].ops if key in merged else ((),) * len(found.subjects)
            now = ((places[subject] for subject in subjects if subject in places) for subjects in found.subjects)
            ops = tuple([tuple(dict.fromkeys((*known, *more))) for known, more in zip(before, now, strict=True)])
            merged[key] = ProgramGraph(found.program, found.graph, ops)
    return tuple(merged.values())


def _memory(parts: Sequence[Part]) -> PeakMemory | None:
    """The peak of allocated memory over all devices, where allocations were recorded."""
    most = max(parts, key=lambda part: part.allocated, default=None)
    if most is None or not most.allocated:
        return None
    return PeakMemory(peak_bytes=most.allocated, reserved=most.reserved or None, method=RECORDED_ALLOCATIONS)


def _hosts(parts: Sequence[Part]) -> list[str]:
    """The hosts' names; if several files have the same host, with the name of the file."""
    names = [part.host for part in parts]
    return [name if names.count(name) == 1 else f"{name} ({os.path.basename(part.file)})" for name, part in zip(names, parts, strict=True)]


def _numbers(devices: Sequence[DevicePart]) -> list[int]:
    """The devices' ids: their own numbers, or, if hosts use the same numbers, 0, 1, 2, … through all hosts."""
    own = [device.ordinal for device in devices]
    return own if len(set(own)) == len(own) else list(range(len(own)))


def _step_keys(parts: Sequence[Part]) -> dict[Instance, int]:
    """A number for each step, in the order of the steps on their hosts. The same instance on several hosts is one step."""
    places: dict[Instance, int] = {}
    for part in parts:
        for place, instance in enumerate(part.instances):
            places[instance] = min(place, places.get(instance, place))
    order = sorted(places, key=lambda instance: (places[instance], instance.name, instance.number or 0, instance.nth))
    return {instance: key for key, instance in enumerate(order)}


def _steps(parts: Sequence[Part], keys: dict[Instance, int]) -> tuple[Step, ...]:
    """Every step that ran on a device. It is complete if every host has it, up to its end."""
    ran: dict[Instance, list[tuple[Extent, int, bool]]] = {}
    launches: dict[Instance, list[tuple[Extent, int, int]]] = {}
    hosts: dict[Instance, set[int]] = {}
    calls: dict[Instance, list[int]] = {}
    for host, part in enumerate(parts):
        for device in part.devices:
            for mark, (time_ps, followed) in device.step_times().items():
                ran.setdefault(part.instances[mark], []).append((device.steps[mark], time_ps, followed))
                hosts.setdefault(part.instances[mark], set()).add(host)
                if mark in part.launches:
                    launches.setdefault(part.instances[mark], []).append((device.steps[mark], *part.launches[mark]))
        for mark, call_ps in part.launch_calls.items():
            calls.setdefault(part.instances[mark], []).append(call_ps)
    compiled = {keys[part.instances[mark]] for part in parts for mark in part.compiled}
    capturing = {keys[part.instances[mark]] for part in parts for mark in part.capturing}
    warm = warm_up(len(keys), compiled, capturing)
    return tuple(
        replace(
            _step(instance, key, ran[instance], everywhere=len(hosts[instance]) == len(parts)),
            compiled=key in compiled,
            steady=key not in warm,
            lead_s=_lead_s(launches.get(instance, ())),
            launching_s=max((last - first for _, first, last in launches[instance]), default=0) * PICOSECOND
            if instance in launches
            else None,
            launch_call_s=_launch_call_s(calls.get(instance, ())),
        )
        for instance, key in keys.items()
        if instance in ran
    )


def _step(instance: Instance, key: int, ran: Sequence[tuple[Extent, int, bool]], *, everywhere: bool) -> Step:
    """A step, from its extent on each device, its time there, and whether another step followed."""
    extents, times, followed = zip(*ran, strict=True)
    return Step(
        step=key,
        name=instance.name,
        number=instance.number,
        time_s=sum(times) * PICOSECOND / len(ran),
        slowest_s=max(times) * PICOSECOND,
        span_s=sum(extent.span_ps for extent in extents) * PICOSECOND / len(ran),
        busy_s=sum(extent.busy_ps for extent in extents) * PICOSECOND / len(ran),
        device_seconds=sum(times) * PICOSECOND,
        complete=everywhere and all(extent.complete for extent in extents),
        followed=all(followed),
    )


def _launch_call_s(calls: Sequence[int]) -> float | None:
    """The median length of a step's launch calls over the hosts."""
    if not calls:
        return None
    from statistics import median

    return median(calls) * PICOSECOND


def _lead_s(launches: Sequence[tuple[Extent, int, int]]) -> float | None:
    """The time from a step's first launch on the host to its first work on the device: the mean over devices."""
    leads = [extent.begin_ps - first for extent, first, _ in launches]
    return sum(leads) * PICOSECOND / len(leads) if leads else None


def _before_steps(parts: Sequence[Part]) -> float | None:
    """The time before the first step's first work, since the first annotation or other work: the mean over devices."""
    times = []
    for part in parts:
        for device in part.devices:
            if device.steps:
                begun = device.begin_ps if part.annotated_ps is None else min(device.begin_ps, part.annotated_ps)
                times.append(min(extent.begin_ps for extent in device.steps.values()) - begun)
    return sum(times) * PICOSECOND / len(times) if times else None


def _coverage(parts: Sequence[Part]) -> Coverage:
    """Wall, busy, attributed and priced time, summed over devices, and the wall time of the host that ran longest.

    Times of different hosts are never subtracted, as their clocks differ.
    """
    devices = [device for part in parts for device in part.devices]
    stalled_ps = known_sum(device.dma_stall_ps for device in devices)
    runs = [max(one.end_ps for one in part.devices) - min(one.begin_ps for one in part.devices) for part in parts if part.devices]
    return Coverage(
        run_s=max(runs, default=0) * PICOSECOND,
        before_steps_s=_before_steps(parts),
        wall_s=sum(device.wall_ps for device in devices) * PICOSECOND,
        busy_s=sum(device.busy_ps for device in devices) * PICOSECOND,
        attributed_s=sum(max(0, device.busy_ps - device.unfound_ps) for device in devices) * PICOSECOND,
        priced_s=sum(max(0, device.busy_ps - device.unpriced_ps) for device in devices) * PICOSECOND,
        dma_stall_s=None if stalled_ps is None else stalled_ps * PICOSECOND,
    )


def _measured(parts: Sequence[Part]) -> dict[str, float]:
    """The share of time for which hardware counters saw each unit busy: the mean over hosts by wall time, of units that all hosts have."""
    shares = [dict(part.measured) for part in parts]
    walls = [sum(device.wall_ps for device in part.devices) for part in parts]
    units = [unit for unit in shares[0] if all(unit in share for share in shares)]
    return {unit: sum(share[unit] * wall for share, wall in zip(shares, walls, strict=True)) / sum(walls) for unit in units if sum(walls)}


def _idle(parts: Sequence[Part], keys: dict[Instance, int]) -> tuple[IdleReason, ...]:
    """The reasons for idle time, summed over devices, the longest first."""
    summed: dict[IdleKey, IdleTally] = {}
    for part in parts:
        for device in part.devices:
            for reason, tally in device.idle.items():
                known = summed.setdefault(reason, IdleTally())
                known.gaps += tally.gaps
                known.time_ps += tally.time_ps
                known.recording_ps += tally.recording_ps
                known.recorded += tally.recorded
                for mark, (gaps, time_ps) in tally.steps.items():
                    key = keys[part.instances[mark]]
                    before = known.steps.get(key, (0, 0))
                    known.steps[key] = (before[0] + gaps, before[1] + time_ps)
            unexplained = device.wall_ps - device.busy_ps - sum(tally.time_ps for tally in device.idle.values())
            if unexplained > 0:  # gaps inside a program's run on a TPU, or without any event of the host
                summed.setdefault(IdleKey("unknown", ""), IdleTally()).time_ps += unexplained
    longest_first = sorted(summed, key=lambda one: (-summed[one].time_ps, one.activity, one.location))
    return tuple(_idle_reason(reason, summed[reason]) for reason in longest_first)


def _idle_reason(reason: IdleKey, tally: IdleTally) -> IdleReason:
    steps = sorted(tally.steps.items())
    return IdleReason(
        kind=reason.kind,
        activity=reason.activity,
        location=reason.location,
        cause=reason.cause,
        time_s=tally.time_ps * PICOSECOND,
        gaps=tally.gaps,
        recording_s=tally.recording_ps * PICOSECOND,
        recorded=tally.recorded,
        by_step=tuple(OpShare(key=key, count=gaps, time_s=time_ps * PICOSECOND) for key, (gaps, time_ps) in steps),
    )


class _Row(Struct):
    """The sums of an operation over a run: in total, executions and picoseconds by step, its share on each device, and by both."""

    total: Tally = field(default_factory=Tally)
    steps: dict[int, tuple[int, int]] = field(default_factory=dict)
    devices: list[OpShare] = field(default_factory=list)
    both: list[StepsOnDevice] = field(default_factory=list)

    def add(self, number: int, tally: Tally, keys: Sequence[int]) -> None:
        """Adds the tally of one device, whose steps have these keys."""
        self.total.add_totals(tally)
        parts = sorted((keys[mark], share.executions, share.time_ps) for mark, share in tally.steps.items())
        if parts:
            steps, counts, times = zip(*parts, strict=True)
            self.both.append(StepsOnDevice(device=number, steps=steps, counts=counts, times_s=tuple(time * PICOSECOND for time in times)))
        for mark, share in tally.steps.items():
            executions, time_ps = self.steps.get(keys[mark], (0, 0))
            self.steps[keys[mark]] = (executions + share.executions, time_ps + share.time_ps)
        self.devices.append(OpShare(key=number, count=tally.executions, time_s=tally.time_ps * PICOSECOND))


def _order(row: tuple[Subject, _Row]) -> tuple[int, str, str, str, str]:
    """A sort key: the operations that took longest come first."""
    subject, summed = row
    return -summed.total.time_ps, subject.module, subject.program, subject.name, subject.category


def _op(subject: Subject, row: _Row, ambiguous: bool, several: bool) -> Op:
    total = row.total
    cost = subject.cost * total.executions
    if total.amounts:
        cost = cost + Cost.of(total.amounts)
    return Op(
        name=subject.name,
        cost=cost,
        label=subject.label,
        count=total.executions,
        kernels=total.kernels,
        time_s=total.time_ps * PICOSECOND,
        self_time_s=total.self_ps * PICOSECOND,
        dma_stall_s=None if total.dma_stall_ps is None else total.dma_stall_ps * PICOSECOND,
        category=subject.category,
        module=f"{subject.module}({subject.program})" if ambiguous and subject.module else subject.module,
        scope=subject.scope,
        location=subject.location,
        phase=subject.phase,
        in_loop=subject.in_loop,
        towards=subject.towards,
        work_provenance=subject.work_provenance,
        bytes_provenance=subject.bytes_provenance,
        by_step=tuple([OpShare(key=key, count=count, time_s=time_ps * PICOSECOND) for key, (count, time_ps) in sorted(row.steps.items())]),
        by_device=tuple(sorted(row.devices, key=lambda share: share.key)),
        by_step_and_device=tuple(sorted(row.both, key=lambda part: part.device)) if several else (),
        avoidable=subject.avoidable,
        takes=subject.takes,
        gives=subject.gives,
        value=subject.value,
        caller=subject.caller,
        operation=None if total.amounts else subject.operation,
        notes=subject.notes,
        conventions={name: flops * total.executions for name, flops in subject.conventions},
        shapes=subject.shapes,
    )
