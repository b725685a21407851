"""Fourier transforms of lengths with a large prime factor, which libraries compute slowly."""

from collections.abc import Iterator

from ...formulas.fourier import slow_length
from ...graph import NO_KERNEL, Axes, Graph, Operator
from ...workload import Avoidable, Saves
from .tiny import KIND

LENGTHS = "lengths"  # the group


def slow_lengths(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The transforms of such lengths; where one side is real, it has the length."""
    for node in graph.of(Operator.FOURIER):
        axes = node.params.axes if isinstance(node.params, Axes) else ()
        sides = [graph.arrays[array].shape for array in (*node.takes[:1], *node.gives[:1])]
        slow = slow_length([max(side[axis] for side in sides) for axis in axes if all(axis < len(side) for side in sides)])
        if slow and node.kernel != NO_KERNEL:
            cost = graph.kernels[node.kernel].cost
            yield node.kernel, Avoidable(kind=KIND, instead=cost, facts={"length": slow}, group=LENGTHS, saves=Saves.GOOD_TRANSFORM)
