"""Passes that run twice: forward with gradients and without, as for a metric of the same batch; or backward for each of two losses.

A recording takes a forward pass for a repeated one by its modules and shapes. Where it is known what each operator read, a pass over other
data, or with weights that were updated in between, is none.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

from ...cost import NOTHING
from ...graph import RENAMING, Graph, Operator, Phase
from ...workload import Avoidable

KIND, CLASS, GRADIENTS = "duplicated-work", "duplicated", "gradients"
_PARTS = RENAMING | {Operator.SLICE, Operator.BROADCAST}
_VECTOR = 1  # axes: running statistics are vectors, which a pass may change


def second_passes(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of passes of which the recording says that they repeat others."""
    once = _read(graph, [kernel for kernel in graph.inside if kernel not in graph.repeated]) if graph.repeated else set()
    for caller, kernels in groupby(graph.inside, graph.repeated.get):
        again = list(kernels)
        if caller is None:
            continue
        is_backward = any(node.phase == Phase.BACKWARD for kernel in again for node in graph.inside[kernel])
        if not is_backward and not _read(graph, again) <= once:
            continue
        group, cause = (GRADIENTS, "") if is_backward else ("", "pass")
        for kernel in again:
            facts = {"caller": caller}
            yield kernel, Avoidable(kind=KIND, instead=NOTHING, cause=cause, facts=facts, unneeded=CLASS, group=group, extra=True)


def _read(graph: Graph, kernels: Sequence[int]) -> set[int]:
    """The arrays that some kernels read and do not make, as far as that is known and they are no vectors."""
    nodes = [node for kernel in kernels for node in graph.inside[kernel]]
    results = {array for node in nodes for array in node.gives}
    sources = {graph.origin(array, _PARTS) for node in nodes for array in node.takes} - results
    return {graph.equal.get(array, array) for array in sources if graph.arrays[array].sure and len(graph.arrays[array].shape) > _VECTOR}
