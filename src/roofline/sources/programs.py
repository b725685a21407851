"""Recordings from programs: HLO text, HloProto, StableHLO, and folders that ``--xla_dump_to`` wrote.

A compiled program is priced as it is. A program that was not compiled (StableHLO, or HLO before optimisation) is first fused by this
project's own model, and a note says that its costs are an estimate. So is a program that was compiled for a CPU and is analyzed for an
accelerator, after the CPU compiler's changes have been undone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from ..errors import UsageError, did_you_mean
from ..hlo.fusion.compiler_model import fuse
from ..hlo.fusion.copies import with_copies
from ..hlo.fusion.decompiling import decompiled, is_widened
from ..hlo.fusion.reduce_scatters import with_reduce_scatters
from ..hlo.ir.module import HloModule
from ..hlo.ir.platforms import Platform, detect_platform, named_platform, platform_of
from ..hlo.memory.large_constants import large_constants_note
from ..hlo.memory.peak import live_bytes, peak_memory
from ..hlo.partition.one_device import devices_of, is_written_for_one_device, partitioned, shared_evenly
from ..hlo.price.collectives import Network, network_of, slice_note
from ..hlo.price.pricing import even_share
from ..hlo.review import Review
from ..machine import Machine
from ..peak_memory import PeakMemory
from ..schedule import Schedule
from ..workload import Device, Op, ProgramGraph, Recording, Workload
from .hlo_dump import read_modules, sniff
from .target import Target
from .tpu_programs import compiled_device

__all__ = ["is_compiled", "prepared", "read", "sniff"]

MOST_LISTED = 8  # loops in an error message
ESTIMATE = "{name} is not compiled: estimate, fused by roofline's own model"
FROM_CPU = (
    "{name} was compiled for a CPU: estimate for {chip}, with its matmuls in the source's number formats and fused by roofline's own model"
)
FROM_ANOTHER = (
    "{name} was compiled for a {compiled_for}: its kernels are that compiler's, only units and formats are those of {chip}; "
    "analyze the program before compilation (StableHLO), or one compiled for {chip}"
)

PARTITIONED = (
    "{name} is not partitioned: one of {devices} devices, split by its shardings ({annotated} annotated, the others inferred); "
    "collectives estimated as XLA would add them: {exchanges}{assumed}"
)
ASSUMED = "; an even share is assumed for {ops}, which roofline cannot split"
SCATTERS = "{count} all-reduce whose result is then split between devices: counted as reduce-scatter, as XLA compiles it for GPUs and TPUs"
SHARED = (
    "{name} is not partitioned and has no shardings: one of {devices} devices, with 1/{devices} of every op; collectives and work that all "
    "devices repeat are not counted. Compile it, or use roofline.jax.analyze, to count them"
)
NO_ENTRY = "{name} marks no computation as ENTRY: its last one, {computation}, is used; the file may be cut off"
MANUAL = "{name} is already written for one of its {devices} devices, with its collectives: counted as it is"


def read(
    path: Path,
    target: Target | None = None,
    *,
    network: Callable[[Machine], Network | None] = network_of,
    trips: Mapping[str, int] | None = None,
) -> Recording:
    """The ops of a program, or of each program in a folder, each program run once.

    Where ``target`` finds the machine of devices, it is given the TPU that the program was compiled for, if any, which is then the device
    of the recording. ``network`` gives the network of the machine; ``trips`` are trip counts by the name of the loop.
    """
    ops: list[Op] = []
    graphs: list[ProgramGraph] = []
    schedules: list[Schedule] = []
    peaks: list[PeakMemory] = []
    modules = list(read_modules(path))
    if trips:
        check_trips(trips, loop_names(modules))
    machine, devices, notes = target_machine(path, modules, target)
    for module in modules:
        ready, platform, note = prepared(module, machine)
        review = Review.of(ready, platform, link=network(machine) if machine else None, trips=trips)
        graph, schedule = review.graph(), review.schedule()
        peak = _peak(ready, platform)
        if schedule is not None and peak is not None:
            live = live_bytes(ready, platform, peak)
            names = enumerate(op.name for op in review.workload().ops)
            schedule = replace(schedule, live={number: live[name] for number, name in names if name in live})
        schedules += [] if schedule is None else [schedule.moved(len(ops))]
        graphs += [] if graph is None else [graph.moved(len(ops))]
        ops += review.workload().ops
        notes += [*note, *filter(None, [large_constants_note(module), slice_note(module, machine)]), *review.notes]
        peaks += [] if peak is None else [peak]
    return Recording(
        workload=Workload(tuple(ops)),
        format="hlo",
        files=(str(path),),
        devices=devices,
        memory=_highest(peaks),
        graphs=tuple(graphs),
        schedules=tuple(schedules) if len(schedules) == len(modules) else (),
        notes=tuple(notes),
    )


def target_machine(path: Path, modules: Iterable[HloModule], target: Target | None) -> tuple[Machine | None, tuple[Device, ...], list[str]]:
    """The machine to analyze programs for; where it was not chosen, also the TPU that they were compiled for, with a note."""
    if not callable(target):
        return target, (), []
    devices, notes = compiled_device(path, modules)
    return target(devices), devices, notes


def most_memory(programs: Iterable[tuple[HloModule, Platform]]) -> PeakMemory | None:
    """The highest peak memory of these programs, on one device."""
    return _highest(filter(None, (_peak(module, platform) for module, platform in programs)))


def _highest(peaks: Iterable[PeakMemory]) -> PeakMemory | None:
    return max(peaks, key=lambda peak: peak.peak_bytes, default=None)


def _peak(module: HloModule, platform: Platform) -> PeakMemory | None:
    """The peak memory of a program on one device: an even split is assumed where it has no shardings."""
    peak = peak_memory(module, platform)
    return peak.divided(even_share(module.entry_computation[0])) if peak else None


def loop_names(modules: Iterable[HloModule]) -> list[str]:
    """The names of the loops of some programs."""
    return [one.name for module in modules for computation in module for one in computation if one.opcode == "while"]


def check_trips(trips: Iterable[str], loops: Sequence[str]) -> None:
    """Raises an error if a trip count is given for a loop that does not exist."""
    for name in trips:
        if name not in loops:
            known = did_you_mean(name, loops) or f"; loops: {', '.join(list(dict.fromkeys(loops))[:MOST_LISTED]) or 'none'}"
            raise UsageError(f"--trips {name}: no loop of that name{known}")


def prepared(module: HloModule, target: Machine | None = None) -> tuple[HloModule, Platform, list[str]]:
    """A program as it will be priced, its platform, and notes on how it was prepared.

    The platform is the one that a compiled program shows; otherwise that of the target.
    """
    ready, platform, notes = _for_platform(module, target)
    if not module.marks_entry:
        notes = [NO_ENTRY.format(name=module.name, computation=module.entry_computation.name), *notes]
    return ready, platform, notes


def _for_platform(module: HloModule, target: Machine | None) -> tuple[HloModule, Platform, list[str]]:
    if not is_compiled(module):
        platform = platform_of(target) if target else "gpu"
        part, notes = _one_device(module, platform)
        return part, platform, [ESTIMATE.format(name=module.name), *notes]
    if target is None:
        return module, detect_platform(module), []
    platform = platform_of(target)
    compiled_for = named_platform(module) or ("cpu" if is_widened(module) else platform)
    if compiled_for == platform:
        return module, platform, []
    if compiled_for == "cpu":
        ready, notes = from_cpu(module, platform)
        return ready, platform, [FROM_CPU.format(name=module.name, chip=target.name), *notes]
    note = FROM_ANOTHER.format(name=module.name, compiled_for=compiled_for.upper(), chip=target.name)
    return module, platform, [note]


def from_cpu(module: HloModule, platform: Platform) -> tuple[HloModule, list[str]]:
    """A program that was compiled for a CPU as kernels of an accelerator, and notes on it."""
    whole, scatters = with_reduce_scatters(decompiled(module))
    return _kernels(whole, platform), [SCATTERS.format(count=scatters)] if scatters else []


def _kernels(module: HloModule, platform: Platform) -> HloModule:
    """A program that was not compiled, fused into the kernels that a compiler would make of it, with the copies it would add."""
    return with_copies(fuse(module, platform), platform)


def _one_device(module: HloModule, platform: Platform) -> tuple[HloModule, list[str]]:
    """The kernels that one device runs of a program that was not compiled, and notes on how it was split between devices."""
    devices = devices_of(module)
    if devices == 1:
        return _kernels(module, platform), []
    if is_written_for_one_device(module):
        return _kernels(module, platform), [MANUAL.format(name=module.name, devices=devices)]
    found = partitioned(module)
    if not found.annotated:
        return shared_evenly(_kernels(module, platform), devices), [SHARED.format(name=module.name, devices=devices)]
    note = PARTITIONED.format(
        name=module.name,
        devices=devices,
        annotated=found.annotated,
        exchanges=_counts(found.exchanges) or "none",
        assumed=ASSUMED.format(ops=_counts(found.assumed)) if found.assumed else "",
    )
    return _kernels(found.module, platform), [note]


def _counts(counted: Mapping[str, int]) -> str:
    """``2 all-reduce, 1 all-gather``"""
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counted.items(), key=lambda item: (-item[1], item[0])))


def is_compiled(module: HloModule) -> bool:
    """Whether it was compiled: it is scheduled, or has fusions."""
    return module.is_scheduled or "fusion" in module.opcodes
