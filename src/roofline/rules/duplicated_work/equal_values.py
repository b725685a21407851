"""The same value computed twice in one program: equal operators on equal arrays.

What the backward pass computes again is recomputation, a finding of its own. Compilers compute elementwise values again rather than store
them, and copy an array twice, which is not the author's doing; nor is it that an array is fetched twice to a small memory.
"""

from collections.abc import Iterator, Sequence

from ...cost import NOTHING, Cost
from ...graph import MULTIPLYING, NO_KERNEL, Graph, Node, Operator, Phase
from ...resource import HBM
from ...workload import Avoidable
from ..kernel_names import KERNEL

KIND, CLASS = "duplicated-work", "duplicated"


def equal_values(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels whose results, or whose products, others have computed before."""
    first = graph.equal
    for kernel in dict.fromkeys(kernel for array in first if (kernel := graph.maker[array].kernel) != NO_KERNEL):
        written = graph.written(kernel)
        if written and all(array in first and _is_written(graph, first[array], kernel) for array in written):
            arrays, instead = written, NOTHING
        else:
            arrays, instead = _products(graph, kernel), _cost_without_products(graph, kernel)
        if not arrays or not all(array in first and graph.maker[first[array]].kernel not in (NO_KERNEL, kernel) for array in arrays):
            continue
        makers, before = ([graph.maker[array] for array in equal] for equal in (arrays, [first[array] for array in arrays]))
        if all(maker.phase == Phase.RECOMPUTED for maker in makers) or not _is_of_author(graph, kernel, makers, before):
            continue
        yield kernel, Avoidable(kind=KIND, instead=instead, facts={KERNEL: before[0].kernel}, unneeded=CLASS, extra=True)


def _products(graph: Graph, kernel: int) -> list[int]:
    """The results of a kernel's products."""
    return [array for node in graph.inside[kernel] if node.operator in MULTIPLYING for array in node.gives[:1]]


def _cost_without_products(graph: Graph, kernel: int) -> Cost:
    """The cost of a kernel that reads the results of its products instead of computing them."""
    nodes = [node for node in graph.inside[kernel] if node.operator not in MULTIPLYING]
    results = {array for node in nodes for array in node.gives}
    moved = {array for node in nodes for array in node.takes if array not in results}.union(graph.written(kernel))
    cost = graph.kernels[kernel].cost
    amounts = {resource: amount for resource, amount in cost.amounts if resource.unit == "vector"}
    return Cost.of({**amounts, HBM: min(cost.known(HBM), sum(graph.arrays[array].bytes for array in moved))})


def _is_written(graph: Graph, array: int, reader: int) -> bool:
    """Whether another kernel writes an array."""
    kernel = graph.maker[array].kernel
    return kernel not in (NO_KERNEL, reader) and array in graph.written(kernel)


def _is_of_author(graph: Graph, kernel: int, makers: Sequence[Node], before: Sequence[Node]) -> bool:
    """Whether a kernel computes again what the program says twice. One that reads single numbers alone fills an array."""
    nodes = graph.inside[kernel]
    results = {array for node in nodes for array in node.gives}
    read = {array for node in nodes for array in node.takes} - results
    if all(graph.arrays[array].elements == 1 for array in read) or any(_is_fetch(graph, node) for node in nodes):
        return False
    if any(node.operator in MULTIPLYING for node in nodes):
        return True
    are_copies = all(node.operator == Operator.COPY and node.operation < 0 for node in nodes)
    are_clones = all(maker.operation == other.operation >= 0 for maker, other in zip(makers, before, strict=True))
    return not are_copies and not are_clones


def _is_fetch(graph: Graph, node: Node) -> bool:
    """Whether a node copies an array, or a part of it, to another memory, which may hold it for a while."""
    return node.operator in (Operator.COPY, Operator.SLICE) and graph.arrays[node.takes[0]].space != graph.arrays[node.gives[0]].space
