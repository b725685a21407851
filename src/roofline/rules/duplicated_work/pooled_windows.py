"""Gradients of maxima over windows that do not overlap: each window is searched again, and its gradient scattered to the maximum.

On GPUs the gradient of a maximum over windows is a search for the position of each maximum, an array of zeros, and a scatter. With the
windows as axes of their own the gradient is elementwise: it compares each element with its maximum.
"""

from collections.abc import Iterator

from ...cost import NOTHING, Cost
from ...graph import NO_KERNEL, RENAMING, Graph, Node, Operator, Pooling
from ...resource import HBM
from ...workload import Avoidable
from .equal_values import CLASS, KIND

GROUP = "windows"
_JOINED = RENAMING | {Operator.CONCATENATE}  # positions along several axes


def pooled_windows(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that scatter a gradient to the maxima of windows, fill the array for it, and search the windows again."""
    for scatter in graph.of(Operator.SCATTER_ADD, Operator.SCATTER):
        search = graph.made_by(scatter.takes[1], Operator.WINDOW, through=_JOINED) if len(scatter.takes) > 1 else None
        if search is None or not isinstance(search.params, Pooling) or search.params.sizes != search.params.strides:
            continue
        facts = {"window": "×".join(str(size) for size in search.params.sizes if size > 1)}
        for kernel, instead in _instead(graph, scatter, search).items():
            if kernel != NO_KERNEL:
                yield kernel, Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, group=GROUP, extra=True)


def _instead(graph: Graph, scatter: Node, search: Node) -> dict[int, Cost]:
    """What the kernels of an elementwise gradient move: its result and the gradient of the maxima, and what is compared with these."""
    gradient, maxima = (graph.arrays[node.gives[0]] for node in (scatter, search))
    moved = gradient.bytes + maxima.elements * gradient.bytes // max(gradient.elements, 1)
    zeros = graph.made_by(scatter.takes[0], Operator.FILL)
    filling = zeros.kernel if zeros is not None else NO_KERNEL
    others = sum(graph.arrays[array].bytes for array in graph.written(filling)) - gradient.bytes  # of a kernel that fills several arrays
    kept = Cost.of({HBM: others}) if others > 0 else NOTHING
    return {filling: kept, search.kernel: Cost.of({HBM: gradient.bytes}), scatter.kernel: Cost.of({HBM: moved})}
