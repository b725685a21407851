"""Which elements of its operands a node needs, if only some of its result is needed."""

from collections.abc import Callable, Sequence

from ..axes import sliced
from ..graph import Graph, Node
from ..index_sets import NOTHING, WHOLE, Axes, Dims, Region, count, loosely
from ..needs import along_axes, at_unknown_place, gathered, overwritten, renamed, taken_whole
from ..node_axes import index_map
from ..operators import ROW_BY_ROW, Array, Operator, Part, Rows

Rule = Callable[[Graph, Node, Region], Sequence[Region]]


def operand_needs(graph: Graph, node: Node, region: Region) -> Sequence[Region]:
    """The part of each operand that a part of the result of a node needs."""
    if not region:
        return (NOTHING,) * len(node.takes)
    if not node.gives or not node.takes or (region.whole and node.operator not in _SELECTIVE):
        return (WHOLE,) * len(node.takes)
    return _RULES.get(node.operator, _along_axes)(graph, node, region)


def _along_axes(graph: Graph, node: Node, region: Region) -> Sequence[Region]:
    axes = index_map(graph, node)
    if axes is None:
        return (WHOLE,) * len(node.takes)
    return along_axes(axes, [graph.arrays[array].shape for array in node.takes], graph.arrays[node.gives[0]].shape, region)


def _first(node: Node, region: Region) -> Sequence[Region]:
    """A part of the first operand, and the others whole."""
    return (region, *(WHOLE for _ in node.takes[1:]))


def _arrays(graph: Graph, node: Node) -> tuple[Array, Array]:
    """The first operand and the first result."""
    return graph.arrays[node.takes[0]], graph.arrays[node.gives[0]]


def _view(graph: Graph, node: Node, region: Region) -> Sequence[Region]:
    return _first(node, _under_axes(region, *_arrays(graph, node), in_memory=node.params != ROW_BY_ROW))


def _under_axes(region: Region, source: Array, result: Array, *, in_memory: bool) -> Region:
    return renamed(region, result.shape, source.shape, (result.order(in_memory=in_memory), source.order(in_memory=in_memory)))


def _slice(graph: Graph, node: Node, region: Region) -> Sequence[Region]:
    source, result = _arrays(graph, node)
    if not isinstance(node.params, Part):
        return _first(node, at_unknown_place(result.shape, source.shape, _lines_of_part(result, source), region))
    sides = tuple(map(range, node.params.starts, node.params.limits, node.params.strides))
    cut = Array(tuple(map(len, sides)), source.dtype, source.strides)
    if cut.shape != result.shape and not region.whole:  # without axes of one element, or with others
        region = _under_axes(region, cut, result, in_memory=True)
    axes = sliced(source.shape, sides)
    return _first(node, *along_axes(axes, [source.shape], cut.shape, region))


def _lines_of_part(part: Array, whole: Array) -> Axes:
    """The axes of an array that a part of it at an unknown position takes whole; of one with other axes only the last is known."""
    if len(part.shape) == len(whole.shape):
        return taken_whole(part.shape, whole.shape)
    is_dense = part.strides is not None and part.strides[-1:] == (1,) and part.shape[-1:] == whole.shape[-1:]
    return frozenset((len(whole.shape) - 1,)) if is_dense else frozenset()


def _transpose(graph: Graph, node: Node, region: Region) -> Sequence[Region]:
    """As many elements, if it is not known where each axis was."""
    if index_map(graph, node) is not None:
        return _along_axes(graph, node, region)
    return _first(node, loosely(count(region, graph.arrays[node.gives[0]].shape)))


def _update(graph: Graph, node: Node, region: Region) -> Sequence[Region]:
    """The part of the operand that is not overwritten, and the update."""
    source, result = _arrays(graph, node)
    if len(node.takes) < 2 or source.elements != result.elements:
        return (WHOLE,) * len(node.takes)
    return (*overwritten(result.shape, graph.arrays[node.takes[1]].shape, region), *(WHOLE for _ in node.takes[2:]))


def _gather(graph: Graph, node: Node, region: Region) -> Sequence[Region]:
    source, result = _arrays(graph, node)
    sizes: Dims = node.params.sizes if isinstance(node.params, Rows) else ()
    if isinstance(node.params, int) and source.shape:
        chosen = node.params % len(source.shape)
        sizes = tuple(1 if axis == chosen else size for axis, size in enumerate(source.shape))
    if len(sizes) != len(source.shape):
        return _first(node, WHOLE)
    rows, _ = gathered(source.shape, sizes, (), result.shape, region)
    indices = [graph.arrays[operand].shape for operand in node.takes[1:]]
    return (rows, *(gathered(source.shape, sizes, dims, result.shape, region)[1] for dims in indices))


_RULES: dict[Operator, Rule] = {
    Operator.TRANSPOSE: _transpose,
    Operator.VIEW: _view,
    Operator.SLICE: _slice,
    Operator.UPDATE: _update,
    Operator.GATHER: _gather,
}
_SELECTIVE = frozenset((Operator.SLICE, Operator.GATHER, Operator.PAD, Operator.UPDATE))  # need a part of an operand for a whole result
