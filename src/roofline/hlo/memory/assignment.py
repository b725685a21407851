"""Buffer assignments: where a compiler put every array, from the HloProto that holds the program.

An allocation is one piece of memory: an argument, a result (both, where the argument is donated), a constant, or a heap for temporary
arrays. For a heap the compiler recorded the order in which arrays were allocated and freed.
"""

from operator import itemgetter

from msgspec import Struct

from ..ir.module import HloModule, Instruction
from ..read.wire import unpack

# BufferAssignmentProto: logical_buffers = 1 (id = 1, size = 2, defined_at = 3: instruction_name = 2, shape_index = 3, instruction_id = 4);
# buffer_allocations = 3 (index = 1, size = 2, is_thread_local = 3, is_entry_computation_parameter = 5, parameter_number = 6,
# maybe_live_out = 7, color = 8, assigned = 9: logical_buffer_id = 1, offset = 2, size = 3; parameter_shape_index = 10, is_tuple = 11,
# is_constant = 12); heap_simulator_traces = 4
# (events = 1: kind = 1, buffer_id = 2, share_with_canonical_id = 5; buffer_allocation_index = 3)
_ASSIGNMENT = "1(1i 2i 3(2t 3i* 4i))* 3(1i 2i 3i 5i 6i 7i 8i 9(1i 2i 3i)* 10i* 11i 12i)* 4(1(1i 2i 5i)* 3i)*"
_ALLOCATE, _FREE = 0, 1  # of HeapSimulatorTrace.Event.Kind; 2 shares the memory of another array
_ID = "35i"  # id of HloInstructionProto


class Array(Struct, frozen=True):
    """An array of the program: its bytes, the instruction that makes it, by name or number, and its ``path`` in that one's result."""

    bytes: int
    name: str
    path: tuple[int, ...]
    number: int


class Allocation(Struct, frozen=True, kw_only=True):
    """A piece of memory, and the arrays that are live in it at its peak.

    ``is_traced`` is false for several arrays whose lifetimes the compiler did not record. An argument's is for the ``parameter`` of this
    number, or the part of it at a path, whatever else uses the memory of a donated one.
    """

    bytes: int
    is_argument: bool
    is_result: bool
    is_constant: bool
    is_tuple: bool
    memory_space: int
    is_traced: bool
    arrays: tuple[Array, ...]
    parameter: tuple[int, tuple[int, ...]] = (0, ())


def read_assignment(data: bytes) -> tuple[Allocation, ...]:
    """The allocations of a BufferAssignmentProto, except thread-local ones."""
    buffers, allocations, traces = unpack(_ASSIGNMENT, data)
    arrays = {identity: Array(size, name, path, number) for identity, size, (name, path, number) in buffers}
    # A TPU's traces number allocations otherwise: an array tells which one a trace is of.
    homes: dict[int, int] = {}
    for index, *_, assigned, _, _, _ in allocations:
        homes |= {array: index for array, _, _ in assigned}
    peaks = {homes.get(events[0][1] if events else -1, index): _at_peak(events, arrays) for events, index in traces}
    pieces = []
    for index, size, on_stack, is_argument, number, is_result, space, assigned, path, is_tuple, is_constant in allocations:
        if on_stack:
            continue
        if index in peaks and not (is_argument or is_result):
            live = peaks[index]
        else:
            largest = max(assigned, key=itemgetter(2), default=None)
            live = (arrays[largest[0]],) if largest is not None and largest[0] in arrays else ()
        allocation = Allocation(
            bytes=size,
            is_argument=bool(is_argument),
            is_result=bool(is_result),
            is_constant=bool(is_constant),
            is_tuple=bool(is_tuple),
            memory_space=space,
            is_traced=bool(is_argument or is_result or index in peaks or len(assigned) < 2),
            arrays=live,
            parameter=(number, path),
        )
        pieces.append(allocation)
    return tuple(pieces)


def _at_peak(events: tuple[tuple[int, int, int], ...], arrays: dict[int, Array]) -> tuple[Array, ...]:
    """The arrays that are live in an allocation at its peak; those that share memory count once."""
    holders: dict[int, set[int]] = {}  # array that memory was allocated for -> the arrays that share it
    shared: dict[int, int] = {}
    now = most = 0
    peak: list[int] = []
    grown = False
    for kind, identity, canonical in events:
        if kind == _FREE:
            if grown and now > most:
                most, peak = now, list(holders)
            grown = False
            owner = shared.pop(identity, identity)
            sharing = holders.get(owner, set())
            sharing.discard(identity)
            if not sharing and owner in holders:
                del holders[owner]
                now -= arrays[owner].bytes if owner in arrays else 0
        elif kind == _ALLOCATE:
            holders[identity] = {identity}
            now += arrays[identity].bytes if identity in arrays else 0
            grown = True
        else:
            owner = shared[identity] = shared.get(canonical, canonical)
            if owner not in holders:  # all arrays in this memory were freed before
                holders[owner] = set()
                now += arrays[owner].bytes if owner in arrays else 0
                grown = True
            holders[owner].add(identity)
    if now > most:
        peak = list(holders)
    return tuple(arrays[identity] for identity in peak if identity in arrays)


class Instructions:
    """The instructions of a module that was read from a protobuf, by the number that a buffer assignment uses for them."""

    def __init__(self, module: HloModule) -> None:
        self._module = module
        self._numbers: dict[int, Instruction] | None = None

    def find(self, array: Array) -> Instruction | None:
        """The instruction that makes an array."""
        if array.name:
            place = self._module.find(array.name)
            return place[1] if place else None
        if self._numbers is None:
            self._numbers = {
                unpack(_ID, instruction.raw)[0]: instruction
                for instruction in self._module.instructions
                if isinstance(instruction.raw, bytes)
            }
        return self._numbers.get(array.number)
