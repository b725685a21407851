"""Products with one-hot rows: an embedding or its gradient computed as a product, where a gather or a scatter-add is cheaper."""

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from ...cost import NOTHING, Cost
from ...graph import NO_KERNEL, Factor, Graph, Node, Operator
from ...graph.facts.one_hot import Hot, hot_axes, position
from ...resource import HBM, vector
from ...workload import Avoidable, Facts

KIND, CLASS = "one-hot-product", "dense"
SLOTS = "slots"  # the group of products with rows that are one-hot in two indices


class Lookup(Struct, frozen=True):
    """A product with a one-hot operand at a place; ``group`` is that of the finding."""

    product: Node
    place: int
    hot: Hot
    group: str


def one_hot_products(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that multiply by one-hot rows, with the cost of a lookup instead, and those that make the rows."""
    lookups = {lookup.product.kernel: lookup for lookup in _lookups(graph)}
    making: dict[int, Avoidable] = {}
    for kernel, lookup in lookups.items():
        avoidable = _looked_up(graph, lookup)
        yield kernel, avoidable
        for maker in sorted(_makers(graph, lookup.product.takes[lookup.place]) - lookups.keys()):
            making.setdefault(maker, replace(avoidable, instead=NOTHING))
    spared = _only_for(graph, {*making}, lookups)
    yield from ((kernel, avoidable) for kernel, avoidable in making.items() if kernel in spared)


def _lookups(graph: Graph) -> Iterator[Lookup]:
    for product in graph.of(Operator.DOT):
        for place, factor in enumerate((product.sizes.left, product.sizes.right)):
            hot = hot_axes(graph, product.takes[place])
            if product.kernel != NO_KERNEL and hot.axes and _are_rows(hot, factor):
                yield Lookup(product, place, hot, SLOTS if _has_slots(graph, product.takes[place]) else "")
                break


def _are_rows(hot: Hot, factor: Factor) -> bool:
    """Whether the hot axes are all summed, or all of the result."""
    return hot.axes <= {*factor.summed} or hot.axes <= {*factor.free}


def _has_slots(graph: Graph, array: int) -> bool:
    """Whether the rows of a matrix are one-hot in two indices, or sums of such rows: of tokens over the slots of experts."""
    node = graph.made_by(array, Operator.REDUCE, Operator.MULTIPLY, Operator.AND)
    if node is not None and node.operator == Operator.REDUCE:
        node = graph.made_by(node.takes[0], Operator.MULTIPLY, Operator.AND)
    return node is not None and node.operator != Operator.REDUCE and len(hot_axes(graph, node.gives[0]).axes) > 1


def _looked_up(graph: Graph, lookup: Lookup) -> Avoidable:
    """The cost of a gather instead of a product that sums over the one-hot columns, else that of a scatter-add."""
    sizes, place, many = lookup.product.sizes, lookup.place, lookup.hot.many
    factor, other = (sizes.left, sizes.right)[place], graph.arrays[lookup.product.takes[1 - place]]
    rows, width = (sizes.rows, sizes.columns) if place == 0 else (sizes.columns, sizes.rows)
    element = other.bytes / max(other.elements, 1)
    if lookup.hot.axes <= {*factor.summed}:
        instead = Cost.of({HBM: (1 + many) * sizes.batch * rows * width * element})
        cause = "looked_up" if many == 1 else "summed"
    else:
        read, written = (sizes.batch * count * width * element for count in (sizes.depth, rows))
        instead = Cost.of({HBM: many * 3 * read + written, vector("fp32"): many * sizes.batch * sizes.depth * width})
        cause = "added" if many == 1 else "all_added"
    facts = Facts(product=str(sizes), many=many)
    return Avoidable(kind=KIND, instead=instead, cause=cause, facts=facts, unneeded=CLASS, group=lookup.group)


def _makers(graph: Graph, array: int) -> set[int]:
    """The kernels that make one-hot rows, and the positions for them; the indices themselves a lookup needs too."""
    kernels, seen, waiting = set[int](), set[int](), [array]
    while waiting:
        array = waiting.pop()
        node = graph.maker.get(array)
        if node is None or array in seen or not _is_row(graph, array):
            continue
        seen.add(array)
        if node.kernel != NO_KERNEL:
            kernels.add(node.kernel)
        waiting += node.takes
    return kernels


def _is_row(graph: Graph, array: int) -> bool:
    """Whether an array has one-hot rows, or what they are made of: positions, or one value everywhere."""
    return bool(hot_axes(graph, array).axes) or position(graph, array) is not None or graph.distinct(array) == 1


def _only_for(graph: Graph, makers: set[int], lookups: dict[int, Lookup]) -> set[int]:
    """Those of some kernels whose results only lookups and such kernels use."""
    while True:
        useful = {kernel for kernel in makers if not _are_used_by(graph, kernel, makers, lookups)}
        if not useful:
            return makers
        makers = makers - useful


def _are_used_by(graph: Graph, kernel: int, makers: set[int], lookups: dict[int, Lookup]) -> bool:
    for array in graph.written(kernel):
        for node, name in graph.uses(array):
            lookup = lookups.get(node.kernel)
            is_row = lookup is not None and (node != lookup.product or node.takes[1 - lookup.place] != name)
            if node.kernel not in makers and not is_row:
                return False
    return True
