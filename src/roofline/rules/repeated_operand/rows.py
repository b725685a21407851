"""Products of repeated rows: a user's features for each candidate, a node's for each of its edges, multiplied each time.

Computing first and repeating afterwards needs a fraction of the work. Gathered rows may be joined with others first: split weights multiply
each part, and their results are added. A ragged product multiplies equal rows by different matrices, such as those of a token's experts.
"""

from collections.abc import Collection, Iterator
from math import prod

from msgspec import Struct

from ...cost import NOTHING, Cost, less_traffic
from ...graph import NO_KERNEL, RENAMING, SPREADING, Graph, Node, Operator
from ...graph.facts.operand_axes import OperandAxes
from ...graph.facts.products import largest_products
from ...graph.facts.repeats import Repeats, repeated_axes, share_along
from ...graph.node_axes import ELEMENTWISE
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
    products = {kernel: product for kernel, product in largest_products(graph).items() if _is_plain(product)}
    if not products or not graph.of(Operator.BROADCAST, Operator.GATHER):
        return
    repeats = repeated_axes(graph)
    needed = {kernel: _needed(graph, product, repeats) for kernel, product in products.items()}
    forward = {kernel for kernel, part in needed.items() if part.is_little}
    if not forward or not _meet_others(graph, repeats):
        return
    needed |= _gradients(graph, products, forward, needed, repeats)
    reported = sorted(kernel for kernel, part in needed.items() if part.is_little)
    for kernel in reported:
        part, cost = needed[kernel], graph.cost(products[kernel])
        amounts = {unit: amount * part.share if unit.unit == "matrix" else amount for unit, amount in cost.amounts}
        instead, facts = less_traffic(Cost.of(amounts), part.bytes), {"product": str(products[kernel].sizes)}
        yield kernel, Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, group=GROUP, factor=1 / part.share)
    makers = (maker for kernel in reported for maker in _makers(graph, products[kernel], repeats))
    for kernel in dict.fromkeys(makers):
        users = {node.kernel for array in graph.written(kernel) for node, _ in graph.uses(array)}
        if kernel not in reported and users <= {*reported}:
            yield kernel, Avoidable(kind=KIND, instead=NOTHING, cause="stored", group=GROUP)


def _is_plain(product: Node) -> bool:
    """Whether all rows of a product are multiplied by one matrix."""
    return product.sizes.batch == 1 and not product.sizes.groups


def _needed(graph: Graph, product: Node, repeats: Repeats) -> Needed:
    left, right = product.takes[:2]
    rows, columns = (
        _different(graph, array, factor.free, repeats) for array, factor in ((left, product.sizes.left), (right, product.sizes.right))
    )
    parts = ((left, rows), (right, columns), (product.gives[0], rows * columns))
    return Needed(rows * columns, sum(graph.arrays[array].bytes * (1 - share) for array, share in parts))


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


def _meet_others(graph: Graph, repeats: Repeats) -> bool:
    """Whether rows are gathered, or repeated ones combined with others; if not, the data itself is repeated."""
    if any(repeat.is_gathered for axes in repeats.values() for repeat in axes):
        return True
    for node in graph.nodes:
        if (node.operator in ELEMENTWISE or node.operator == Operator.CONCATENATE) and not repeats.keys().isdisjoint(node.takes):
            matrices = [array for array in node.takes if len(graph.arrays[array].shape) > 1 and graph.distinct(array) > 1]
            if not all(array in repeats for array in matrices):
                return True
    return False


def _gradients(
    graph: Graph, products: dict[int, Node], forward: set[int], needed: dict[int, Needed], repeats: Repeats
) -> dict[int, Needed]:
    """The products of a backward pass with repeated rows: the gradients of equal rows could be summed first.

    They sum over the repeated rows (the gradient of weights), or multiply gradients of equally many rows by the same weights.
    """
    weights: dict[tuple[int, int], float] = {}
    for kernel in forward:
        for array, count in _weights(graph, products[kernel]):
            weights[array, count] = needed[kernel].share
    gradients: dict[int, Needed] = {}
    for kernel in products.keys() - forward:
        product = products[kernel]
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
