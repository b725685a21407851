"""Sequences that run through a program again for each token that it writes: generation without a cache, with arrays of one length.

A program, or the body of a loop, looks up all tokens of an array, attends over them, and writes one more token to the array, which it hands
on. Of what it computes along the tokens, only the new one differs from the time before; a cache has the keys and values of the others.
"""

from collections.abc import Iterator, Mapping, Sequence

from ...cost import Cost
from ...graph import Graph, Node, Operator
from ...graph.facts.flow import reached
from ...graph.facts.padding import PaddedAxis, Paddings, padded_axes, share_of
from ...workload import Avoidable
from ..padding.padded_arrays import padded_product, share_of_arrays
from .grown_sequences import CLASS, GROUP, KIND

LEAST_TOKENS = 8
MOST_NEEDED = 0.5  # of a kernel's arrays is along the tokens otherwise
_WRITING = (Operator.UPDATE, Operator.SCATTER)
_WHOLE_NUMBERS = ("int", "uint")


def whole_sequences(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels along the tokens of an array to which one token is added."""
    grown = dict(_grown_by_one(graph)) if graph.of(Operator.GATHER) and graph.of(*_WRITING) else {}
    if len(grown) != 1:
        return
    ((_, (tokens,)),) = grown.items()
    along = padded_axes(graph, grown)
    if not any(_attends(node, along) for node in graph.of(Operator.ATTENTION, Operator.DOT)):
        return
    for kernel, nodes in graph.inside.items():
        instead = _of_one_token(graph, kernel, nodes, along)
        if instead is not None:
            facts = {"tokens": tokens.block, "new": 1}
            yield kernel, Avoidable(kind=KIND, instead=instead, unneeded=CLASS, group=GROUP, facts=facts, extra=True)


def _grown_by_one(graph: Graph) -> Iterator[tuple[int, Paddings]]:
    """The arrays of whole numbers that a program or a loop gets, and hands on with one more token, which follows from all."""
    handed_on = {after: before for region in graph.regions for before, after in zip(region.carried, region.handed_on, strict=True)}
    for write in graph.of(*_WRITING):
        target = graph.origin(write.takes[0])
        array, result = graph.arrays[target], write.gives[0]
        if array.dtype is None or not array.dtype.name.startswith(_WHOLE_NUMBERS):
            continue
        is_handed_on = handed_on.get(result) == target or (result in graph.results and graph.is_argument(target))
        written = graph.arrays[write.takes[1 if write.operator == Operator.UPDATE else -1]]
        axes = [axis for axis, size in enumerate(array.shape) if size >= LEAST_TOKENS and written.elements * size == array.elements]
        if not is_handed_on or not axes:
            continue
        lookups = [node for node in graph.of(Operator.GATHER) if _is_of(graph, node, target)]
        if lookups and not reached(graph, lookups).isdisjoint(write.takes[1:]):
            axis = axes[-1]
            yield target, (PaddedAxis(axis, array.shape[axis], 1, target),)


def _is_of(graph: Graph, lookup: Node, tokens: int) -> bool:
    """Whether a lookup takes the rows that an array of tokens names, also by negative numbers."""
    array = lookup.takes[1] if len(lookup.takes) > 1 else None
    while array is not None and (node := graph.maker.get(array)) is not None:
        if node.operator == Operator.SELECT:
            array = node.takes[2]
        elif node.takes:
            array = node.takes[0]
        else:
            return False
    return array == tokens


def _attends(node: Node, along: Mapping[int, Paddings]) -> bool:
    """Whether tokens are combined with each other, by attention or a product of two arrays along them."""
    if node.operator == Operator.ATTENTION:
        return all(array in along for array in node.takes[:3])
    return all(
        any(padding.axis in factor.free for padding in along.get(array, ()))
        for array, factor in zip(node.takes, (node.sizes.left, node.sizes.right), strict=False)
    )


def _of_one_token(graph: Graph, kernel: int, nodes: Sequence[Node], along: Mapping[int, Paddings]) -> Cost | None:
    """The cost of a kernel for the new token; ``None`` if it does not compute along the tokens."""
    cost = graph.kernels[kernel].cost
    product = max((node for node in nodes if node.operator == Operator.DOT), key=lambda node: node.sizes.multiplications, default=None)
    if product is not None:
        needed = padded_product(graph, product, along)
        return needed.instead if needed is not None and needed.share <= MOST_NEEDED else None
    attention = next((node for node in nodes if node.operator == Operator.ATTENTION), None)
    if attention is not None:
        queries = attention.takes[0]
        share = share_of(along.get(queries, ()), range(len(graph.arrays[queries].shape)))
        return cost * share if share <= MOST_NEEDED else None
    share = share_of_arrays(graph, kernel, along)
    return cost * share if share <= MOST_NEEDED else None
