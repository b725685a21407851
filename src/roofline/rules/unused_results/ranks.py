"""Sorts of the order that another sort gives, for the rank of each element: argsort of argsort.

The order is a permutation, so its inverse is a scatter of positions. Ranks that are only compared with a number say which elements are
among the first few: a threshold finds those, without any order.
"""

from collections.abc import Iterator

from ...cost import NOTHING, Cost
from ...graph import NO_KERNEL, Graph, Node, Operator
from ...graph.facts.sorts import LAYOUT, is_order, sorted_part
from ...resource import HBM
from ...workload import Avoidable

KIND, CLASS, GROUP = "unused-results", "unused", "ranks"
_SAME = LAYOUT | {Operator.CAST}


def sorted_orders(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The sorts of what another sort gave as its order, and that one where only a threshold is asked for."""
    for second in graph.of(Operator.SORT):
        first = _of_order(graph, second)
        if first is None:
            continue
        if _are_compared(graph, second) and _has_one_use(graph, first):
            amounts = {resource: amount for resource, amount in graph.cost(first).amounts if resource != HBM}
            instead = Cost.of({**amounts, HBM: min(graph.arrays[first.takes[0]].bytes, graph.cost(first).known(HBM))})
            avoidable = Avoidable(kind=KIND, instead=NOTHING, cause="compared", unneeded=CLASS, group=GROUP)
            yield second.kernel, avoidable
            yield first.kernel, Avoidable(kind=KIND, instead=instead, cause="compared", unneeded=CLASS, group=GROUP)
        else:
            moved = 2 * graph.arrays[second.takes[0]].bytes
            yield second.kernel, Avoidable(kind=KIND, instead=Cost.of({HBM: moved}), unneeded=CLASS, group=GROUP)


def _of_order(graph: Graph, second: Node) -> Node | None:
    """The sort whose order another one sorts along the same axis, to know its inverse."""
    first, number = (sorted_part(graph, second.takes[0]) if second.takes else None) or (None, 0)
    if first is None or not number or first.operator != Operator.SORT or NO_KERNEL in (first.kernel, second.kernel):
        return None
    if first.kernel == second.kernel or first.params != second.params or not is_order(graph, first, number):
        return None
    is_inverse = len(second.gives) > 1 and is_order(graph, second, 1)
    return first if is_inverse and not list(graph.uses(second.gives[0])) else None


def _are_compared(graph: Graph, second: Node) -> bool:
    """Whether ranks are only compared, each with the same number."""
    uses = list(graph.uses(second.gives[1], _SAME))
    return bool(uses) and all(
        user.operator == Operator.COMPARE and all(graph.distinct(other) == 1 for other in user.takes if other != name)
        for user, name in uses
    )


def _has_one_use(graph: Graph, first: Node) -> bool:
    """Whether nothing but the second sort uses what a sort gives."""
    return sum(len(list(graph.uses(array, LAYOUT))) for array in first.gives) == 1
