"""What a node does to the axes of its arrays, from its operator and parameters, as `axes` describes operators."""

from collections.abc import Callable, Sequence

from . import axes as to
from .axes import Dims, IndexMap
from .graph import Graph, Node
from .operators import ROW_BY_ROW, Axes, Operator, Padding, Part, Sizes

Reader = Callable[[Graph, Node, Sequence[Dims], Dims], IndexMap]
UNFIT = (IndexError, KeyError, ValueError)  # parameters and shapes contradict each other

_NAMES = """
equal different compare select add subtract multiply divide negate remainder and maximum minimum exponential square-root absolute
elementwise cast copy triangle
"""
ELEMENTWISE = frozenset(map(Operator, _NAMES.split()))  # an element depends on those at its place alone


def index_map(graph: Graph, node: Node) -> IndexMap | None:
    """The axes of the operands and of the first result of a node; ``None`` if they are not known or contradict the shapes."""
    reader = READERS.get(node.operator)
    if reader is None or not node.takes or not node.gives:
        return None
    operands, result = [graph.arrays[array].shape for array in node.takes], graph.arrays[node.gives[0]].shape
    try:
        axes = reader(graph, node, operands, result)
    except UNFIT:
        return None
    axes.operands += [axes.unsplit(dims) for dims in operands[len(axes.operands) :]]  # positions that are computed at run time
    return axes if axes.dims(axes.results[0]) == result else None


def _axes_of(node: Node) -> tuple[int, ...]:
    if not isinstance(node.params, Axes):
        raise ValueError
    return node.params.axes


def _axis_of(node: Node, rank: int) -> int:
    if not isinstance(node.params, int) or not rank:
        raise ValueError
    return node.params % rank


def _broadcast(graph: Graph, node: Node, operands: Sequence[Dims], result: Dims) -> IndexMap:
    before = [graph.axis_before(node, node.gives[0], axis) for axis in range(len(result))]
    return to.broadcast(operands[0], result, [before.index(axis) if axis in before else None for axis in range(len(operands[0]))])


def _view(graph: Graph, node: Node, operands: Sequence[Dims], result: Dims) -> IndexMap:
    in_memory = node.params != ROW_BY_ROW
    source, view = (graph.arrays[array].order(in_memory=in_memory) for array in (node.takes[0], node.gives[0]))
    return to.reshaped(operands[0], result, (source, view))


def _slice(graph: Graph, node: Node, operands: Sequence[Dims], result: Dims) -> IndexMap:
    if not isinstance(node.params, Part):
        raise ValueError
    return to.sliced(operands[0], [*map(range, node.params.starts, node.params.limits, node.params.strides)])


def _pad(graph: Graph, node: Node, operands: Sequence[Dims], result: Dims) -> IndexMap:
    if not isinstance(node.params, Padding):
        raise ValueError
    return to.padded(operands[0], [*zip(node.params.low, node.params.high, node.params.interior, strict=True)])


def _reduce(graph: Graph, node: Node, operands: Sequence[Dims], result: Dims) -> IndexMap:
    """Sums whose result may have the axes still, of one element."""
    source, axes = operands[0], IndexMap()
    gone = {axis % len(source) for axis in _axes_of(node)} if source else set()
    if not gone:
        raise ValueError
    kept = axes.split(source)
    axes.operands = [kept if dims == source else axes.unsplit(dims) for dims in operands]
    if len(result) == len(source):
        axes.results = [[axes.new(1) if axis in gone else factors for axis, factors in enumerate(kept)]]
    else:
        axes.results = [[factors for axis, factors in enumerate(kept) if axis not in gone]]
    axes.summed = {factor for axis in gone for factor in kept[axis]}
    return axes


def _along_axis(graph: Graph, node: Node, operands: Sequence[Dims], result: Dims) -> IndexMap:
    """All elements along an axis, of each operand of the shape of the result."""
    return to.mixed(operands, result, [_axis_of(node, len(result))])


def _norm(graph: Graph, node: Node, operands: Sequence[Dims], result: Dims) -> IndexMap:
    return to.mixed(operands, result, _axes_of(node))


def _product(graph: Graph, node: Node, operands: Sequence[Dims], result: Dims) -> IndexMap:
    if not isinstance(node.params, Sizes) or node.params.groups or len(operands) != 2:
        raise ValueError
    left, right = node.params.left, node.params.right
    batch, summed = ([*zip(ours, theirs, strict=True)] for ours, theirs in ((left.batch, right.batch), (left.summed, right.summed)))
    return to.product(operands[0], operands[1], batch, summed)


READERS: dict[Operator, Reader] = {
    **dict.fromkeys(ELEMENTWISE, lambda graph, node, operands, result: to.elementwise(operands, result)),
    Operator.BROADCAST: _broadcast,
    Operator.TRANSPOSE: lambda graph, node, operands, result: to.transposed(operands[0], _axes_of(node)),
    Operator.REVERSE: lambda graph, node, operands, result: to.backwards(operands[0], _axes_of(node)),
    Operator.VIEW: _view,
    Operator.SLICE: _slice,
    Operator.PAD: _pad,
    Operator.CONCATENATE: lambda graph, node, operands, result: to.concatenated(operands, _axis_of(node, len(result))),
    Operator.UPDATE: lambda graph, node, operands, result: to.updated(operands),
    Operator.REDUCE: _reduce,
    Operator.SORT: _along_axis,
    Operator.SCAN: _along_axis,
    Operator.SOFTMAX: _along_axis,
    Operator.LOG_SOFTMAX: _along_axis,
    Operator.NORM: _norm,
    Operator.DOT: _product,
}
