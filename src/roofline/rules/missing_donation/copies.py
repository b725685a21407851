"""Copies that donation would avoid: an argument is copied in full because a part of it is updated and the caller keeps it.

A donated argument is copied too, if its old value is used after the update, or its buffer becomes another result.
"""

from collections.abc import Iterator

from ...cost import NOTHING
from ...graph import NO_KERNEL, Array, Graph, Operator
from ...graph.facts.updates import is_updated
from ...workload import Avoidable

KIND, CLASS = "missing-donation", "copied"
DONATED = "donated"  # the group of copies of donated arguments
_UNCHANGED = (Operator.VIEW, Operator.COPY)


def missing_donations(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that only copy arguments which are then updated in place."""
    arguments = {*graph.arguments}
    for copy in graph.of(Operator.COPY) if arguments else ():
        argument = graph.origin(copy.takes[0], _UNCHANGED)
        if argument not in arguments or copy.kernel == NO_KERNEL or copy.gives[0] in graph.region_of:
            continue
        if not all(node.operator in _UNCHANGED for node in graph.inside[copy.kernel]):
            continue
        is_donated = argument in graph.donated
        is_reordered = _order(graph.arrays[copy.takes[0]]) != _order(graph.arrays[copy.gives[0]])
        if not (is_donated and is_reordered) and is_updated(graph, copy.gives[0]):
            group = DONATED if is_donated else ""
            yield copy.kernel, Avoidable(kind=KIND, instead=NOTHING, unneeded=CLASS, group=group, extra=True)


def _order(array: Array) -> list[int]:
    """The axes of an array in memory, but for those of one element."""
    return [axis for axis in array.order(in_memory=True) if array.shape[axis] != 1]
