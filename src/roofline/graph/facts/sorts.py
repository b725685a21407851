"""Which sort gives an array, and whether that is the order of its keys."""

from ..graph import Graph, Node
from ..operators import Operator
from .one_hot import counts

LAYOUT = frozenset((Operator.VIEW, Operator.TRANSPOSE, Operator.COPY))


def sorted_part(graph: Graph, array: int) -> tuple[Node, int] | None:
    """The sort, or top-k, that gives an array, under whichever name, and which of its results it is: the keys are the first."""
    origin = graph.origin(array, LAYOUT)
    sort = graph.maker.get(origin)
    return (sort, sort.gives.index(origin)) if sort is not None and sort.operator in (Operator.SORT, Operator.TOP_K) else None


def is_order(graph: Graph, sort: Node, number: int) -> bool:
    """Whether a result of a sort, but for the first, says where its keys were: it sorts positions with them, or gives them by itself."""
    return counts(graph, sort.takes[number], sort.params) if number < len(sort.takes) and isinstance(sort.params, int) else True
