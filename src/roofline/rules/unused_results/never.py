"""Forward work whose result nothing uses, such as a head whose loss was left out.

It is recorded for gradients, between other work and the gradient of that, but none of its own is computed, and nothing takes what it ends
in. Where edges were matched by size, it counts if nothing takes the last result of such work in a row: an edge inside of it may be missing.
"""

from collections.abc import Iterator

from ...cost import NOTHING
from ...graph import NO_KERNEL, Graph, Node, Operator, Phase
from ...workload import Avoidable

KIND, CLASS = "unused-results", "unused"
_PRODUCTS = (Operator.DOT, Operator.CONVOLUTION, Operator.ATTENTION)


def never_used(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of such work in a row, if it multiplies."""
    if not any(graph.gradients(node) for node in graph.of(*_PRODUCTS)):
        return
    reason = Avoidable(kind=KIND, instead=NOTHING, cause="never", unneeded=CLASS)
    for row in _unused_rows(graph):
        if any(node.operator in _PRODUCTS for node in row):
            yield from ((kernel, reason) for kernel in sorted({node.kernel for node in row} - {NO_KERNEL}))


def _unused_rows(graph: Graph) -> Iterator[list[Node]]:
    """Nodes in a row that nothing uses, the last one first, before the gradient of a node before them."""
    places = {id(node): place for place, node in enumerate(graph.nodes)}
    used, row, is_end = set[int](), list[Node](), True  # it is, as long as nothing after it in the row is used
    first = len(places)  # of the nodes whose gradients come after
    for place, node in reversed([*enumerate(graph.nodes)]):
        first = min([first, *(places[id(forward)] for forward in graph.differentiated(node))])
        is_view = node.kernel == NO_KERNEL
        is_recorded = node.phase == Phase.FORWARD and (is_view or (node.sequence >= 0 and not graph.gradients(node)))
        is_taken = not node.gives or any(graph.is_handed_on(array) or array in used for array in node.gives)
        is_sure = is_view or is_end or all(graph.arrays[array].sure for array in node.gives)
        if is_recorded and not is_taken and is_sure and first < place:
            row.append(node)
            continue
        used.update(node.takes)
        is_end = is_view and is_end
        if not is_recorded:
            yield row
            row, is_end = [], True
    yield row
