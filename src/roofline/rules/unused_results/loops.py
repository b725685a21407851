"""Results that a loop stacks, of which only a part is used: the class scores of every layer, of which the last are returned.

A loop writes the result of each iteration to its slice of an array. If the program uses only some slices, the work for the others is
unneeded: in the loop, the kernels whose results are only used there; before it, the kernel that fills the array.
"""

from collections.abc import Iterator

from ...graph import NO_KERNEL, Graph, Node, Region
from ...graph.facts.loops import stacks
from ...graph.facts.needed import needed_elements
from ...graph.index_sets import NOTHING, count
from ...workload import Avoidable
from .parts import CLASS, KIND, MOST_USED


def unused_in_loops(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of loops that compute stacked results which are not used, and those that fill the array before."""
    regions = graph.fact(needed_elements) if graph.regions else {}
    for stack in stacks(graph):
        shape = graph.arrays[stack.final].shape
        used = count(regions.get(stack.final, NOTHING), shape) / max(graph.arrays[stack.final].elements, 1)
        if not 0 < used <= MOST_USED or abs(used * shape[0] - round(used * shape[0])) > 1e-6:
            continue
        kernels = {stack.writer.kernel, stack.filler(graph), *_only_for(graph, stack.region, stack.writer)}
        for kernel in sorted(kernels - {NO_KERNEL}):
            instead, facts = graph.kernels[kernel].cost * used, {"share": used}
            yield kernel, Avoidable(kind=KIND, instead=instead, cause="loop", facts=facts, unneeded=CLASS, factor=1 / used)


def _only_for(graph: Graph, loop: Region, writer: Node) -> set[int]:
    """The kernels of a loop whose results are used by one node alone, or by such kernels."""
    only, kernels, others = {*writer.gives}, set[int](), set[int]()
    needed = (graph.results | {*loop.handed_on}) - only
    for place in reversed(loop.nodes):
        node = graph.nodes[place]
        users = [user for array in node.gives for user in graph.users.get(array, ())]
        if not users and not node.takes:  # a constant that a kernel has but that no operator takes
            continue
        is_only = node == writer or (bool(users) and all(only.issuperset(user.gives) for user in users))
        if is_only and needed.isdisjoint(node.gives):
            only.update(node.gives)
            kernels.add(node.kernel)
        else:
            others.add(node.kernel)
    return kernels - others
