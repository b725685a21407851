"""Arrays that a loop carries and of which it stacks a full copy in every iteration, although each changes a small part of them.

A scan whose body returns its cache among the results of each token writes the whole cache for every token. What is new would be enough, or
the last state. On an H200 the generation of 32 tokens with a cache of 67 MB takes 5.7 ms so, 3.3 ms without (predicted: 2.3 ms saved).
"""

from collections.abc import Iterator

from ...cost import less_traffic
from ...graph import SPREADING, Graph
from ...graph.facts.loops import Stack, stacks
from ...graph.facts.updates import SMALL, UPDATES, changed, targets
from ...workload import Avoidable, Usual
from .gathered_blocks import CLASS, KIND

GROUP = "every state"


def stacked_states(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of a loop that write such copies, and those in front of it that fill the stack of them."""
    for stack in stacks(graph):
        if _is_of_states(graph, stack):
            moved = 2 * graph.arrays[stack.slice].bytes, graph.arrays[stack.final].bytes
            for kernel, saved in zip((stack.writer.kernel, stack.filler(graph)), moved, strict=True):
                if kernel in graph.kernels:
                    instead = less_traffic(graph.kernels[kernel].cost, saved)
                    yield kernel, Avoidable(kind=KIND, instead=instead, unneeded=CLASS, group=GROUP, usual=Usual.UNLESS_ASKED)


def _is_of_states(graph: Graph, stack: Stack) -> bool:
    """Whether the slices are what an iteration hands on of an array that it carries, and changes in a small part at most."""
    state = array = graph.origin(stack.slice, SPREADING)
    left = SMALL * graph.arrays[state].elements
    while left >= 0 and (update := graph.maker.get(array)) is not None and update.operator in UPDATES:
        left -= changed(graph, update)
        array = graph.origin(targets(update)[0], SPREADING)
    pairs = zip(stack.region.carried, stack.region.handed_on, strict=True)
    return left >= 0 and any(carried == array and graph.origin(after, SPREADING) == state for carried, after in pairs)
