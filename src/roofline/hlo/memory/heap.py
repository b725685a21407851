"""The heap of a compiled TPU program: the main memory of its temporary arrays, placed as the compiler places them.

Arrays are placed in the order of the program: each in the smallest gap that is free while it lives, or else at the end. Every tuple
has memory too, for the addresses of its parts, and keeps it from the start to the end of the program.
"""

from collections.abc import Iterable, Mapping
from operator import itemgetter

from msgspec import Struct, field

from ..ir.module import Instruction
from ..ir.renaming import IN_PLACE
from ..ir.shapes import Shape
from ..price.live_values import Value, Values
from .liveness import CALLING, Liveness
from .slots import Slot, Slots

ALIGNMENT = 16384  # bytes: all offsets in the assignments of libtpu 0.0.42 and 0.0.51 are multiples of it
_ADDRESSES = 32  # bytes of a tuple on v5p, v6e and v7x, for up to four parts; other chips use 512 or 1024. The last tuple takes no more
_SAME_TUPLE = IN_PLACE | {"parameter", "get-tuple-element", "while"}  # opcodes whose result is a tuple that is there already

Span = tuple[int, int]  # from one position in the order of execution to another, both included


class Piece(Struct, eq=False):
    """A piece of memory: from when to when it is allocated, and the ``gaps`` between, in which others may use it."""

    bytes: int
    span: Span = (0, 0)
    gaps: list[Span] = field(default_factory=list)

    @property
    def spans(self) -> list[Span]:
        """When it is in use."""
        spans = []
        start, end = self.span
        for first, last in sorted(self.gaps):
            if start < first:
                spans.append((start, first - 1))
            start = last + 1
        return [*spans, (start, end)]


Memory = Mapping[Slot | Value, Piece]  # of slots, and of the parameters that a loop carries


class Heap:
    """The temporary arrays of a program and of all that it calls, in one order of execution."""

    def __init__(self, liveness: Liveness) -> None:
        self._liveness = liveness
        self._time = 0
        self._pieces: list[Piece] = []
        self._tuples = 0
        self._followed: set[int] = set()  # computations: the compiler makes a copy of one for each call of it
        self._follow(liveness.module.entry, "call", {})

    @property
    def bytes(self) -> int:
        """Bytes of the heap, with the gaps between arrays."""
        arrays = placed(self._pieces)
        return _aligned(arrays) + ALIGNMENT * (self._tuples - 1) + _ADDRESSES if self._tuples else arrays

    def _follow(self, number: int, role: str, carried: Memory) -> None:
        """Follows a computation; ``carried`` is the memory of parameters that a loop carries in the heap."""
        if number in self._followed:
            return
        self._followed.add(number)
        values, slots = self._liveness.values[number], self._liveness.slots.of(number, role)
        own: dict[Slot | Value, Piece] = {slot: Piece(slot.bytes) for slot in slots.own}
        self._pieces += own.values()
        times = []
        for index, instruction in enumerate(values.computation.instructions):
            if index != values.computation.root:  # its tuple is one with that of the caller
                self._tuples += _new_tuples(instruction)
            for call in instruction.calls if instruction.opcode in CALLING else ():
                lent = self._lent(values, slots, instruction, {**carried, **own}) if call.role == "body" else {}
                self._follow(call.computation, call.role, lent)
            times.append(self._time)
            self._time += 1
        times.append(self._time)
        for slot in slots.own:
            own[slot].span = (times[slot.start], times[slot.end])
        places = frozenset(place for place, value in enumerate(values.parameters) if value in carried)
        for before, start, end in slots.gaps(values, places):
            carried[before].gaps.append((times[start], times[end] - 1))

    def _lent(self, values: Values, slots: Slots, loop: Instruction, memory: Memory) -> Memory:
        """The memory in the heap of what a loop carries, by the parameters of its body."""
        body = self._liveness.values[loop.called("body")[0]].parameters
        lenders = [slots.lender(value) if value is not None else None for value in values.leaves[loop.operands[0]]]
        pairs = zip(lenders, body, strict=False)
        return {inside: memory[lender] for lender, inside in pairs if lender is not None and inside is not None and lender in memory}


def _new_tuples(instruction: Instruction) -> int:
    """The tuples with memory that an instruction makes: its result, and those inside it."""
    opcode = instruction.opcode
    if opcode == "async-update" and len(instruction.operands) > 1:  # SparseCores' operations get their operands only here
        return _tuples(instruction.shape)
    return 0 if opcode in _SAME_TUPLE or opcode.endswith("-done") else _tuples(instruction.shape)


def _tuples(shape: Shape) -> int:
    return 1 + sum(map(_tuples, shape.parts)) if shape.parts else 0


def placed(pieces: Iterable[Piece]) -> int:
    """The bytes of memory that hold the pieces, placed one after another in the smallest free chunk that they fit in."""
    events: list[tuple[int, bool, bool, Piece]] = []  # when, whether its use ends then, whether it begins for the first time, and what
    for piece in pieces:
        for number, (start, end) in enumerate(piece.spans):
            events += [(start, False, number == 0, piece), (end, True, False, piece)]
    places: dict[Piece, int] = {}
    with_gaps: list[Piece] = []  # few are: those that a loop carries
    free = _FreeMemory()
    for _, is_end, is_first, piece in sorted(events, key=itemgetter(0, 1)):
        if is_end:
            free.release(places[piece], piece.bytes)
        elif is_first:
            asleep = [(places[other], places[other] + other.bytes) for other in with_gaps if _meet(piece.spans, other.spans)]
            places[piece] = free.allocate(piece.bytes, asleep)
            with_gaps += [piece] if piece.gaps else []
        else:
            free.take(places[piece], piece.bytes)
    return free.top


class _FreeMemory:
    """The chunks of memory that are free below ``top``.

    A chunk is as large as what was in it, without what follows up to the next aligned place, until its neighbour is free too.
    """

    def __init__(self) -> None:
        self._chunks: list[Span] = []  # from where to where
        self.top = 0

    def allocate(self, size: int, asleep: Iterable[Span]) -> int:
        """Takes the smallest chunk that is large enough, the last one if no other is; what is ``asleep`` is needed again too soon."""
        chunks = self._chunks
        for busy in asleep:
            chunks = [part for chunk in chunks for part in _without(chunk, busy)]
        end_of_all = _aligned(self.top)
        between = [(end - start, start) for start, end in chunks if end - start >= size and _aligned(end) < end_of_all]
        last = [start for start, end in chunks if _aligned(end) == end_of_all]
        start = min(between)[1] if between else min(last, default=end_of_all)
        self.take(start, size)
        return start

    def take(self, start: int, size: int) -> None:
        """Takes a place, of which the part below the top is free."""
        self._chunks = [part for chunk in self._chunks for part in _without(chunk, (start, start + size))]
        self.top = max(self.top, start + size)

    def release(self, start: int, size: int) -> None:
        """Makes a place free, and one with its free neighbours."""
        end = start + size
        before = [chunk for chunk in self._chunks if _aligned(chunk[1]) == start]
        after = [chunk for chunk in self._chunks if chunk[0] == _aligned(end)]
        self._chunks = [chunk for chunk in self._chunks if chunk not in before and chunk not in after]
        self._chunks.append((min([start, *(first for first, _ in before)]), max([end, *(last for _, last in after)])))


def _without(chunk: Span, busy: Span) -> list[Span]:
    """The parts of a chunk before and after another."""
    parts = ((chunk[0], min(chunk[1], busy[0])), (max(chunk[0], _aligned(busy[1])), chunk[1]))
    return [(start, end) for start, end in parts if start < end] if busy[0] < chunk[1] and chunk[0] < busy[1] else [chunk]


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _meet(spans: Iterable[Span], others: Iterable[Span]) -> bool:
    return any(start <= last and first <= end for start, end in spans for first, last in others)
