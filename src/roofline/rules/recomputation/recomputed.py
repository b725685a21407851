"""Work of the forward pass that is done again in the backward pass: because the author asked for it, or by the compiler's choice."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from ...cost import NOTHING, Cost, less_traffic
from ...graph import RENAMING, Axes, Graph, Node, Operator, Phase, Region
from ...graph.facts.loops import MOST_UNROLLED
from ...resource import HBM
from ...workload import Avoidable, Usual

Factor = tuple[int, int]  # an argument of the program, and the axis of it that a product sums over
KIND, CLASS = "recomputation", "recomputed"
LOOP = "loop"  # the group of what a loop over layers recomputes
# Times that a loop would move a result to keep it instead: it is copied into an array of all iterations and out again (four), elementwise
# results between products are kept too (four more), and such copies reach two thirds of the bandwidth. Four layers of a transformer in a
# loop on an H200 took as long with jax.checkpoint as without; twelve took 96.3 ms with and 99.6 without, but 80.5 in a Python loop without.
PASSES = 12
_FETCHING = RENAMING | {Operator.SLICE, Operator.COLLECTIVE}


def recomputed(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that compute again what the forward pass computed, and those that write some of it beside a gradient.

    A loop would have to keep the results in arrays of all iterations, and writing and reading these often takes as long as computing them
    again. A loop of few iterations can be unrolled, and then stores them where they are.
    """
    again = {kernel: graph.written(kernel) for kernel, nodes in graph.inside.items() if any(map(_is_again, nodes))}
    once = _computed_once(graph, again)
    facts = {"checkpoint": ", ".join(graph.checkpoints)} if graph.checkpoints else {}
    for kernel, written in again.items():
        if kernel in once or _gathers_for_gradient(graph, kernel):
            continue
        nodes, arrays = graph.inside[kernel], [array for array in written if _is_again(graph.maker[array])]
        region, moved = _loop(graph, nodes), sum(graph.arrays[array].bytes for array in arrays)
        if len(arrays) < len(written) or not (written or all(map(_is_again, nodes))):
            if arrays and region is None:
                yield kernel, _avoidable(less_traffic(graph.kernels[kernel].cost, moved), facts)
            continue
        yield kernel, _avoidable(Cost.of({HBM: PASSES * moved}) if region is not None and moved else NOTHING, facts)
        if region is not None and region.trips is not None and 1 < region.trips <= MOST_UNROLLED:
            yield kernel, Avoidable(kind=KIND, instead=NOTHING, group=LOOP, usual=Usual.YES, extra=True)


def _avoidable(instead: Cost, facts: Mapping[str, str]) -> Avoidable:
    return Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, extra=True)


def _is_again(node: Node) -> bool:
    return node.phase == Phase.RECOMPUTED


def _gathers_for_gradient(graph: Graph, kernel: int) -> bool:
    """Whether a kernel gathers an argument from other devices for a gradient too, which would gather it without a checkpoint as well.

    Products leave the argument as it was, sharded, for their gradients.
    """
    nodes = graph.inside[kernel]
    if not all(node.operator in _FETCHING and not isinstance(node.params, Axes) for node in nodes):
        return False
    gathered = [array for node in nodes if node.operator == Operator.COLLECTIVE for array in node.gives]
    are_arguments = all(graph.origin(array, _FETCHING) in graph.arguments for array in gathered)
    return are_arguments and any(user.phase == Phase.BACKWARD for array in gathered for user, _ in graph.uses(array))


def _loop(graph: Graph, nodes: Sequence[Node]) -> Region | None:
    """The loop that a kernel is in."""
    return next((graph.region_of.get(array) for node in nodes for array in node.gives), None)


def _computed_once(graph: Graph, kernels: Collection[int]) -> set[int]:
    """Those of the kernels that are the only ones to compute their results.

    A compiler may merge both computations, or the forward pass may not need the result. A product with an argument is computed once if no
    other one sums over the same axis of it; the kernels around such products count with them.
    """
    arguments = {*graph.arguments}
    factors = {id(product): _argument_factors(graph, product, arguments) for product in graph.of(Operator.DOT)}
    times = Counter(factor for product_factors in factors.values() for factor in product_factors)
    outside = {kernel for kernel in kernels if _loop(graph, graph.inside[kernel]) is None}
    products = {kernel: [node for node in graph.inside[kernel] if node.operator == Operator.DOT] for kernel in outside}
    multiplied = {kernel: frozenset[Factor]().union(*(factors[id(node)] for node in nodes)) for kernel, nodes in products.items()}
    known = {kernel for kernel in outside if multiplied[kernel]}
    once = {kernel for kernel in known if all(times[factor] == 1 for factor in multiplied[kernel])}
    return outside if known and known == once else once


def _argument_factors(graph: Graph, product: Node, arguments: Collection[int]) -> frozenset[Factor]:
    """The arguments of the program that a product multiplies, each with the axis that it sums over."""
    factors = set()
    for array, factor in zip(product.takes, (product.sizes.left, product.sizes.right), strict=False):
        origin = graph.origin(array)
        axis = graph.source_axis(array, factor.summed[0]) if len(factor.summed) == 1 else None
        if origin in arguments and axis is not None:
            factors.add((origin, axis))
    return frozenset(factors)
