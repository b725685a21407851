"""Inverses that are computed only to be multiplied: solving for what they multiply takes fewer FLOP, and loses fewer digits.

An inverse is the solution for the identity, as many columns as the matrix has. A solution for a few columns does a part of that work.
"""

from collections.abc import Iterator

from ...cost import Cost
from ...graph import NO_KERNEL, SPREADING, Axes, Graph, Node, Operator
from ...graph.facts.one_hot import is_diagonal
from ...workload import Avoidable, Facts
from .narrow_last import KIND

GROUP = "inverse"
MOST_COLUMNS = 0.5  # of the order of the matrix: with more, a solve saves little
_REORDERED = SPREADING | {Operator.GATHER}
_FACTORED = 1 / 4  # of the 8n³/3 FLOP of an inverse are those of the factors, which a solve needs too


def inverses(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The inverses, or solves for an identity, whose results are only multiplied by a few columns, and their cost for these columns."""
    for nodes in _inverses(graph):
        inverse = graph.arrays[nodes[-1].gives[0]]
        sizes = [_size(graph, node, array) for node, array in graph.uses(nodes[-1].gives[0])]
        known = [size for size in sizes if size is not None]
        if not known or len(known) < len(sizes) or not inverse.elements:
            continue
        share, order = max(known) / inverse.elements, inverse.shape[-1]
        if share > MOST_COLUMNS:
            continue
        columns = max(round(share * order), 1)
        facts = Facts(order=order, columns=columns)
        for node in nodes:
            if node.kernel != NO_KERNEL:
                yield node.kernel, Avoidable(kind=KIND, instead=_for_columns(graph.cost(node), node, share), facts=facts, group=GROUP)


def _inverses(graph: Graph) -> Iterator[list[Node]]:
    """The nodes of each inverse: one, or the solves for an identity with both factors of a matrix, the second for the first's solution."""
    chains = [[node] for node in graph.of(Operator.INVERSE) if node.gives]
    for node in graph.of(Operator.SOLVE):
        if len(node.takes) < 2 or not node.gives:
            continue
        before = graph.made_by(node.takes[1], Operator.SOLVE)
        chain = next((nodes for nodes in chains if nodes[-1] == before), None)
        if chain is not None:
            chain.append(node)
        elif is_diagonal(graph, graph.origin(node.takes[1], _REORDERED)):  # the identity, perhaps with its rows in another order
            chains.append([node])
    yield from chains


def _size(graph: Graph, use: Node, array: int) -> int | None:
    """The number of elements of what a use computes from an inverse; ``None`` if it does not multiply by it."""
    if use.operator == Operator.DOT and use.takes[:2].count(array) == 1:
        return use.sizes.results
    if use.operator != Operator.MULTIPLY:
        return None
    totals = [node for node, _ in graph.uses(use.gives[0])]
    sums = [node for node in totals if isinstance(node.params, Axes) and node.params.function == Operator.ADD]
    if not sums or len(sums) < len(totals):
        return None
    return max(graph.arrays[node.gives[0]].elements for node in sums)


def _for_columns(cost: Cost, node: Node, share: float) -> Cost:
    """The cost of a solve for a share of its columns; it reads the matrix whole, one of three arrays, or of two of an inverse."""
    work, matrices = (share, 3) if node.operator == Operator.SOLVE else (_FACTORED + (1 - _FACTORED) * share, 2)
    moved = min((1 + 2 * share) / matrices, 1)
    return Cost.of({resource: amount * (moved if resource.measure == "B" else work) for resource, amount in cost.amounts if amount})
