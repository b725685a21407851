"""Layouts that cuBLAS needs: 8-bit floats with the contracted dimension last, for both operands.

XLA copies an operand in another layout before every product. Of an operand that the program only transposes, the layout before that counts.
"""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from ..ir.amending import created
from ..ir.module import Computation, HloModule, Instruction
from ..ir.rewriting import Rewriting
from ..ir.shapes import Layout, Shape

FORMAT = "fp8"  # the number formats that need it, by their rate


def with_operands_in_order(module: HloModule, running: Iterable[int], fresh: Callable[[str], str]) -> HloModule:
    """The module with a copy of every operand whose layout its product cannot read."""
    computations = list(module.computations)
    for number in running:
        computation = computations[number]
        copied = {index: sides for index, instruction in enumerate(computation) if (sides := _operands_to_copy(computation, instruction))}
        if copied:
            computations[number] = _copied(computation, copied, fresh)
    return replace(module, computations=tuple(computations)) if computations != list(module.computations) else module


def _operands_to_copy(computation: Computation, product: Instruction) -> dict[int, Shape]:
    """The operands of a product that must be copied: position -> shape of the copy."""
    if product.opcode != "dot":
        return {}
    shapes = [computation[operand].shape for operand in product.operands[:2]]
    if any(not shape.is_array or shape.number.rate != FORMAT for shape in shapes):
        return {}
    operands_to_copy = {}
    for place, contracted in enumerate((product.dot.lhs_contracting, product.dot.rhs_contracting)):
        shape = shapes[place]
        if contracted and min(shape.dims, default=0) > 0 and _last(computation, product.operands[place]) not in contracted:
            order = (contracted[-1], *(axis for axis in reversed(range(shape.rank)) if axis != contracted[-1]))
            operands_to_copy[place] = replace(shape, layout=Layout(minor_to_major=order))
    return operands_to_copy


def _last(computation: Computation, index: int) -> int:
    """The contiguous dimension of an array; of a transposition, that of its operand's layout."""
    orders = []
    while computation[index].opcode == "transpose":
        orders.append(computation[index].integers("dimensions"))
        index = computation[index].operands[0]
    last = computation[index].shape.minor_axis
    for order in reversed(orders):
        last = order.index(last) if last in order else last
    return last


def _copied(computation: Computation, copied: dict[int, dict[int, Shape]], fresh: Callable[[str], str]) -> Computation:
    writing = Rewriting(computation)
    for index, old in enumerate(computation.instructions):
        moved = writing.moved(old)
        operands = [*moved.operands]
        for place, shape in copied.get(index, {}).items():
            name = fresh(f"transpose_{writing.new[operands[place]].name}")
            operands[place] = writing.put(created(old, name, "copy", shape, (operands[place],), metadata=old.metadata))
        writing.where[index] = writing.put(replace(moved, operands=tuple(operands)))
    return writing.finished()
