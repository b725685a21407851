"""Products of one array with several weights that are only added up or averaged: one product with the sum of the weights gives the same."""

from collections.abc import Iterator

from msgspec import Struct, field

from ...cost import NOTHING, Cost, less_traffic
from ...graph import NO_KERNEL, RENAMING, Axes, Graph, Node, Operator, Phase
from ...graph.facts.linear import is_scaled
from ...resource import HBM
from ...workload import Avoidable, Facts
from .narrow_last import KIND

GROUP = "shared"
LEAST = 4  # products of one array: two or three branches of a layer that are added up have other weights each
MOST = 1000  # steps of a sum that are followed
_SAME = RENAMING | {Operator.CAST}


class _Sum(Struct):
    """What a sum adds up: products, and the nodes that add, stack and scale their results, with their kernels."""

    nodes: list[Node]
    products: list[Node] = field(default_factory=list)
    kernels: dict[int, None] = field(default_factory=dict)


def shared_operands(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The products but the first, whose weights are read for the sum, and the kernels that add the results up."""
    inside = set[int]()
    for node in reversed(graph.nodes):
        is_sum = node.operator == Operator.ADD or _is_sum(node)
        if not is_sum or node.phase == Phase.BACKWARD or not inside.isdisjoint(node.gives):
            continue
        terms = _terms(graph, node)
        if terms is None or len(terms.products) < LEAST or not _share_operand(graph, terms.products):
            continue
        inside.update(array for term in terms.nodes for array in term.gives)
        first, *others = products = terms.products
        facts, factor = Facts(times=len(products)), len(products)
        for other in others:
            read = Cost.of({HBM: max(graph.cost(other).known(HBM) - _shared_bytes(graph, other), 0)})
            yield other.kernel, Avoidable(kind=KIND, instead=NOTHING, facts=facts, group=GROUP, factor=factor, besides=read)
        spared = len(others) * graph.arrays[first.gives[0]].bytes
        for kernel in terms.kernels.keys() - {product.kernel for product in products} - {NO_KERNEL}:
            is_whole = all(inner in terms.nodes or inner.operator in _SAME for inner in graph.inside[kernel])
            instead = NOTHING if is_whole else less_traffic(graph.kernels[kernel].cost, spared)
            yield kernel, Avoidable(kind=KIND, instead=instead, facts=facts, group=GROUP, factor=factor)


def _is_sum(node: Node) -> bool:
    return node.operator == Operator.REDUCE and isinstance(node.params, Axes) and node.params.function == Operator.ADD


def _is_step(graph: Graph, node: Node) -> bool:
    """Whether a node adds, stacks or scales what it takes."""
    is_linear = node.operator in (Operator.ADD, Operator.CONCATENATE) or _is_sum(node)
    return is_linear or (bool(node.takes) and is_scaled(graph, node, node.takes[0]))


def _terms(graph: Graph, total: Node) -> _Sum | None:
    """What a sum adds up, through nodes that only add, scale or stack; ``None`` unless these are products that nothing else uses."""
    terms = _Sum([total])
    for node in terms.nodes:  # which grows
        for array in node.takes:
            if graph.distinct(array) == 1:
                continue
            origin = graph.origin(array, _SAME)
            maker = graph.maker.get(origin)
            is_alone = maker is not None and len(list(graph.uses(origin, _SAME))) == 1
            if maker is None or not is_alone or maker.phase == Phase.BACKWARD or len(terms.nodes) > MOST:
                return None
            terms.kernels |= dict.fromkeys(between.kernel for between in graph.between(array, _SAME))
            if maker.operator == Operator.DOT and maker.kernel != NO_KERNEL:
                terms.products.append(maker)
            elif _is_step(graph, maker):
                terms.nodes.append(maker)
            else:
                return None
    terms.kernels |= dict.fromkeys(node.kernel for node in terms.nodes)
    return terms


def _share_operand(graph: Graph, products: list[Node]) -> bool:
    """Whether all products multiply one array, on the same side and along the same axes, by other weights."""
    first = products[0]
    for side in (0, 1):
        shared = {graph.origin(product.takes[side]) for product in products}
        others = {graph.origin(product.takes[1 - side]) for product in products}
        if len(shared) == 1 and all(product.sizes == first.sizes for product in products) and not others & shared:
            return True
    return False


def _shared_bytes(graph: Graph, product: Node) -> float:
    """The bytes of a product that another one with the same operand need not move: that operand, and the result."""
    left, right = product.takes[:2]
    return max(graph.arrays[left].bytes, graph.arrays[right].bytes) + graph.arrays[product.gives[0]].bytes
