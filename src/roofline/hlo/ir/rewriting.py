"""Computations written anew: with the bodies that instructions run in their place, and without what nothing needs."""

from collections.abc import Callable, Mapping
from itertools import accumulate, compress

from msgspec.structs import replace

from .module import Computation, HloModule, Instruction
from .opcodes import of_kind

_EFFECTS = of_kind("host", "message", "half") | {"rng-get-and-update-state"}
_MAY_HAVE_EFFECTS = _EFFECTS | {"custom-call"}


class Rewriting:
    """A computation while it is written anew: its instructions so far, and the new place of the value of each old one."""

    def __init__(self, old: Computation) -> None:
        self.old = old
        self.new: list[Instruction] = []
        self.where: dict[int, int] = {}

    def put(self, instruction: Instruction) -> int:
        """Adds an instruction; its place."""
        self.new.append(instruction)
        return len(self.new) - 1

    def moved(self, instruction: Instruction) -> Instruction:
        """An old instruction with the new places of its operands, and of what it waits for."""
        operands, control = (tuple([self.where[place] for place in places]) for places in (instruction.operands, instruction.control))
        return replace(instruction, operands=operands, control=control)

    def finished(self, root: int | None = None) -> Computation:
        """The new computation; its ``root`` is that of the old one unless another is given."""
        parameters = tuple(self.where[parameter] for parameter in self.old.parameters)
        root = self.where[self.old.root] if root is None else root
        return replace(self.old, instructions=tuple(self.new), root=root, parameters=parameters)


def written_out(computation: Computation, body: Callable[[Instruction], Computation | None]) -> Computation:
    """A computation with the instructions of bodies in the place of those that run them, as far as ``body`` gives one; parts of tuples that
    are made there are taken from them.
    """
    instructions: list[Instruction] = []

    def put(instruction: Instruction, where: dict[int, int]) -> int:
        part = _part_of_tuple(instructions, instruction, where)
        if part is not None:
            return part
        operands = tuple(where[operand] for operand in instruction.operands)
        if instruction.opcode == "square":  # of CHLO; HLO has no such opcode
            instruction, operands = replace(instruction, opcode="multiply"), operands * 2
        control = tuple(where[before] for before in instruction.control if before in where)
        same = operands == instruction.operands and control == instruction.control
        instructions.append(instruction if same else replace(instruction, operands=operands, control=control))
        return len(instructions) - 1

    place: dict[int, int] = {}
    for index, instruction in enumerate(computation.instructions):
        called = body(instruction)
        if called is None:
            place[index] = put(instruction, place)
            continue
        inner = {parameter: place[operand] for parameter, operand in zip(called.parameters, instruction.operands, strict=False)}
        for inside, operation in enumerate(called.instructions):
            if inside not in inner:
                inner[inside] = put(operation, inner)
        place[index] = inner[called.root]
    parameters = tuple(place[parameter] for parameter in computation.parameters)
    return replace(computation, instructions=tuple(instructions), root=place[computation.root], parameters=parameters)


def _part_of_tuple(instructions: list[Instruction], instruction: Instruction, place: dict[int, int]) -> int | None:
    """The index of the value that a get-tuple-element takes out of a tuple instruction, such as an inlined function's results."""
    if instruction.opcode != "get-tuple-element":
        return None
    whole = instructions[place[instruction.operands[0]]]
    part = instruction.integer("index") or 0
    return whole.operands[part] if whole.opcode == "tuple" and part < len(whole.operands) else None


def without_dead_code(computation: Computation, busy: set[int], instead: Mapping[int, int] | None = None) -> Computation:
    """The computation without instructions that neither its result nor a side effect needs; parameters stay.

    ``instead`` maps instructions to others of the same value, which replace them.
    """
    instructions = computation.instructions
    used = list(range(len(instructions)))  # the instruction that replaces each
    for index, first in (instead or {}).items():
        used[index] = first
    root = used[computation.root]
    waiting = [root, *computation.parameters, *with_effects(computation, busy)]
    live = bytearray(len(instructions))  # 1 for live instructions
    for index in waiting:
        live[index] = 1
    while waiting:
        instruction = instructions[waiting.pop()]
        for operand in (*instruction.operands, *instruction.control) if instruction.control else instruction.operands:
            needed = used[operand]
            if not live[needed]:
                live[needed] = 1
                waiting.append(needed)
    if all(live) and not instead:
        return computation
    places = list(accumulate(live, initial=0))
    where = list(map(places.__getitem__, used))
    new = []
    for old in compress(instructions, live):
        operands = tuple([where[operand] for operand in old.operands])
        control = tuple([where[before] for before in old.control]) if old.control else ()
        same = operands == old.operands and control == old.control
        new.append(old if same else replace(old, operands=operands, control=control))
    parameters = tuple([where[parameter] for parameter in computation.parameters])
    return replace(computation, instructions=tuple(new), root=where[root], parameters=parameters)


def busy_computations(module: HloModule) -> set[int]:
    """The computations with side effects."""
    busy: set[int] = set()
    for number in module.callees_first:
        if with_effects(module.computations[number], busy):
            busy.add(number)
    return busy


def with_effects(computation: Computation, busy: set[int]) -> set[int]:
    """The instructions with side effects, themselves or in one of the ``busy`` computations that they run."""
    if not busy and {instruction.opcode for instruction in computation.instructions}.isdisjoint(_MAY_HAVE_EFFECTS):
        return set()
    return {
        index
        for index, instruction in enumerate(computation.instructions)
        if instruction.opcode in _EFFECTS
        or (instruction.opcode == "custom-call" and instruction.flag("custom_call_has_side_effect"))
        or (busy and instruction.opcode != "custom-call" and any(call.computation in busy for call in instruction.calls))
    }
