"""Products of repeated rows: a user's features for each candidate, a node's for each of its edges, multiplied each time.

Computing first and repeating afterwards needs a fraction of the work, of the products and of all between them. Gathered rows may be joined
with others first: split weights multiply each part, and their results are added. A ragged product multiplies equal rows by different
matrices, such as those of a token's experts.
"""

from collections.abc import Collection, Iterator
from math import prod

from msgspec import Struct

from ...cost import NOTHING, Cost, less_traffic
from ...graph import NO_KERNEL, RENAMING, SPREADING, Graph, Node, Operator, Sizes
from ...graph.facts.operand_axes import OperandAxes
from ...graph.facts.products import largest_products
from ...graph.facts.repeats import Repeats, image_axis, repeated_axes, share_along
from ...units import parse
from ...workload import Avoidable
from ..duplicated_work.equal_values import CLASS

KIND, GROUP = "repeated-operand", "rows"
MOST_NEEDED = 0.6  # of a product: sharing the rest takes a product and a gather or a broadcast more (a choice)
LEAST = parse("1 MB", "B")  # of the repeated rows
_GIVEN = (Operator.FILL, Operator.CONSTANT, Operator.IOTA)
_CUT = RENAMING | {Operator.SLICE}


class Needed(Struct, frozen=True):
    """The share of a product that has different rows and columns, and the bytes of repeated ones."""

    share: float
    bytes: float

    @property
    def is_little(self) -> bool:
        return self.share <= MOST_NEEDED and self.bytes >= LEAST


def repeated_rows(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The products of repeated rows, their gradients, and the kernels that only store such rows, with the cost of each row once."""
    convolutions = {node.kernel: node for node in graph.of(Operator.CONVOLUTION) if node.kernel != NO_KERNEL and len(node.takes) > 1}
    products = convolutions | {kernel: product for kernel, product in largest_products(graph).items() if not product.sizes.groups}
    if not products or not graph.of(Operator.BROADCAST, Operator.GATHER):
        return
    repeats = repeated_axes(graph)
    needed = {kernel: _needed(graph, product, repeats) for kernel, product in products.items()}
    forward = {kernel for kernel, part in needed.items() if part.is_little}
    if not forward:
        return
    needed |= _gradients(graph, products, forward, needed, repeats)
    reported = sorted(kernel for kernel, part in needed.items() if part.is_little)
    for kernel in reported:
        part, cost = needed[kernel], graph.cost(products[kernel])
        amounts = {unit: amount * part.share if unit.unit == "matrix" else amount for unit, amount in cost.amounts}
        instead, facts = less_traffic(Cost.of(amounts), part.bytes), {"product": _words(products[kernel])}
        yield kernel, Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, group=GROUP, factor=1 / part.share)
    makers = (maker for kernel in reported for maker in _makers(graph, products[kernel], repeats))
    stored = set[int]()
    for kernel in dict.fromkeys(makers):
        users = {node.kernel for array in graph.written(kernel) for node, _ in graph.uses(array)}
        if kernel not in reported and users <= {*reported}:
            stored.add(kernel)
            yield kernel, Avoidable(kind=KIND, instead=NOTHING, cause="stored", group=GROUP)
    for kernel in graph.inside.keys() - products.keys() - stored:
        share = _share_written(graph, kernel, repeats)
        if share <= MOST_NEEDED:
            instead = graph.kernels[kernel].cost * share
            yield kernel, Avoidable(kind=KIND, instead=instead, cause="arrays", facts={"times": 1 / share}, unneeded=CLASS, group=GROUP)


def _words(product: Node) -> str:
    return str(product.params) if isinstance(product.params, Sizes) else "a convolution"


def _share_written(graph: Graph, kernel: int, repeats: Repeats) -> float:
    """The share of the arrays that a kernel writes that is different; whole where it gathers rows of a table for the first time."""
    arrays = [array for array in graph.written(kernel) if graph.arrays[array].bytes]
    if any(repeat.is_gathered and graph.maker[array].operator == Operator.GATHER for array in arrays for repeat in repeats.get(array, ())):
        return 1.0
    whole = sum(graph.arrays[array].bytes for array in arrays)
    different = sum(
        graph.arrays[array].bytes * share_along(repeats.get(array, ()), range(len(graph.arrays[array].shape))) for array in arrays
    )
    return different / whole if whole >= LEAST else 1.0


def _needed(graph: Graph, product: Node, repeats: Repeats) -> Needed:
    left, right = product.takes[:2]
    if product.operator == Operator.CONVOLUTION:
        axis = image_axis(graph, product)
        share = share_along(repeats.get(left, ()), () if axis is None else (axis,))
        return Needed(share, sum(graph.arrays[array].bytes for array in (left, product.gives[0])) * (1 - share))
    sides = ((left, product.sizes.left), (right, product.sizes.right))
    batch = max(_different(graph, array, factor.batch, repeats) for array, factor in sides)
    # Rows of a batch of matrices may be those of a token's experts, unless all are multiplied by one matrix.
    sizes = product.sizes
    shared = [_different(graph, array, factor.batch, repeats) * sizes.batch == 1 for array, factor in reversed(sides)]
    rows, columns = (
        _different(graph, array, factor.free, repeats) if is_one else 1.0 for (array, factor), is_one in zip(sides, shared, strict=True)
    )
    parts = ((left, batch * rows), (right, batch * columns), (product.gives[0], batch * rows * columns))
    return Needed(batch * rows * columns, sum(graph.arrays[array].bytes * (1 - share) for array, share in parts))


def _different(graph: Graph, array: int, axes: tuple[int, ...], repeats: Repeats) -> float:
    """The share of an array that is different along some axes; of one that was joined along another axis, over its parts."""
    if graph.made_by(array, *_GIVEN, through=SPREADING) is not None:
        return 1.0
    share = share_along(repeats.get(array, ()), axes)
    join = graph.made_by(array, Operator.CONCATENATE)
    if join is None or not isinstance(join.params, int):
        return share
    places, whole = _axes_in(graph, array, axes, join.gives[0]), graph.arrays[join.gives[0]]
    if not places or join.params % len(whole.shape) in places:
        return share
    parts = [(graph.arrays[part].elements, share_along(repeats.get(part, ()), sorted(places))) for part in join.takes]
    return min(share, sum(size * part for size, part in parts) / max(whole.elements, 1))


def _axes_in(graph: Graph, array: int, axes: Collection[int], source: int) -> frozenset[int]:
    """The axes of the array that another one renames of which some of its axes consist; none if that is not known."""
    operand_axes, axes = OperandAxes(graph), frozenset(axes)
    while array != source:
        maker = graph.maker[array]
        sources = operand_axes.of(maker, 0)
        axes = frozenset[int]().union(*(sources[axis] for axis in axes)) if sources is not None else frozenset()
        array = maker.takes[0]
    return axes


def _gradients(
    graph: Graph, products: dict[int, Node], forward: set[int], needed: dict[int, Needed], repeats: Repeats
) -> dict[int, Needed]:
    """The products of a backward pass with repeated rows: the gradients of equal rows could be summed first.

    They sum over the repeated rows (the gradient of weights), or multiply gradients of equally many rows by the same weights.
    """
    weights: dict[tuple[int, int], float] = {}
    for kernel in forward:
        for array, count in _weights(graph, products[kernel]) if products[kernel].operator == Operator.DOT else ():
            weights[array, count] = needed[kernel].share
    gradients: dict[int, Needed] = {}
    for kernel in products.keys() - forward:
        product = products[kernel]
        if product.operator == Operator.CONVOLUTION:
            continue
        sides = zip(product.takes, (product.sizes.left, product.sizes.right), strict=False)
        shares = [_different(graph, array, factor.summed, repeats) for array, factor in sides]
        share = min(*shares, *(weights.get(pair, 1.0) for pair in _weights(graph, product)))
        gradients[kernel] = Needed(share, sum(graph.arrays[array].bytes for array in product.takes[:2]) / 2 * (1 - share))
    return gradients


def _weights(graph: Graph, product: Node) -> list[tuple[int, int]]:
    """Each factor of a product, before it was renamed or cut, with the number of rows that it multiplies."""
    shape = graph.arrays[product.gives[0]].shape
    left, right = (graph.origin(array, _CUT) for array in product.takes[:2])
    rows = prod(shape[: len(product.sizes.left.free)])
    return [(right, rows), (left, prod(shape) // max(rows, 1))]


def _makers(graph: Graph, product: Node, repeats: Repeats) -> Iterator[int]:
    """The kernels that store the repeated rows of a product; a gather is needed then too, for the results."""
    for array in product.takes[:2]:
        maker = graph.made_by(array, Operator.BROADCAST)
        if maker is not None and maker.kernel != NO_KERNEL and maker.gives[0] in repeats:
            yield maker.kernel
