"""Steps that are linear in an array and keep its sizes, so that they can change places with a product or a sum."""

from ..graph import Graph, Node
from ..operators import SCALING, Operator


def is_scaled(graph: Graph, node: Node, array: int) -> bool:
    """Whether a node multiplies an array by one number, or divides it by one."""
    if node.operator not in SCALING or node.takes.count(array) != 1:
        return False
    is_first = node.takes[0] == array or node.operator == Operator.MULTIPLY
    return is_first and all(graph.distinct(other) == 1 for other in node.takes if other != array)
