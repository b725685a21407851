"""Products with a matrix that is zero outside its diagonal, or has ones on one side of it alone."""

from collections.abc import Iterator

from ...cost import Cost
from ...graph import NO_KERNEL, Graph, Operator
from ...graph.facts.one_hot import is_diagonal, is_triangle_of_ones
from ...resource import HBM, vector
from ...workload import Avoidable
from .lookups import CLASS, KIND

DIAGONAL = "diagonal"  # the group of products with diagonal matrices
RUNNING = "running"  # the group of cumulative sums
LONG = 1_000  # elements; shorter cumulative sums are not faster than matmuls


def diagonal_products(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The products with a diagonal matrix, and the cost of an elementwise product."""
    for product in graph.of(Operator.DOT):
        for place in (0, 1):
            if product.kernel != NO_KERNEL and is_diagonal(graph, product.takes[place]):
                instead = Cost.of({HBM: 2 * graph.arrays[product.takes[1 - place]].bytes})
                facts = {"product": str(product.sizes)}
                yield product.kernel, Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, group=DIAGONAL)
                break


def running_sums(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The products with a triangle of ones, and the cost of a running sum."""
    for product in graph.of(Operator.DOT):
        for place in (0, 1):
            if product.kernel == NO_KERNEL or product.sizes.depth < LONG or not is_triangle_of_ones(graph, product.takes[place]):
                continue
            other = graph.arrays[product.takes[1 - place]]
            instead = Cost.of({HBM: 2 * other.bytes, vector("fp32"): other.elements})
            facts = {"product": str(product.sizes)}
            yield product.kernel, Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, group=RUNNING)
            break
