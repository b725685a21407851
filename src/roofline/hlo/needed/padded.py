"""Products of matrices that the program filled up by `pad`: rows, columns or depth that it added itself."""

from collections.abc import Iterator

from ...cost import Cost
from ...resource import HBM
from ...workload import Avoidable
from ..price.elementwise import ELEMENTWISE
from .kernels import Kernels, Product, product
from .values import Value, Values

KIND, CLASS = "padding", "padded"
_MOST_NEEDED = 0.9  # of a product: less padding than that pays, for alignment
_SAME = ELEMENTWISE | {"copy", "bitcast", "reshape", "select", "optimization-barrier", "opt-barrier"}
_DEEPEST = 40
Shares = dict[int, float]  # of each axis that was filled up, the share of it that was there before


def padded_products(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The products of a computation with dimensions that were filled up, and what they would cost without."""
    if "pad" not in kernels.module.opcodes:
        return
    seen: dict[tuple[str, int], Shares] = {}
    for index, found in kernels.products.items():
        cost = kernels.costs[index]
        left, right = (_filled(kernels.values, side, seen) for side in (found.left, found.right))
        if not left and not right:
            continue
        batch, rows = _over(left, found.dims.lhs_batch), _over(left, _free(found.left, found.dims.lhs_contracting, found.dims.lhs_batch))
        columns = _over(right, _free(found.right, found.dims.rhs_contracting, found.dims.rhs_batch))
        depth = min(_over(left, found.dims.lhs_contracting), _over(right, found.dims.rhs_contracting))
        needed = batch * rows * columns * depth
        if needed > _MOST_NEEDED:
            continue
        parts = ((found.left, batch * rows * depth), (found.right, batch * depth * columns), (found.made, batch * rows * columns))
        spared = sum(side.shape.bytes * (1 - share) for side, share in parts if side.shape.is_array)
        amounts = {resource: amount * needed if resource.unit == "matrix" else amount for resource, amount in cost.amounts}
        amounts[HBM] = max(amounts.get(HBM, 0) - spared, 0)
        why = f"multiplies matrices that were filled up by pad ({found}, of which {needed:.0%} is data)"
        yield index, Avoidable(kind=KIND, instead=Cost.of(amounts), why=why, unneeded=CLASS, factor=1 / needed)


def _filled(values: Values, value: Value, seen: dict[tuple[str, int], Shares], depth: int = 0) -> Shares:
    """The axes of a value that were padded, followed through other products and elementwise operations."""
    made = values.made_by(value)
    key = (made.computation.name, made.index)
    if key not in seen:
        seen[key] = {}
        seen[key] = _looked_at(values, made, seen, depth) if depth < _DEEPEST else {}
    return seen[key]


def _looked_at(values: Values, made: Value, seen: dict[tuple[str, int], Shares], depth: int) -> Shares:
    if made.opcode == "pad":
        before = values.operand(made, 0).shape.dims
        return {axis: old / new for axis, (old, new) in enumerate(zip(before, made.shape.dims, strict=True)) if old < new}
    if made.opcode == "transpose":
        inner = _filled(values, values.operand(made, 0), seen, depth + 1)
        return {axis: inner[old] for axis, old in enumerate(made.instruction.dimensions) if old in inner}
    if made.opcode in _SAME:
        found: Shares = {}
        for operand in values.operands(made):
            if operand.shape.is_array and operand.shape.dims == made.shape.dims:
                found |= _filled(values, operand, seen, depth + 1)
        return found
    inside = product(values, made)
    return _of_product(values, inside, seen, depth) if inside is not None else {}


def _of_product(values: Values, found: Product, seen: dict[tuple[str, int], Shares], depth: int) -> Shares:
    """The filled axes of a product's result: its batch, the free axes of its left operand, then those of its right."""
    left, right = (_filled(values, side, seen, depth + 1) for side in (found.left, found.right))
    axes = [left.get(axis) for axis in (*found.dims.lhs_batch, *_free(found.left, found.dims.lhs_contracting, found.dims.lhs_batch))]
    axes += [right.get(axis) for axis in _free(found.right, found.dims.rhs_contracting, found.dims.rhs_batch)]
    return {axis: share for axis, share in enumerate(axes) if share is not None}


def _free(side: Value, contracting: tuple[int, ...], batch: tuple[int, ...]) -> list[int]:
    return [axis for axis in range(len(side.shape.dims)) if axis not in (*contracting, *batch)]


def _over(shares: Shares, axes: tuple[int, ...] | list[int]) -> float:
    share = 1.0
    for axis in axes:
        share *= shares.get(axis, 1.0)
    return share
