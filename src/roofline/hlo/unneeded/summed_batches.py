"""Batched products that are then summed over the batch: gradients for each example that are averaged, heads that are added up.

One product that contracts the batch too computes the sum, and writes one matrix instead of one for each member of the batch.
"""

from collections.abc import Iterator
from math import prod

from ...cost import Cost, less_traffic
from ...resource import HBM
from ...workload import Avoidable
from .axes import source_axis
from .kernels import Kernels, Product, is_linear
from .product_order import KIND
from .summed_products import is_only_use, sums
from .values import RENAMED, Value

GROUP = "batch"
_LEAST = 4  # members of a batch that become one: fewer are hardly worth the change


def summed_batches(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The batched products of a computation whose only use is a sum over their batch, and the kernels that sum."""
    if "reduce" not in kernels.module.opcodes:
        return
    for index, reduce in sums(kernels):
        made = kernels.values.origin(kernels.values.operand(reduce, 0), RENAMED)
        place = kernels.holding(made)
        found = kernels.products.get(place) if place is not None else None
        if place is None or place == index or found is None or found.made.key != made.key or found.groups:
            continue
        if kernels.users(place) != {index} or not is_only_use(kernels, reduce) or not is_linear(made.instruction):
            continue
        times = _times(kernels, reduce, found)
        if times < _LEAST or _is_part_of_product(reduce, made):
            continue
        written = made.shape.bytes * (1 - 1 / times)
        instead = less_traffic(kernels.costs[place], written)
        yield place, Avoidable(kind=KIND, instead=instead, group=GROUP)
        less = max(kernels.costs[index].known(HBM) - written, 0)
        yield index, Avoidable(kind=KIND, instead=Cost.of({HBM: less}), group=GROUP)


def _is_part_of_product(reduce: Value, made: Value) -> bool:
    """Whether a sum is the compiler's, for a product whose depth it split: it then has the name of the product's operation."""
    names = reduce.instruction.op_name, made.instruction.op_name
    return not all(names) or names[0] == names[1]


def _times(kernels: Kernels, reduce: Value, found: Product) -> int:
    """The members of a batch that become one; 0 if other dimensions than those of the batch are summed."""
    summed = kernels.values.operand(reduce, 0)
    axes = [source_axis(kernels.values, summed, axis, RENAMED) for axis in reduce.instruction.dimensions]
    batch = range(len(found.dims.lhs_batch))  # the result's first dimensions
    return prod(found.made.shape.dims[axis] for axis in axes if axis is not None) if axes and all(axis in batch for axis in axes) else 0
