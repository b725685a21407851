"""Groups of rows, such as the tokens of each expert, with room for far more rows than there are."""

from collections.abc import Iterator

from ...cost import Cost, less_traffic
from ...resource import HBM
from ...workload import Avoidable, source_line
from ..ir.scopes import direction
from .kernels import Kernels, Product
from .padded_axes import Key, Shares, free_axes, padded_axes, share_of
from .values import Value

KIND, CLASS = "padding", "padded"
_GROUPS = "groups"
_MOST_NEEDED = 0.9  # of a product is data: less padding is worth its cost, for alignment
_MOST_FILLED = 0.6  # of the room for groups of rows: groups differ in size, so some room is usual
_SPARE = 1.25  # rows that groups have room for over their rows, as many programs with experts do


def room_for_groups(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels on groups of rows, such as the tokens of each expert, with room for far more rows than there are; gradients included."""
    if "scatter" not in kernels.module.opcodes:
        return
    seen: dict[Key, Shares] = {}
    axes = {index: _axes(kernels, found, seen) for index, found in kernels.products.items()}
    rooms = {index: [one for side in sides for one in side.values() if one.is_room] for index, sides in axes.items()}
    # Gradients of a few rows are scattered in the same way; results of which few rows are used have no room in the forward pass.
    forward = [index for index in rooms if direction(kernels.products[index].made.instruction.op_name) != "backward"]
    filled = {one.share for index in forward for one in rooms[index] if one.share <= _MOST_FILLED}
    if not filled:
        return
    for index, (left, right) in axes.items():
        room = [one for one in rooms[index] if one.share in filled]
        if room:
            instead, facts = _without(kernels, index, left, right), {"where": source_line(room[0].location)}
            yield index, Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, group=_GROUPS, factor=1 / room[0].share)
    others = dict(_padded_arrays(kernels, seen))
    for scatter in kernels.parts_with("scatter"):
        shares = {one.share for one in padded_axes(kernels.values, scatter, seen).values() if one.is_room} & filled
        others.update(dict.fromkeys(_fillers(kernels, scatter), min(shares)) if shares else ())
    for index, needed in others.items():
        instead = kernels.costs[index] * min(_SPARE * needed, 1.0)
        yield index, Avoidable(kind=KIND, instead=instead, unneeded=CLASS, group=_GROUPS)


def _axes(kernels: Kernels, found: Product, seen: dict[Key, Shares]) -> tuple[Shares, Shares]:
    """The padded axes of a product's operands."""
    return padded_axes(kernels.values, found.left, seen), padded_axes(kernels.values, found.right, seen)


def _without(kernels: Kernels, index: int, left: Shares, right: Shares) -> Cost:
    """The cost of a product without its padding, but with some room to spare."""
    needed, padding_bytes = _needed(kernels.products[index], left, right)
    amounts = {
        resource: amount * min(_SPARE * needed, 1.0) if resource.unit == "matrix" else amount
        for resource, amount in kernels.costs[index].amounts
    }
    return less_traffic(Cost.of(amounts), padding_bytes)


def _needed(found: Product, left: Shares, right: Shares) -> tuple[float, float]:
    """The share of a product that is data, and the bytes of its operands and result that are padding."""
    dims = found.dims
    batch, rows = share_of(left, dims.lhs_batch), share_of(left, free_axes(found.left, dims.lhs_contracting, dims.lhs_batch))
    columns = share_of(right, free_axes(found.right, dims.rhs_contracting, dims.rhs_batch))
    depth = min(share_of(left, dims.lhs_contracting), share_of(right, dims.rhs_contracting))
    parts = ((found.left, batch * rows * depth), (found.right, batch * depth * columns), (found.made, batch * rows * columns))
    padding_bytes = sum(side.shape.bytes * (1 - share) for side, share in parts if side.shape.is_array)
    return batch * rows * columns * depth, padding_bytes


def _padded_arrays(kernels: Kernels, seen: dict[Key, Shares]) -> Iterator[tuple[int, float]]:
    """The kernels other than products that work on arrays with room for groups, and the share of these that is data."""
    for index, cost in kernels.costs.items():
        moved = float(cost.known(HBM))
        if index in kernels.products or not moved:
            continue
        whole, filler = 0.0, 0.0
        for value in _arrays(kernels, index):
            whole += value.shape.bytes
            axes = {axis: one for axis, one in padded_axes(kernels.values, value, seen).items() if one.is_room}
            filler += value.shape.bytes * (1 - share_of(axes, axes))
        needed = 1 - filler / whole if whole else 1.0
        if needed <= _MOST_NEEDED:
            yield index, needed


def _arrays(kernels: Kernels, index: int) -> list[Value]:
    """The arrays that a kernel reads and writes."""
    instruction = kernels.computation[index]
    read = [Value(kernels.computation, operand) for operand in dict.fromkeys(instruction.operands)]
    written = kernels.values.written(kernels.computation, index)
    return [value for value in (*read, *written) if value.shape.is_array and value.shape.is_bounded]


def _fillers(kernels: Kernels, scatter: Value) -> Iterator[int]:
    """The kernels that scatter gradients, and that make the zeros around them."""
    for one in (scatter, kernels.values.origin(kernels.values.operand(scatter, 0))):
        place = kernels.holding(one)
        if place in kernels.costs and one.opcode in ("scatter", "broadcast"):
            yield place
