"""What is computed from some nodes, and what they are computed from."""

from collections.abc import Collection

from ..graph import Graph, Node


def reached(graph: Graph, start: Collection[Node], stops: Collection[int] = ()) -> set[int]:
    """The arrays that some nodes give, and those that are computed from these, also in later trips of a loop, but not by the kernels
    ``stops``.
    """
    arrays, known = {array for node in start for array in node.gives}, -1
    while len(arrays) > known:
        known = len(arrays)
        for node in graph.nodes:
            if node.kernel not in stops and any(array in arrays for array in node.takes):
                arrays.update(node.gives)
        for region in graph.regions:
            sides = zip(region.initial, region.carried, region.handed_on, strict=True)
            arrays.update(carried for initial, carried, handed_on in sides if initial in arrays or handed_on in arrays)
    return arrays


def reaching(graph: Graph, start: Collection[Node], stops: Collection[int] = ()) -> set[int]:
    """The arrays that some nodes take, and those that these are computed from, but not by the kernels ``stops``."""
    arrays = {array for node in start for array in node.takes}
    for node in reversed(graph.nodes):
        if node.kernel not in stops and any(array in arrays for array in node.gives):
            arrays.update(node.takes)
    return arrays
