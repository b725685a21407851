"""Products with a matrix that is written out from two small arrays: an outer product, or a Kronecker product of two matrices.

Where the two arrays have no axis in common, multiplying by one after the other needs far fewer FLOP, and the matrix is never stored:
(u vᵀ) x is u (vᵀ x), and (A ⊗ B) x is A X Bᵀ for x as a matrix X. A convolution by an outer product is one along each axis.
"""

from collections.abc import Collection, Iterator
from math import prod

from msgspec import Struct

from ...cost import NOTHING, Cost
from ...graph import NO_KERNEL, RENAMING, SPREADING, Factor, Graph, Node, Operator, Windows
from ...graph.facts.kernels import consists_of
from ...graph.facts.operand_axes import OperandAxes
from ...resource import HBM
from ...units import parse
from ...workload import Avoidable, Facts, Saves
from .narrow_last import KIND, WORTH

GROUP = "factored"
_LEAST = parse("1 MB", "B")  # of the matrix: a smaller one stays in the cache
_WRITING = SPREADING | {Operator.MULTIPLY, Operator.FILL, Operator.CONSTANT}


class _Use(Struct, frozen=True):
    """A product, the node that writes one of its factors out, and its cost without that."""

    product: Node
    writer: Node
    times: float
    instead: Cost
    saves: Saves = Saves.IN_PROPORTION


def factored_products(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The products by such matrices, and the kernels that only write these out for them."""
    axes = OperandAxes(graph)
    uses = [use for node in graph.of(Operator.DOT, Operator.CONVOLUTION) if (use := _use(axes, node)) is not None]
    kernels = {use.product.kernel for use in uses}
    for use in uses:
        facts = Facts(times=use.times)
        yield use.product.kernel, Avoidable(kind=KIND, instead=use.instead, facts=facts, group=GROUP, saves=use.saves)
    for writer in {id(use.writer): use.writer for use in uses if use.writer.kernel not in kernels}.values():
        users = {user.kernel for array in graph.written(writer.kernel) for user, _ in graph.uses(array)}
        if users <= kernels and consists_of(graph, writer.kernel, _WRITING):
            yield writer.kernel, Avoidable(kind=KIND, instead=NOTHING, cause="written", group=GROUP)


def _use(axes: OperandAxes, product: Node) -> _Use | None:
    if product.kernel == NO_KERNEL or len(product.takes) < 2:
        return None
    if product.operator == Operator.CONVOLUTION:
        return _separable(axes, product)
    if product.sizes.batch > 1 or product.sizes.groups:
        return None
    left, right = product.takes[:2]
    sides = ((left, product.sizes.left, product.sizes.columns), (right, product.sizes.right, product.sizes.rows))
    return next((use for array, factor, others in sides if (use := _in_two(axes, product, array, factor, others)) is not None), None)


def _written_out(axes: OperandAxes, array: int, through: Collection[Operator]) -> tuple[Node, list[frozenset[int]]] | None:
    """The node that multiplies two arrays which differ along axes that have nothing in common, and these axes."""
    node = axes.graph.made_by(array, Operator.MULTIPLY, through=through)
    if node is None or len(node.takes) != 2:
        return None
    along = [axes.differing(node, place) for place in (0, 1)]
    whole = {axis for axis, size in enumerate(axes.graph.arrays[node.gives[0]].shape) if size > 1}
    is_written_out = all(along) and not along[0] & along[1] and along[0] | along[1] == whole
    return (node, along) if is_written_out else None


def _in_two(axes: OperandAxes, product: Node, array: int, factor: Factor, others: int) -> _Use | None:
    graph, written_out = axes.graph, _written_out(axes, array, RENAMING)
    if written_out is None or graph.arrays[array].bytes < _LEAST:
        return None
    writer, along = written_out
    shape = graph.arrays[writer.gives[0]].shape
    summed, free = (graph.source_axes(array, places) for places in (factor.summed, factor.free))
    if summed & free:
        return None
    (sum_a, sum_b), (free_a, free_b) = ([prod(shape[axis] for axis in own & kept) for own in along] for kept in (summed, free))
    if sum_a * sum_b * free_a * free_b != graph.arrays[array].elements:
        return None
    between = min((free_a * sum_b * (sum_a + free_b), free_a * sum_b), (sum_a * free_b * (sum_b + free_a), sum_a * free_b))
    share = between[0] / (sum_a * sum_b * free_a * free_b)
    if share > WORTH:
        return None
    number = graph.arrays[product.gives[0]]
    moved = 2 * others * between[1] * number.bytes / max(number.elements, 1)
    if product.kernel != writer.kernel:
        moved -= graph.arrays[array].bytes
    return _Use(product, writer, 1 / share, _scaled(graph, product, share, moved))


def _separable(axes: OperandAxes, convolution: Node) -> _Use | None:
    """A depthwise convolution whose windows are an outer product."""
    graph, windows, written_out = axes.graph, convolution.params, _written_out(axes, convolution.takes[1], SPREADING)
    if written_out is None or not isinstance(windows, Windows) or windows.channels[0] != 1:
        return None
    sizes = [size for size in graph.arrays[written_out[0].gives[0]].shape if size > 1]
    if sorted(sizes) != sorted(windows.sizes) or len(sizes) != 2 or sum(sizes) > WORTH * prod(sizes):
        return None
    share = sum(sizes) / prod(sizes)
    instead = _scaled(graph, convolution, share, 2 * graph.arrays[convolution.gives[0]].bytes)
    return _Use(convolution, written_out[0], 1 / share, instead, Saves.GOOD_STREAM)


def _scaled(graph: Graph, product: Node, share: float, moved: float) -> Cost:
    """The cost of a product with a share of its FLOP, and so many bytes more."""
    amounts = {resource: amount * share for resource, amount in graph.cost(product).amounts}
    return Cost.of({**amounts, HBM: max(graph.cost(product).known(HBM) + moved, 0)})
