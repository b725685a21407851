"""The level of each array: the number of products on the longest way to it. Products of one level do not depend on each other."""

from ..graph import Graph
from ..operators import Operator


def levels(graph: Graph) -> dict[int, int]:
    """The levels of all arrays that nodes give; in a loop they count from the beginning of an iteration."""
    by_array: dict[int, int] = {}
    for node in graph.nodes:
        level = max((by_array.get(array, 0) for array in node.takes), default=0) + (node.operator == Operator.DOT)
        by_array |= dict.fromkeys(node.gives, level)
    return by_array
