"""Passes that run twice: forward with gradients and without, as for a metric of the same batch; or backward for each of two losses."""

from collections.abc import Iterator

from ...cost import NOTHING
from ...graph import Graph, Phase
from ...workload import Avoidable

KIND, CLASS, GRADIENTS = "duplicated-work", "duplicated", "gradients"


def second_passes(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of passes of which the recording says that they repeat others."""
    for kernel, caller in graph.repeated.items():
        is_backward = any(node.phase == Phase.BACKWARD for node in graph.inside.get(kernel, ()))
        group, cause = (GRADIENTS, "") if is_backward else ("", "pass")
        facts = {"caller": caller}
        yield kernel, Avoidable(kind=KIND, instead=NOTHING, cause=cause, facts=facts, unneeded=CLASS, group=group, extra=True)
