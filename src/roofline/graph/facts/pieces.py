"""The arrays that an array is concatenated from."""

from collections.abc import Collection, Iterator

from ..graph import Graph
from ..operators import RENAMING, Operator

_MOST = 1_000  # pieces of one array: concatenations may be repeated at every depth


def pieces(graph: Graph, array: int, through: Collection[Operator] = RENAMING) -> Iterator[int]:
    """The origins of the arrays that an array is concatenated from, in order; of another array its own origin."""
    waiting = [array]
    for _ in range(_MOST):
        if not waiting:
            return
        origin = graph.origin(waiting.pop(), through)
        node = graph.maker.get(origin)
        if node is not None and node.operator == Operator.CONCATENATE:
            waiting += reversed(node.takes)
        else:
            yield origin
