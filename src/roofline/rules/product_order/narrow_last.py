"""Products in a costly order: two large matrices first, then a narrow one, as in linear attention with (Q Kᵀ) V, or low-rank weights.

(A B) C costs m·n·(k + p) multiplications, A (B C) only k·p·(m + n), for A of m x k, B of k x n and C of n x p. The result of the first
product may be scaled in between, and a row may be added to all of its rows; if anything else uses it, such as a softmax or a sum with
another matrix, the order cannot be changed.
"""

from collections.abc import Iterator

from ...cost import Cost
from ...graph import RENAMING, SCALING, Graph, Node, Operator, Phase
from ...resource import HBM
from ...workload import Avoidable

KIND, CAUSE = "product-order", "narrow_last"
WORTH = 0.25  # the other order must need less than this share of the FLOP: two linear layers in a row are not a mistake
_SPREAD = RENAMING | {Operator.BROADCAST}


def costly_orders(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The products of a costly order and their gradients, with their costs in the other order."""
    for first in graph.of(Operator.DOT):
        if first.phase == Phase.BACKWARD:
            continue
        uses = list(_linear_uses(graph, first, first.gives[0]))
        if not uses or not all(_is_product_of(graph, first, use, array) for use, array in uses):
            continue
        made = first.sizes
        seconds = [(use, _width(use, array)) for use, array in uses if use.phase != Phase.BACKWARD]
        both = made.multiplications + sum(use.sizes.multiplications for use, _ in seconds)
        instead = sum(made.batch * made.depth * width * (made.rows + made.columns) for _, width in seconds)
        if not 0 < instead <= WORTH * both:
            continue
        facts = {"times": both / instead}
        for product in (first, *(use for use, _ in seconds)):
            yield product.kernel, Avoidable(kind=KIND, instead=_without(graph, first, product, instead / both), cause=CAUSE, facts=facts)
            for gradient in graph.gradients(product):
                if gradient.operator == Operator.DOT:
                    yield gradient.kernel, Avoidable(kind=KIND, instead=graph.cost(gradient) * (instead / both), cause=CAUSE, facts=facts)


def _linear_uses(graph: Graph, first: Node, array: int) -> Iterator[tuple[Node, int]]:
    """The uses of the result of a product, also after it was scaled by a number or the same row was added to all of its rows."""
    for node, name in graph.uses(array):
        others = [graph.arrays[graph.origin(other, _SPREAD)].elements for other in node.takes if other != name]
        is_first = node.takes[:1] == (name,) or node.operator == Operator.MULTIPLY
        is_scaled = node.operator in SCALING and is_first and all(size == 1 for size in others)
        is_shifted = node.operator == Operator.ADD and len(others) == 1 and others[0] <= first.sizes.columns
        if node.takes.count(name) == 1 and (is_scaled or is_shifted):
            yield from _linear_uses(graph, first, node.gives[0])
        else:
            yield node, name


def _is_product_of(graph: Graph, first: Node, use: Node, array: int) -> bool:
    """Whether a use multiplies the result of the first product, as it is or transposed, by something else."""
    made, shape = first.sizes, graph.arrays[array].shape
    if use.operator != Operator.DOT or len(shape) < 2 or use.takes[0] == use.takes[1]:
        return False
    is_whole = graph.arrays[array].elements == made.results
    is_matrix = sorted(shape[-2:]) == sorted((made.rows, made.columns)) or shape[-2:] == (made.batch * made.rows, made.columns)
    return is_whole and is_matrix and use.takes[:2].count(array) == 1


def _width(use: Node, array: int) -> int:
    """The columns of the matrix that a product multiplies an array by, or its rows if it is on the left."""
    return use.sizes.columns if use.takes[0] == array else use.sizes.rows


def _without(graph: Graph, first: Node, product: Node, share: float) -> Cost:
    """The cost of a product in the other order: ``share`` of the FLOP, without the bytes of the first product's result."""
    made = graph.arrays[first.gives[0]].bytes
    amounts = {
        resource: amount * share if resource != HBM else max(float(amount) - made, 0.0) for resource, amount in graph.cost(product).amounts
    }
    return Cost.of(amounts)
