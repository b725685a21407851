"""Which arrays have equal elements, because equal operators made them of equal arrays: value numbering, in one pass."""

from collections.abc import Hashable

from ..graph import Graph, Node
from ..operators import Operator

# The elements that these take or place depend on how arrays lie in memory; copies are made for that.
_BY_LAYOUT = frozenset((Operator.VIEW, Operator.SLICE, Operator.BROADCAST, Operator.UPDATE, Operator.COPY))


def equal_arrays(graph: Graph) -> dict[int, int]:
    """The first array with the same elements, for each array that is made while that one exists. Asked while a graph is made."""
    first: dict[int, int] = {}
    values: dict[int, int] = {}  # the first array with the same elements, for copies too
    waiting = sorted((*(region.nodes for region in graph.regions), *graph.branches), key=_order, reverse=True)
    open_: list[tuple[int, dict[Hashable, tuple[int, ...]]]] = [(len(graph.nodes), {})]  # where each scope ends, and its nodes
    for place, (node, function) in enumerate(zip(graph.nodes, graph.functions, strict=True)):
        while place >= open_[-1][0]:
            open_.pop()
        while waiting and waiting[-1].start <= place:
            open_.append((waiting.pop().stop, {}))
        if function is None or not _is_sure(graph, node):
            continue
        takes = tuple(values.get(array, array) for array in node.takes)
        computed = node.operator, node.params, function, takes, *_forms(graph, node)
        known = next((nodes[computed] for _, nodes in open_ if computed in nodes), None)
        if known is None:
            open_[-1][1][computed] = node.gives
        else:
            first.update(zip(node.gives, known, strict=True))
            values.update(zip(node.gives, known, strict=True))
        if node.operator == Operator.COPY:
            values[node.gives[0]] = takes[0]
    return first


def _order(scope: range) -> tuple[int, int]:
    """By the begin, and those first that others are in."""
    return scope.start, -scope.stop


def _is_sure(graph: Graph, node: Node) -> bool:
    """Whether the arrays of a node are known."""
    return all(graph.arrays[array].sure for array in (*node.takes, *node.gives))


def _forms(graph: Graph, node: Node) -> list[Hashable]:
    """The shapes and number formats of what a node makes, with the layouts if these matter."""
    if node.operator not in _BY_LAYOUT:
        return [(graph.arrays[array].shape, graph.arrays[array].dtype) for array in node.gives]
    arrays = [graph.arrays[array] for array in (*node.takes, *node.gives)]
    return [(array.shape, array.dtype, array.strides) for array in arrays]
