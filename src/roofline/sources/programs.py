"""Compiled programs as recordings: HLO text, HloProto, StableHLO, and folders that ``--xla_dump_to`` wrote.

A compiled program is priced as it is. One that was not compiled (StableHLO, or HLO before optimisation) is fused first by this
project's own model, and the recording says that its costs are an estimate.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from ..errors import UsageError, did_you_mean
from ..hlo.fusion.compiler_model import fuse
from ..hlo.ir.module import HloModule
from ..hlo.ir.platforms import Platform, detect_platform, platform_of
from ..hlo.price.collectives import Network, network_of
from ..hlo.price.program import program
from ..machine import Machine
from ..workload import Op, Recording, Workload
from .hlo_dump import read_modules, sniff

__all__ = ["is_compiled", "prepared", "read", "sniff"]

LISTED = 8  # loops that an error names
ESTIMATE = "{name} is not compiled: estimate, fused by roofline's own model"


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
        ops += program(ready, platform, link=network or (network_of(target) if target else None), trips=trips).ops
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

    A compiled program names its platform; one that was not compiled is for the machine it is analysed for.
    """
    if is_compiled(module):
        return module, detect_platform(module), []
    platform = platform_of(target) if target else "gpu"
    return fuse(module, platform), platform, [ESTIMATE.format(name=module.name)]


def is_compiled(module: HloModule) -> bool:
    """Whether a compiler has been over it: it is scheduled, or has fusions."""
    return module.is_scheduled or any(instruction.opcode == "fusion" for computation in module for instruction in computation)
