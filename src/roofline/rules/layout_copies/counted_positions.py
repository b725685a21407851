"""Elements that are gathered at positions which the program counts itself, such as every second one: a slice is a view of them.

The positions follow from a running number by steps alone. Elements that are repeated, as by upsampling, have to be written out; and where a
compiler fuses, a slice is written for libraries as a gather is.
"""

from collections.abc import Iterator

from ...cost import NOTHING
from ...graph import NO_KERNEL, SPREADING, Graph, Operator
from ...workload import Avoidable
from .gathered_blocks import CLASS, KIND, LEAST, only_gathers

GROUP = "counted"
_KEEPING = SPREADING | {Operator.ADD, Operator.MULTIPLY, Operator.SLICE}  # what leaves equal steps between numbers


def counted_positions(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that only gather elements at such positions, for other kernels."""
    if graph.is_fused:
        return
    gathers = [gather for gather in graph.of(Operator.GATHER) if gather.kernel != NO_KERNEL and gather.gives and len(gather.takes) > 1]
    counted = _counted(graph) if gathers else set()
    for gather in gathers:
        source, result = graph.arrays[gather.takes[0]], graph.arrays[gather.gives[0]]
        if result.bytes < LEAST or result.elements > source.elements or not counted.issuperset(gather.takes[1:]):
            continue
        if only_gathers(graph, gather) and not any(map(graph.is_handed_on, graph.written(gather.kernel))):
            yield gather.kernel, Avoidable(kind=KIND, instead=NOTHING, unneeded=CLASS, group=GROUP)


def _counted(graph: Graph) -> set[int]:
    """The arrays of numbers in equal steps."""
    counted = set[int]()
    for node in graph.nodes:
        if node.operator in (Operator.IOTA, Operator.FILL) or (node.operator in _KEEPING and node.takes and counted.issuperset(node.takes)):
            counted.update(node.gives)
    return counted
