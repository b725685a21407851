"""Compiled programs as recordings: HLO text, HloProto, StableHLO, and folders that ``--xla_dump_to`` wrote.

A compiled program is priced as it is. One that was not compiled (StableHLO, or HLO before optimisation) is fused first by this
project's own model, and the recording says that its costs are an estimate. So is one that was compiled for a CPU and is analysed for an
accelerator: what the compiler for CPUs did to it is undone first.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path

from msgspec.structs import replace

from ..errors import UsageError, did_you_mean
from ..hlo.fusion.compiler_model import fuse
from ..hlo.fusion.decompiling import decompiled, is_widened
from ..hlo.ir.module import HloModule
from ..hlo.ir.platforms import Platform, detect_platform, named_platform, platform_of
from ..hlo.needed import reviewed_program
from ..hlo.price.collectives import Network, network_of
from ..hlo.price.pricing import COLLECTIVES
from ..machine import Machine
from ..workload import Op, Recording, Workload
from .hlo_dump import read_modules, sniff

__all__ = ["is_compiled", "prepared", "read", "sniff"]

LISTED = 8  # loops that an error names
ESTIMATE = "{name} is not compiled: estimate, fused by roofline's own model"
FROM_CPU = (
    "{name} was compiled for a CPU: estimate for {chip}, with its products in the source's number formats and fused by roofline's own model"
)
FROM_ANOTHER = (
    "{name} was compiled for a {compiled_for}: its kernels are that compiler's, only units and formats are those of {chip}; "
    "analyse the program before compilation (StableHLO), or one compiled for {chip}"
)

SHARED = (
    "{name} is not partitioned: one of {devices} devices, with 1/{devices} of every op; exchanges between devices and work that each "
    "repeats are not counted. Compile it, or use roofline.jax.analyze, to count them"
)
MANUAL = "{name} is not partitioned over its {devices} devices: regions written for one device are counted for one, the rest as a whole"


def read(path: Path, target: Machine | None = None, *, network: Network | None = None, trips: Mapping[str, int] | None = None) -> Recording:
    """Every op of a program once; of a folder, of each program in it.

    ``network`` is the target's own unless it is given; ``trips`` are trip counts by the name of the loop.
    """
    notes: list[str] = []
    ops: list[Op] = []
    modules = list(read_modules(path))
    check_loops(modules, trips or {})
    for module in modules:
        ready, platform, note = prepared(module, target)
        notes += note
        found = reviewed_program(ready, platform, link=network or (network_of(target) if target else None), trips=trips).ops
        if module.num_partitions > 1 and not is_compiled(module):
            found, said = _one_device(module, found)
            notes.append(said)
        ops += found
    return Recording(workload=Workload(tuple(ops)), format="hlo", files=(str(path),), notes=tuple(notes))


def check_loops(modules: Iterable[HloModule], trips: Mapping[str, int]) -> None:
    """Refuse a trip count for a loop that no program has."""
    if not trips:
        return
    loops = [one.name for module in modules for computation in module for one in computation if one.opcode == "while"]
    for name in trips:
        if name not in loops:
            known = did_you_mean(name, loops) or f"; loops: {', '.join(loops[:LISTED]) or 'none'}"
            raise UsageError(f"--trips {name}: no loop of that name{known}")


def prepared(module: HloModule, target: Machine | None = None) -> tuple[HloModule, Platform, list[str]]:
    """A program as it is priced, the platform it is for, and what is to be said about that.

    A compiled program shows its platform; one that does not, or was not compiled, is for the machine it is analysed for.
    """
    if not is_compiled(module):
        platform = platform_of(target) if target else "gpu"
        return fuse(module, platform), platform, [ESTIMATE.format(name=module.name)]
    if target is None:
        return module, detect_platform(module), []
    platform = platform_of(target)
    compiled_for = named_platform(module) or ("cpu" if is_widened(module) else platform)
    if compiled_for == platform:
        return module, platform, []
    if compiled_for == "cpu":
        return fuse(decompiled(module), platform), platform, [FROM_CPU.format(name=module.name, chip=target.name)]
    note = FROM_ANOTHER.format(name=module.name, compiled_for=compiled_for.upper(), chip=target.name)
    return module, platform, [note]


def _one_device(module: HloModule, ops: tuple[Op, ...]) -> tuple[tuple[Op, ...], str]:
    """One device's share of a program that is still to be partitioned, and what is said about it.

    A program that itself exchanges data between devices is written for one of them, at least in parts: it stays whole.
    """
    if any(one.opcode in COLLECTIVES for computation in module for one in computation):
        return ops, MANUAL.format(name=module.name, devices=module.num_partitions)
    share = Fraction(1, module.num_partitions)
    shared = tuple(replace(op, cost=op.cost * share) for op in ops)
    return shared, SHARED.format(name=module.name, devices=module.num_partitions)


def is_compiled(module: HloModule) -> bool:
    """Whether a compiler has been over it: it is scheduled, or has fusions."""
    return module.is_scheduled or any(instruction.opcode == "fusion" for computation in module for instruction in computation)
