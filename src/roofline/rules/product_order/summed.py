"""Products whose results are then summed, which could be summed first: over rows or columns, as a projection before a mean, or over the
batch, as gradients for each example that are averaged.

The sum of the rows of A B is the sum of the rows of A, times B: one row is left to multiply. The sum of a batch of products is one product
that contracts the batch too, and writes one matrix instead of one for each member of the batch.
"""

from collections.abc import Iterator
from math import prod

from msgspec import Struct

from ...cost import Cost, less_traffic
from ...graph import NO_KERNEL, Axes, Graph, Node, Operator
from ...graph.facts.linear import is_scaled
from ...resource import HBM
from ...workload import Avoidable, Facts
from .narrow_last import KIND

BATCH = "batch"  # the group of batches that are summed
_LEAST = 4  # rows or members of a batch that become one: fewer are hardly worth the change
_MOST_SCALES = 8


class Total(Struct, frozen=True):
    """A sum, and the axes of a product's result that it adds up; the nodes ``between`` multiply by one number, or rename."""

    node: Node
    axes: frozenset[int]
    between: tuple[Node, ...] = ()


def summed_products(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The products whose only use is a sum, the kernels that sum, and the gradients of the products."""
    for product in graph.of(Operator.DOT):
        total = _total(graph, product.gives[0]) if product.kernel != NO_KERNEL and not product.sizes.groups else None
        if total is None or total.node.kernel == NO_KERNEL:
            continue
        times = _count(graph, total.node)
        if times < _LEAST:
            continue
        side = _side(product, total.axes)
        if side == BATCH:
            yield from _batch_in_one(graph, product, total, times)
        elif side:
            yield from _summed_first(graph, product, total, times, side)


def _total(graph: Graph, array: int, depth: int = _MOST_SCALES) -> Total | None:
    """The only use of an array, if that is a sum of it, perhaps multiplied by numbers."""
    uses = list(graph.uses(array))
    if len(uses) != 1 or not depth:
        return None
    ((node, name),) = uses
    renamed = tuple(graph.between(name))
    if node.operator == Operator.REDUCE and isinstance(node.params, Axes) and node.params.function == Operator.ADD:
        return Total(node, graph.source_axes(name, node.params.axes), renamed) if node.takes == (name,) else None
    total = _total(graph, node.gives[0], depth - 1) if is_scaled(graph, node, name) else None
    return Total(total.node, graph.source_axes(name, total.axes), (*renamed, node, *total.between)) if total is not None else None


def _count(graph: Graph, total: Node) -> int:
    """How many elements become one."""
    assert isinstance(total.params, Axes)
    return prod(graph.arrays[total.takes[0]].shape[axis] for axis in total.params.axes)


def _side(product: Node, axes: frozenset[int]) -> str:
    """Whether axes of a product's result are rows, columns or the batch; empty if they are of two of these."""
    left = [BATCH] * len(product.sizes.left.batch) + ["rows"] * len(product.sizes.left.free)
    sides = {left[axis] if axis < len(left) else "columns" for axis in axes}
    return sides.pop() if len(sides) == 1 else ""


def _summed_first(graph: Graph, product: Node, total: Total, times: int, side: str) -> Iterator[tuple[int, Avoidable]]:
    cost, sizes = graph.cost(product), product.sizes
    read = sum(graph.arrays[array].bytes for array in product.takes[:2])
    moved = cost.known(HBM) if product.kernel == total.node.kernel else read
    facts = Facts(product=str(sizes), times=times, side=side)
    instead = Cost.of({**dict(_fewer(cost, times).amounts), HBM: moved})
    yield product.kernel, Avoidable(kind=KIND, instead=instead, cause="summed", facts=facts, factor=times)
    for gradient in graph.gradients(product):
        if gradient.operator == Operator.DOT:
            instead = _fewer(graph.cost(gradient), times)
            yield gradient.kernel, Avoidable(kind=KIND, instead=instead, cause="summed", facts=facts, factor=times)
    for kernel in _others(product, total):
        instead = Cost.of({HBM: graph.kernels[kernel].cost.known(HBM) / times})
        yield kernel, Avoidable(kind=KIND, instead=instead, cause="sum", facts=facts)


def _fewer(cost: Cost, times: int) -> Cost:
    """The cost of a product with a part of its rows or columns, and as many bytes."""
    return Cost.of({resource: amount / times if resource.unit == "matrix" else amount for resource, amount in cost.amounts})


def _batch_in_one(graph: Graph, product: Node, total: Total, times: int) -> Iterator[tuple[int, Avoidable]]:
    if product.kernel == total.node.kernel:
        return
    written = graph.arrays[product.gives[0]].bytes * (1 - 1 / times)
    yield product.kernel, Avoidable(kind=KIND, instead=less_traffic(graph.cost(product), written), group=BATCH)
    for kernel in _others(product, total):
        less = max(graph.kernels[kernel].cost.known(HBM) - (written if kernel == total.node.kernel else 2 * written), 0)
        yield kernel, Avoidable(kind=KIND, instead=Cost.of({HBM: less}), group=BATCH)


def _others(product: Node, total: Total) -> set[int]:
    """The kernels after a product, up to that of its sum."""
    return {node.kernel for node in (*total.between, total.node)} - {product.kernel, NO_KERNEL}
