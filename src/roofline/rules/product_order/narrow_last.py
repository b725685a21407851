"""Products in a costly order: two large matrices first, then a narrow one, as in linear attention with (Q Kᵀ) V, or low-rank weights.

(A B) C costs m·n·(k + p) multiplications, A (B C) only k·p·(m + n), for A of m x k, B of k x n and C of n x p. The result of the first
product may be scaled in between, and a row may be added to all of its rows; if anything else uses it, such as a softmax or a sum with
another matrix, the order cannot be changed.

Low-rank factors that are multiplied and added to frozen weights, x (W + B A)ᵀ, cost little forward, but the backward pass computes the
gradient of all of W + B A for those of B and A: the first product is that gradient, and the narrow ones are the other factor.
"""

from collections.abc import Iterator, Sequence
from math import prod

from ...cost import Cost
from ...graph import NO_KERNEL, Graph, Node, Operator, Phase
from ...graph.facts.linear import is_scaled
from ...resource import HBM
from ...workload import Avoidable, Facts

KIND, MERGED = "product-order", "merged"
WORTH = 0.25  # the other order must need less than this share of the FLOP: two linear layers in a row are not a mistake


def costly_orders(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The products of a costly order and their gradients, with their costs in the other order."""
    told = set[int]()
    for first in sorted(graph.of(Operator.DOT), key=_is_gradient):
        if first.kernel in told or first.kernel == NO_KERNEL:
            continue
        uses = list(_linear_uses(graph, first, first.gives[0]))
        if not uses or not all(_is_product_of(graph, first, use, array) for use, array in uses):
            continue
        sizes = first.sizes
        seconds = [(use, _width(use, array)) for use, array in uses if _is_gradient(first) or not _is_gradient(use)]
        both = sizes.multiplications + sum(use.sizes.multiplications for use, _ in seconds)
        instead = sum(sizes.batch * sizes.depth * width * (sizes.rows + sizes.columns) for _, width in seconds)
        rank = _merged_rank(graph, uses)
        if not 0 < instead <= WORTH * both or (_is_gradient(first) and not rank):  # other gradients follow their forward products
            continue
        group, facts = "", Facts(times=both / instead)
        if rank:
            group, facts = MERGED, Facts(rows=sizes.rows, columns=sizes.columns, rank=rank)
        for product in (first, *(use for use, _ in seconds)):
            told.add(product.kernel)
            cost = _without(graph, first, product, instead / both, len(seconds))
            yield product.kernel, Avoidable(kind=KIND, instead=cost, facts=facts, group=group)
            for gradient in graph.gradients(product):
                if gradient.operator == Operator.DOT:
                    told.add(gradient.kernel)
                    yield gradient.kernel, Avoidable(kind=KIND, instead=graph.cost(gradient) * (instead / both), facts=facts, group=group)


def _is_gradient(node: Node) -> bool:
    """Whether a node belongs to one of the forward pass."""
    return node.phase == Phase.BACKWARD and node.sequence >= 0


def _linear_uses(graph: Graph, first: Node, array: int) -> Iterator[tuple[Node, int]]:
    """The uses of the result of a product, also after it was scaled by a number or the same row was added to all of its rows."""
    for node, name in graph.uses(array):
        others = [graph.distinct(other) for other in node.takes if other != name]
        is_shifted = node.operator == Operator.ADD and len(others) == 1 and others[0] <= first.sizes.columns
        if is_scaled(graph, node, name) or (is_shifted and node.takes.count(name) == 1):
            yield from _linear_uses(graph, first, node.gives[0])
        else:
            yield node, name


def _is_product_of(graph: Graph, first: Node, use: Node, array: int) -> bool:
    """Whether a use multiplies each matrix that the first product makes by something else, summing over its rows or its columns."""
    if use.operator != Operator.DOT or use.takes[0] == use.takes[1] or use.takes[:2].count(array) != 1:
        return False
    sizes, shape = first.sizes, graph.arrays[array].shape
    factor = use.sizes.left if use.takes[0] == array else use.sizes.right
    batch, summed, free = (prod(shape[axis] for axis in axes) for axes in (factor.batch, factor.summed, factor.free))
    is_row_by_row = batch == 1 and (summed, free) == (sizes.columns, sizes.batch * sizes.rows)  # all matrices, one below the other
    return is_row_by_row or (batch == sizes.batch and (summed, free) in ((sizes.columns, sizes.rows), (sizes.rows, sizes.columns)))


def _width(use: Node, array: int) -> int:
    """The columns of the matrix that a product multiplies an array by, or its rows if it is on the left."""
    return use.sizes.columns if use.takes[0] == array else use.sizes.rows


def _merged_rank(graph: Graph, uses: Sequence[tuple[Node, int]]) -> int:
    """The depth of a product whose gradients some uses of a matrix are, if something is added to that product; else 0.

    The matrix is the gradient of that sum then.
    """
    product = _differentiated(graph, uses)
    if product is None:
        return 0
    is_added = any(user.operator == Operator.ADD for user, _ in _linear_uses(graph, product, product.gives[0]))
    return product.sizes.depth if is_added else 0


def _differentiated(graph: Graph, uses: Sequence[tuple[Node, int]]) -> Node | None:
    """The product that some uses of a matrix are the gradients of: they multiply the matrix by each of its factors."""
    if len(uses) != 2:
        return None
    for node in graph.differentiated(uses[0][0]):
        if node.operator == Operator.DOT and all(node in graph.differentiated(use) for use, _ in uses):
            return node
    first, second = (graph.origin(use.takes[1] if use.takes[0] == array else use.takes[0]) for use, array in uses)
    for product, name in graph.uses(first):
        others = {graph.origin(other) for other in product.takes[:2] if other != name}
        if product.operator == Operator.DOT and others == {second} != {first}:
            return product
    return None


def _without(graph: Graph, first: Node, product: Node, share: float, times: int) -> Cost:
    """The cost of a product in the other order: ``share`` of the FLOP, without the bytes of the first product's result.

    The operands of the first are read for each of the products after it.
    """
    moved = -graph.arrays[first.gives[0]].bytes
    if product == first:
        moved += (times - 1) * sum(graph.arrays[array].bytes for array in first.takes[:2])
    return Cost.of(
        {
            resource: amount * share if resource != HBM else max(float(amount) + moved, 0.0)
            for resource, amount in graph.cost(product).amounts
        }
    )
