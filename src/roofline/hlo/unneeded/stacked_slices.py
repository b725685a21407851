"""Slices of an array that a loop writes one by one: the kernel that writes them, and what fills the array."""

from collections.abc import Iterator

from ..ir.module import Computation, Instruction
from .kernels import Kernels
from .values import LAYOUT, Value, Values

_PASSED = LAYOUT | {"convert"}
_NAMES = frozenset(("bitcast", "get-tuple-element", "async-done", "reshape"))


def writer_of(values: Values, body: Computation, part: int) -> int | None:
    """The instruction of a loop's body that writes one slice of a part of the result per iteration."""
    root = body.root_instruction
    if root.opcode != "tuple" or part >= len(root.operands):
        return None
    made = values.origin(Value(body, root.operands[part]), _PASSED)
    if made.opcode != "dynamic-update-slice":
        return None
    target = values.origin(values.operand(made, 0), _PASSED)
    is_carried = target.computation is body and target.opcode == "get-tuple-element" and target.instruction.integer("index") == part
    if not is_carried or values.operand(made, 1).shape.dims[:1] != (1,):
        return None
    writer = made.inside[0][1] if made.inside else made.instruction
    return next((place for place, one in enumerate(body.instructions) if one is writer), None)


def fillers(kernels: Kernels, loop: Instruction, part: int) -> Iterator[int]:
    """The kernel that makes the array before the first iteration."""
    start = kernels.values.made_by(Value(kernels.computation, loop.operands[0]))
    if start.opcode == "tuple" and part < len(start.instruction.operands):
        index = start.instruction.operands[part]
        while kernels.computation[index].opcode in _NAMES:
            index = kernels.computation[index].operands[0]
        if index in kernels.costs:
            yield index
