"""Products of matrices whose rows, columns or depth the program itself padded, attention on padded tensors, and other work on such arrays.

The gradient of a slice is padded with zeros too: it counts only where the forward pass multiplies padded arrays, else it is a result of
which a part is used.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from ...cost import Cost, less_traffic
from ...graph import NO_KERNEL, Factor, Graph, Node, Operator, Phase
from ...graph.facts.padding import PADDING, PaddedAxis, Paddings, padded_axes, share_of
from ...resource import HBM
from ...workload import Avoidable, Facts, source_line

KIND, CLASS = "padding", "padded"
MOST_NEEDED = 0.9  # of a product is data: less padding is worth its cost, for alignment (a choice)
_INPUTS = 3  # of attention: queries, keys and values


class Padded(Struct, frozen=True):
    """A product or attention of which a share is data, the padding, and the cost without."""

    node: Node
    share: float
    padding: tuple[PaddedAxis, ...]
    instead: Cost

    def avoidable(self) -> Avoidable:
        where = next((source_line(padding.location) for padding in self.padding if padding.location), "")
        is_product = self.node.operator == Operator.DOT
        facts = Facts(where=where, share=self.share, **({"product": str(self.node.params)} if is_product else {}))
        cause = "" if is_product else "attention"
        return Avoidable(kind=KIND, instead=self.instead, cause=cause, facts=facts, unneeded=CLASS, factor=1 / self.share)


def padded_arrays(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels with padded arrays of a program that multiplies such, and their cost without the padding."""
    if not graph.of(*PADDING):
        return
    paddings = {array: _padded_by_author(axes) for array, axes in padded_axes(graph).items()}
    padded = {product.node.kernel: product for product in _products(graph, paddings)}
    if all(_is_gradient_of_slice(graph, product) for product in padded.values()):
        return
    for kernel, product in padded.items():
        yield kernel, product.avoidable()
    multiplying = {node.kernel for node in graph.of(Operator.DOT, Operator.ATTENTION)}
    for kernel in graph.inside.keys() - multiplying:
        share = share_of_arrays(graph, kernel, paddings)
        if share <= MOST_NEEDED:
            instead = graph.kernels[kernel].cost * share
            yield kernel, Avoidable(kind=KIND, instead=instead, cause="arrays", facts={"share": share})


def _padded_by_author(axes: Paddings) -> Paddings:
    """Padded axes without those with room for groups of rows, of which some is usual."""
    return tuple(padding for padding in axes if not padding.is_room)


def _products(graph: Graph, paddings: Mapping[int, Paddings]) -> Iterator[Padded]:
    """The products and attention of which little enough is data, the largest of each kernel."""
    for product in sorted(graph.of(Operator.DOT), key=lambda node: node.sizes.multiplications):
        padded = padded_product(graph, product, paddings)
        if padded is not None and padded.share <= MOST_NEEDED and product.kernel != NO_KERNEL:
            yield padded
    for attention in graph.of(Operator.ATTENTION):
        padded = _padded_attention(graph, attention, paddings)
        if padded is not None and padded.share <= MOST_NEEDED and attention.kernel != NO_KERNEL:
            yield padded


def _is_gradient_of_slice(graph: Graph, product: Padded) -> bool:
    """Whether only a backward pass made the padding."""
    makers = [graph.maker[padding.maker] for padding in product.padding]
    return all(maker.phase == Phase.BACKWARD for maker in makers)


def padded_product(graph: Graph, product: Node, paddings: Mapping[int, Paddings], spare: float = 1.0) -> Padded | None:
    """A product without the padding of its operands and its result, but with ``spare`` times the data."""
    (left, ours), (right, theirs) = (
        (paddings.get(array, ()), factor) for array, factor in zip(product.takes, (product.sizes.left, product.sizes.right), strict=False)
    )
    if not left and not right:
        return None
    batch, rows, columns = share_of(left, ours.batch), share_of(left, ours.free), share_of(right, theirs.free)
    depth = min(share_of(left, ours.summed), share_of(right, theirs.summed))
    share = batch * rows * columns * depth
    arrays = (*product.takes[:2], product.gives[0])
    shares = (batch * rows * depth, batch * depth * columns, batch * rows * columns)
    padding_bytes = sum(graph.arrays[array].bytes * (1 - part) for array, part in zip(arrays, shares, strict=True))
    cost = graph.cost(product)
    needed = min(spare * share, 1.0)
    amounts = {resource: amount * needed if resource.unit == "matrix" else amount for resource, amount in cost.amounts}
    return Padded(product, share, _along(left, ours) + _along(right, theirs), less_traffic(Cost.of(amounts), padding_bytes))


def _along(paddings: Paddings, factor: Factor) -> Paddings:
    axes = {*factor.batch, *factor.free, *factor.summed}
    return tuple(padding for padding in paddings if padding.axis in axes)


def _padded_attention(graph: Graph, attention: Node, paddings: Mapping[int, Paddings]) -> Padded | None:
    """Attention on queries, keys and values that were padded alike. Padded tokens count for queries and for keys."""
    inputs = [paddings.get(array, ()) for array in attention.takes[:_INPUTS]]
    shapes = [graph.arrays[array].shape for array in attention.takes[:_INPUTS]]
    tokens = attention.params if isinstance(attention.params, int) and len(shapes[0]) > attention.params + 1 else None
    share = 1.0
    for padding in inputs[0]:
        others = [
            {(other.axis - len(shape), other.block, other.data) for other in axes}
            for axes, shape in zip(inputs[1:], shapes[1:], strict=True)
        ]
        if all((padding.axis - len(shapes[0]), padding.block, padding.data) in axes for axes in others):
            share *= padding.share**2 if padding.axis == tokens else padding.share
    return Padded(attention, share, inputs[0], graph.cost(attention) * share) if share < 1 else None


def share_of_arrays(graph: Graph, kernel: int, paddings: Mapping[int, Paddings]) -> float:
    """The share that is data of the arrays that a kernel reads and writes."""
    nodes = graph.inside[kernel]
    results = {array for node in nodes for array in node.gives}
    read = {array for node in nodes for array in node.takes} - results
    arrays = [*graph.written(kernel), *read]
    filler = sum(graph.arrays[array].bytes * (1 - share_of(paddings[array], _axes(graph, array))) for array in arrays if array in paddings)
    whole = sum(graph.arrays[array].bytes for array in arrays) if filler and graph.kernels[kernel].cost.known(HBM) else 0
    return 1 - filler / whole if whole else 1.0


def _axes(graph: Graph, array: int) -> range:
    return range(len(graph.arrays[array].shape))
