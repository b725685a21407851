"""Arrays of which at most one element of each row is not zero, and positions: what one-hot rows are made of.

A matrix is one-hot if its elements compare an index with a position. A product of two such arrays along different axes is one-hot along
both together, as in the dispatch of tokens to the slots of experts.
"""

from collections.abc import Iterator
from math import prod

from msgspec import Struct

from ..graph import Graph, Node
from ..operators import SPREADING, Axes, Exchange, Operator

_MOST_STEPS = 64
_MOST_DEPTH = 16
_SHIFTED = (Operator.ADD, Operator.SUBTRACT)
_MASKING = (Operator.MULTIPLY, Operator.AND)  # zero where one operand is


class Hot(Struct, frozen=True):
    """The axes of an array along which at most ``many`` elements of each row are not zero."""

    axes: frozenset[int]
    many: int = 1


NONE = Hot(frozenset())


def position(graph: Graph, array: int) -> tuple[int, int] | None:
    """The numbers from 0 that an array is made from by repeating them and adding constants, and their axis."""
    for _ in range(_MOST_STEPS):
        array = graph.origin(array, SPREADING)
        node = graph.maker.get(array)
        if node is not None and node.operator == Operator.IOTA:
            return array, node.params if isinstance(node.params, int) else 0
        if (
            node is None
            or node.operator not in _SHIFTED
            or len(node.takes) > 2
            or not all(graph.distinct(other) == 1 for other in node.takes[1:])
        ):
            return None
        array = node.takes[0]
    return None


def counts(graph: Graph, array: int, axis: int | None) -> bool:
    """Whether the positions that an array is made from count along one of its axes."""
    for _ in range(_MOST_STEPS):
        if axis is None:
            return False
        axis, array = graph.source_axis(array, axis, SPREADING), graph.origin(array, SPREADING)
        node = graph.maker.get(array)
        if node is None or not node.takes:
            return node is not None and node.operator == Operator.IOTA and axis == (node.params or 0)
        array = node.takes[0]
    return False


def hot_axes(graph: Graph, array: int, depth: int = _MOST_DEPTH) -> Hot:
    """The axes along which few elements of each row of an array are not zero; none if it is not one-hot."""
    node = graph.maker.get(array)
    if node is None or depth == 0:
        return NONE
    rank = len(graph.arrays[array].shape)
    match node.operator:
        case Operator.EQUAL:
            return Hot(frozenset(_compared_axes(graph, node)))
        case Operator.SELECT if graph.value(node.takes[2]) == 0:
            return hot_axes(graph, node.takes[0], depth - 1)
        case Operator.GATHER if node.params == 0 and is_diagonal(graph, node.takes[0]):  # rows of the identity
            return Hot(frozenset((rank - 1,)))
        case Operator.SCATTER if _is_scattered(graph, node):
            return Hot(frozenset((rank - 1,)))
        case Operator.REDUCE:
            return _summed(graph, node, depth)
        case Operator.SLICE:
            return _in_rows(graph, node, hot_axes(graph, node.takes[0], depth - 1))
        case Operator.COLLECTIVE if not isinstance(node.params, Exchange) or node.params.function is None:
            return _in_rows(graph, node, hot_axes(graph, node.takes[0], depth - 1))
        case Operator.ADD | Operator.SUBTRACT:
            return NONE
        case operator if operator in _MASKING:
            sides = [(hot_axes(graph, side, depth - 1), graph.arrays[side].shape) for side in node.takes]
            known = [Hot(frozenset(axis + rank - len(shape) for axis in hot.axes), hot.many) for hot, shape in sides if hot.axes]
            return Hot(frozenset().union(*(hot.axes for hot in known)), max((hot.many for hot in known), default=1))
        case operator if operator in SPREADING:
            return _renamed(graph, node, array, hot_axes(graph, node.takes[0], depth - 1))
    return NONE


def is_diagonal(graph: Graph, array: int) -> bool:
    """Whether a matrix is zero outside its diagonal: only elements with two equal positions are selected or multiplied by one."""
    node = graph.maker.get(graph.origin(array))
    if node is None:
        return False
    if node.operator in (Operator.IDENTITY, Operator.DIAGONAL):
        return True
    if node.operator == Operator.SELECT:
        return graph.value(node.takes[2]) == 0 and is_diagonal(graph, node.takes[0])
    if node.operator == Operator.MULTIPLY:
        return any(is_diagonal(graph, side) for side in node.takes)
    shape = graph.arrays[node.gives[0]].shape
    if node.operator != Operator.EQUAL or len(shape) != 2 or len(node.takes) != 2:
        return False
    return {axis for side in node.takes for axis in (0, 1) if _counts_along(graph, node, side, axis)} == {0, 1}


def _compared_axes(graph: Graph, equal: Node) -> Iterator[int]:
    """The axis of a comparison of one index a row with the positions along that axis."""
    if len(equal.takes) != 2:
        return
    axes = range(len(graph.arrays[equal.gives[0]].shape))
    for counter, index in (equal.takes, equal.takes[::-1]):
        counted = [axis for axis in axes if _counts_along(graph, equal, counter, axis)]
        if counted and position(graph, index) is None and not any(varies(graph, equal, index, axis) for axis in counted):
            yield from counted
            return
        if _is_unknown_row(graph, equal, counter, index):
            yield axes[-1]
            return


def _operand_axis(graph: Graph, node: Node, operand: int, axis: int) -> int | None:
    """The axis of an operand that is one of the result's: operands with fewer axes, or with one element along one, are repeated."""
    shape, result = graph.arrays[operand].shape, graph.arrays[node.gives[0]].shape
    place = axis - len(result) + len(shape)
    return place if place >= 0 and shape[place] == result[axis] else None


def _counts_along(graph: Graph, node: Node, counter: int, axis: int) -> bool:
    return position(graph, counter) is not None and counts(graph, counter, _operand_axis(graph, node, counter, axis))


def varies(graph: Graph, node: Node, operand: int, axis: int) -> bool:
    """Whether an operand differs along an axis of the result."""
    place = _operand_axis(graph, node, operand, axis)
    if place is None or graph.distinct(operand) == 1:
        return False
    source = graph.source_axis(operand, place, SPREADING)
    if source is None:
        return graph.distinct(operand) == graph.arrays[operand].elements
    return graph.arrays[graph.origin(operand, SPREADING)].shape[source] > 1


def _is_unknown_row(graph: Graph, equal: Node, counter: int, index: int) -> bool:
    """Whether a row that the recording does not tell the maker of is as long as the rows of a comparison, and the ids have one a row."""
    origin = graph.origin(counter, SPREADING)
    row, columns = graph.arrays[origin], graph.arrays[equal.gives[0]].shape[-1:]
    is_unknown = not row.sure and origin not in graph.maker and row.elements != graph.arrays[index].elements
    return is_unknown and columns == (row.elements,) and graph.arrays[index].shape[-1:] in ((1,), ())


def _is_scattered(graph: Graph, scatter: Node) -> bool:
    """Whether a scatter writes one element in each row of its last axis, of an array of zeros."""
    base, positions = (graph.arrays[array] for array in scatter.takes[:2])
    axes = (-1, len(base.shape) - 1) if base.sure else (-1, len(base.shape) - 1, None)
    is_filled = graph.made_by(scatter.takes[0], Operator.FILL) is not None or not base.sure
    return scatter.params in axes and is_filled and bool(base.shape) and positions.shape == (*base.shape[:-1], 1)


def _summed(graph: Graph, reduce: Node, depth: int) -> Hot:
    """The axes of a sum of one-hot arrays, in which as many elements may be not zero as were summed."""
    if not isinstance(reduce.params, Axes) or reduce.params.function != Operator.ADD:
        return NONE
    summed, hot = reduce.params.axes, hot_axes(graph, reduce.takes[0], depth - 1)
    if not hot.axes or hot.axes & {*summed}:
        return NONE
    many = prod(graph.arrays[reduce.takes[0]].shape[axis] for axis in summed)
    return Hot(frozenset(axis - sum(before < axis for before in summed) for axis in hot.axes), hot.many * many)


def _in_rows(graph: Graph, node: Node, hot: Hot) -> Hot:
    """The hot axes of some of the rows, or of those of several devices; none if rows were cut or joined."""
    before, after = (graph.arrays[array].shape for array in (node.takes[0], node.gives[0]))
    return hot if len(before) == len(after) and all(before[axis] == after[axis] for axis in hot.axes) else NONE


def _renamed(graph: Graph, node: Node, array: int, hot: Hot) -> Hot:
    """The axes of a renamed or repeated array that the hot ones became; neighbours that a view merged are hot together."""
    axes = {axis for axis in range(len(graph.arrays[array].shape)) if graph.axis_before(node, array, axis) in hot.axes}
    if not axes and len(hot.axes) > 1:
        axes = _merged(graph, node, array, hot.axes)
    return Hot(frozenset(axes), hot.many) if axes else NONE


def _merged(graph: Graph, view: Node, array: int, axes: frozenset[int]) -> set[int]:
    """The axis into which a view merged neighbouring axes."""
    if view.operator != Operator.VIEW or max(axes) - min(axes) != len(axes) - 1:
        return set()
    before, shape = graph.arrays[view.takes[0]].shape, graph.arrays[array].shape
    outer, merged = prod(before[: min(axes)]), prod(before[axis] for axis in axes)
    return {axis for axis, size in enumerate(shape) if size == merged and prod(shape[:axis]) == outer}


def is_triangle_of_ones(graph: Graph, array: int) -> bool:
    """Whether a matrix has one constant above its diagonal and another below: it compares two positions, or is cut out of ones."""
    node = graph.maker.get(graph.origin(array))
    if node is not None and node.operator == Operator.TRIANGLE:
        return graph.distinct(node.takes[0]) == 1
    if node is not None and node.operator == Operator.SELECT:
        if any(graph.distinct(side) != 1 for side in node.takes[1:]):
            return False
        node = graph.maker.get(graph.origin(node.takes[0]))
    if node is None or node.operator != Operator.COMPARE or len(graph.arrays[node.gives[0]].shape) != 2:
        return False
    return all(position(graph, side) is not None for side in node.takes)
