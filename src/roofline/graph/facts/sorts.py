"""Which sort gives an array."""

from ..graph import Graph, Node
from ..operators import Operator

LAYOUT = frozenset((Operator.VIEW, Operator.TRANSPOSE, Operator.COPY))


def sorted_part(graph: Graph, array: int) -> tuple[Node, int] | None:
    """The sort, or top-k, that gives an array, under whichever name, and which of its results it is: the keys are the first."""
    origin = graph.origin(array, LAYOUT)
    sort = graph.maker.get(origin)
    return (sort, sort.gives.index(origin)) if sort is not None and sort.operator in (Operator.SORT, Operator.TOP_K) else None
