"""A profile as a recording: one file, or those of all hosts of a run.

Reading is a map and a reduce: `read_part` turns a file into whole numbers, `merge` adds parts up in any order to the same digits.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from mmap import mmap
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from ...cost import Cost
from ...errors import SourceError
from ...machine import Machine
from ...units import parse
from ...workload import Coverage, Device, KernelUse, Op, Recording, Step, Workload
from ...workload import Share as OpShare
from .attribute import DevicePart, Extent, Instance, Part, Subject, Tally
from .scan import Progress, Space, open_bytes, open_space
from .space import sniff as looks_like_space

if TYPE_CHECKING:
    from ...hlo.price.collectives import Network
    from .modules import Known

FORMAT = "xspace"
TPU_PREFIX, GPU_PREFIX = "/device:TPU:", "/device:GPU:"
PICOSECOND = parse("1 ps", "s")


def sniff(head: bytes, path: Path) -> bool:
    """Whether the first (unpacked) bytes of a file are those of a profile."""
    return looks_like_space(head)


def read_part(
    path: Path | str,
    target: Machine | None = None,
    *,
    data: bytes | mmap | None = None,
    salvage: bool = False,
    shared: bool = False,
    known: Known | None = None,
    progress: Progress | None = None,
) -> Part:
    """What one file says, or its ``data`` where those are in memory already (from a remote file system).

    With ``shared`` programs are known by their content, which is the same on every host; their ids are not. ``known`` gathers them, so that
    hosts that are read one after the other parse and price each program once.
    """
    with open_space(path, salvage=salvage) if data is None else open_bytes(data, str(path), salvage=salvage) as space:
        devices, instances, notes = _devices(_Request(space, target, shared, known, progress))
        if not devices and salvage and space.notes:
            raise SourceError(f"{space.notes[0].partition('; ')[0]}; no device activity precedes the damage")
        if not devices:
            raise SourceError(
                f"{path}: no device activity in this profile; record it while the program runs, for example with roofline capture"
            )
        host = space.hostnames[0] if space.hostnames else os.path.basename(path).removesuffix(".gz").removesuffix(".xplane.pb")
        said = [f"profiler message: {text}" for text in (*space.errors, *space.warnings)]
        counters, registers = _tpu_counters(space)
        return Part(
            file=str(path),
            host=host,
            devices=tuple(devices),
            instances=instances,
            measured=counters,
            notes=tuple(dict.fromkeys((*space.notes, *said, *notes, *registers))),
        )


def _tpu_counters(space: Space) -> tuple[tuple[tuple[str, float], ...], list[str]]:
    if not any(plane.name.startswith(TPU_PREFIX) for plane in space.planes):
        return (), []
    from .tpu_counters import measured, register_notes

    return measured(space), register_notes(space, TPU_PREFIX)


Found = tuple[list[DevicePart], tuple[Instance, ...], list[str]]  # devices, the steps they ran, notes


class _Request(Struct, frozen=True):
    """An opened profile, and how to read it."""

    space: Space
    target: Machine | None
    shared: bool
    known: Known | None
    progress: Progress | None


def _devices(request: _Request) -> Found:
    """What ran on each device: on TPUs, else on GPUs, else on the host's CPU. What reads the others is not even imported."""
    for reader in (_tpus, _gpus, _cpus):
        found = reader(request)
        if found[0]:
            return found
    return [], (), []


def _tpus(request: _Request) -> Found:
    if not any(plane.name.startswith(TPU_PREFIX) for plane in request.space.planes):
        return [], (), []
    from .tpu import read_tpus

    return read_tpus(request.space, request.target, request.progress)


def _gpus(request: _Request) -> Found:
    planes = [plane for plane in request.space.planes if plane.name.startswith(GPU_PREFIX)]
    if not planes:
        return [], (), []
    from .gpu import read_gpus
    from .modules import Programs
    from .steps import read_host

    programs = Programs(request.space, "gpu", _network(request.target), digests=request.shared, known=request.known)
    host = read_host(request.space, launches=True)
    parts, notes = read_gpus(request.space, planes, programs, host, request.progress)
    return parts, host.instances, [*host.notes, *notes, *programs.notes]


def _network(target: Machine | None) -> Network | None:
    """How the chips of the machine that a profile is read for are joined."""
    if target is None:
        return None
    from ...hlo.price.collectives import network_of

    return network_of(target)


def _cpus(request: _Request) -> Found:
    from .cpu import read_cpus
    from .modules import Programs

    programs = Programs(request.space, "cpu", digests=request.shared, known=request.known)
    parts, instances, notes = read_cpus(request.space, programs, request.progress)
    return parts, instances, [*notes, *programs.notes]


def merge(parts: Iterable[Part]) -> Recording:
    """The recording that parts of one run make up, whatever their order."""
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
    return Recording(
        workload=Workload(tuple([_op(subject, row, len(programs[subject.module]) > 1) for subject, row in rows])),
        format=FORMAT,
        files=tuple(part.file for part in ordered),
        hosts=tuple(hosts),
        devices=tuple(
            Device(id=number, name=device.name, host=host, rates=dict(device.rates), hardware=device.hardware)
            for number, (host, _, device) in zip(numbers, devices, strict=True)
        ),
        steps=_steps(ordered, keys),
        coverage=_coverage([device for _, _, device in devices]),
        kernels=tuple(
            [
                KernelUse(place, launched.kernel, launched.first_ps, launched.grid, launched.count)
                for place, (_, row) in enumerate(rows)
                for launched in row.total.launched
            ]
        ),
        measured=_measured(ordered),
        notes=tuple(dict.fromkeys(note for part in ordered for note in part.notes)),
    )


def _hosts(parts: Sequence[Part]) -> list[str]:
    """The hosts' names; files that name one host are told apart by their own names."""
    names = [part.host for part in parts]
    return [name if names.count(name) == 1 else f"{name} ({os.path.basename(part.file)})" for name, part in zip(names, parts, strict=True)]


def _numbers(devices: Sequence[DevicePart]) -> list[int]:
    """The devices' ids: their own numbers, or on several hosts that count alike, their place."""
    own = [device.ordinal for device in devices]
    return own if len(set(own)) == len(own) else list(range(len(own)))


def _step_keys(parts: Sequence[Part]) -> dict[Instance, int]:
    """A key a step: the same instance on several hosts is one step, and steps are in the order in which hosts saw them."""
    places: dict[Instance, int] = {}
    for part in parts:
        for place, instance in enumerate(part.instances):
            places[instance] = min(place, places.get(instance, place))
    order = sorted(places, key=lambda instance: (places[instance], instance.name, instance.number or 0, instance.nth))
    return {instance: key for key, instance in enumerate(order)}


def _steps(parts: Sequence[Part], keys: dict[Instance, int]) -> tuple[Step, ...]:
    """Every step that did something on a device. One that a host does not have, or not to its end, is not complete."""
    extents: dict[Instance, list[Extent]] = {}
    hosts: dict[Instance, int] = {}
    for part in parts:
        for mark, instance in enumerate(part.instances):
            mine = [device.steps[mark] for device in part.devices if mark in device.steps]
            if mine:
                extents.setdefault(instance, []).extend(mine)
                hosts[instance] = hosts.get(instance, 0) + 1
    return tuple(
        Step(
            key=key,
            name=instance.name,
            number=instance.number,
            wall_s=sum(extent.wall_ps for extent in extents[instance]) * PICOSECOND,
            busy_s=sum(extent.busy_ps for extent in extents[instance]) * PICOSECOND,
            complete=all(extent.complete for extent in extents[instance]) and hosts[instance] == len(parts),
        )
        for instance, key in keys.items()
        if instance in extents
    )


def _coverage(devices: Sequence[DevicePart]) -> Coverage:
    """Wall and busy time, and how much of it was attributed and priced, summed over devices."""
    return Coverage(
        wall_s=sum(device.wall_ps for device in devices) * PICOSECOND,
        busy_s=sum(device.busy_ps for device in devices) * PICOSECOND,
        attributed_s=sum(max(0, device.busy_ps - device.unfound_ps) for device in devices) * PICOSECOND,
        priced_s=sum(max(0, device.busy_ps - device.unpriced_ps) for device in devices) * PICOSECOND,
    )


def _measured(parts: Sequence[Part]) -> dict[str, float]:
    """The share of time for which each unit was busy by counters: the mean over hosts by their wall time, if all of them have it."""
    shares = [dict(part.measured) for part in parts]
    walls = [sum(device.wall_ps for device in part.devices) for part in parts]
    units = [unit for unit in shares[0] if all(unit in share for share in shares)]
    return {unit: sum(share[unit] * wall for share, wall in zip(shares, walls, strict=True)) / sum(walls) for unit in units if sum(walls)}


class _Row(Struct):
    """An operation of a run while it is added up: what all devices did, its executions and picoseconds by step, its part on each device."""

    total: Tally = field(default_factory=Tally)
    steps: dict[int, tuple[int, int]] = field(default_factory=dict)
    devices: list[OpShare] = field(default_factory=list)

    def add(self, number: int, tally: Tally, keys: Sequence[int]) -> None:
        """What it did on one device, whose marks have these keys."""
        self.total.add_totals(tally)
        for mark, share in tally.steps.items():
            executions, time_ps = self.steps.get(keys[mark], (0, 0))
            self.steps[keys[mark]] = (executions + share.executions, time_ps + share.time_ps)
        self.devices.append(OpShare(key=number, count=tally.executions, time_s=tally.time_ps * PICOSECOND))


def _order(row: tuple[Subject, _Row]) -> tuple[int, str, str, str, str]:
    """Operations that took longest come first."""
    subject, summed = row
    return -summed.total.time_ps, subject.module, subject.program, subject.name, subject.category


def _op(subject: Subject, row: _Row, ambiguous: bool) -> Op:
    total = row.total
    cost = subject.cost * total.executions
    if total.amounts:
        cost = cost + Cost.of(total.amounts)
    return Op(
        name=subject.name,
        cost=cost,
        count=total.executions,
        kernels=total.kernels,
        time_s=total.time_ps * PICOSECOND,
        self_time_s=total.self_ps * PICOSECOND,
        category=subject.category,
        module=f"{subject.module}({subject.program})" if ambiguous and subject.module else subject.module,
        scope=subject.scope,
        location=subject.location,
        phase=subject.phase,
        towards=subject.towards,
        work_provenance=subject.work_provenance,
        bytes_provenance=subject.bytes_provenance,
        by_step=tuple([OpShare(key=key, count=count, time_s=time_ps * PICOSECOND) for key, (count, time_ps) in sorted(row.steps.items())]),
        by_device=tuple(sorted(row.devices, key=lambda share: share.key)),
        notes=subject.notes,
    )
