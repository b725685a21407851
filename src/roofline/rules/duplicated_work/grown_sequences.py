"""Sequences that run through a model again for each token that they grow by: generation without a cache of keys and values.

Attention over all of a sequence follows attention over the same sequence with a few tokens less, layer for layer. With a cache, a pass
computes its new tokens alone, and reads the weights and the keys and values of the others.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from msgspec import Struct

from ...cost import Cost
from ...graph import NO_KERNEL, Graph, Node, Operator, Phase
from ...resource import HBM
from ...workload import Avoidable

KIND, CLASS, GROUP = "duplicated-work", "duplicated", "tokens"
LEAST_PASSES = 3  # over sequences that grow: two may be of texts of different lengths
MOST_GROWTH = 0.125  # of a sequence from pass to pass (a choice)


class Pass(Struct, frozen=True):
    """The places of the first and the last attention of a pass over a sequence of so many tokens; equal layers are ``alike``."""

    first: int
    last: int
    tokens: int
    alike: tuple[object, ...]


def grown_sequences(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of passes over all of a sequence that a pass before them ran through but for its last tokens."""
    passes = list(_passes(graph))
    for chain in _chains(passes):
        for before, now, after in zip(chain[:-1], chain[1:], [*chain[2:], None], strict=True):
            end = after.first if after is not None else _end(graph, passes, now)
            new = now.tokens - before.tokens
            others = {before.tokens, *(() if after is None else (after.tokens,))}
            for kernel, nodes in groupby(graph.nodes[before.last + 1 : end], lambda node: node.kernel):
                run = list(nodes)
                if kernel != NO_KERNEL and any(_is_along(graph, node, now.tokens, others) for node in run):
                    facts = {"tokens": now.tokens, "new": new}
                    instead = _of_new_tokens(graph, run, graph.kernels[kernel].cost, new / now.tokens)
                    yield kernel, Avoidable(kind=KIND, instead=instead, unneeded=CLASS, group=GROUP, facts=facts, extra=True)


def _passes(graph: Graph) -> Iterator[Pass]:
    """Consecutive attention of sequences to themselves, of the forward pass, of one shape."""
    attending = [(place, node) for place, node in enumerate(graph.nodes) if node.phase == Phase.FORWARD and _tokens(graph, node)]
    for (tokens, rest), nodes in groupby(attending, lambda entry: (_tokens(graph, entry[1]), _rest(graph, entry[1]))):
        places = [place for place, _ in nodes]
        yield Pass(places[0], places[-1], tokens, (rest, len(places)))


def _tokens(graph: Graph, node: Node) -> int:
    """The length of a sequence that attends to itself; 0 for any other node."""
    if node.operator == Operator.ATTENTION and isinstance(node.params, int) and len(node.takes) > 1:
        queries, keys = (graph.arrays[array].shape for array in node.takes[:2])
        axis = node.params
        return queries[axis] if axis < len(queries) == len(keys) and queries[axis] == keys[axis] else 0
    if node.operator == Operator.SOFTMAX and node.gives:
        shape = graph.arrays[node.gives[0]].shape
        return shape[-1] if len(shape) > 2 and shape[-1] == shape[-2] else 0
    return 0


def _rest(graph: Graph, node: Node) -> tuple[object, ...]:
    """What is equal of attention over sequences of different lengths."""
    shape = graph.arrays[node.takes[0]].shape
    tokens = _tokens(graph, node)
    return node.operator, tuple(size for size in shape if size != tokens)


def _chains(passes: Sequence[Pass]) -> Iterator[list[Pass]]:
    """Passes one after the other over a sequence that grows by a few tokens each time."""
    chain = list(passes[:1])
    for before, now in pairwise(passes):
        if before.alike == now.alike and 0 < now.tokens - before.tokens <= MOST_GROWTH * now.tokens:
            chain.append(now)
            continue
        if len(chain) >= LEAST_PASSES:
            yield chain
        chain = [now]
    if len(chain) >= LEAST_PASSES:
        yield chain


def _end(graph: Graph, passes: Sequence[Pass], last: Pass) -> int:
    """The place at which what follows the last pass of a sequence ends at the latest."""
    return next((later.first for later in passes if later.first > last.last), len(graph.nodes))


def _is_along(graph: Graph, node: Node, tokens: int, others: set[int]) -> bool:
    """Whether a node gives an array along the tokens of a pass, alone or with the rows of a batch, and not of another pass."""
    sizes = [size for array in node.gives for size in graph.arrays[array].shape if size]
    return any(size % tokens == 0 for size in sizes) and not any(size % other == 0 for size in sizes for other in others)


def _of_new_tokens(graph: Graph, nodes: Sequence[Node], cost: Cost, share: float) -> Cost:
    """The cost of a kernel for a share of the tokens: it reads the weights of products, and all keys and values, whatever the share is."""
    amounts = {resource: amount * share for resource, amount in cost.amounts}
    if HBM in amounts:
        read = sum(graph.arrays[array].bytes for node in nodes for array in _read_anyway(node))
        amounts[HBM] = max(amounts[HBM], min(float(cost.known(HBM)), float(read)))
    return Cost.of(amounts)


def _read_anyway(node: Node) -> tuple[int, ...]:
    if node.operator == Operator.DOT:
        return node.takes[1:2]
    return node.takes[1:3] if node.operator == Operator.ATTENTION else ()
