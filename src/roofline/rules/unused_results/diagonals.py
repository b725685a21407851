"""Products of which only the diagonal is used: scores of all pairs of rows, of which the program takes those of equal rows."""

from collections.abc import Iterator

from ...graph import NO_KERNEL, Graph, Node, Operator, Rows
from ...graph.facts.one_hot import is_diagonal
from ...workload import Avoidable
from .parts import CLASS, KIND

_MOST_USED = 1 / 8


def diagonals_of_products(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The products whose only use is a gather of a few elements, or of the diagonal, or a select of it."""
    for product in graph.of(Operator.DOT):
        sizes = product.sizes
        if product.kernel == NO_KERNEL or sizes.batch != 1 or sizes.rows != sizes.columns or sizes.rows * _MOST_USED < 1:
            continue
        uses = list(graph.uses(product.gives[0]))
        if len(uses) == 1 and _takes_the_diagonal(graph, *uses[0]):
            instead, facts = graph.kernels[product.kernel].cost * (1 / sizes.rows), {"product": str(sizes)}
            yield product.kernel, Avoidable(kind=KIND, instead=instead, cause="diagonal", facts=facts, unneeded=CLASS, factor=sizes.rows)


def _takes_the_diagonal(graph: Graph, user: Node, array: int) -> bool:
    """Whether a node takes single elements of a matrix, at most one for each row, or its diagonal."""
    if user.operator == Operator.SELECT:
        return user.takes[1:2] == (array,) and is_diagonal(graph, user.gives[0])
    if user.operator not in (Operator.GATHER, Operator.SLICE) or user.takes[0] != array:
        return False
    whole, part = graph.arrays[array], graph.arrays[user.gives[0]]
    if user.operator == Operator.SLICE:  # one that steps by a row and a column at once
        return whole.strides is not None and len(whole.shape) == 2 and part.strides == (sum(whole.strides),)
    return isinstance(user.params, Rows) and {*user.params.sizes} == {1} and part.elements <= max(whole.shape)
