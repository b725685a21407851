"""Products of matrices that the program padded: rows, columns or depth that it added itself.

Arrays are padded by `pad`, by concatenating them with a constant, or by writing them into a constant array.
"""

from collections.abc import Iterator, Sequence

from ...cost import Cost
from ...resource import HBM
from ...workload import Avoidable
from ..ir.shapes import Shape
from ..price.elementwise import ELEMENTWISE
from .kernels import Kernels, Product, product
from .values import Value, Values

KIND, CLASS = "padding", "padded"
_MOST_NEEDED = 0.9  # of a product: less padding than that pays, for alignment
_SAME = ELEMENTWISE | {"copy", "select", "optimization-barrier", "opt-barrier"}
_RESHAPES = frozenset(("reshape", "bitcast"))
_WRITTEN = {"dynamic-update-slice": 1, "scatter": 2}  # what writes into its first operand, and which operand it writes
_FILLS = frozenset(("pad", "concatenate", *_WRITTEN))
_DEEPEST = 40
Key = tuple[str, int, str]  # of a value
Shares = dict[int, float]  # of each padded axis, the share of it that is data


def padded_products(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The products of a computation with padded dimensions, and what they would cost without the padding."""
    if kernels.module.opcodes.isdisjoint(_FILLS):
        return
    seen: dict[Key, Shares] = {}
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
        why = f"multiplies padded matrices ({found}, of which {needed:.0%} is data)"
        yield index, Avoidable(kind=KIND, instead=Cost.of(amounts), why=why, unneeded=CLASS, factor=1 / needed)


def _filled(values: Values, value: Value, seen: dict[Key, Shares], depth: int = 0) -> Shares:
    """The axes of a value that were padded, followed through other products and elementwise operations."""
    made = values.made_by(value)
    key = made.key
    if key not in seen:
        seen[key] = {}
        seen[key] = _looked_at(values, made, seen, depth) if depth < _DEEPEST else {}
    return seen[key]


def _looked_at(values: Values, made: Value, seen: dict[Key, Shares], depth: int) -> Shares:
    if made.opcode == "pad":
        return _less(values.operand(made, 0).shape.dims, made.shape.dims)
    if made.opcode in _WRITTEN and _is_constant(values, values.operand(made, 0)):
        return _less(values.operand(made, _WRITTEN[made.opcode]).shape.dims, made.shape.dims)
    if made.opcode == "concatenate":
        filler = sum(one.shape.elements for one in values.operands(made) if _is_constant(values, one))
        if filler:
            return {made.instruction.dimensions[0]: 1 - filler / made.shape.elements}
    if made.opcode == "transpose":
        inner = _filled(values, values.operand(made, 0), seen, depth + 1)
        return {axis: inner[old] for axis, old in enumerate(made.instruction.dimensions) if old in inner}
    if made.opcode in _RESHAPES:
        before = values.operand(made, 0)
        return _reshaped(before.shape, made.shape, _filled(values, before, seen, depth + 1)) if before.shape.is_array else {}
    if made.opcode in _SAME:
        found: Shares = {}
        for operand in values.operands(made):
            if operand.shape.is_array and operand.shape.dims == made.shape.dims:
                found |= _filled(values, operand, seen, depth + 1)
        return found
    inside = product(values, made)
    return _of_product(values, inside, seen, depth) if inside is not None else {}


def _less(data: Sequence[int], whole: Sequence[int]) -> Shares:
    if len(data) != len(whole):
        return {}
    return {axis: old / new for axis, (old, new) in enumerate(zip(data, whole, strict=True)) if old < new}


def _is_constant(values: Values, value: Value) -> bool:
    return values.origin(value, _RESHAPES | {"broadcast", "convert", "copy"}).opcode == "constant"


def _reshaped(before: Shape, after: Shape, shares: Shares) -> Shares:
    """The filled axes of an array in other dimensions: axes that were merged or split have what their group has, on its largest axis."""
    if before.dims == after.dims or not shares:
        return shares
    if not _is_plain(before) or not _is_plain(after):
        return {}
    found: Shares = {}
    for old, new in _groups(before.dims, after.dims):
        share = _over(shares, old)
        if share < 1 and new:
            found[max(new, key=after.dims.__getitem__)] = share
    return found


def _is_plain(shape: Shape) -> bool:
    """Whether an array lies in memory in the order of its dimensions."""
    order = shape.layout.minor_to_major if shape.layout is not None else ()
    return tuple(order) == tuple(sorted(order, reverse=True))


def _groups(before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The axes before and after a reshape that hold the same elements."""
    old, new, one, other = list[int](), list[int](), 1, 1
    left, right = iter(range(len(before))), iter(range(len(after)))
    while True:
        if one <= other:
            axis = next(left, None)
            if axis is None:
                break
            old.append(axis)
            one *= before[axis]
        else:
            axis = next(right, None)
            if axis is None:
                break
            new.append(axis)
            other *= after[axis]
        if one == other and new:
            yield old, new
            old, new, one, other = [], [], 1, 1
    if old and new:
        yield old, new


def _of_product(values: Values, found: Product, seen: dict[Key, Shares], depth: int) -> Shares:
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
