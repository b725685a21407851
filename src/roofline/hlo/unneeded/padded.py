"""Products of matrices whose rows, columns or depth the program itself padded, and other kernels on such arrays."""

from collections.abc import Iterator

from ...cost import Cost, less_traffic
from ...resource import HBM
from ...units import percent
from ...workload import Avoidable, source_line
from ..price.calls.fmha import attention_of
from ..price.types import Site
from .kernels import Kernels, Product
from .padded_axes import PADDING_OPS, Key, Shares, free_axes, padded_axes, share_of
from .values import Value

KIND, CLASS = "padding", "padded"
_MOST_NEEDED = 0.9  # of a product is data: less padding is worth its cost, for alignment


def padding(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels with padded arrays of a computation with padded products, and their cost without the padding."""
    if kernels.module.opcodes.isdisjoint(PADDING_OPS):
        return
    seen: dict[Key, Shares] = {}
    products = [*_padded_products(kernels, seen), *_padded_attention(kernels, seen)]
    if products:
        yield from products
        yield from _padded_arrays(kernels, seen)


def _padded_products(kernels: Kernels, seen: dict[Key, Shares]) -> Iterator[tuple[int, Avoidable]]:
    for index, found in kernels.products.items():
        cost = kernels.costs[index]
        left, right = (padded_axes(kernels.values, side, seen) for side in (found.left, found.right))
        needed, padding_bytes = _needed(found, left, right)
        if needed > _MOST_NEEDED:
            continue
        amounts = {resource: amount * needed if resource.unit == "matrix" else amount for resource, amount in cost.amounts}
        instead = less_traffic(Cost.of(amounts), padding_bytes)
        where = next((f" in {source_line(one.location)}" for one in (*left.values(), *right.values()) if one.location), "")
        why = f"multiplies matrices that were padded{where} ({found}, of which {percent(needed)} is data)"
        yield index, Avoidable(kind=KIND, instead=instead, why=why, unneeded=CLASS, factor=1 / needed)


def _padded_attention(kernels: Kernels, seen: dict[Key, Shares]) -> Iterator[tuple[int, Avoidable]]:
    """The calls of fused attention whose queries and keys were padded in the size of a head."""
    for index, cost in kernels.costs.items():
        instruction = kernels.computation[index]
        if instruction.opcode != "custom-call" or len(instruction.operands) < 3:
            continue
        if attention_of(Site(kernels.module, kernels.computation, instruction, kernels.platform)) is None:
            continue
        heads = [padded_axes(kernels.values, Value(kernels.computation, operand), seen) for operand in instruction.operands[:3]]
        last = [len(kernels.computation[operand].shape.dims) - 1 for operand in instruction.operands[:3]]
        found = [axes[axis] for axes, axis in zip(heads, last, strict=True) if axis in axes]
        needed = max((one.share for one in found), default=1.0)
        if len(found) < len(heads) or needed > _MOST_NEEDED:
            continue
        why = f"computes attention with heads that were padded in {source_line(found[0].location)}, of which {percent(needed)} is data"
        yield index, Avoidable(kind=KIND, instead=cost * needed, why=why, unneeded=CLASS, factor=1 / needed)


def _needed(found: Product, left: Shares, right: Shares) -> tuple[float, float]:
    """The share of a product that is data, and the bytes of its operands and result that are padding."""
    dims = found.dims
    batch, rows = share_of(left, dims.lhs_batch), share_of(left, free_axes(found.left, dims.lhs_contracting, dims.lhs_batch))
    columns = share_of(right, free_axes(found.right, dims.rhs_contracting, dims.rhs_batch))
    depth = min(share_of(left, dims.lhs_contracting), share_of(right, dims.rhs_contracting))
    parts = ((found.left, batch * rows * depth), (found.right, batch * depth * columns), (found.made, batch * rows * columns))
    padding_bytes = sum(side.shape.bytes * (1 - share) for side, share in parts if side.shape.is_array)
    return batch * rows * columns * depth, padding_bytes


def _padded_arrays(kernels: Kernels, seen: dict[Key, Shares]) -> Iterator[tuple[int, Avoidable]]:
    for index, cost in kernels.costs.items():
        moved = float(cost.known(HBM))
        if index in kernels.products or not moved:
            continue
        whole, filler = 0.0, 0.0
        for value in _arrays(kernels, index):
            whole += value.shape.bytes
            filler += value.shape.bytes * (1 - share_of(padded_axes(kernels.values, value, seen), range(len(value.shape.dims))))
        needed = 1 - filler / whole if whole else 1.0
        if needed <= _MOST_NEEDED:
            why = f"works on padded arrays, of which {percent(needed)} is data"
            yield index, Avoidable(kind=KIND, instead=cost * needed, why=why)


def _arrays(kernels: Kernels, index: int) -> list[Value]:
    """The arrays that a kernel reads and writes."""
    instruction = kernels.computation[index]
    read = [Value(kernels.computation, operand) for operand in dict.fromkeys(instruction.operands)]
    written = kernels.values.written(kernels.computation, index)
    return [value for value in (*read, *written) if value.shape.is_array and value.shape.is_bounded]
