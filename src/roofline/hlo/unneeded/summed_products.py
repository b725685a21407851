"""Products whose rows or columns are then summed: a projection before a mean. Summing first leaves one row to multiply."""

from collections.abc import Iterator
from math import prod

from ...cost import Cost
from ...resource import HBM
from ...workload import Avoidable, Facts
from ..ir.module import Instruction
from .kernels import Kernels, Product, is_linear
from .product_order import KIND, unscaled
from .values import Value

_LEAST = 4  # rows that become one: fewer are hardly worth the change


def summed_products(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The products of a computation whose only use is a sum over their rows or columns, and the kernels that sum."""
    if "reduce" not in kernels.module.opcodes:
        return
    for index, reduce in sums(kernels):
        made = unscaled(kernels.values, kernels.values.operand(reduce, 0))
        place = kernels.holding(made)
        found = kernels.products.get(place) if place is not None else None
        if place is None or found is None or found.made.key != made.key or kernels.users(place) != {index} or place == index:
            continue
        if not is_only_use(kernels, reduce) or not is_linear(made.instruction):
            continue
        summed = _summed(kernels.values.operand(reduce, 0), reduce.instruction, found)
        if summed is None:
            continue
        side, times = summed
        cost, read = kernels.costs[place], found.left.shape.bytes + found.right.shape.bytes
        amounts = {resource: amount / times if resource.unit == "matrix" else amount for resource, amount in cost.amounts}
        amounts[HBM] = read
        facts = Facts(product=str(found), times=times, side=side)
        yield place, Avoidable(kind=KIND, instead=Cost.of(amounts), cause="summed", facts=facts, factor=times)
        less = kernels.costs[index].known(HBM) / times
        yield index, Avoidable(kind=KIND, instead=Cost.of({HBM: less}), cause="sum", facts=facts)


def sums(kernels: Kernels) -> Iterator[tuple[int, Value]]:
    """The kernels that sum one array, with the reduction."""
    for index in kernels.costs:
        found = kernels.values.parts_with("reduce", kernels.computation, index)
        if len(found) == 1 and _adds(kernels, found[0].instruction):
            yield index, found[0]


def _adds(kernels: Kernels, reduce: Instruction) -> bool:
    bodies = [kernels.module.computations[number] for number in reduce.called("to_apply")]
    return len(bodies) == 1 and reduce.shape.is_array and bodies[0].root_instruction.opcode == "add"


def is_only_use(kernels: Kernels, use: Value, number: int = 0) -> bool:
    """Whether an instruction is the only use, in its kernel, of one of its operands."""
    value, user = kernels.values.operand(use, number), use.index
    while value.inside and kernels.values.users(value.computation, value.index) == [user]:
        arrays = [one for one in kernels.values.operands(value) if one.shape.elements == value.shape.elements and one.opcode != "broadcast"]
        if value.opcode == "parameter" or len(arrays) != 1:
            return value.opcode == "parameter"
        value, user = arrays[0], value.index
    return not value.inside


def _summed(value: Value, reduce: Instruction, found: Product) -> tuple[str, int] | None:
    """Whether rows or columns of a product are summed, and how many become one; ``None`` if it is neither or both.

    The result of a product has its columns last, whatever its rows were split into.
    """
    dims, axes = value.shape.dims, set(reduce.dimensions)
    times, split = prod(dims[axis] for axis in axes), len(dims)
    while split and prod(dims[split:]) < found.columns:
        split -= 1
    is_usual = value.shape.major_to_minor == tuple(range(len(dims)))
    if prod(dims[split:]) != found.columns or times < _LEAST or found.batch > 1 or not is_usual:
        return None
    if all(axis < split for axis in axes):
        return "rows", times
    return ("columns", times) if all(axis >= split for axis in axes) else None
