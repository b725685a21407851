"""Arrays that are rewritten in full by a select, to change the one position along an axis at which a counter equals an index.

A cache of `jnp.where(arange(n) == position, new, cache)` reads and writes all of its positions; a scatter writes one, in place.
"""

from collections.abc import Iterator

from ...cost import less_traffic
from ...graph import NO_KERNEL, RENAMING, Graph, Node, Operator
from ...graph.facts.one_hot import hot_axes, varies
from ...graph.facts.updates import takes_place
from ...workload import Avoidable, Usual
from .gathered_blocks import KIND

CLASS, GROUP = "layout", "selected"
_LEAST = 8  # positions along the axis: fewer are hardly worth the change


def selected_updates(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that rewrite arguments of a program, or what a loop carries, to change one position, and hand them on."""
    saved: dict[int, float] = {}
    for select in graph.of(Operator.SELECT):
        if (
            select.kernel != NO_KERNEL
            and len(select.takes) == 3
            and _is_replaced(graph, select)
            and (positions := _positions(graph, select))
        ):
            is_read = any(user.kernel == select.kernel for user, _ in graph.uses(select.gives[0]))  # by what the kernel computes else
            moved = (1 if is_read else 2) * graph.arrays[select.gives[0]].bytes
            saved[select.kernel] = saved.get(select.kernel, 0) + moved * (1 - 1 / positions)
    for kernel, amount in saved.items():
        instead = less_traffic(graph.kernels[kernel].cost, amount)
        yield kernel, Avoidable(kind=KIND, instead=instead, unneeded=CLASS, group=GROUP, usual=Usual.UNLESS_ASKED)


def _is_replaced(graph: Graph, select: Node) -> bool:
    """Whether nothing else reads the array that a select changes, so that it could be updated in place."""
    if len(select.takes) < 3 or not select.gives:  # the other side is a number, or the result is not known
        return False
    old, new = graph.origin(select.takes[2], RENAMING), select.gives[0]
    if graph.arrays[old].shape != graph.arrays[new].shape or not takes_place(graph, new, old):
        return False
    kernels = {user.kernel for user, _ in graph.uses(old) if user.operator != Operator.RESULT}
    return kernels == {select.kernel}


def _positions(graph: Graph, select: Node) -> int:
    """The number of positions along the axis of which a select changes one; 0 if it may change more."""
    predicate, new = select.takes[:2]
    shape, hot = graph.arrays[select.gives[0]].shape, hot_axes(graph, predicate)
    more = len(shape) - len(graph.arrays[predicate].shape)
    sizes = [shape[axis + more] for axis in hot.axes if not varies(graph, select, new, axis + more)] if hot.many == 1 else []
    return max((size for size in sizes if size >= _LEAST), default=0)
