"""Arrays that are sorted twice by keys that do not depend on each other, as in a shuffle of several rounds.

The second sort decides on the order; the first one only on that of elements whose keys are equal then. Shuffles sort by random keys again
and again, so that equal keys matter less; one round alone keeps the order of those few elements whose keys are equal.
"""

from collections.abc import Iterator

from ...cost import NOTHING
from ...graph import NO_KERNEL, Graph, Node, Operator
from ...graph.facts.sorts import LAYOUT, sorted_part
from ...workload import Avoidable

KIND, CLASS, GROUP = "duplicated-work", "duplicated", "shuffle"


def shuffles(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The sorts whose results another one sorts again by keys of its own."""
    for second in graph.of(Operator.SORT):
        parts = [sorted_part(graph, array) for array in second.takes[1:]]
        for first in {part[0].gives: part[0] for part in parts if part is not None and part[1] > 0}.values():
            is_used_by_second = all(node is second for array in first.gives for node, _ in graph.uses(array, LAYOUT))
            if first.operator != Operator.SORT or first.kernel == NO_KERNEL or first.params != second.params or not is_used_by_second:
                continue
            if any(map(graph.is_handed_on, first.gives)) or _depends(graph, second.takes[0], first):
                continue
            elements = graph.arrays[first.takes[0]].elements
            facts = {"elements": elements}
            yield first.kernel, Avoidable(kind=KIND, instead=NOTHING, facts=facts, unneeded=CLASS, group=GROUP, extra=True)


def _depends(graph: Graph, array: int, node: Node) -> bool:
    """Whether an array is computed from the results of a node."""
    seen, waiting = {array}, [array]
    while waiting:
        maker = graph.maker.get(waiting.pop())
        if maker is node:
            return True
        new = [other for other in (maker.takes if maker is not None else ()) if other not in seen]
        seen.update(new)
        waiting += new
    return False
