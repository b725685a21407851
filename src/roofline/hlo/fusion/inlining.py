"""Inlines called functions, removes dead code, and annotates loops with their trip counts.

Compilers do this before they fuse. Frameworks lower every jitted helper to a function of its own, and no kernel crosses a call.
"""

from collections.abc import Callable, Mapping
from itertools import accumulate, compress

from msgspec.structs import replace

from ..ir.amending import amended
from ..ir.module import Call, Computation, HloModule, Instruction
from ..ir.opcodes import of_kind
from ..ir.shapes import Layout, Shape
from ..price.loops import Loops
from ..read.backend_config import known_trip_count

# How many instructions inlining may add: this many, or this many times the module's own, whichever is more. Further calls stay calls.
MOST_INLINED = 2**16
GROWTH = 4

# Roles of called computations that run as kernels of their own.
RUNS: dict[str, tuple[str, ...]] = {"while": ("condition", "body"), "conditional": ("branch_computations",), "call": ("to_apply",)}
_EFFECTS = of_kind("host", "message", "half") | {"rng-get-and-update-state"}
_MAY_HAVE_EFFECTS = _EFFECTS | {"custom-call"}
# Opcodes that `_with_calls_inlined` replaces, or may.
_REWRITTEN = frozenset(("call", "custom-call", "get-tuple-element", "square"))
# Annotations without effect on values.
SHARDING_MARKS = ("Sharding", "sdy.sharding_constraint", "xla.sdy.FuncResultSharding", "xla.sdy.PropagationBarrier")


def inlined(module: HloModule, *, keeps_shardings: bool = False) -> HloModule:
    """The module with calls inlined in every computation that runs, and without computations that are no longer called.

    Sharding annotations are removed too, unless the program is still to be partitioned (``keeps_shardings``).

    The framework's names of inner instructions are relative to the call, as ``jit(step)/layer0`` and ``jit(silu)/mul``: they are
    joined as compilers do. Names of instructions may repeat.
    """
    running = set(computations_that_run(module))
    plain = _Plain()
    done = list(map(plain.computation, module.computations))
    busy: set[int] = set()
    budget = max(MOST_INLINED, GROWTH * sum(map(len, done)))
    for number in module.callees_first:
        if with_effects(done[number], busy):
            busy.add(number)
        if number in running:
            written, budget = _with_calls_inlined(done, number, budget, keeps_shardings)
            done[number] = without_dead_code(written, busy)
    flat = _called_only(replace(module, computations=tuple(done)))
    loops = Loops(flat)
    done = list(flat.computations)
    for number in computations_that_run(flat):
        if any(instruction.opcode == "while" for instruction in done[number].instructions):
            counted = tuple(_counted(loops, number, instruction) for instruction in done[number].instructions)
            done[number] = replace(done[number], instructions=counted)
    return replace(flat, computations=tuple(done))


class _Plain:
    """Shapes without layouts, which mean nothing in a program that was not compiled."""

    def __init__(self) -> None:
        self.known: dict[Shape, Shape] = {}

    def computation(self, computation: Computation) -> Computation:
        shapes = {id(instruction.shape): instruction.shape for instruction in computation.instructions}  # which instructions share
        changed = {key: plain for key, shape in shapes.items() if (plain := self.shape(shape)) is not shape}
        if not changed:
            return computation
        instructions = [
            replace(instruction, shape=changed[id(instruction.shape)]) if id(instruction.shape) in changed else instruction
            for instruction in computation.instructions
        ]
        return replace(computation, instructions=tuple(instructions))

    def shape(self, shape: Shape) -> Shape:
        if shape.layout is None and not shape.parts:
            return shape
        bare = self.known.get(shape)
        if bare is None:
            plain = replace(shape, layout=_without_order(shape), parts=tuple(map(self.shape, shape.parts)))
            bare = self.known[shape] = shape if plain == shape else plain
        return bare


def _without_order(shape: Shape) -> Layout | None:
    """The layout without the order of dimensions; None if nothing else is in it."""
    layout = shape.layout
    if layout is None or not (layout.memory_space or layout.element_bits):
        return None
    order = tuple(reversed(range(shape.rank)))
    return Layout(minor_to_major=order, memory_space=layout.memory_space, element_bits=layout.element_bits)


def _called_only(module: HloModule) -> HloModule:
    """The module without computations that the entry does not reach."""
    reached = {module.entry}
    waiting = [module.entry]
    while waiting:
        for number in module.computations[waiting.pop()].callees:
            if number not in reached:
                reached.add(number)
                waiting.append(number)
    if len(reached) == len(module.computations):
        return module
    where = {old: new for new, old in enumerate(sorted(reached))}
    kept = tuple(renumbered(module.computations[number], where) for number in where)
    return replace(module, computations=kept, entry=where[module.entry])


def renumbered(computation: Computation, where: Mapping[int, int]) -> Computation:
    """A computation that calls others by new numbers."""
    instructions = tuple(
        replace(instruction, calls=tuple(Call(call.role, where[call.computation]) for call in instruction.calls))
        if instruction.calls
        else instruction
        for instruction in computation.instructions
    )
    return replace(computation, instructions=instructions)


def computations_that_run(module: HloModule) -> tuple[int, ...]:
    """The entry and every body, condition, branch and function it runs, each after those that run it."""
    running: dict[int, None] = {module.entry: None}
    waiting = [module.entry]
    while waiting:
        for instruction in module.computations[waiting.pop(0)].instructions:
            if not instruction.calls or instruction.opcode not in RUNS:
                continue
            for role in RUNS[instruction.opcode]:
                for number in instruction.called(role):
                    if number not in running:
                        running[number] = None
                        waiting.append(number)
    return tuple(running)


def _with_calls_inlined(done: list[Computation], number: int, budget: int, keeps_shardings: bool) -> tuple[Computation, int]:
    """A computation with its calls inlined and values before their uses, and the remaining ``budget`` of instructions to inline."""
    computation = done[number]
    are_same = _REWRITTEN.isdisjoint([instruction.opcode for instruction in computation.instructions])
    if are_same and not any(instruction.control for instruction in computation.instructions):
        return computation, budget
    instructions: list[Instruction] = []
    place: dict[int, int] = {}

    def put(instruction: Instruction, where: dict[int, int]) -> int:
        operands = tuple(where[operand] for operand in instruction.operands)
        if instruction.opcode == "square":  # of CHLO; HLO has no such opcode
            instruction, operands = replace(instruction, opcode="multiply"), operands * 2
        control = tuple(where[before] for before in instruction.control if before in where)
        same = operands == instruction.operands and control == instruction.control
        instructions.append(instruction if same else replace(instruction, operands=operands, control=control))
        return len(instructions) - 1

    for index, instruction in enumerate(computation.instructions):
        called = _function(done, computation, instruction, keeps_shardings)
        if called is not None and len(called) <= budget:
            budget -= len(called)
            inner = {parameter: place[operand] for parameter, operand in zip(called.parameters, instruction.operands, strict=False)}
            named = _renaming(instruction)
            for inside, operation in enumerate(called.instructions):
                if inside not in inner:
                    inner[inside] = put(named(operation), inner)
            place[index] = inner[called.root]
        elif not keeps_shardings and _is_sharding_mark(computation, instruction):
            place[index] = place[instruction.operands[0]]
        elif (part := _part_of_tuple(instructions, instruction, place)) is not None:
            place[index] = part
        else:
            place[index] = put(instruction, place)
    parameters = tuple(place[parameter] for parameter in computation.parameters)
    return replace(computation, instructions=tuple(instructions), root=place[computation.root], parameters=parameters), budget


def _function(done: list[Computation], caller: Computation, instruction: Instruction, keeps_shardings: bool) -> Computation | None:
    """The function that an instruction calls, if its parameters and result have the shapes of the call's operands and result.

    They differ for a call of a region that each device runs on its own part.
    """
    called = instruction.called("to_apply") if instruction.opcode == "call" else ()
    if len(called) != 1 or (keeps_shardings and instruction.word("in_shardings")):
        return None
    function = done[called[0]]
    given = tuple(operand.shape for operand in caller.operands(instruction))
    taken = tuple(function[parameter].shape for parameter in function.parameters)
    return function if given == taken and function.root_instruction.shape == instruction.shape else None


def _renaming(call: Instruction) -> Callable[[Instruction], Instruction]:
    """Prefixes the framework's name of a call to those of the inlined instructions; those without a source line get the call's."""
    outer = call.metadata
    program = outer.op_name.partition("/")[0]

    def rename(instruction: Instruction) -> Instruction:
        inner = instruction.metadata
        if not outer.op_name or instruction.opcode in ("constant", "parameter"):
            return instruction
        if inner.op_name and inner.op_name.partition("/")[0] == program:
            return instruction
        joined = f"{outer.op_name}/{inner.op_name}" if inner.op_name else outer.op_name
        located = inner if inner.stack_frame_id or inner.source_file else outer
        return amended(instruction, metadata=replace(located, op_name=joined))

    return rename


def _part_of_tuple(instructions: list[Instruction], instruction: Instruction, place: dict[int, int]) -> int | None:
    """The index of the value that a get-tuple-element takes out of a tuple instruction, such as an inlined function's results."""
    if instruction.opcode != "get-tuple-element":
        return None
    whole = instructions[place[instruction.operands[0]]]
    part = instruction.integer("index") or 0
    return whole.operands[part] if whole.opcode == "tuple" and part < len(whole.operands) else None


def _is_sharding_mark(computation: Computation, instruction: Instruction) -> bool:
    return (
        instruction.opcode == "custom-call"
        and len(instruction.operands) == 1
        and instruction.custom_call_target in SHARDING_MARKS
        and computation[instruction.operands[0]].shape == instruction.shape
    )


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


def _counted(loops: Loops, number: int, instruction: Instruction) -> Instruction:
    """A while annotated with its trip count, if it is found, so that it stays known when the body is rewritten."""
    if instruction.opcode != "while" or known_trip_count(instruction) is not None:
        return instruction
    trips = loops.trip_count(number, instruction)
    return instruction if trips is None else amended(instruction, backend_config=f'{{"known_trip_count":{{"n":"{trips}"}}}}')
