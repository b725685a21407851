"""What is computed from some nodes, and what they are computed from."""

from collections.abc import Collection

from ..graph import Graph, Node


def reached(graph: Graph, start: Collection[Node], stops: Collection[int] = ()) -> set[int]:
    """The arrays that some nodes give, and those that are computed from these, but not by the kernels ``stops``."""
    arrays = {array for node in start for array in node.gives}
    for node in graph.nodes:
        if node.kernel not in stops and any(array in arrays for array in node.takes):
            arrays.update(node.gives)
    return arrays


def reaching(graph: Graph, start: Collection[Node], stops: Collection[int] = ()) -> set[int]:
    """The arrays that some nodes take, and those that these are computed from, but not by the kernels ``stops``."""
    arrays = {array for node in start for array in node.takes}
    for node in reversed(graph.nodes):
        if node.kernel not in stops and any(array in arrays for array in node.gives):
            arrays.update(node.takes)
    return arrays
