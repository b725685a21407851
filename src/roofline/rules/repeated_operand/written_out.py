"""Matmuls that are written out: arrays are repeated, multiplied element by element, and summed.

Keys and values of a few heads are repeated for many query heads, weights for each row, and squared differences of all pairs of rows are
such sums too: they follow from a product and the squares of the rows. A kernel of these reads an array once per repetition, at best from
a cache, and multiplies on the vector units; in several kernels the products are stored.
"""

from collections.abc import Collection, Iterator
from itertools import takewhile
from math import prod

from msgspec import Struct

from ...cost import NOTHING, Cost
from ...dtypes import wider
from ...graph import NO_KERNEL, SPREADING, Axes, Graph, Node, Operator
from ...resource import HBM
from ...units import parse
from ...workload import Avoidable, Saves

KIND, PAIRS = "repeated-operand", "pairs"
LEAST = parse("1 MB", "B")  # of an array: smaller ones stay in the cache
WORTH = 2  # repetitions
LEAST_DEPTH = 8  # a choice: products of each sum, as many as one instruction of a matrix unit adds up (mma.m16n8k8)


class Written(Struct, frozen=True):
    """A matmul that is written out: the two arrays that are repeated, the larger one first; the nodes, of which the last one sums; and the
    elementwise products. ``group`` says whether they are squares of differences.
    """

    arrays: tuple[int, int]
    nodes: tuple[Node, ...]
    products: int
    group: str


def written_products(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that repeat an array, multiply and sum."""
    for total in graph.of(Operator.REDUCE):
        written = _written(graph, total) if total.kernel != NO_KERNEL else None
        if written is None:
            continue
        kernels = dict.fromkeys(node.kernel for node in written.nodes if node.kernel != NO_KERNEL)
        if len(kernels) > 1 and not _are_alone(graph, written, kernels):
            continue
        facts = {} if written.group else {"times": written.products // graph.arrays[written.arrays[0]].elements}
        for kernel in kernels:
            instead = _as_matmul(graph, written, kernel, is_one=len(kernels) == 1) if kernel == total.kernel else NOTHING
            saves = Saves.GOOD_STREAM if len(kernels) == 1 else Saves.IN_PROPORTION
            yield kernel, Avoidable(kind=KIND, instead=instead, facts=facts, group=written.group, saves=saves)


def _as_matmul(graph: Graph, written: Written, kernel: int, *, is_one: bool) -> Cost:
    """The cost of a kernel that multiplies on the matrix unit what it sums; with ``is_one`` it already reads no more than that."""
    cost, numbers = graph.kernels[kernel].cost, [number for array in written.arrays if (number := graph.arrays[array].dtype) is not None]
    moved = sum(graph.arrays[array].bytes for array in {*written.arrays, *graph.written(kernel)})
    functions = {resource: amount for resource, amount in cost.amounts if resource.kind == "transcendental"}
    multiplied = {graph.backend.unit(wider(*numbers).rate): 2 * written.products} if numbers else {}
    return Cost.of({**functions, **multiplied, HBM: cost.known(HBM) if is_one else moved})


def _written(graph: Graph, total: Node) -> Written | None:
    """The matmul that a sum ends, if it is one."""
    params = total.params
    product = graph.made_by(total.takes[0], Operator.MULTIPLY)
    if not isinstance(params, Axes) or params.function != Operator.ADD or product is None or len(product.takes) < 2:
        return None
    nodes, group = [total, *graph.between(total.takes[0]), product], ""
    axes = graph.source_axes(total.takes[0], params.axes)
    if graph.origin(product.takes[0]) == graph.origin(product.takes[1]):
        difference = graph.made_by(product.takes[0], Operator.SUBTRACT)
        if difference is None:
            return None
        nodes += [*graph.between(product.takes[0]), *graph.between(product.takes[1]), difference]
        axes, product, group = graph.source_axes(product.takes[0], axes), difference, PAIRS
    whole = graph.arrays[product.gives[0]]
    if prod(whole.shape[axis] for axis in axes) < LEAST_DEPTH:
        return None
    if not all(_is_repeated(graph, product, array, axes) for array in product.takes):
        return None
    spread = [_spread_by(graph, array, product.kernel) for array in product.takes]
    read = [nodes[-1].takes[0] if nodes else array for nodes, array in zip(spread, product.takes, strict=True)]
    first, second = sorted(read, key=lambda array: -graph.arrays[array].bytes)
    maker, largest = graph.maker.get(first), graph.arrays[first]
    is_read = maker is None or maker.kernel != product.kernel
    if not is_read or largest.bytes < LEAST or whole.elements < WORTH * largest.elements or not graph.arrays[total.gives[0]].sure:
        return None
    return Written((first, second), (*spread[0], *spread[1], *reversed(nodes)), whole.elements, group)


def _spread_by(graph: Graph, array: int, kernel: int) -> list[Node]:
    """The nodes that spread an operand of a kernel, in that kernel or as views; the last one first."""
    return list(takewhile(lambda node: node.kernel in (NO_KERNEL, kernel), graph.between(array, SPREADING)))


def _is_repeated(graph: Graph, product: Node, array: int, axes: Collection[int]) -> bool:
    """Whether an operand has each element several times, but not along the axes of the product that are summed."""
    operand, whole = graph.arrays[array], graph.arrays[product.gives[0]]
    added = len(whole.shape) - len(operand.shape)  # axes that elementwise operators add in front
    own = {axis - added for axis in axes if axis >= added and operand.shape[axis - added] == whole.shape[axis]}
    source = graph.arrays[graph.origin(array, SPREADING)]
    summed = prod(source.shape[axis] for axis in graph.source_axes(array, own, SPREADING))
    return 1 < source.elements < whole.elements and summed == prod(whole.shape[axis] for axis in axes)


def _are_alone(graph: Graph, written: Written, kernels: Collection[int]) -> bool:
    """Whether kernels run nothing but a matmul that is written out, and nothing else takes what they make of it."""
    total, ids = written.nodes[-1], {id(node) for node in written.nodes}
    before = [node for kernel in kernels for node in graph.inside[kernel] if node.kernel != total.kernel]
    results = [array for node in (*before, *written.nodes[:-1]) if node is not total for array in node.gives]
    return all(id(node) in ids for node in before) and not any(_is_taken(graph, array, ids) for array in results)


def _is_taken(graph: Graph, array: int, ids: Collection[int]) -> bool:
    return graph.is_handed_on(array) or any(id(user) not in ids for user in graph.users.get(array, ()))
