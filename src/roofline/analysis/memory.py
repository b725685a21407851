"""Memory: a program's peak memory compared with the machine's capacity."""

from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from ..machine import Machine
from ..peak_memory import LiveBuffer, PeakMemory
from ..quantities import NOTABLE
from ..units import percent, show
from ..workload import Fact, source_line
from .findings.evidence import Evidence

OUT_OF_MEMORY = "out-of-memory"  # the kind of finding about a program that does not fit
LISTED = 4  # arrays in a finding


def with_capacity(memory: PeakMemory | None, machine: Machine) -> PeakMemory | None:
    """The peak memory of a program, with the capacities of the machine's memories where it does not have its own."""
    if memory is None:
        return None
    spaces = tuple(replace(space, capacity_bytes=space.capacity_bytes or machine.capacity(space.space)) for space in memory.spaces)
    return replace(memory, capacity_bytes=memory.capacity_bytes or machine.capacity(), spaces=spaces)


def out_of_memory(memory: PeakMemory | None, machine: Machine) -> Evidence | None:
    """The evidence about a program that needs more main memory than there is, or a kernel of it that needs too much of a small one."""
    if memory is None:
        return None
    program = memory.program or "the program"
    for space in memory.spaces:
        if space.capacity_bytes is not None and space.scoped_bytes > space.capacity_bytes:
            facts = {"kernel": space.at, "space": space.space, **_sizes(space.scoped_bytes, space.capacity_bytes)}
            return Evidence(kind=OUT_OF_MEMORY, group="kernel", facts=facts)
    if memory.fits or memory.capacity_bytes is None:
        return None
    largest = largest_arrays(memory.largest)
    facts = {"program": program, "machine": machine.name, "largest": largest, **_sizes(memory.needed_bytes, memory.capacity_bytes)}
    return Evidence(kind=OUT_OF_MEMORY, facts=facts)


def _sizes(needed: float, capacity: float) -> dict[str, Fact | None]:
    return {"needed": needed, "capacity": capacity, "excess": needed - capacity}


def largest_arrays(buffers: Iterable[LiveBuffer]) -> str:
    """The largest arrays in words: bytes, shape, where they come from, and how much of them is padding of the layout.

    >>> largest_arrays([LiveBuffer(kind="temporary", bytes=2048, name="dot.1", shape="f32[4,64]", location="/me/train.py:7")])
    '2.048 kB f32[4,64] (train.py:7, 50% padding)'
    """
    alike: Counter[tuple[int, str, str, int]] = Counter()
    for buffer in buffers:
        line = source_line(buffer.location) or buffer.scope or f"{buffer.kind} {buffer.name}"
        alike[buffer.bytes, buffer.shape, line, buffer.padding] += 1
    return ", ".join(
        f"{f'{count} x ' if count > 1 else ''}{show(size, 'B')} {shape} ({line}"
        f"{f', {percent(padding / size)} padding' if padding > NOTABLE * size else ''})"
        for (size, shape, line, padding), count in list(alike.items())[:LISTED]
    )
