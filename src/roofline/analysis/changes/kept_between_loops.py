"""Residuals: arrays that a loop over layers writes part by part and the loop of its gradients reads.

Each is filled before the first loop, and may be copied to another layout between the two.
"""

from collections.abc import Iterator
from typing import Self

from msgspec import Struct

from ...hlo.ir.module import Computation, Instruction
from ...hlo.ir.shapes import Shape
from ...hlo.price.traffic import source
from ...hlo.review.values import LAYOUT, Value, Values

NAMES = frozenset(("bitcast", "get-tuple-element", "reshape", "async-done"))
CUTS = LAYOUT | {"dynamic-slice", "slice", "convert"}

_BARRIERS = frozenset(("opt-barrier", "optimization-barrier"))
_PASSED = NAMES | _BARRIERS | {"parameter", "constant", "tuple"}

Key = tuple[int, tuple[int, ...]]  # an instruction of a computation, and a part of its result


class Residual(Struct, frozen=True, kw_only=True):
    """One array that a loop keeps for another.

    ``part`` is the shape that one trip writes, in the kernel ``writer`` of the first body, which computes it from the arrays ``sources``;
    ``readers`` are the kernels of the second body that read it; ``filled`` and ``moved`` are the kernels around the loops that fill and
    copy the array.
    """

    part: Shape
    writer: int
    sources: frozenset[Key]
    readers: frozenset[int]
    filled: tuple[int, ...]
    moved: tuple[int, ...]


class Loop(Struct, frozen=True):
    """A loop of a computation: its initial tuple, and its body."""

    index: int
    start: Instruction
    number: int
    body: Computation

    @classmethod
    def all_of(cls, values: Values, computation: Computation) -> list[Self]:
        """The loops of a computation, in order, whose initial value and body's result are tuples."""
        found = []
        for index, one in enumerate(computation.instructions):
            for number in one.called("body") if one.opcode == "while" and one.operands else ():
                start, body = computation[one.operands[0]], values.module.computations[number]
                if start.opcode == "tuple" and body.root_instruction.opcode == "tuple" and len(body.parameters) == 1:
                    found.append(cls(index, start, number, body))
        return found

    def key(self, part: int) -> Key:
        """A part of the tuple at the start of a trip."""
        return self.body.parameters[0], (part,)

    def hands_on(self, part: int) -> bool:
        """Whether a trip leaves a part unchanged."""
        operands = self.body.root_instruction.operands
        return part < len(operands) and source_array(self.body, operands[part]) == self.key(part)

    def readers(self, part: int) -> frozenset[int]:
        """The kernels of the body that read a part of the tuple; its resulting tuple does not count."""
        return frozenset(
            [
                place
                for place, one in enumerate(self.body.instructions)
                if one.opcode not in NAMES and place != self.body.root and self.key(part) in arrays_read(self.body, one)
            ]
        )


class Between(Struct, frozen=True):
    """Two loops of one computation, the residuals of the first for the second, and the arrays that the first changes from trip to trip."""

    computation: int
    first: Loop
    second: Loop
    residuals: tuple[Residual, ...]
    carried: tuple[Shape, ...]


def kept_between_loops(values: Values) -> Iterator[Between]:
    """The pairs of loops of a program of which the first keeps arrays for the second."""
    for number, computation in enumerate(values.module.computations) if values.loop_bodies else ():
        loops = Loop.all_of(values, computation)
        for place, first in enumerate(loops):
            for second in loops[place + 1 :]:
                found = tuple(_residuals(values, computation, first, second))
                if found:
                    yield Between(number, first, second, found, tuple(_carried(values, first)))


def _carried(values: Values, loop: Loop) -> Iterator[Shape]:
    for part, operand in enumerate(loop.body.root_instruction.operands):
        shape = loop.body[operand].shape
        if shape.is_array and shape.dims and not loop.hands_on(part) and _written(values, loop, part) is None:
            yield shape


def source_array(computation: Computation, index: int) -> Key:
    """The array that a value is: its source through bitcasts, tuples and barriers."""
    found = source(computation, index, ())
    while computation[found[0]].opcode in _BARRIERS and computation[found[0]].operands:
        found = source(computation, computation[found[0]].operands[0], found[1])
    return found


def arrays_read(computation: Computation, one: Instruction) -> frozenset[Key]:
    """The arrays among an instruction's operands, including those in tuples, without scalars."""
    taken = [part for operand in one.operands for part in _parts(computation, operand)]
    return frozenset([source_array(computation, part) for part in taken if computation[part].shape.dims])


def _parts(computation: Computation, index: int) -> tuple[int, ...]:
    """The elements of a tuple instruction, or the value itself."""
    return computation[index].operands if computation[index].opcode == "tuple" else (index,)


class Flow:
    """Which kernels of a computation use the results of which others."""

    def __init__(self, computation: Computation) -> None:
        self.reads: dict[int, frozenset[Key]] = {}
        self.takers: dict[int, set[int]] = {}  # kernel -> the kernels that use its results; the root represents the caller
        for place, one in enumerate(computation.instructions):
            if place == computation.root or one.opcode not in _PASSED:
                self.reads[place] = arrays_read(computation, one)
                for made, _ in self.reads[place]:
                    self.takers.setdefault(source_kernel(computation, made), set()).add(place)


def _residuals(values: Values, computation: Computation, first: Loop, second: Loop) -> Iterator[Residual]:
    for part in range(len(first.body.root_instruction.operands)):
        written = _written(values, first, part)
        if written is None or part >= len(first.start.operands):
            continue
        writer, update = written
        array = (first.index, (part,))
        slots, moved = _initial_parts(values, computation, array, second)
        if not slots or any(computation[user] is not second.start for user in _users(values, computation, array, moved)):
            continue
        filled, begun = _moved_from(values, computation, first.start.operands[part])
        yield Residual(
            part=update,
            writer=writer,
            sources=arrays_read(first.body, first.body[writer]) - {first.key(part)},
            readers=frozenset().union(*[second.readers(slot) for slot in slots]),
            filled=(*filled, source_kernel(computation, begun)),
            moved=tuple(sorted(moved)),
        )


def _written(values: Values, loop: Loop, part: int) -> tuple[int, Shape] | None:
    """The kernel of a loop's body that writes one slice of a part of its tuple in each trip, and the shape of that slice."""
    made = values.origin(Value(loop.body, loop.body.root_instruction.operands[part]), LAYOUT)
    if made.opcode != "dynamic-update-slice":
        return None
    target, update = (values.operand(made, number) for number in (0, 1))
    target = values.origin(target, LAYOUT)
    is_carried = target.computation is loop.body and source_array(loop.body, target.index) == loop.key(part)
    if not is_carried or update.shape.elements >= target.shape.elements:
        return None
    writer = made.inside[0][1] if made.inside else made.instruction
    return next(place for place, one in enumerate(loop.body.instructions) if one is writer), update.shape


def _initial_parts(values: Values, computation: Computation, array: Key, loop: Loop) -> tuple[list[int], set[int]]:
    """The parts of a loop's tuple that are an array of its computation at first, and the kernels that copy it there."""
    slots, moved = [], set[int]()
    for slot, operand in enumerate(loop.start.operands):
        passed, end = _moved_from(values, computation, operand)
        if source_array(computation, end) == array and loop.hands_on(slot):
            slots.append(slot)
            moved |= set(passed)
    return slots, moved


def _moved_from(values: Values, computation: Computation, index: int) -> tuple[list[int], int]:
    """The kernels before a value that only move it, and the instruction that they get it from."""
    passed: list[int] = []
    while True:
        one = computation[index]
        large = [operand for operand in one.operands if computation[operand].shape.dims]
        if len(large) != 1 or not (one.opcode in NAMES or only_moves(values, one)):
            return passed, index
        if one.opcode not in NAMES:
            passed.append(index)
        index = large[0]


def only_moves(values: Values, one: Instruction, passing: frozenset[str] = LAYOUT) -> bool:
    """Whether an instruction only changes an array's layout, or applies other opcodes in ``passing``.

    Scalar arithmetic in fusions, such as the start of a slice, does not count.
    """
    if one.opcode not in ("fusion", "async-start") or not one.calls:
        return one.opcode in passing
    body = values.module.computations[one.calls[0].computation]
    return all(each.opcode == "parameter" or not each.shape.dims or only_moves(values, each, passing) for each in body)


def _users(values: Values, computation: Computation, array: Key, moved: set[int]) -> set[int]:
    """The instructions that use an array, under any name and through the kernels in ``moved``, without those whose results are unused."""
    found = set[int]()
    waiting = [
        place for place, one in enumerate(computation.instructions) if one.opcode in NAMES and source_array(computation, place) == array
    ]
    while waiting:
        for user in values.users(computation, waiting.pop()):
            if user in moved or computation[user].opcode in NAMES:
                waiting.append(user)
            elif user == computation.root or values.users(computation, user):
                found.add(user)
    return found


def source_kernel(computation: Computation, index: int) -> int:
    """The kernel that makes a value: of a part of a tuple, the one that makes the tuple."""
    while computation[index].opcode in NAMES and computation[index].operands:
        index = computation[index].operands[0]
    return index
