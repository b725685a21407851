"""Derivatives of few results, computed forwards for each of many inputs: the rows of an identity matrix run through all products.

What is linear in these rows, one for each input, is computed for all of them; backwards it is computed once for each result.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from ...graph import SPREADING, Graph, Node, Operator, Part
from ...graph.facts.one_hot import counts, position
from ...graph.facts.operand_axes import OperandAxes
from ...graph.node_axes import ELEMENTWISE
from ...workload import Avoidable

KIND, CLASS, GROUP = "product-order", "unused", "directions"
LEAST_INPUTS, LEAST_PRODUCTS = 16, 2
FEWER = 4  # results than inputs, at least so many times: a pass backwards costs more than one forwards (a choice)
_LINEAR = frozenset((Operator.MULTIPLY, Operator.DIVIDE, Operator.NEGATE)) | SPREADING

_ADDING = (Operator.ADD, Operator.SUBTRACT)


class Directions(Struct, frozen=True):
    """The axis of an array that has, from ``start`` on, a row for each of ``count`` inputs, which are ``apart`` places from each other."""

    axis: int
    count: int
    start: int = 0
    apart: int = 1


def forward_derivatives(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of products along the rows of an identity matrix, of which the last has few columns, and of what is between them."""
    along = _directions(graph)
    products = [node for node in graph.of(Operator.DOT) if node.gives[0] in along]
    if len(products) < LEAST_PRODUCTS:
        return
    last = products[-1]
    count, results = along[last.gives[0]].count, _results(last, along)
    if count < FEWER * results:
        return
    share = results / count
    for kernel in graph.inside:
        written = graph.written(kernel)
        if written and all(array in along and not along[array].start for array in written if graph.arrays[array].bytes):
            facts = {"inputs": count, "results": results}
            instead = graph.kernels[kernel].cost * share
            yield kernel, Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, group=GROUP, factor=1 / share)


def _results(product: Node, along: Mapping[int, Directions]) -> int:
    """How many results a product has for each row that it multiplies: the columns of the other factor."""
    return product.sizes.columns if product.takes[0] in along else product.sizes.rows


def _directions(graph: Graph) -> Mapping[int, Directions]:
    along: dict[int, Directions] = {}
    axes = OperandAxes(graph)
    for node in graph.nodes:
        if not node.gives or not node.takes:
            continue
        directions = _identity(graph, node)
        tracked = [place for place, array in enumerate(node.takes) if array in along]
        if directions is None and node.operator in _ADDING and len(tracked) == len(node.takes):
            directions = along[node.takes[0]] if len({along[array] for array in node.takes}) == 1 else None
        elif directions is None and len(tracked) == 1:
            directions = _followed(axes, node, tracked[0], along[node.takes[tracked[0]]])
        if directions is not None:
            along[node.gives[0]] = directions
    return along


def _identity(graph: Graph, node: Node) -> Directions | None:
    """The rows of a square comparison of the numbers along one of its axes with those along the other."""
    shape = graph.arrays[node.gives[0]].shape
    if node.operator == Operator.EQUAL and len(node.takes) == 2 and len(shape) == 2 and shape[0] == shape[1] >= LEAST_INPUTS:
        counted = [{axis for axis in (0, 1) if _counts(graph, array, axis)} for array in node.takes]
        return Directions(0, shape[0]) if counted in ([{0}, {1}], [{1}, {0}]) else None
    return None


def _counts(graph: Graph, array: int, axis: int) -> bool:
    return position(graph, array) is not None and counts(graph, array, axis)


def _followed(axes: OperandAxes, node: Node, place: int, rows: Directions) -> Directions | None:
    graph = axes.graph
    source, result = graph.arrays[node.takes[place]], graph.arrays[node.gives[0]]
    if node.operator == Operator.CONCATENATE:
        if node.params != rows.axis or rows.apart != 1:
            return None
        return replace(rows, start=rows.start + sum(graph.arrays[array].shape[rows.axis] for array in node.takes[:place]))
    if node.operator == Operator.SLICE and isinstance(node.params, Part) and len(source.shape) == len(result.shape):
        start, limit = node.params.starts[rows.axis], node.params.limits[rows.axis]
        if (start, limit) == (0, source.shape[rows.axis]):
            return rows
        return replace(rows, start=0) if (start, limit) == (rows.start, rows.start + rows.count) else None
    if node.operator == Operator.VIEW:
        return _viewed(graph, node, rows)
    if node.operator in ELEMENTWISE and (node.operator not in _LINEAR or not _is_scaled(axes, node, place, rows)):
        return None
    sources = axes.of(node, place)
    places = [axis for axis, before in enumerate(sources or ()) if before == {rows.axis}]
    if node.operator in _LINEAR or node.operator in (Operator.DOT, Operator.REDUCE):
        return replace(rows, axis=places[0]) if len(places) == 1 and result.shape[places[0]] == source.shape[rows.axis] else None
    return None


def _is_scaled(axes: OperandAxes, node: Node, place: int, rows: Directions) -> bool:
    """Whether the other factors are the same for all rows; of rows among others none may be scaled."""
    others = [other for other in range(len(node.takes)) if other != place]
    return not others or (not rows.start and all(rows.axis not in axes.differing(node, other) for other in others))


def _viewed(graph: Graph, view: Node, rows: Directions) -> Directions | None:
    before, after = (graph.arrays[array] for array in (view.takes[0], view.gives[0]))
    is_in_memory = view.params != 1
    step = before.distances(in_memory=is_in_memory)[rows.axis] * rows.apart
    for axis, distance in enumerate(after.distances(in_memory=is_in_memory)):
        is_within = distance <= step and step * rows.count <= distance * after.shape[axis] and step % distance == 0
        if is_within and not (rows.start and step != distance):
            return replace(rows, axis=axis, apart=step // distance)
    return None
