"""Reads a profile into a recording: one file, or those of all hosts of a run.

Reading is a map and a reduce: `read_part` reads one file into a part, `merge` adds up the parts, in any order with the same result.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from mmap import mmap
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from ...errors import NoActivity, SourceError
from ...workload import Recording
from ..merging import merge as merge_parts
from ..merging import warm_up
from ..parts import NAME_LOST, DevicePart, Instance, Mark, Part, PartGraph
from ..target import Target, network_for
from .scan import Progress, Space, open_bytes, open_space

if TYPE_CHECKING:
    from .modules import Known

FORMAT = "xspace"
TPU_PREFIX, GPU_PREFIX = "/device:TPU:", "/device:GPU:"


def read_part(
    path: Path | str,
    target: Target | None = None,
    *,
    data: bytes | mmap | None = None,
    salvage: bool = False,
    shared: bool = False,
    timeline: bool = False,
    known: Known | None = None,
    progress: Progress | None = None,
) -> Part:
    """Reads one file, or its ``data`` if they are already in memory, into a part.

    With ``shared`` programs are identified by content, which is the same on every host, instead of by id, which is not. ``timeline`` reads
    devices a second time to fill the timeline. ``known`` collects programs, so that hosts that are read one after the other parse and price
    each program once.
    """
    with open_space(path, salvage=salvage) if data is None else open_bytes(data, str(path), salvage=salvage) as space:
        found = _devices(_Request(space, target, shared, timeline, known, progress))
        devices, notes = found.devices, found.notes
        if not devices and salvage and space.notes:
            raise SourceError(f"{space.notes[0].partition('; ')[0]}; no device activity can be read before the damage")
        if not devices:
            raise NoActivity(
                f"{path}: no device activity in this profile; record it while the program runs, for example with roofline capture"
            )
        if salvage:
            notes = [*notes, *_lost_names(devices)]
        host = space.hostnames[0] if space.hostnames else os.path.basename(path).removesuffix(".gz").removesuffix(".xplane.pb")
        messages = [f"profiler message: {text}" for text in (*space.errors, *space.warnings)]
        counters, registers = _tpu_counters(space)
        return Part(
            file=str(path),
            host=host,
            devices=tuple(devices),
            instances=found.instances,
            measured=counters,
            notes=tuple(dict.fromkeys((*space.notes, *messages, *notes, *registers))),
            annotated_ps=found.annotated_ps,
            compiled=found.compiled,
            launches=found.launches,
            graphs=found.graphs,
        )


def _lost_names(devices: Sequence[DevicePart]) -> list[str]:
    """A note for each device with ops whose names were lost: in a plane, names follow the events."""
    counts = {device.plane: sum(NAME_LOST in subject.notes for subject in device.rows) for device in devices}
    return [
        f"{plane}: the damaged file lost the op names of {count:,} of its kernels: shown by kernel name or event number, without cost"
        for plane, count in counts.items()
        if count
    ]


def _tpu_counters(space: Space) -> tuple[tuple[tuple[str, float], ...], list[str]]:
    if not any(plane.name.startswith(TPU_PREFIX) for plane in space.planes):
        return (), []
    from .peaks import measured, register_notes

    return measured(space), register_notes(space, TPU_PREFIX)


class _Found(Struct, frozen=True):
    """The devices of a profile, their steps, notes, and the other fields of `Part`."""

    devices: list[DevicePart] = field(default_factory=list)
    instances: tuple[Instance, ...] = ()
    notes: list[str] = field(default_factory=list)
    annotated_ps: int | None = None
    compiled: tuple[Mark, ...] = ()
    launches: Mapping[Mark, tuple[int, int]] = field(default_factory=dict)
    graphs: tuple[PartGraph, ...] = ()


class _Request(Struct, frozen=True):
    """An opened profile, and how to read it."""

    space: Space
    target: Target | None
    shared: bool
    timeline: bool
    known: Known | None
    progress: Progress | None


def _devices(request: _Request) -> _Found:
    """The TPUs of a profile, else its GPUs, else the host's CPU. The readers of the other kinds are not imported."""
    for reader in (_tpus, _gpus, _cpus):
        found = reader(request)
        if found.devices:
            return found
    return _Found()


def _tpus(request: _Request) -> _Found:
    if not any(plane.name.startswith(TPU_PREFIX) for plane in request.space.planes):
        return _Found()
    from .tpu import read_tpus

    devices, instances, notes, graphs = read_tpus(request.space, request.target, request.progress, timeline=request.timeline)
    return _Found(devices, instances, notes, graphs=graphs)


def _gpus(request: _Request) -> _Found:
    planes = [plane for plane in request.space.planes if plane.name.startswith(GPU_PREFIX)]
    if not planes:
        return _Found()
    from .compilation import compilations
    from .gpu import gpu_device, read_gpus
    from .modules import Programs
    from .steps import launch_times, read_host

    network = network_for(request.target, gpu_device(planes[0]))
    programs = Programs(request.space, "gpu", network, digests=request.shared, known=request.known)
    host = read_host(request.space, launches=True)
    compiled = compilations(request.space)
    parts, notes = read_gpus(
        request.space,
        planes,
        programs,
        host,
        compiled,
        request.progress,
        timeline=request.timeline,
        warm=lambda: warm_up(len(host.annotations), compiled.marks(host.annotations)),
    )
    graphs = programs.graphs()  # before the notes: some are on programs without a graph
    return _Found(
        parts,
        host.instances,
        [*host.notes, *notes, *programs.notes],
        host.begin_ps,
        compiled.marks(host.annotations),
        launches=launch_times(host.annotations, host.launches),
        graphs=graphs,
    )


def _cpus(request: _Request) -> _Found:
    from .compilation import compilations
    from .cpu import read_cpus
    from .modules import Programs

    programs = Programs(request.space, "cpu", digests=request.shared, known=request.known)
    parts, host, notes = read_cpus(request.space, programs, request.progress, timeline=request.timeline)
    compiled = compilations(request.space).marks(host.annotations)
    graphs = programs.graphs()
    return _Found(parts, host.instances, [*notes, *programs.notes], host.begin_ps, compiled, graphs=graphs)


def merge(parts: Iterable[Part]) -> Recording:
    """The recording of a run, from the parts of its hosts."""
    return merge_parts(parts, FORMAT)
