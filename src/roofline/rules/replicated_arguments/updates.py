"""Arguments that every device has whole and updates whole, although an axis of the mesh divides them: parameters and optimizer states.

Each device then reads, computes and writes all of them. Divided, each updates its own part, and an axis that divides the batch gathers the
parameters for their use and scatters the sum of their gradients, which moves as many bytes as the all-reduce of whole gradients.
"""

from collections.abc import Iterator
from math import prod

from ...graph import Graph, Operator
from ...graph.facts.exchanges import whole_axes
from ...graph.operators import MULTIPLYING
from ...workload import Avoidable, Fact

KIND = "replicated-arguments"
_NEVER = MULTIPLYING | {Operator.COLLECTIVE, Operator.GATHER, Operator.SCATTER_ADD}


def replicated_arguments(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that update whole arguments, and their cost if each device updated a part."""
    if graph.devices < 2:
        return
    for kernel, nodes in graph.inside.items():
        if any(node.operator in _NEVER for node in nodes):
            continue
        updated = [array for array in graph.written(kernel) if array in graph.results]
        read = [array for array in graph.read(kernel) if array in graph.donated and graph.is_argument(array)]
        whole = [array for array in read if not any(graph.divided.get(array, ((0,),))) and graph.arrays[array].elements > 1]
        if not updated or not whole or len(whole) < len(read):
            continue
        devices = _dividing(graph, whole[0])
        if devices > 1:
            facts: dict[str, Fact] = {
                "array": graph.names.get(whole[0], ""),
                "bytes": sum(graph.arrays[array].bytes for array in whole),
                "devices": devices,
            }
            yield kernel, Avoidable(kind=KIND, instead=graph.kernels[kernel].cost * (1 / devices), facts=facts)


def _dividing(graph: Graph, array: int) -> int:
    """The devices over which an array that all have whole could be divided: along one of its dimensions, over axes that divide others."""
    free = prod(size for _, size in whole_axes(graph, array))
    while free > 1 and not any(size % free == 0 for size in graph.arrays[array].shape):
        free //= 2
    return free
