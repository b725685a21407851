"""Memory: a program's peak memory compared with the machine's capacity."""

from msgspec.structs import replace

from ..machine import Machine
from ..report import Finding
from ..workload import Fact, PeakMemory
from .findings.evidence import Evidence
from .findings.writing import Writer

KIND = "out-of-memory"


def with_capacity(memory: PeakMemory | None, machine: Machine) -> PeakMemory | None:
    """The peak memory of a program, with the capacities of the machine's memories where it does not have its own."""
    if memory is None:
        return None
    spaces = tuple(replace(space, capacity_bytes=machine.capacity(space.space)) for space in memory.spaces)
    return replace(memory, capacity_bytes=memory.capacity_bytes or machine.capacity(), spaces=spaces)


def out_of_memory(memory: PeakMemory | None, machine: Machine) -> Finding | None:
    """The finding about a program that needs more main memory than the machine has."""
    if memory is None or memory.fits or memory.capacity_bytes is None:
        return None
    facts: dict[str, Fact | None] = {
        "program": memory.program or "the program",
        "machine": machine.name,
        "needed": memory.needed_bytes,
        "capacity": memory.capacity_bytes,
        "excess": memory.needed_bytes - memory.capacity_bytes,
    }
    return Writer((machine.kind,)).finding(Evidence(kind=KIND, facts=facts))
