"""Copies between operators that take different orders: kernels for group or instance norms take channels first only, so that in a network
with channels last each norm copies its input, and the convolution after it copies it back. Compiled norms take any order.
"""

from collections.abc import Iterator

from ...cost import NOTHING
from ...graph import Graph, Node, Operator
from ...graph.facts.orders import Reordered, reordered
from ...graph.node_axes import ELEMENTWISE
from ...workload import Avoidable, Usual

KIND, GROUP, CLASS = "layout-copies", "norms", "layout"
_KEEPING = ELEMENTWISE | {Operator.NORM, Operator.VIEW, Operator.CAST}
_MOST_STEPS = 64


def undone_copies(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The copies that a library makes for itself into another order, and those back, where there are both."""
    for copy in graph.of(Operator.COPY):
        there = reordered(graph, copy) if copy.kernel in graph.forced else None
        back = _copied_back(graph, there) if there is not None else []
        for node in (copy, *back) if back else ():
            yield node.kernel, Avoidable(kind=KIND, instead=NOTHING, unneeded=CLASS, group=GROUP, usual=Usual.UNLESS_ASKED)


def _copied_back(graph: Graph, there: Reordered) -> list[Node]:
    """The copies of what is computed by element, or by norms, from reordered elements, into their old order."""
    waiting, seen, back = list(there.node.gives), set[int](), list[Node]()
    while waiting and len(seen) < _MOST_STEPS:
        array = waiting.pop()
        if array in seen:
            continue
        seen.add(array)
        for user in graph.users.get(array, ()):
            change = reordered(graph, user) if user.kernel not in graph.forced else None
            if change is not None and (change.before, change.after) == (there.after, there.before):
                back.append(user)
            elif user.operator in _KEEPING:
                waiting += user.gives[:1]
    return back
