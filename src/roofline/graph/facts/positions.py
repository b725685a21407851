"""Which arrays follow from a comparison of two positions, such as those of queries and keys: causal masks, and windows around a query."""

from collections.abc import Iterator

from ..graph import Graph, Node, Region
from ..node_axes import ELEMENTWISE
from ..operators import SPREADING, Array, Operator
from .one_hot import counts_along

_KEEPING = ELEMENTWISE | SPREADING | {Operator.SLICE, Operator.PAD, Operator.CONCATENATE, Operator.UPDATE}
_SHIFTING = (Operator.ADD, Operator.SUBTRACT)


def positional_arrays(graph: Graph) -> set[int]:
    """The arrays whose elements depend on a comparison of the positions along two axes, element by element."""
    arrays = {
        array
        for node in graph.of(Operator.COMPARE, Operator.TRIANGLE)
        if node.gives and _compares_positions(graph, node)
        for array in node.gives
    }
    starting: dict[int, list[Region]] = {}
    for region in sorted(graph.regions, key=lambda region: -len(region.nodes)):
        starting.setdefault(region.nodes.start, []).append(region)
    for place, node in enumerate(graph.nodes) if arrays else ():
        for region in starting.get(place, ()):
            arrays.update(carried for initial, carried in zip(region.initial, region.carried, strict=True) if initial in arrays)
        if node.operator in _KEEPING and not arrays.isdisjoint(node.takes):
            arrays.update(node.gives)
    return arrays


def _compares_positions(graph: Graph, node: Node) -> bool:
    """Whether a node keeps one side of a diagonal, or compares numbers that count along two axes."""
    if node.operator == Operator.TRIANGLE or _is_column_with_row(graph, node):
        return True
    counted = [axes for operand in node.takes for axes in _counted_axes(graph, node, operand)]
    return len(set(counted)) > 1


def _counted_axes(graph: Graph, node: Node, operand: int) -> Iterator[int]:
    """The axes of the result of a node along which an operand counts, or a difference of two that do."""
    yield from (axis for axis in range(len(graph.arrays[node.gives[0]].shape)) if counts_along(graph, node, operand, axis))
    difference = graph.made_by(operand, *_SHIFTING)
    if difference is not None and graph.arrays[difference.gives[0]].shape == graph.arrays[node.gives[0]].shape:
        for side in difference.takes:
            yield from (axis for axis in range(len(graph.arrays[operand].shape)) if counts_along(graph, difference, side, axis))


def _is_column_with_row(graph: Graph, node: Node) -> bool:
    """Whether a comparison has a column and a row of whole numbers, where the recording does not tell what they count."""
    operands = [graph.arrays[operand] for operand in node.takes]
    if len(operands) != 2 or not all(_is_unknown_count(array) for array in operands):
        return False
    row, column = sorted(operands, key=_is_column)
    return _is_column(column) and row.elements == row.shape[-1] > 1


def _is_unknown_count(array: Array) -> bool:
    return not array.sure and bool(array.shape) and array.dtype is not None and array.dtype.name.startswith("int")


def _is_column(array: Array) -> bool:
    return len(array.shape) > 1 and array.elements == array.shape[-2] > 1
