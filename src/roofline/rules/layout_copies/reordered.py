"""Kernels that only change the order of an array's elements in memory: transposes and copies that move every byte and compute nothing.

A copy that keeps the order does not count, unless the array was reordered before: the compiler adds it where a buffer is overwritten while
its old value is still needed. A compiler that stores arrays in tiles also copies arrays into the order that one of its kernels reads best:
such copies count where the author decides on the order, which is that of an argument, of a result, or of a transpose in the program. What
a library reorders for itself does not count.
"""

from collections.abc import Iterator, Mapping, Sequence

from ...cost import NOTHING, less_traffic
from ...graph import EXPANDED, RENAMING, SOLVING, Graph, Node, Operator, Part
from ...graph.facts.orders import Reordered, reordered
from ...graph.facts.products import largest_products
from ...resource import HBM, XLU
from ...workload import Avoidable, Facts, Usual, source_line

KIND, CLASS = "layout-copies", "layout"
ARGUMENTS = "arguments"  # the group of arguments that are copied for matmuls
SMALL = 1 / 16  # of a reordered array: the work for an update of at most that size does not count (a choice)
MOST_SIZES = 6  # of an array that is described by its sizes
_ASKED: dict[Operator | None, str] = {Operator.TRANSPOSE: " by a transpose", Operator.LOOP: " for a loop that carries it"}
_MOVES = frozenset(
    (
        Operator.TRANSPOSE,
        Operator.COPY,
        Operator.VIEW,
        Operator.CAST,
        Operator.CONCATENATE,
        Operator.BROADCAST,
        Operator.FILL,
        Operator.CONSTANT,
    )
)


def reordered_elements(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that only reorder elements, those that also update a small part of the array, and copies of their results."""
    products = largest_products(graph)
    copied: set[int] = set()  # the results of kernels that only reorder
    for kernel, nodes in graph.inside.items():
        if kernel in graph.forced or graph.kernels[kernel].cost.unknown:
            continue
        if all(_is_compilers(graph, node) and graph.origin(node.takes[0], (Operator.VIEW,)) in copied for node in nodes):
            yield kernel, _avoidable(Facts())
            continue
        change = max(filter(None, (reordered(graph, node) for node in nodes)), key=lambda change: change.elements, default=None)
        written = graph.written(kernel)
        if change is None or 2 * change.elements < sum(graph.arrays[array].elements for array in written):
            continue
        if not _is_authors(graph, nodes, change.node):
            continue
        how, cost = _described(graph, change, written, products), graph.kernels[kernel].cost
        if {resource for resource, _ in cost.amounts} - {XLU} == {HBM} and all(map(_only_moves, nodes)):
            copied.update(written)
            yield kernel, _reordering(graph, written, products, how)
        elif updated := _updated_bytes(graph, nodes, change.elements):
            instead = less_traffic(cost, 2 * (sum(graph.arrays[array].bytes for array in written) - updated))
            yield kernel, Avoidable(kind=KIND, instead=instead, facts={"reordered": how}, unneeded=CLASS, usual=Usual.UNLESS_ASKED)


def _avoidable(facts: Facts, group: str = "") -> Avoidable:
    return Avoidable(kind=KIND, instead=NOTHING, facts=facts, unneeded=CLASS, group=group, usual=Usual.UNLESS_ASKED)


def _is_compilers(graph: Graph, node: Node) -> bool:
    """Whether a compiler added a copy of an array: it is of no operation of the author, or of that which made the array."""
    maker = graph.made_by(node.takes[0], Operator.COPY, Operator.TRANSPOSE, through=(Operator.VIEW,)) if node.takes else None
    return node.operator == Operator.COPY and (node.operation < 0 or (maker is not None and maker.operation == node.operation))


def _reordering(graph: Graph, written: Sequence[int], products: Mapping[int, Node], how: str) -> Avoidable:
    """What a kernel could avoid that only reorders; an argument that it reorders for products could be stored in their order."""
    argument = _argument_for_products(graph, written, products)
    if argument is None:
        return _avoidable(Facts(reordered=how))
    place = graph.arguments.index(argument)
    return _avoidable(Facts(reordered=how, argument=graph.names.get(argument, f"argument {place}")), ARGUMENTS)


def _only_moves(node: Node) -> bool:
    return node.operator in _MOVES or (node.operator == Operator.SLICE and isinstance(node.params, Part))


def _is_authors(graph: Graph, nodes: Sequence[Node], moved: Node) -> bool:
    """Whether the author of a program decides on the order that a kernel changes."""
    asked = {graph.operations[node.operation].operator for node in (moved, nodes[-1]) if node.operation in graph.operations}
    if not asked.isdisjoint(EXPANDED) or graph.made_by(moved.takes[0], *SOLVING, through=(*RENAMING, Operator.TRANSPOSE)):
        return False
    if graph.arrays[moved.gives[0]].tile is None:
        return True
    if Operator.TRANSPOSE in asked or not graph.results.isdisjoint(moved.gives + nodes[-1].gives):
        return True
    return graph.is_argument(graph.origin(moved.takes[0], {*RENAMING, Operator.SLICE}))


def _argument_for_products(graph: Graph, written: Sequence[int], products: Mapping[int, Node]) -> int | None:
    """The argument that a kernel reorders for products alone, if the program keeps it as it is."""
    users = {node.kernel for array in written for node, _ in graph.uses(array, (Operator.VIEW,))}
    origins = {graph.origin(array) for array in written}
    if not users or not users <= products.keys() or len(origins) != 1:
        return None
    (origin,) = origins
    return origin if graph.is_argument(origin) and origin not in graph.donated else None


def _updated_bytes(graph: Graph, nodes: Sequence[Node], elements: int) -> int:
    """The bytes that a kernel updates of the array that it reorders, if it does nothing else to it; 0 otherwise."""
    updates = [node for node in nodes if node.operator == Operator.UPDATE and graph.arrays[node.gives[0]].elements == elements]
    large = [node for node in nodes if node not in updates and graph.arrays[node.gives[0]].elements > SMALL * elements]
    return sum(graph.arrays[node.takes[1]].bytes for node in updates) if all(map(_only_moves, large)) else 0


def _described(graph: Graph, change: Reordered, written: Sequence[int], products: Mapping[int, Node]) -> str:
    """Such as "[8,16,512,64] to [8,512,16,64] by a transpose, for einsum 'bqhd,bkhd->bhqk' at model.py:7"; empty for very many sizes."""
    if len(change.before) > MOST_SIZES:
        return ""
    before, after = (f"[{','.join(map(str, sizes))}]" for sizes in (change.before, change.after))
    return f"{before} to {after}{_asked(graph, change.node)}{_reader(graph, written, products)}"


def _asked(graph: Graph, node: Node) -> str:
    """What asked for the order: an einsum, a transpose of the program, or a loop that carries the array."""
    operation = graph.operations.get(node.operation)
    if operation is None:
        return ""
    if operation.einsum:
        return f" from einsum '{operation.einsum}'"
    return _ASKED.get(operation.operator, "")


def _reader(graph: Graph, written: Sequence[int], products: Mapping[int, Node]) -> str:
    """The first matmul that reads the result: its einsum, and its line."""
    readers = {node.kernel for array in written for node, _ in graph.uses(array, (Operator.VIEW,)) if node.kernel in products}
    if not readers:
        return ""
    product = products[min(readers)]
    operation, line = graph.operations.get(product.operation), source_line(product.location)
    what = f"einsum '{operation.einsum}'" if operation is not None and operation.einsum else "a matmul"
    return f", for {what}{f' at {line}' if line else ''}"
