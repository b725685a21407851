"""Inlines called functions, removes dead code, and annotates loops with their trip counts.

Compilers do this before they fuse. Frameworks lower every jitted helper to a function of its own, and no kernel crosses a call.
"""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from ..ir.amending import amended
from ..ir.module import Call, Computation, HloModule, Instruction
from ..ir.rewriting import with_effects, without_dead_code, written_out
from ..ir.shapes import Layout, Shape
from ..price.loops import Loops
from ..read.backend_config import known_trip_count

# How many instructions inlining may add: this many, or this many times the module's own, whichever is more. Further calls stay calls.
MOST_INLINED = 2**16
GROWTH = 4

# Roles of called computations that run as kernels of their own.
RUNS: dict[str, tuple[str, ...]] = {"while": ("condition", "body"), "conditional": ("branch_computations",), "call": ("to_apply",)}
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


# A body that hands its parameter on.
_UNCHANGED = Computation(name="", instructions=(), root=0, parameters=(0,))


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
    """A computation with its calls inlined, and the remaining ``budget`` of instructions to inline."""
    computation, left = done[number], budget
    are_same = _REWRITTEN.isdisjoint([instruction.opcode for instruction in computation.instructions])
    if are_same and not any(instruction.control for instruction in computation.instructions):
        return computation, budget

    def body(instruction: Instruction) -> Computation | None:
        nonlocal left
        if not keeps_shardings and _is_sharding_mark(computation, instruction):
            return _UNCHANGED
        called = _function(done, computation, instruction, keeps_shardings)
        if called is None or len(called) > left:
            return None
        left -= len(called)
        named = _renaming(instruction)
        return replace(called, instructions=tuple([named(inside) for inside in called.instructions]))

    return written_out(computation, body), left


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


def _is_sharding_mark(computation: Computation, instruction: Instruction) -> bool:
    return (
        instruction.opcode == "custom-call"
        and len(instruction.operands) == 1
        and instruction.custom_call_target in SHARDING_MARKS
        and computation[instruction.operands[0]].shape == instruction.shape
    )


def _counted(loops: Loops, number: int, instruction: Instruction) -> Instruction:
    """A while annotated with its trip count, if it is found, so that it stays known when the body is rewritten."""
    if instruction.opcode != "while" or known_trip_count(instruction) is not None:
        return instruction
    trips = loops.trip_count(number, instruction)
    return instruction if trips is None else amended(instruction, backend_config=f'{{"known_trip_count":{{"n":"{trips}"}}}}')
