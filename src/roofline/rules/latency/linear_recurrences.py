"""Loops whose state is a linear recurrence, h = a * h + b by element: an associative scan computes all iterations in a few large kernels.

On an H200 a state of 8 x 2048 over 2,048 tokens, with its gradient, takes 38.8 ms per step as a `lax.scan`, 5.8 ms with ``unroll=8``, and
2.8 ms as a `lax.associative_scan`.
"""

from collections.abc import Iterator

from ...graph import NO_KERNEL, RENAMING, Graph, Operator
from ...graph.facts.loops import Iteration
from ...workload import Avoidable

KIND, GROUP = "latency", "linear"  # the work stays the same: only the launches become fewer
_LEAST_TRIPS = 64
_SAME = RENAMING - {Operator.TRANSPOSE}
_LINEAR = (Operator.ADD, Operator.SUBTRACT, Operator.MULTIPLY, Operator.NEGATE)
_MOST_STEPS = 200  # nodes of one recurrence


def linear_recurrences(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of a loop, if all of its state but counters and stacked results is such a recurrence."""
    for region in graph.regions:
        if (region.trips or 0) >= _LEAST_TRIPS and _is_linear(graph, Iteration(graph, region)):
            inside = [graph.nodes[place] for place in region.nodes]
            own = {node.kernel for node in inside if node.gives and graph.region_of.get(node.gives[0]) is region}
            for kernel in sorted(own - {NO_KERNEL}):
                cost = graph.kernels[kernel].cost
                yield kernel, Avoidable(kind=KIND, instead=cost, group=GROUP)


def _is_linear(graph: Graph, iteration: Iteration) -> bool:
    """Whether a loop multiplies its state by factors; without one it is a sum, of which the loop may need the last alone."""
    every = [0 if graph.made_by(array, Operator.UPDATE) else _factors(graph, iteration, array) for array in iteration.changing]
    known = [factors for factors in every if factors is not None]
    return len(known) == len(every) and sum(known) > 0


def _factors(graph: Graph, iteration: Iteration, array: int) -> int | None:
    """How many factors that do not depend on the state its parts have in an array; ``None`` if that is not a sum of such terms."""
    factors, waiting = 0, [array]
    for _ in range(_MOST_STEPS):
        if not waiting:
            return factors
        origin = graph.origin(waiting.pop(), _SAME)
        node = graph.maker.get(origin)
        if node is None or iteration.is_free(origin):
            continue
        depending = [operand for operand in node.takes if not iteration.is_free(operand)]
        if node.operator not in _LINEAR or (node.operator == Operator.MULTIPLY and len(depending) > 1):
            return None
        factors += node.operator == Operator.MULTIPLY
        waiting += depending
    return None
