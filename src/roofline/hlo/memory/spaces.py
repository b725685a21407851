"""Peaks of a TPU's small memories (VMEM, CMEM, the memory of scalars), with the arrays in them and what kernels use besides."""

from collections.abc import Sequence
from itertools import chain

from ...peak_memory import LiveBuffer, MemorySpace
from ..ir.module import HloModule
from ..ir.platforms import Platform
from ..price.memory_spaces import CMEM, SCALARS, VMEM
from .assignment import Allocation
from .buffers import buffer_of, largest_buffers
from .liveness import Liveness

SPACES = {"vmem": frozenset((VMEM,)), "cmem": frozenset((CMEM,)), "smem": SCALARS}  # by their names in reports, their numbers in layouts


def memory_spaces(module: HloModule, platform: Platform, allocations: Sequence[Allocation] = ()) -> tuple[MemorySpace, ...]:
    """The peak of each small memory that a scheduled TPU program uses; ``allocations`` are those of the compiler, if known."""
    if platform != "tpu" or not module.is_scheduled:
        return ()
    shapes = {id(instruction.shape): instruction.shape for instruction in module.instructions}
    arrays = chain.from_iterable([shape.leaves for shape in shapes.values()])
    used = {VMEM, *(leaf.memory_space for leaf in arrays)}  # kernels use VMEM without arrays there too
    peaks = [_peak(module, name, numbers, allocations) for name, numbers in SPACES.items() if used & numbers]
    return tuple([peak for peak in peaks if peak.peak_bytes])


def _peak(module: HloModule, name: str, numbers: frozenset[int], allocations: Sequence[Allocation]) -> MemorySpace:
    """The peak of one memory by liveness analysis, or the compiler's allocations where they are known: they have gaps between arrays."""
    assigned = sum(allocation.bytes for allocation in allocations if allocation.memory_space in numbers)
    liveness = Liveness(module, "tpu", numbers)
    entry = liveness.values[module.entry]
    peak = liveness.peak(module.entry)
    throughout = {id(value): value for value in (*entry.parameters, *entry.root) if value is not None}
    outer = [(entry.computation[value.index], value) for value in throughout.values()]
    inner = [
        (module.computations[live.computation][live.value.index], live.value) for live in peak.live if id(live.value) not in throughout
    ]
    live = sum(value.bytes for value in throughout.values()) + peak.bytes
    arrays = assigned or live - peak.scoped
    buffers: list[LiveBuffer] = [buffer_of("temporary", maker, value.shape, value.bytes) for maker, value in (*outer, *inner)]
    return MemorySpace(
        space=name,
        peak_bytes=max(arrays, live),  # what kernels use besides is where no array is at that time
        arrays_bytes=arrays,
        scoped_bytes=peak.scoped,
        at=peak.at.name if peak.at is not None else "",
        largest=largest_buffers(module, buffers),
    )
