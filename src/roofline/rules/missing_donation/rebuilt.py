"""Arrays that a loop copies to change a small part of them: a scan over the slices of a cache that returns the changed slices.

Each slice is read from the old array, changed at one position and written to the new one. If the loop carried the array, it would be
updated in place. Kernels around the loop that only fill, slice or concatenate such arrays would not be needed either.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from ...cost import NOTHING, less_traffic
from ...graph import SPREADING, Graph, Node, Operator
from ...graph.facts.kernels import MOVES, consists_of, makers
from ...graph.facts.loops import Stack, stacks
from ...graph.facts.updates import SMALL, UPDATES, changed, targets
from ...resource import HBM
from ...workload import Avoidable
from .copies import CLASS, KIND

GROUP = "rebuilt"


def rebuilt_arrays(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of a loop that copy slices of an array to change them, and those around the loop and in it that only move that array."""
    avoidable = Avoidable(kind=KIND, instead=NOTHING, unneeded=CLASS, group=GROUP, extra=True)
    moving: dict[int, None] = {}
    for stack in stacks(graph):
        change = graph.made_by(stack.slice, *UPDATES, through=SPREADING)
        cut = _cut(graph, stack, change) if change is not None else None
        if change is None or cut is None or stack.writer.kernel not in graph.kernels:
            continue
        cost, share = graph.cost(stack.writer), changed(graph, change) / graph.arrays[stack.slice].elements
        yield stack.writer.kernel, replace(avoidable, instead=less_traffic(cost, cost.known(HBM) * (1 - share)))
        for node in (cut, *graph.between(targets(change)[0])):
            if node.kernel != stack.writer.kernel and consists_of(graph, node.kernel, MOVES):
                moving[node.kernel] = None
        source, before = graph.origin(cut.takes[0]), dict(zip(stack.region.carried, stack.region.initial, strict=True))
        for array in (stack.initial, before.get(source, source)):
            moving |= dict.fromkeys(makers(graph, array))
        users = (user for user, _ in graph.uses(stack.final, (Operator.VIEW,)))
        moving |= {user.kernel: None for user in users if consists_of(graph, user.kernel, MOVES)}
    for kernel in moving:
        yield kernel, avoidable


def _cut(graph: Graph, stack: Stack, change: Node) -> Node | None:
    """The node that cuts the slices of a stack, which are changed in a small part, out of another array as large."""
    whole, cut = graph.arrays[stack.slice].elements, graph.made_by(targets(change)[0], Operator.SLICE)
    if cut is None or not whole or graph.arrays[change.gives[0]].elements != whole or changed(graph, change) > SMALL * whole:
        return None
    source = graph.origin(cut.takes[0])
    is_made_inside = graph.region_of.get(source) is stack.region and source not in stack.region.carried
    is_other = source != stack.carried and graph.arrays[source].elements == graph.arrays[stack.final].elements
    return cut if is_other and not is_made_inside else None
