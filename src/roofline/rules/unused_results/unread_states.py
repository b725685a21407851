"""Gradients and states of weights that are not trained: moments that a step updates with gradients, and that update no weight; gradients
that it multiplies by zero, and those that it leaves with weights while an optimizer updates others.

Such a state is an argument that only its own new value depends on, beside a factor of zero, in a program that updates other weights with
theirs: one that only adds gradients up leaves the rest to another program. Averages of weights and running statistics, of which the same is
true, do not come from gradients.
"""

from collections.abc import Iterator, Set

from ...cost import NOTHING
from ...graph import Graph, Operator, Phase
from ...graph.facts.flow import reached
from ...units import parse
from ...workload import Avoidable
from .occasional import zeros
from .parts import CLASS, KIND

GRADIENTS, STATES = "gradients", "states"
LEAST = parse("1 MB", "B")  # of a state; smaller ones are sums of metrics


def unread_states(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that only compute such states, and the gradients that only these or products with zero use."""
    backward = [node for node in graph.nodes if node.phase == Phase.BACKWARD]
    if not backward:
        return
    removed = zeros(graph)
    needed = _needed(graph, graph.results - _states(graph, removed) - _unchanged(graph, removed), removed)
    left = {gradient.array for gradient in graph.weight_gradients if not gradient.is_used and not gradient.place}  # of no known pass
    unneeded = (_needed(graph, graph.results | left) - needed - removed) & reached(graph, backward)
    cause, group = ("", STATES) if left.isdisjoint(unneeded) else ("frozen", GRADIENTS)
    for kernel, nodes in graph.inside.items():
        gives = [array for node in nodes for array in node.gives]
        if gives and needed.isdisjoint(gives) and not unneeded.isdisjoint(gives) and graph.kernels[kernel].cost.amounts:
            yield kernel, Avoidable(kind=KIND, instead=NOTHING, cause=cause, unneeded=CLASS, group=group)


def _states(graph: Graph, removed: set[int]) -> set[int]:
    """The results that follow from gradients, and from arguments that nothing else follows from."""
    arguments = [array for array in graph.arguments if graph.arrays[array].bytes >= LEAST and _is_real(graph, array)]
    bits = {array: 1 << place for place, array in enumerate(arguments)}
    gradient, loops = 1 << len(arguments), {region.final: region for region in graph.regions}
    for region in graph.regions:
        bits |= {carried: bits.get(initial, 0) for carried, initial in zip(region.carried, region.initial, strict=True)}
    for node in graph.nodes:
        taken = [*node.takes, *(loops[node.gives].handed_on if node.operator == Operator.LOOP and node.gives in loops else ())]
        reaches = gradient if node.phase == Phase.BACKWARD else 0
        for array in taken:
            reaches |= 0 if array in removed else bits.get(array, 0)
        for array in node.gives:
            bits[array] = bits.get(array, 0) | reaches
    reaching: dict[int, list[int]] = {}
    for place, _ in enumerate(arguments):
        reaching[place] = [result for result in graph.results if bits.get(result, 0) >> place & 1]
    if not any(len(results) > 1 and _updates(graph, arguments[place], results) for place, results in reaching.items()):
        return set()
    states = {results[0] for place, results in reaching.items() if len(results) == 1 and results[0] != arguments[place]}
    return {
        state
        for state in states
        if bits[state] & gradient
        and any(_are_alike(graph, argument, state) and reaching[place] == [state] for place, argument in enumerate(arguments))
    }


def _unchanged(graph: Graph, removed: set[int]) -> set[int]:
    """The results that are an argument plus or minus zero."""
    updates = [graph.maker[result] for result in graph.results if result in graph.maker]
    added = [node for node in updates if node.operator in (Operator.ADD, Operator.SUBTRACT) and node.takes[-1] in removed]
    return {array for node in added if graph.origin(node.takes[0]) in graph.arguments for array in node.gives}


def _updates(graph: Graph, state: int, results: list[int]) -> bool:
    """Whether the results that follow from an argument are its own new value and those of others like it, not all that is computed."""
    return all(_are_alike(graph, state, result) for result in results)


def _is_real(graph: Graph, array: int) -> bool:
    number = graph.arrays[array].dtype
    return number is not None and not number.name.startswith(("int", "uint", "bool"))


def _are_alike(graph: Graph, argument: int, result: int) -> bool:
    before, after = graph.arrays[argument], graph.arrays[result]
    return (before.shape, before.dtype) == (after.shape, after.dtype)


def _needed(graph: Graph, results: Set[int], removed: Set[int] = frozenset()) -> set[int]:
    """The arrays that results depend on, other than through those ``removed``."""
    needed, loops = set(results), {region.final: region for region in graph.regions}
    before = {carried: initial for region in graph.regions for carried, initial in zip(region.carried, region.initial, strict=True)}
    for node in reversed(graph.nodes):
        if needed.isdisjoint(node.gives):
            continue
        taken = [*node.takes, *(loops[node.gives].handed_on if node.operator == Operator.LOOP and node.gives in loops else ())]
        needed.update(node.gives)
        needed.update(array for array in taken if array not in removed)
        needed.update(before[array] for array in taken if array in before)
    return needed
