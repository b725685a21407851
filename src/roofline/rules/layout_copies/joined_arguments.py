"""Weights that are stacked or concatenated in every call: the arguments of a program are copied side by side before matmuls read them.

Kept as one array, the weights of all layers or of several projections need no copy; a scan over layers slices it.
"""

from collections.abc import Iterator

from ...cost import NOTHING
from ...graph import NO_KERNEL, RENAMING, Graph, Node, Operator
from ...graph.facts.flow import reached
from ...graph.facts.kernels import MOVES, consists_of
from ...graph.facts.pieces import pieces
from ...units import parse
from ...workload import Avoidable, Usual
from .gathered_blocks import CLASS, KIND

GROUP = "joined"
_LEAST = parse("1 MB", "B")
_PRODUCTS = (Operator.DOT, Operator.CONVOLUTION)
_READ = RENAMING | {Operator.SLICE}


def joined_arguments(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that only join arguments which products multiply what the program computes by."""
    joins = [node for node in graph.of(Operator.CONCATENATE) if _is_of_arguments(graph, node)]
    computed = reached(graph, graph.of(*_PRODUCTS, Operator.ATTENTION, Operator.GATHER)) if joins else set()
    for join in joins:
        users = list(graph.uses(join.gives[0], _READ))
        if users and all(_is_weight(graph, user, name, computed) for user, name in users):
            yield join.kernel, Avoidable(kind=KIND, instead=NOTHING, unneeded=CLASS, group=GROUP, usual=Usual.UNLESS_ASKED)


def _is_of_arguments(graph: Graph, join: Node) -> bool:
    if join.kernel == NO_KERNEL or not join.gives or len(join.takes) < 2 or graph.arrays[join.gives[0]].bytes < _LEAST:
        return False
    are_given = all(piece not in graph.maker and piece not in graph.region_of for piece in pieces(graph, join.gives[0]))
    return are_given and consists_of(graph, join.kernel, MOVES)


def _is_weight(graph: Graph, product: Node, weights: int, computed: set[int]) -> bool:
    """Whether a product multiplies what products or look-ups computed by an array; one that was matched by size has to be on the right."""
    if product.operator not in _PRODUCTS or product.takes[:2].count(weights) != 1:
        return False
    other = product.takes[1] if product.takes[0] == weights else product.takes[0]
    return graph.origin(other) in computed and (graph.arrays[weights].sure or product.takes[1] == weights)
