"""Arrays that are stored several times over for a matmul: keys and values, repeated for each of the query heads that share them; matrices
that are gathered for each row; overlapping patches of an image, where a convolution would read it once; and masks of attention, repeated
for each head or query.

A kernel writes the copies, and attention or a product reads them all. A product over the groups that share an array, and attention with a
mask that is only expanded, would read the array once.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from ...cost import NOTHING, Cost, less_traffic
from ...graph import NO_KERNEL, SPREADING, Axes, Factor, Graph, Node, Operator
from ...units import parse
from ...workload import Avoidable

KIND, STORED, GATHERED, PATCHES, MASK = "repeated-operand", "stored", "gathered", "patches", "mask"
GROUPS = {Operator.BROADCAST: STORED, Operator.GATHER: GATHERED}
FIRST_MASK = 3  # the first operand of attention that may be a mask, after queries, keys and values
LEAST = parse("1 MB", "B")  # of what is stored
WORTH = 2  # times that each element must be stored
LEAST_PATCHES = 4  # shifted copies: a window of 2 by 2
_MULTIPLY = (Operator.DOT, Operator.ATTENTION)
_MOVING = SPREADING | {
    Operator.GATHER,
    Operator.CONCATENATE,
    Operator.UPDATE,
    Operator.SLICE,
    Operator.PAD,
    Operator.PATCHES,
    Operator.FILL,
}
_FILLED = (Operator.VIEW, Operator.TRANSPOSE, Operator.CAST, Operator.COPY, Operator.PAD)


class Copies(Struct, frozen=True):
    """An array that has copies of another one's elements, ``times`` as many, by an operator; and the kernels that store it, in order."""

    array: int
    operator: Operator
    times: float
    stored: int
    kernels: tuple[int, ...]


class Spared(Struct):
    """The bytes that a product would not read, the group, and how often it reads each element."""

    node: Node
    bytes: float
    group: str
    times: float

    def avoidable(self, graph: Graph) -> Avoidable:
        return _avoidable(less_traffic(graph.cost(self.node), self.bytes), self.group, self.times)


def stored_repeats(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that store copies of an array for products alone, and those products."""
    spared: dict[int, Spared] = {}
    storing: dict[int, Avoidable] = {}
    for product, place in _operands(graph):
        array = product.takes[place]
        copies = _copies(graph, array, product.kernel)
        if copies is None or not _is_repeated_as_a_whole(graph, product, place, copies):
            continue
        if not all(node.operator in _MULTIPLY and not _is_mask(node, name) for node, name in graph.uses(copies.stored)):
            continue
        group = GROUPS.get(copies.operator, PATCHES)
        for kernel in copies.kernels:
            storing.setdefault(kernel, _avoidable(_without(graph, kernel, copies), group, copies.times))
        before = spared.setdefault(product.kernel, Spared(product, 0.0, group, copies.times))
        before.bytes += graph.arrays[copies.array].bytes * (1 - 1 / copies.times)
    yield from storing.items()
    yield from ((kernel, less.avoidable(graph)) for kernel, less in spared.items() if kernel not in storing)


def folded_patches(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that add up the gradients of overlapping patches, and the products that compute these."""
    for fold in graph.of(Operator.FOLD):
        patches, image = (graph.arrays[array] for array in (fold.takes[0], fold.gives[0])) if fold.gives else (None, None)
        product = graph.made_by(fold.takes[0], Operator.DOT)
        if patches is None or image is None or product is None or patches.bytes < LEAST or patches.elements < WORTH * image.elements:
            continue
        times = patches.elements / image.elements
        for node in (fold, *graph.between(fold.takes[0])):
            if node.kernel != NO_KERNEL:
                yield node.kernel, _avoidable(NOTHING, PATCHES, times)
        yield product.kernel, Spared(product, patches.bytes * (1 - 1 / times), PATCHES, times).avoidable(graph)


def stored_masks(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that store a mask several times over, and the attention that reads it."""
    for attention in graph.of(Operator.ATTENTION):
        for array in attention.takes[FIRST_MASK:]:
            copies = _copies(graph, array, attention.kernel)
            if copies is None or copies.operator != Operator.BROADCAST:
                continue
            for kernel in copies.kernels:
                yield kernel, _avoidable(_without(graph, kernel, copies), MASK, copies.times)
            less = Spared(attention, graph.arrays[copies.array].bytes * (1 - 1 / copies.times), MASK, copies.times)
            yield attention.kernel, less.avoidable(graph)


def _avoidable(instead: Cost, group: str, times: float) -> Avoidable:
    cause = STORED if group == STORED else ""
    return Avoidable(kind=KIND, instead=instead, cause=cause, facts={"times": times} if group == PATCHES else {}, group=group)


def _operands(graph: Graph) -> Iterator[tuple[Node, int]]:
    """The products and the places of their factors, and attention with those of queries, keys and values."""
    for node in graph.of(*_MULTIPLY):
        for place in range(min(2 if node.operator == Operator.DOT else FIRST_MASK, len(node.takes))):
            if node.kernel != NO_KERNEL:
                yield node, place


def _copies(graph: Graph, array: int, reader: int) -> Copies | None:
    """The copies that an operand of a kernel consists of, if other kernels store at least as many as are worth it."""
    names = graph.between(array)
    origin = graph.origin(array)
    whole = graph.arrays[origin]
    makers = _makers(graph, origin)
    operator, elements = Operator.BROADCAST, whole.distinct
    if makers and makers[0].operator == Operator.BROADCAST:
        elements = min(elements, graph.distinct(origin))
    elif makers and elements == whole.elements:
        operator, elements = makers[0].operator, _elements_before(graph, makers)
    storing = [node for node in (*names, *makers) if node.kernel not in (NO_KERNEL, reader)]
    if not storing or not elements or whole.bytes < LEAST or whole.elements < WORTH * elements:
        return None
    kernels = tuple(dict.fromkeys(node.kernel for node in reversed(storing)))
    stored = next(node for node in reversed((*names, *makers[:1])) if node.kernel not in (NO_KERNEL, reader))
    return Copies(origin, operator, whole.elements / elements, stored.gives[0], kernels)


def _makers(graph: Graph, array: int) -> list[Node]:
    """The node that makes an array, after those that write parts of it; the last one first."""
    makers = [graph.maker[array]] if array in graph.maker else []
    while makers and makers[-1].operator == Operator.UPDATE and (before := graph.maker.get(graph.origin(makers[-1].takes[0]))) is not None:
        makers.append(before)
    return makers


def _elements_before(graph: Graph, makers: Sequence[Node]) -> int:
    """The elements of the array of which nodes make copies; 0 if they do not."""
    maker = makers[0]
    if (maker.operator == Operator.GATHER and isinstance(maker.params, int)) or maker.operator == Operator.PATCHES:
        return graph.arrays[maker.takes[0]].elements
    parts = _parts(graph, makers)
    cuts = [graph.made_by(part, Operator.SLICE) for part in parts]
    sources = {graph.origin(part if cut is None else cut.takes[0], _FILLED) for part, cut in zip(parts, cuts, strict=True)}
    places = {None if cut is None else cut.params for cut in cuts}
    return graph.arrays[sources.pop()].elements if len(sources) == 1 and len(places) >= LEAST_PATCHES else 0


def _parts(graph: Graph, makers: Sequence[Node]) -> list[int]:
    """The arrays that an array is joined of, side by side; none if it is not joined."""
    if makers[0].operator == Operator.CONCATENATE:
        return list(makers[0].takes)
    updates = [node for node in makers if node.operator == Operator.UPDATE]
    return [array for node in updates for array in node.takes[1:] if len(graph.arrays[array].shape) > 1]


def _is_repeated_as_a_whole(graph: Graph, product: Node, place: int, copies: Copies) -> bool:
    """Whether each matrix of an operand is one of the array that is repeated, not rows or columns that are repeated; for patches, whether
    the product sums over those.
    """
    array = product.takes[place]
    shape = graph.arrays[array].shape
    is_product = product.operator == Operator.DOT
    factor = (product.sizes.left, product.sizes.right)[place] if is_product else Factor(summed=(len(shape) - 1,))
    if copies.operator == Operator.PATCHES:
        return [graph.source_axis(array, axis) for axis in factor.summed] == [1]
    if copies.operator in (Operator.CONCATENATE, Operator.UPDATE):
        (part, *_), whole = _parts(graph, _makers(graph, copies.array)), graph.arrays[copies.array].shape
        joined = [axis for axis, (less, size) in enumerate(zip(graph.arrays[part].shape, whole, strict=True)) if less != size]
        return not {graph.source_axis(array, axis) for axis in (*factor.batch, *factor.free)} & {*joined}
    axes = [graph.source_axis(array, axis) for axis in (*factor.summed, *factor.free) if shape[axis] > 1]
    return all(axis is not None and not _is_repeated(graph, copies, axis) for axis in axes)


def _is_repeated(graph: Graph, copies: Copies, axis: int) -> bool:
    """Whether copies are along an axis."""
    array, maker = graph.arrays[copies.array], graph.maker.get(copies.array)
    if copies.operator == Operator.GATHER and maker is not None and isinstance(maker.params, int):
        rest = graph.arrays[maker.takes[0]].shape[maker.params + 1 :]
        return not rest or array.shape[-len(rest) :] != rest or axis < len(array.shape) - len(rest)
    if array.distinct < array.elements:
        return array.strides is not None and array.strides[axis] == 0
    return maker is None or not isinstance(maker.params, Axes) or axis not in maker.params.axes


def _without(graph: Graph, kernel: int, copies: Copies) -> Cost:
    """The cost of a kernel that stores copies if it stored the array once: nothing, if it computes nothing else."""
    least = graph.arrays[copies.array].elements / copies.times
    large = [node for node in graph.inside[kernel] if any(graph.arrays[array].elements >= least for array in node.gives)]
    only_moves = all(node.operator in _MOVING for node in large) and len(graph.written(kernel)) <= 1
    cost = graph.kernels[kernel].cost
    return NOTHING if only_moves else less_traffic(cost, graph.arrays[copies.array].bytes * (1 - 1 / copies.times))


def _is_mask(node: Node, array: int) -> bool:
    """Whether attention takes an array as its mask."""
    return node.operator == Operator.ATTENTION and array in node.takes[FIRST_MASK:]
