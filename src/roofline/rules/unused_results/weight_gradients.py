"""Gradients of weights that no optimizer uses, and gradients filled with zeros, so that the backward pass adds what it could store.

Filling writes each gradient, and adding reads it and what is added and writes the sum; a gradient that was dropped instead takes the array
of the backward pass as it is. A backward pass after another, which accumulates, has to add.
"""

from collections.abc import Iterator

from ...cost import NOTHING
from ...graph import NO_KERNEL, Gradient, Graph, Node, Operator, Phase
from ...workload import Avoidable

KIND, CLASS = "unused-results", "unused"
_SHARES = {Operator.DOT: 1.0, Operator.REDUCE: 1.0, Operator.CONVOLUTION_GRADIENT: 0.5}  # of its source it computes another gradient


def unused_weight_gradients(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of backward passes that only compute gradients of weights which no optimizer uses.

    After the last gradient that one uses, these are all; before that, those that make the other gradients.
    """
    used = {graph.arrays[gradient.array].shape for gradient in graph.weight_gradients if gradient.is_used}
    for part in _parts(graph):
        gradients = [gradient for gradient in graph.weight_gradients if part.start < gradient.place <= part.stop]
        unused = [gradient for gradient in gradients if not gradient.is_used]
        last = max((gradient.place for gradient in gradients if gradient.is_used), default=part.stop)
        shares = dict[int, float]()
        for gradient in unused:
            shares |= _making(graph, gradient)
        for node in graph.nodes[last : part.stop] if unused else ():
            if node.phase == Phase.BACKWARD and node.kernel != NO_KERNEL:
                shares[node.kernel] = 1.0
        is_used_elsewhere = any(graph.arrays[gradient.array].shape in used for gradient in unused)
        for kernel, share in shares.items():
            cost = graph.kernels[kernel].cost * (1 - share) if share < 1 else NOTHING
            cause = "zeroed" if is_used_elsewhere else "frozen"
            yield kernel, Avoidable(kind=KIND, instead=cost, cause=cause, unneeded=CLASS, group="gradients")


def _parts(graph: Graph) -> Iterator[range]:
    """The places of the nodes from a backward pass to the updates that follow it."""
    begin, is_updated = 0, False
    for place, node in enumerate(graph.nodes):
        if node.phase == Phase.BACKWARD and is_updated:
            yield range(begin, place)
            begin, is_updated = place, False
        is_updated |= node.phase == Phase.UPDATE
    yield range(begin, len(graph.nodes))


def _making(graph: Graph, gradient: Gradient) -> Iterator[tuple[int, float]]:
    """The kernels that make a gradient, and the share of each that is for it."""
    nodes = [graph.maker.get(gradient.array)]
    if (total := _addition(graph, gradient)) is not None:
        yield total.kernel, 1.0
        nodes = [graph.maker.get(array) for array in total.takes]
    for node in nodes:
        if node is not None and node.phase == Phase.BACKWARD and node.operator in _SHARES:
            yield node.kernel, _SHARES[node.operator]


def _addition(graph: Graph, gradient: Gradient) -> Node | None:
    """The node that added a gradient to an earlier one."""
    maker = graph.maker.get(gradient.array)
    return maker if maker is not None and maker.operator == Operator.ADD and maker.phase == Phase.BACKWARD else None


def kept_gradients(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that fill gradients with zeros, and those of the first backward pass after that which add to them."""
    unneeded = dict[int, None]()
    for gradient in graph.weight_gradients:
        total = _addition(graph, gradient)
        zeros = graph.made_by(total.takes[0], Operator.FILL) if total is not None else None
        if total is not None and zeros is not None and zeros.params == 0 and zeros.phase != Phase.BACKWARD:
            unneeded |= dict.fromkeys((zeros.kernel, total.kernel))
    for kernel in unneeded:
        yield kernel, Avoidable(kind=KIND, instead=NOTHING, unneeded=CLASS, group="zeros")
