"""Activations that a scan over layers stacks for its backward pass: each is copied into an array of all layers, and out of it again.

Unrolled, every activation stays where it was computed until the backward pass reads it, and what is cheap to compute (a factor of a GELU's
gradient) is computed there again instead of being stored. What is saved are the kernels that do nothing but write a slice of such an array
from stored values, those that only copy one out of it, and those that fill it before the first iteration. On an H200 a GPT of 12 layers
takes 99.6 ms per step with a scan, 77.9 ms with ``unroll=True`` and 80.5 ms as a Python loop (predicted: 18.9 ms saved); fine-tuning of 8
layers takes 37.0, 30.0 and 29.9 ms (predicted: 5.5 ms).
"""

from collections.abc import Collection, Iterator

from ...cost import NOTHING
from ...graph import NO_KERNEL, Graph, Node, Operator
from ...graph.facts.kernels import consists_of
from ...graph.facts.loops import MOST_UNROLLED, Stack, stacks
from ...graph.node_axes import ELEMENTWISE
from ...graph.operators import HOST
from ...workload import Avoidable, Usual
from .gathered_blocks import CLASS, KIND

GROUP = "activations"
_COPIES = frozenset((Operator.VIEW, Operator.SLICE, Operator.UPDATE))
_CHEAP = _COPIES | ELEMENTWISE | {Operator.BROADCAST, Operator.FILL, Operator.CONSTANT, Operator.TRANSPOSE}


def stacked_activations(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that only copy activations into or out of such arrays, or fill them."""
    for stack in stacks(graph):
        is_here = graph.arrays[stack.final].space != HOST  # offloaded activations go to the host from an unrolled loop too
        readers = _readers(graph, stack) if is_here and 1 < (stack.region.trips or 0) <= MOST_UNROLLED else []
        if not readers:
            continue
        kernels = {stack.filler(graph): None} if stack.filler(graph) != NO_KERNEL else {}
        kernels |= dict.fromkeys(_only(graph, [stack.writer], _CHEAP))
        kernels |= dict.fromkeys(_only(graph, readers, _COPIES))
        for kernel in kernels:
            yield kernel, Avoidable(kind=KIND, instead=NOTHING, unneeded=CLASS, group=GROUP, usual=Usual.YES)


def _readers(graph: Graph, stack: Stack) -> list[Node]:
    """The nodes in other loops that use a stack; none if anything else does."""
    users = [user for user, _ in graph.uses(stack.final, (Operator.VIEW,))]
    around = graph.region_of.get(stack.final)
    others = [user for user in users if user.operator != Operator.LOOP]
    return users if all(user.gives and graph.region_of.get(user.gives[0]) is not around for user in others) else []


def _only(graph: Graph, nodes: list[Node], operators: Collection[Operator]) -> Iterator[int]:
    """The kernels of some nodes that have one result, made by these operators alone."""
    for node in nodes:
        if consists_of(graph, node.kernel, operators) and len(graph.written(node.kernel)) == 1:
            yield node.kernel
