"""Arrays in the host's memory that go to the device and back whole, only to change the order of their elements.

A loop that offloads activations stores them in the order in which it computes them, and the loop of the backward pass reads them in that of
its own: between the two the compiler brings the whole stack back, copies it into the other order, and sends it to the host again.
"""

from collections.abc import Iterator

from ...cost import NOTHING
from ...graph import NO_KERNEL, Graph, Operator
from ...graph.operators import HOST
from ...workload import Avoidable
from .gathered_blocks import CLASS, KIND

GROUP = "offloaded"
_MOVES = (Operator.COPY, Operator.VIEW, Operator.TRANSPOSE)


def offloaded_stacks(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels on the way of an array from the host's memory to the device and back."""
    for node in graph.of(Operator.COPY):
        for array in node.gives:
            back, origin = graph.arrays[array], graph.arrays[graph.origin(array, _MOVES)]
            on_the_way = graph.between(array, _MOVES)
            if back.space != HOST or origin.space != HOST or all(graph.arrays[step.gives[0]].space == HOST for step in on_the_way):
                continue
            for kernel in dict.fromkeys(step.kernel for step in on_the_way if step.kernel != NO_KERNEL):
                facts = {"bytes": back.bytes}
                yield kernel, Avoidable(kind=KIND, instead=NOTHING, facts=facts, unneeded=CLASS, group=GROUP, extra=True)
