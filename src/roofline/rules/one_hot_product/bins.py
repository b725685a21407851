"""Sums of one-hot rows without a product: a histogram that compares every element with every bin."""

from collections.abc import Iterator

from ...cost import Cost
from ...graph import NO_KERNEL, Graph, Operator
from ...graph.facts.one_hot import hot_axes
from ...resource import HBM, vector
from ...workload import Avoidable
from .lookups import CLASS, KIND

BINS = "bins"


def compared_bins(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that write sums of one-hot rows, and the cost of a scatter-add."""
    for kernel in dict.fromkeys(node.kernel for node in graph.of(Operator.REDUCE) if node.kernel != NO_KERNEL):
        for array in graph.written(kernel):
            hot, result = hot_axes(graph, array), graph.arrays[array]
            if hot.many == 1 or len(hot.axes) != 1:
                continue
            (axis,) = hot.axes
            bins = result.shape[axis]
            elements = hot.many * result.elements // max(bins, 1)
            instead = Cost.of({HBM: graph.kernels[kernel].cost.known(HBM) + result.bytes, vector("fp32"): elements})
            facts = {"elements": elements, "bins": bins}
            yield kernel, Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, group=BINS)
