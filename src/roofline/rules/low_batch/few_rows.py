"""Products that read weights for a few rows: their time is that of reading the weights, and more rows would take no longer.

In a loop with independent iterations (microbatches, `lax.map`) the weights are read again for every part of the rows. A matrix that the
program computes is no weights: it is another one for every row.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from ...cost import Cost
from ...graph import NO_KERNEL, RENAMING, Graph, Node, Operator, Region
from ...graph.facts.loops import Iteration
from ...resource import HBM
from ...workload import Avoidable, Facts, Saves
from .one_by_one import KIND

LOOP = "loop"  # the group of products in loops, whose iterations could share the weights
FEW_ROWS = 8
FEW_IN_LOOPS = 256  # in a loop, whose other iterations have more rows
_LEAST = 0.05  # of the FLOP of all products: fewer rows do not mean a small batch, such as the logits of the last of many tokens
WEIGHTS_SHARE = 0.7  # of an op's bytes
_READ = RENAMING | {Operator.SLICE}
_MOVES = _READ | {Operator.FILL, Operator.CONSTANT}


def low_batches(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The products of few rows whose bytes are nearly all weights, and the kernels that copy these. Eight times the rows would take about
    the same time: each would have an eighth of the bytes and the same FLOP.
    """
    unsure = set[int]()  # the elements of results of earlier products, one of which an operand without a maker may be
    loops = {id(region): Iteration(graph, region) for region in graph.regions}
    products: dict[int, list[Node]] = {}
    for node in graph.of(Operator.DOT, Operator.CONVOLUTION):
        if node.kernel != NO_KERNEL:
            region = graph.region_of.get(node.gives[0]) if node.gives else None
            products.setdefault(id(region), []).append(node)
    copies: dict[int, Avoidable] = {}
    for within, nodes in products.items():
        is_small = _are_many(graph, nodes)
        for product in nodes:
            if product.operator == Operator.DOT and product.sizes.batch == 1 and not product.sizes.groups and not _is_of_vectors(product):
                weights, avoidable = _few_rows(graph, product, loops.get(within), is_small=is_small)
                if avoidable is not None and (weights in graph.maker or graph.arrays[weights].elements not in unsure):
                    yield product.kernel, avoidable
                    copies |= dict.fromkeys(_copies(graph, product, weights), avoidable)
            unsure |= {graph.arrays[array].elements for array in product.gives if not graph.arrays[array].sure}
    for kernel, avoidable in copies.items():
        yield kernel, replace(avoidable, instead=_shared(graph.kernels[kernel].cost))


def _are_many(graph: Graph, nodes: list[Node]) -> bool:
    """Whether the products of few rows are a part of all products that counts."""
    every = {node.kernel for node in nodes}
    few = {node.kernel for node in nodes if node.operator == Operator.DOT and min(node.sizes.rows, node.sizes.columns) <= FEW_ROWS}
    of_few, of_all = (
        sum(float(graph.kernels[kernel].cost.flops or 0) * graph.kernels[kernel].times for kernel in kernels) for kernels in (few, every)
    )
    return of_few >= _LEAST * of_all


def _is_of_vectors(product: Node) -> bool:
    """Whether it is an inner product of two vectors, which is a sum rather than a product of matrices."""
    return product.sizes.rows == product.sizes.columns == 1


def _few_rows(graph: Graph, product: Node, loop: Iteration | None, *, is_small: bool) -> tuple[int, Avoidable | None]:
    """The weights that a product reads, or the gradients that it writes, for a few rows, and its cost if eight times as many share them."""
    sizes, cost = product.sizes, graph.cost(product)
    left, right = product.takes[:2]
    for weights, other, rows in ((right, left, sizes.rows), (left, right, sizes.columns)):
        again = loop is not None and rows <= FEW_IN_LOOPS and loop.is_constant(weights)
        again = again and loop is not None and (loop.is_free(other) or product.gives[0] in loop.stacked)
        share = WEIGHTS_SHARE / 2 if again else WEIGHTS_SHARE  # the gradient of weights in a loop writes as many bytes
        read = graph.arrays[weights].bytes
        if ((is_small and rows <= FEW_ROWS) or again) and read >= share * cost.known(HBM) and _are_weights(graph, product, weights):
            facts, group = Facts(weights=read, rows=rows), LOOP if again else ""
            saves = Saves.SHARED_LOOP if again else Saves.SHARED_READS
            return weights, Avoidable(kind=KIND, instead=_shared(cost), facts=facts, group=group, saves=saves)
    written = graph.arrays[product.gives[0]].bytes
    is_gradient = sizes.depth <= FEW_IN_LOOPS and min(sizes.rows, sizes.columns) > sizes.depth
    if loop is not None and is_gradient and loop.is_free(product.gives[0]) and written >= WEIGHTS_SHARE / 2 * cost.known(HBM):
        facts = Facts(gradients=written, rows=sizes.depth)
        avoidable = Avoidable(kind=KIND, instead=_shared(cost), cause="written", facts=facts, group=LOOP, saves=Saves.SHARED_LOOP)
        return product.gives[0], avoidable
    return product.gives[0], None


def _are_weights(graph: Graph, product: Node, array: int) -> bool:
    """Whether an operand of a product comes from outside of the program, or of the loop around the product."""
    origin = graph.origin(array, _READ)
    return origin not in graph.maker or _region(graph, origin) is not _region(graph, product.gives[0])


def _region(graph: Graph, array: int) -> Region | None:
    return graph.region_of.get(array)


def _copies(graph: Graph, product: Node, weights: int) -> Iterator[int]:
    """The kernel that only slices weights out of a larger array, or converts them, for a product."""
    maker = graph.maker.get(graph.origin(weights, (Operator.VIEW,)))
    if maker is None or maker.kernel in (NO_KERNEL, product.kernel):
        return
    if all(node.operator in _MOVES for node in graph.inside[maker.kernel]):
        yield maker.kernel


def _shared(cost: Cost) -> Cost:
    """The cost per row if eight times the rows share the bytes."""
    return Cost.of({resource: amount / FEW_ROWS if resource.measure == "B" else amount for resource, amount in cost.amounts})
