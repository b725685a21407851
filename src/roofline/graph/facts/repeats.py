"""Axes along which the rows of arrays are repeated: by a broadcast, or by a gather that takes more rows than its table has.

What is computed from each row alone is the same for equal rows, so repeated axes are followed through products and functions of elements.
"""

from collections.abc import Mapping, Sequence
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from ..graph import Graph, Node
from ..node_axes import ELEMENTWISE
from ..operators import SPREADING, Operator, Sizes
from .operand_axes import OperandAxes

TWICE = 2  # rows that are gathered for each row of a table
_KEEPING = SPREADING | {Operator.REDUCE, Operator.SLICE}


class Repeat(Struct, frozen=True):
    """An axis of which a share of the rows are different, and the array that repeats them: a broadcast, or the positions of a gather."""

    axis: int
    share: float
    source: int
    is_gathered: bool = False


Repeats = Mapping[int, tuple[Repeat, ...]]


def repeated_axes(graph: Graph) -> dict[int, tuple[Repeat, ...]]:
    """The repeated axes of each array that has some."""
    repeats: dict[int, tuple[Repeat, ...]] = {}
    axes = OperandAxes(graph)
    for node in graph.nodes:
        if not node.gives or not node.takes or 0 in graph.arrays[node.gives[0]].shape:
            continue
        if node.operator not in (Operator.BROADCAST, Operator.GATHER) and repeats.keys().isdisjoint(node.takes):
            continue
        if made := _made(axes, node, repeats):
            repeats[node.gives[0]] = made
    return repeats


def share_along(repeats: Sequence[Repeat], axes: Sequence[int]) -> float:
    """The share of rows that are different along some axes."""
    return prod(repeat.share for repeat in repeats if repeat.axis in axes)


def _made(axes: OperandAxes, node: Node, repeats: Repeats) -> tuple[Repeat, ...]:
    if node.operator == Operator.GATHER:
        return _gathered(axes.graph, node)
    if node.operator in ELEMENTWISE and len(node.takes) > 1:
        return _together(axes, node, repeats)
    if node.operator == Operator.DOT:
        is_plain = isinstance(node.params, Sizes) and not node.params.groups
        sides = [_moved(axes, node, place, repeats) for place in (0, 1)] if is_plain else []
        batch = len(node.sizes.left.batch) if is_plain else 0
        return tuple(repeat for side in sides for repeat in side if repeat.axis >= batch)
    kept = _moved(axes, node, 0, repeats) if node.operator in _KEEPING or node.operator in ELEMENTWISE else ()
    return (*kept, *_spread(axes, node)) if node.operator == Operator.BROADCAST else kept


def _moved(axes: OperandAxes, node: Node, place: int, repeats: Repeats) -> tuple[Repeat, ...]:
    """The repeats of an operand in the axes of the result; an axis that is split loses them, and merged ones have them together."""
    sources, shape = axes.of(node, place) or (), axes.graph.arrays[node.takes[place]].shape
    result, moved = axes.graph.arrays[node.gives[0]].shape, dict[int, Repeat]()
    for repeat in repeats.get(node.takes[place], ()):
        places = [axis for axis, before in enumerate(sources) if repeat.axis in before]
        if len(places) == 1 and result[places[0]] >= shape[repeat.axis]:
            before = moved.get(places[0])
            share = repeat.share * (before.share if before is not None else 1)
            moved[places[0]] = replace(repeat, axis=places[0], share=share)
    return tuple(moved.values())


def _spread(axes: OperandAxes, broadcast: Node) -> list[Repeat]:
    """The axes along which a broadcast repeats its operand; a single number is the same everywhere."""
    if axes.graph.distinct(broadcast.takes[0]) == 1:
        return []
    shape, sources = axes.graph.arrays[broadcast.gives[0]].shape, axes.of(broadcast, 0) or ()
    return [Repeat(axis, 1 / shape[axis], broadcast.gives[0]) for axis, before in enumerate(sources) if not before and shape[axis] > 1]


def _gathered(graph: Graph, gather: Node) -> tuple[Repeat, ...]:
    """The axis along which a gather takes more rows than its table has, if it takes whole ones."""
    table, result = graph.arrays[gather.takes[0]].shape, graph.arrays[gather.gives[0]].shape
    rest = table[1:]
    if gather.params != 0 or not rest or result[-len(rest) :] != rest or not table[0]:
        return ()
    rows = result[: len(result) - len(rest)]
    if not rows or prod(rows) < TWICE * table[0]:
        return ()
    source = graph.origin(gather.takes[1]) if len(gather.takes) > 1 else gather.gives[0]
    return (Repeat(max(range(len(rows)), key=rows.__getitem__), table[0] / prod(rows), source, is_gathered=True),)


def _together(axes: OperandAxes, node: Node, repeats: Repeats) -> tuple[Repeat, ...]:
    """The repeats that all operands have, or are constant along."""
    shape = axes.graph.arrays[node.gives[0]].shape
    sides = [{repeat.axis: repeat for repeat in _moved(axes, node, place, repeats)} for place in range(len(node.takes))]
    together = []
    for axis in {axis for side in sides for axis in side}:
        if any(axis not in side and axis in axes.differing(node, place) for place, side in enumerate(sides)):
            continue
        known = [side[axis] for side in sides if axis in side]
        if len({repeat.source for repeat in known if repeat.share * shape[axis] > 1}) <= 1:
            together.append(max(known, key=lambda repeat: repeat.share))
    return tuple(together)
