"""Rows that a program multiplies by the same weights part by part, in a loop of its source: micro-batches, whose gradients it adds up.

Products of one level do not depend on each other, so that one product of all rows would read the weights once, and one product of all
factors would write the sum of their gradients once. On which side of a product the weights are shows where only they come from outside.

On an H200, a step of four MLP blocks of width 4096 takes 16.7 ms with 8 micro-batches of 64 rows, 3.7 ms with one of 512 (predicted: 10.6
ms saved).
"""

from collections.abc import Iterator

from msgspec import Struct

from ...cost import NOTHING, less_traffic
from ...graph import NO_KERNEL, RENAMING, Graph, Node, Operator, Phase
from ...graph.facts.levels import levels
from ...resource import HBM
from ...workload import Avoidable, Facts, Saves
from .few_rows import FEW_IN_LOOPS, LOOP, WEIGHTS_SHARE
from .one_by_one import KIND

_LEAST = 4  # products that are added up: two or three may be the gradients of projections of one array
_MOVED = RENAMING | {Operator.SLICE, Operator.BROADCAST}


class _Sum(Struct):
    """The products whose sum an array is, and the nodes that add them."""

    products: list[Node]
    additions: list[Node] = []


def rows_in_parts(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The products that read the same weights for a few rows each; the products that are added up, and the kernels that add them."""
    level = graph.fact(levels)
    readers: dict[tuple[int, int], dict[int, tuple[Node, int]]] = {}
    sums: dict[int, _Sum] = {}
    for node in graph.nodes:
        if node.kernel == NO_KERNEL or not node.gives or graph.region_of.get(node.gives[0]) is not None:
            continue
        if node.operator == Operator.DOT and node.sizes.batch == 1 and not node.sizes.groups:
            for weights in _weights(graph, node):
                readers.setdefault((graph.origin(weights), level[node.gives[0]]), {})[node.kernel] = node, weights
            if _may_be_part(graph, node):
                sums[node.gives[0]] = _Sum([node])
        elif node.operator == Operator.ADD and len(node.takes) == 2:
            left, right = (graph.origin(array) for array in node.takes)
            are_sums = left != right and all(side in sums and _is_only_added(graph, side) for side in (left, right))
            if are_sums and level[left] == level[right]:
                first, second = sums.pop(left), sums.pop(right)
                sums[node.gives[0]] = _Sum(first.products + second.products, [*first.additions, *second.additions, node])
    for parts in readers.values():
        yield from _read_again(graph, list(parts.values())) if len(parts) > 1 else ()
    for total in sums.values():
        yield from _added_up(graph, total) if len(total.products) >= _LEAST else ()


def _weights(graph: Graph, product: Node) -> Iterator[int]:
    """The operand of a product of a few rows that alone comes from outside; of a gradient only if that is so of its forward product too."""
    if product.phase == Phase.BACKWARD and not any(_has_weights(graph, node) for node in graph.differentiated(product)):
        return
    (left, right), sizes = product.takes[:2], product.sizes
    for weights, other, rows in ((right, left, sizes.rows), (left, right, sizes.columns)):
        is_sure = graph.arrays[weights].sure and graph.arrays[other].sure
        if is_sure and rows <= FEW_IN_LOOPS and _is_outside(graph, weights) and not _is_outside(graph, other):
            yield weights


def _has_weights(graph: Graph, node: Node) -> bool:
    """Whether one operand of a product comes from outside, and the other one does not."""
    return node.operator == Operator.DOT and _is_outside(graph, node.takes[0]) != _is_outside(graph, node.takes[1])


def _is_outside(graph: Graph, array: int) -> bool:
    return graph.origin(array, _MOVED) not in graph.maker


def _may_be_part(graph: Graph, product: Node) -> bool:
    """Whether a product of a few rows, whose factors are data and no arguments as they are, may be a part of a larger product."""
    sizes = product.sizes
    is_of_few = sizes.depth <= FEW_IN_LOOPS and sizes.depth < min(sizes.rows, sizes.columns)
    return is_of_few and all(graph.origin(array) in graph.maker for array in product.takes[:2])


def _is_only_added(graph: Graph, array: int) -> bool:
    return graph.arrays[array].sure and len(list(graph.uses(array))) == 1


def _read_again(graph: Graph, parts: list[tuple[Node, int]]) -> Iterator[tuple[int, Avoidable]]:
    for product, weights in parts:
        cost, read = graph.cost(product), graph.arrays[weights].bytes
        if read >= WEIGHTS_SHARE / 2 * cost.known(HBM):
            sizes = product.sizes
            facts = Facts(weights=read, rows=sizes.columns if weights == product.takes[0] else sizes.rows)
            instead = less_traffic(cost, read * (1 - 1 / len(parts)))
            yield product.kernel, Avoidable(kind=KIND, instead=instead, facts=facts, group=LOOP, saves=Saves.SHARED_LOOP)


def _added_up(graph: Graph, total: _Sum) -> Iterator[tuple[int, Avoidable]]:
    products = total.products
    written, depth = graph.arrays[products[0].gives[0]].bytes, products[0].sizes.depth
    facts = Facts(gradients=written, rows=depth)
    for product in products:
        instead = less_traffic(graph.cost(product), written * (1 - 1 / len(products)))
        yield product.kernel, Avoidable(kind=KIND, instead=instead, cause="written", facts=facts, group=LOOP, saves=Saves.SHARED_LOOP)
    for addition in total.additions:
        if graph.only(addition.kernel, (Operator.ADD, *RENAMING)):
            yield addition.kernel, Avoidable(kind=KIND, instead=NOTHING, cause="written", facts=facts, group=LOOP, saves=Saves.SHARED_LOOP)
