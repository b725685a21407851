"""The same value computed twice in one program: kernels of the same body on the same operands."""

from collections.abc import Iterator

from ...cost import NOTHING
from ...workload import Avoidable
from ..ir.equality import NEVER_EQUAL, EqualInstructions
from ..ir.module import Instruction
from ..price.memory_spaces import HOST
from .kernels import Kernels

KIND, CLASS = "duplicated-work", "duplicated"


def duplicates(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that compute the same as an earlier one of the same computation."""
    module, computation = kernels.module, kernels.computation
    alike = EqualInstructions(module, computation)
    same: dict[int, int] = {}  # an instruction, and the first that computes the same value
    for index, instruction in enumerate(computation.instructions):
        if instruction.opcode in NEVER_EQUAL or is_prefetch(instruction):
            continue
        operands = instruction.operands
        if not same.keys().isdisjoint(operands):
            operands = tuple([same.get(operand, operand) for operand in operands])
        first = alike.first(index, (instruction.opcode, instruction.shape.dtype, instruction.shape.dims, operands))
        if first == index:
            continue
        same[index] = first
        if index in kernels.costs and instruction.operands and not _is_cloned(kernels, first, index):  # without operands it fills a buffer
            yield index, Avoidable(kind=KIND, instead=NOTHING, facts={"kernel": computation[first].name}, unneeded=CLASS, extra=True)


def is_prefetch(instruction: Instruction) -> bool:
    """Whether an instruction copies an array to a memory on the chip, which holds it for a while: the same may be copied there again."""
    if not instruction.opcode.endswith("-start"):
        return False
    return any(leaf.is_array and leaf.dims and leaf.memory_space not in (0, HOST) for leaf in instruction.shape.leaves)


def _is_cloned(kernels: Kernels, first: int, index: int) -> bool:
    """Whether the compiler computes a value again instead of keeping it: it cloned an instruction, or made two of one operation."""
    one, other = (kernels.computation[place] for place in (first, index))
    if other.opcode == "copy" and not other.op_name:
        return True
    return bool(one.op_name) and one.op_name == other.op_name and index not in kernels.products
