"""Slices of an argument that are copied before a product reads them: the weights of one layer out of an array of all layers.

If the slice were an array of its own, the product could read it without a copy. A loop over stacked weights (`jax.lax.scan`) copies those
of one layer in every trip, and so does a program that indexes them layer by layer. A product may multiply by several of them at once,
concatenated in its own kernel. On an H200 a decoder of 16 layers takes 30.5 ms for 16 tokens, 18.1 ms with a list of weights
(predicted: 10.9 ms saved).
"""

from collections.abc import Iterator

from ...cost import NOTHING
from ...graph import NO_KERNEL, Graph, Node, Operator
from ...graph.facts.kernels import consists_of
from ...graph.facts.pieces import pieces
from ...workload import Avoidable, Usual
from .gathered_blocks import CLASS, KIND

GROUP = "stacked"
_SAME = (Operator.VIEW, Operator.TRANSPOSE, Operator.COPY)


def stacked_arguments(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that only copy a slice of an argument, which a product then reads."""
    arguments = {*graph.arguments}
    for product in graph.of(Operator.DOT):
        for cut in _cuts(graph, product):
            if cut.kernel in (NO_KERNEL, product.kernel) or not _is_one_piece(graph, cut):
                continue
            if graph.origin(cut.takes[0], _SAME) in arguments and consists_of(graph, cut.kernel, (Operator.SLICE, Operator.VIEW)):
                yield cut.kernel, Avoidable(kind=KIND, instead=NOTHING, unneeded=CLASS, group=GROUP, usual=Usual.YES)


def _cuts(graph: Graph, product: Node) -> Iterator[Node]:
    """The slices that a product multiplies, perhaps concatenated with others."""
    for side in product.takes[:2]:
        makers = (graph.maker.get(piece) for piece in pieces(graph, side, (Operator.VIEW,)))
        yield from (maker for maker in makers if maker is not None and maker.operator == Operator.SLICE)


def _is_one_piece(graph: Graph, cut: Node) -> bool:
    """Whether a slice is contiguous in memory: axes after the first one with several elements are taken whole."""
    source, part = graph.arrays[cut.takes[0]], graph.arrays[cut.gives[0]]
    if len(source.shape) != len(part.shape):
        return False
    outer = [axis for axis in source.order(in_memory=True) if source.shape[axis] != 1]
    while outer and part.shape[outer[-1]] == source.shape[outer[-1]]:
        outer.pop()
    return all(part.shape[axis] == 1 for axis in outer[:-1])
