"""What every reader checks once of a program, so that nothing that walks it later has to: operands and axes that fit, in an order to walk.

A compiler writes no other program; a damaged file may hold one.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from ...errors import SourceError
from .malformed import Malformed, excerpt
from .module import Computation, Instruction
from .opcodes import LEAST_OPERANDS

Check = Callable[[Instruction, Instruction], bool]  # of an instruction and its first operand
# Opcodes whose result has as many dimensions as their first operand.
_SAME_RANK = ("copy", "convert", "dynamic-slice", "dynamic-update-slice", "pad", "reverse", "slice", "transpose")


def consistent(computations: Iterable[Computation]) -> tuple[Computation, ...]:
    """The computations, each with its instructions after their operands; refuses instructions that contradict themselves."""
    ordered = tuple([_ordered(computation) for computation in computations])
    for computation in ordered:
        instructions = computation.instructions
        for instruction in instructions:
            opcode, operands = instruction.opcode, instruction.operands
            if len(operands) < LEAST_OPERANDS.get(opcode, 0):
                raise _refusal(instruction, f"with {len(operands)} operands, where it needs {LEAST_OPERANDS[opcode]}")
            check = _CHECKS.get(opcode)
            if check is not None and not _fits(check, instruction, instructions[operands[0]] if operands else instruction):
                raise _refusal(instruction, "that does not fit its operands and its shape; is the file damaged?")
    return ordered


def _refusal(instruction: Instruction, why: str) -> SourceError:
    where = f"{instruction.dialect.where}: {instruction.dialect.place(instruction.place)}"
    return SourceError(f"{where}: {excerpt(instruction.name)} is {instruction.opcode} {why}")


def _fits(check: Check, instruction: Instruction, operand: Instruction) -> bool:
    """Whether an instruction passes a check; an attribute that cannot be read is an error where it is asked for."""
    try:
        return check(instruction, operand)
    except SourceError:
        return True


def _ordered(computation: Computation) -> Computation:
    """The computation in an order in which each instruction follows its operands; a text written by hand may name a later one."""
    if _is_ordered(computation):
        return computation
    order = _in_order(computation)
    places = {index: place for place, index in enumerate(order)}

    def moved(indices: Iterable[int]) -> tuple[int, ...]:
        return tuple([places[index] for index in indices])

    instructions = [computation[index] for index in order]
    return replace(
        computation,
        instructions=tuple(
            [replace(instruction, operands=moved(instruction.operands), control=moved(instruction.control)) for instruction in instructions]
        ),
        root=places[computation.root],
        parameters=moved(computation.parameters),
    )


def _in_order(computation: Computation) -> tuple[int, ...]:
    """Its instructions, each after its operands."""
    order: list[int] = []
    done: set[int] = set()
    open_: set[int] = set()
    for start in range(len(computation)):
        stack = [start]
        while stack:
            index = stack[-1]
            waiting = [operand for operand in computation[index].operands if operand not in done]
            if index in done or not waiting:
                stack.pop()
                open_.discard(index)
                if index not in done:
                    done.add(index)
                    order.append(index)
            elif any(operand in open_ for operand in waiting) or index in waiting:
                raise Malformed(f"{computation.name}: {computation[index].name} depends on its own result")
            else:
                open_.add(index)
                stack += waiting
    return tuple(order)


def _is_ordered(computation: Computation) -> bool:
    """Whether each instruction is after its operands."""
    for index, instruction in enumerate(computation.instructions):  # a loop: a program has many, and most have one operand or two
        for operand in instruction.operands:
            if operand >= index:
                return False
    return True


def _keeps_rank(instruction: Instruction, operand: Instruction) -> bool:
    """Whether the result has the dimensions of the operand, whatever their sizes."""
    return instruction.shape.rank == operand.shape.rank


def _permutes(instruction: Instruction, operand: Instruction) -> bool:
    """Whether a transpose names each dimension of its operand once."""
    return _keeps_rank(instruction, operand) and sorted(instruction.dimensions) == list(range(operand.shape.rank))


def _spreads(instruction: Instruction, operand: Instruction) -> bool:
    """Whether a broadcast names for each dimension of its operand one of its result."""
    axes = instruction.dimensions
    return len(axes) == operand.shape.rank and all(0 <= axis < instruction.shape.rank for axis in axes)


def _pads(instruction: Instruction, operand: Instruction) -> bool:
    """Whether a pad says what it adds to each dimension."""
    return _keeps_rank(instruction, operand) and len(instruction.padding) == instruction.shape.rank


def _joins(instruction: Instruction, operand: Instruction) -> bool:
    """Whether a concatenation names the one dimension that it is along."""
    axes = instruction.dimensions
    return _keeps_rank(instruction, operand) and len(axes) == 1 and 0 <= axes[0] < instruction.shape.rank


def _names_axes(instruction: Instruction, operand: Instruction) -> bool:
    """Whether the dimensions that are named are some of the first operand's, each once."""
    axes = instruction.dimensions
    return len({*axes}) == len(axes) and all(0 <= axis < operand.shape.rank for axis in axes)


def _has_parts(instruction: Instruction, _: Instruction) -> bool:
    """Whether a tuple has an operand for each of its parts; a program written by hand may not state them."""
    return len(instruction.operands) == len(instruction.shape.parts) or not instruction.shape.is_tuple


def _is_part(instruction: Instruction, operand: Instruction) -> bool:
    """Whether the part that is taken of a tuple exists."""
    return 0 <= (instruction.integer("index") or 0) < max(1, len(operand.shape.parts))


def _loops(instruction: Instruction, _: Instruction) -> bool:
    """Whether a loop has a body and a condition."""
    return len(instruction.called("body")) == len(instruction.called("condition")) == 1


_CHECKS: Mapping[str, Check] = {
    **dict.fromkeys(_SAME_RANK, _keeps_rank),
    "transpose": _permutes,
    "broadcast": _spreads,
    "concatenate": _joins,
    "pad": _pads,
    **dict.fromkeys(("reduce", "sort"), _names_axes),
    "tuple": _has_parts,
    "get-tuple-element": _is_part,
    "while": _loops,
}
