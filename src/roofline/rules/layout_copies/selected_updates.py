"""Arrays that are rewritten in full by a select, to change the one position along an axis at which a counter equals an index.

A cache of `jnp.where(arange(n) == position, new, cache)` reads and writes all of its positions; a scatter writes one, in place. So does
one that is multiplied by one minus a one-hot row, to which the new value is added times that row.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ...cost import less_traffic
from ...graph import NO_KERNEL, RENAMING, SPREADING, Graph, Node, Operator
from ...graph.facts.one_hot import hot_axes, varies
from ...graph.facts.updates import takes_place
from ...workload import Avoidable, Usual
from .gathered_blocks import KIND

CLASS, GROUP = "layout", "selected"
_LEAST = 8  # positions along the axis: fewer are hardly worth the change


def selected_updates(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that rewrite arguments of a program, or what a loop carries, to change one position, and hand them on."""
    saved: dict[int, float] = {}
    for choice in _choices(graph):
        node = choice.node
        if node.kernel != NO_KERNEL and node.gives and _is_replaced(graph, choice) and (positions := _positions(graph, choice)):
            is_read = any(user.kernel == node.kernel for user, _ in graph.uses(node.gives[0]))  # by what the kernel computes else
            moved = (1 if is_read else 2) * graph.arrays[node.gives[0]].bytes
            saved[node.kernel] = saved.get(node.kernel, 0) + moved * (1 - 1 / positions)
    for kernel, amount in saved.items():
        instead = less_traffic(graph.kernels[kernel].cost, amount)
        yield kernel, Avoidable(kind=KIND, instead=instead, unneeded=CLASS, group=GROUP, usual=Usual.UNLESS_ASKED)


class _Choice(NamedTuple):
    """A node that gives an ``old`` array with what is ``new`` at the positions where a predicate is true or one."""

    node: Node
    predicate: int
    new: int
    old: int


def _choices(graph: Graph) -> Iterator[_Choice]:
    for select in graph.of(Operator.SELECT):
        if len(select.takes) == 3:  # else the other side is a number
            yield _Choice(select, *select.takes)
    for total in graph.of(Operator.ADD):
        products = [graph.made_by(array, Operator.MULTIPLY) for array in total.takes]
        for kept, written in (products, products[::-1]) if len(products) == 2 else ():
            if kept is not None and written is not None and (choice := _blended(graph, total, kept, written)) is not None:
                yield choice


def _blended(graph: Graph, total: Node, kept: Node, written: Node) -> _Choice | None:
    """The choice of a sum of an array times one minus a predicate, and of another one times the predicate."""
    for old, rest in (kept.takes, kept.takes[::-1]) if len(kept.takes) == len(written.takes) == 2 else ():
        difference = graph.made_by(rest, Operator.SUBTRACT, through=SPREADING)
        if difference is None or len(difference.takes) != 2 or graph.value(difference.takes[0]) != 1:
            continue
        predicate = graph.origin(difference.takes[1], SPREADING)
        for new, factor in (written.takes, written.takes[::-1]):
            if graph.origin(factor, SPREADING) == predicate:
                return _Choice(total, factor, new, old)
    return None


def _is_replaced(graph: Graph, choice: _Choice) -> bool:
    """Whether nothing else reads the array that is changed, so that it could be updated in place."""
    old, new = graph.origin(choice.old, RENAMING), choice.node.gives[0]
    if graph.arrays[old].shape != graph.arrays[new].shape or not takes_place(graph, new, old):
        return False
    kernels = {user.kernel for user, _ in graph.uses(old) if user.operator != Operator.RESULT}
    return kernels == {choice.node.kernel}


def _positions(graph: Graph, choice: _Choice) -> int:
    """The number of positions along the axis of which one is changed; 0 if more may be."""
    shape, hot = graph.arrays[choice.node.gives[0]].shape, hot_axes(graph, choice.predicate)
    more = len(shape) - len(graph.arrays[choice.predicate].shape)
    sizes = [shape[axis + more] for axis in hot.axes if not varies(graph, choice.node, choice.new, axis + more)] if hot.many == 1 else []
    return max((size for size in sizes if size >= _LEAST), default=0)
