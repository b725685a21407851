"""Results of which only a part is used, by following the needed elements back from the uses, and the gradients of such results."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from ...cost import NOTHING as FREE
from ...cost import Cost
from ...graph import NO_KERNEL, Factor, Graph, Node, Operator, Phase, Rows
from ...graph.facts.needed import needed_elements, needed_results
from ...graph.facts.operand_needs import operand_needs
from ...graph.index_sets import NOTHING, WHOLE, Region, count
from ...resource import HBM
from ...workload import Avoidable

KIND, CLASS = "unused-results", "unused"
MOST_USED = 0.75  # of a result: above that nothing is reported
# Need their whole operand, however little of the result is used.
_UNDIVIDED = (Operator.SORT, Operator.FOURIER, Operator.CONVOLUTION, Operator.CONVOLUTION_GRADIENT, Operator.OTHER)


class Share(Struct, frozen=True):
    """The used share of the results of a kernel, and the bytes that it reads for any share: weights, for any number of rows."""

    used: float
    read: float

    def avoidable(self, cost: Cost, cause: str = "") -> Avoidable:
        amounts = {resource: amount * self.used for resource, amount in cost.amounts}
        if HBM in amounts:
            amounts[HBM] = max(amounts[HBM], min(float(cost.known(HBM)), self.read))
        factor = 1 / self.used if self.used else None
        facts = {"share": self.used}
        return Avoidable(kind=KIND, instead=Cost.of(amounts), cause=cause, facts=facts, unneeded=CLASS, factor=factor)


def unused_parts(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of whose results a part is never used."""
    for kernel, share in _shares(graph).items():
        yield kernel, share.avoidable(graph.kernels[kernel].cost)


def unused_gradients(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The products with gradients of partly used results, which are zero for the unused part, and the kernels that write those zeros."""
    scattered = list(_scattered(graph))
    gradients = {
        product.kernel: Share(graph.arrays[scatter.takes[2]].elements / graph.arrays[scatter.gives[0]].elements, 0.0)
        for product, scatter in scattered
    }
    if any(graph.gradients(product) for product in graph.of(Operator.DOT)):
        shares = _shares(graph)
        for product in graph.of(Operator.DOT):
            share = shares.get(product.kernel)
            of_product = graph.gradients(product) if share is not None else ()
            gradients |= {node.kernel: share for node in of_product if node.operator == Operator.DOT and share is not None}
    for kernel, share in gradients.items():
        if kernel != NO_KERNEL:
            yield kernel, share.avoidable(graph.kernels[kernel].cost, "gradients")
    filled: dict[int, None] = {}
    for _, scatter in scattered:
        zeros = graph.made_by(scatter.takes[0], Operator.FILL)
        filled |= dict.fromkeys(node.kernel for node in (scatter, zeros) if node is not None and node.kernel != NO_KERNEL)
    for kernel in filled:
        yield kernel, Avoidable(kind=KIND, instead=FREE, cause="zeros", unneeded=CLASS)


def _shares(graph: Graph) -> dict[int, Share]:
    """The kernels of whose results less than most is used."""
    regions = graph.fact(needed_elements)
    shares = {}
    for kernel, nodes in graph.inside.items():
        if not graph.kernels[kernel].cost.amounts or not _leaves_parts_out(graph, nodes, regions):
            continue
        results = [(graph.arrays[array], regions.get(array, NOTHING)) for array in graph.written(kernel)]
        elements = sum(array.elements for array, _ in results)
        used = sum(count(region, array.shape) for array, region in results)
        if not elements or used >= MOST_USED * elements:
            continue
        share = max(used / elements, _computed(graph, nodes, regions, max(array.elements for array, _ in results)))
        if share < MOST_USED:
            shares[kernel] = Share(share, _read_anyway(graph, nodes, regions))
    return shares


def _computed(graph: Graph, nodes: Sequence[Node], regions: Mapping[int, Region], largest: int) -> float:
    """The largest share that is needed of the result of a product of a kernel, and of an array of at least as many elements as its largest
    result that others of its nodes read: a column of a softmax needs all columns.

    A result that is used in part may be another form of one that is used whole: the logits of a loss over words, in fp32 for those of the
    targets and in bf16 for the sum over all words.
    """
    needed = [(node.gives[0], regions.get(node.gives[0], NOTHING)) for node in nodes if node.operator == Operator.DOT]
    for node in nodes:
        if node.operator not in (Operator.DOT, Operator.COLLECTIVE):
            needed += zip(node.takes, operand_needs(graph, node, needed_results(graph, node, regions)), strict=True)
    sizes = [(count(region, graph.arrays[array].shape), graph.arrays[array].elements) for array, region in needed]
    return max((part / whole for part, whole in sizes if whole >= largest), default=0.0)


def _leaves_parts_out(graph: Graph, nodes: Sequence[Node], regions: Mapping[int, Region]) -> bool:
    """Whether a kernel could compute a part of its results alone. One that changes the layout or the memory of an array could, but its
    users decide on the layout; one that fills an array of which others write a part fills it in one piece.
    """
    if any(node.operator in _UNDIVIDED or (node.operator == Operator.REDUCE and len(node.gives) > 1) for node in nodes):
        return False
    if all(node.operator in (Operator.COPY, Operator.FILL) for node in nodes):
        return False
    if any(node.operator == Operator.COLLECTIVE and any(regions.get(array, NOTHING).loose for array in node.gives) for node in nodes):
        return False  # each device may need another part of what all of them exchange or add up
    return all(_leaves_lines_out(graph, node, regions.get(node.gives[0], NOTHING)) for node in nodes if node.operator == Operator.DOT)


def _leaves_lines_out(graph: Graph, product: Node, region: Region) -> bool:
    """Whether the unused part of a product may be whole rows or columns of it. Single elements at any place need every row and column: the
    products of all pairs of features, of which a model takes one triangle.
    """
    sizes, axes = product.sizes, range(len(graph.arrays[product.gives[0]].shape))
    first, after = len(sizes.left.batch), len(axes) - len(sizes.right.free)
    return not region.loose or region.lines.issuperset(axes[first:after]) or region.lines.issuperset(axes[after:])


def _read_anyway(graph: Graph, nodes: Sequence[Node], regions: Mapping[int, Region]) -> float:
    """The bytes of the factors of products of which all elements are needed."""
    read = 0.0
    for node in nodes:
        if node.operator == Operator.DOT:
            parts = operand_needs(graph, node, regions.get(node.gives[0], WHOLE))
            read += sum(graph.arrays[array].bytes for array, part in zip(node.takes, parts, strict=True) if part.whole)
    return read


def _scattered(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """The products of the backward pass with gradients of a few rows that were scattered into zeros, and those scatters."""
    for product in graph.of(Operator.DOT) if graph.of(Operator.SCATTER_ADD, Operator.SCATTER) else ():
        for side, factor in zip(product.takes, (product.sizes.left, product.sizes.right), strict=True):
            scatter = graph.made_by(side, Operator.SCATTER_ADD, Operator.SCATTER)
            if scatter is None or {product.phase, scatter.phase} != {Phase.BACKWARD} or len(scatter.takes) != 3:
                continue
            is_of_few = graph.arrays[scatter.takes[2]].elements <= MOST_USED * graph.arrays[scatter.gives[0]].elements
            if is_of_few and graph.value(scatter.takes[0]) == 0 and _are_lines(graph, scatter, side, factor):
                yield product, scatter


def _are_lines(graph: Graph, scatter: Node, side: int, factor: Factor) -> bool:
    """Whether whole rows or columns of a factor are scattered, not single elements at any place."""
    chosen = {*scatter.params.axes} if isinstance(scatter.params, Rows) else {scatter.params}
    lines = (graph.source_axes(side, (*factor.batch, *axes)) for axes in (factor.free, factor.summed))
    return bool(chosen) and any(chosen <= axes for axes in lines)
