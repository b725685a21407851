"""The same value computed in every iteration of a loop: kernels that take nothing but what no iteration changes."""

from collections.abc import Iterator

from ...cost import NOTHING
from ...graph import NO_KERNEL, Graph, Operator, Region
from ...graph.facts.kernels import consists_of
from ...workload import Avoidable
from .shuffles import CLASS, KIND

GROUP = "loop"
_UNKNOWN = (Operator.OTHER, Operator.RANDOM, Operator.COLLECTIVE, Operator.LOOP, Operator.BRANCH)  # may give another value each time
_MOVES = (Operator.VIEW, Operator.COPY, Operator.SLICE)  # to overwrite the copy, or to read it from a memory nearby


def loop_invariants(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels in loops that compute the same in every iteration."""
    for region in graph.regions:
        if region.trips is not None and region.trips < 2:
            continue
        for kernel in _invariant(graph, region):
            instead = graph.kernels[kernel].cost * (1 / region.trips) if region.trips else NOTHING
            yield kernel, Avoidable(kind=KIND, instead=instead, unneeded=CLASS, group=GROUP, extra=True)


def _invariant(graph: Graph, region: Region) -> Iterator[int]:
    """The kernels of a loop all of whose results are the same in every iteration, and depend on an array from outside of it."""
    inside = {*region.carried, *(array for place in region.nodes for array in graph.nodes[place].gives)}
    given: dict[int, bool] = {}  # arrays that are the same in every iteration, and whether they depend on one from outside
    same: dict[int, bool] = {}  # kernels, and whether all of their results are the same
    for node in (graph.nodes[place] for place in region.nodes):
        if not node.gives or graph.region_of.get(node.gives[0]) is not region:
            continue
        is_same = node.operator not in _UNKNOWN and all(array in given or array not in inside for array in node.takes)
        if is_same:
            given |= dict.fromkeys(node.gives, any(given.get(array, True) for array in node.takes))
        same[node.kernel] = same.get(node.kernel, True) and is_same
    for kernel, is_same in same.items():
        if kernel == NO_KERNEL or not is_same or consists_of(graph, kernel, _MOVES):
            continue
        if any(given[array] for node in graph.inside[kernel] for array in node.gives):
            yield kernel
