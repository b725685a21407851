"""Which axes of arrays a program padded, and how much of each is data.

Arrays are padded by an operator that pads, by joining them with an array of one value, or by writing them into one. What happens to a
padded axis then follows from the axes of operators (`node_axes`): other products, elementwise operations, reductions and views keep it.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from ..graph import Graph, Node
from ..node_axes import index_map
from ..operators import ROW_BY_ROW, SPREADING, Array, Operator, Padding, Part, Rows, Windows

PADDING = (Operator.PAD, Operator.CONCATENATE, Operator.UPDATE, Operator.SCATTER, Operator.SCATTER_ADD)
_MULTIPLYING = (Operator.MULTIPLY, Operator.DOT)  # zero where one operand is
_CONSTANT = (Operator.FILL, Operator.CONSTANT)
_NEUTRAL = (*_CONSTANT, Operator.BROADCAST, Operator.IOTA)


class PaddedAxis(Struct, frozen=True):
    """A padded axis: of every ``block`` elements along it, ``data`` are no padding, the first of which is ``start``.

    ``start`` is ``None`` if it is not constant. ``maker`` is the array that was padded, and ``location`` the source line that did it.
    ``is_room`` tells apart what several indices per row write, such as a token's expert and its place there.
    """

    axis: int
    block: int
    data: int
    maker: int
    start: int | None = None
    location: str = ""
    is_room: bool = False

    @property
    def share(self) -> float:
        """The share of the axis that is data."""
        return self.data / self.block


Paddings = tuple[PaddedAxis, ...]


def padded_axes(graph: Graph, given: Mapping[int, Paddings] | None = None) -> dict[int, Paddings]:
    """The padded axes of each array that has some; or, of some ``given`` arrays, of those that follow from them."""
    padded, padding = dict(given or {}), () if given else PADDING
    for node in graph.nodes:
        if not node.gives or (node.operator not in padding and padded.keys().isdisjoint(node.takes)):
            continue
        paddings = _paddings(graph, node, padded)
        shape = graph.arrays[node.gives[0]].shape
        if paddings and all(shape):
            padded |= {array: paddings for array in node.gives if graph.arrays[array].shape == shape}
    return padded


def share_of(paddings: Iterable[PaddedAxis], axes: Iterable[int]) -> float:
    """The share of an array that is data, as far as these axes of it were padded."""
    along = {*axes}
    return prod(padding.share for padding in paddings if padding.axis in along)


def _paddings(graph: Graph, node: Node, padded: Mapping[int, Paddings]) -> Paddings:
    match node.operator:
        case Operator.VIEW:
            before, after = graph.arrays[node.takes[0]], graph.arrays[node.gives[0]]
            return _viewed(padded[node.takes[0]], before, after, in_memory=node.params != ROW_BY_ROW)
        case Operator.SLICE:
            return _sliced(graph, node, padded[node.takes[0]])
        case Operator.UPDATE:
            return _updated(graph, node, padded)
        case Operator.SCATTER | Operator.SCATTER_ADD:
            return _scattered(graph, node)
        case Operator.ATTENTION:
            return _attended(graph, node, padded.get(node.takes[0], ()))
        case Operator.GATHER:
            return _looked_up(graph, node, padded.get(node.takes[1], ()) if len(node.takes) > 1 else ())
        case Operator.CONVOLUTION:
            return _convolved(graph, node, padded.get(node.takes[0], ()))
        case Operator.PAD:
            return (*_kept(graph, node, padded), *_around(graph, node, padded.get(node.takes[0], ())))
        case Operator.CONCATENATE:
            return (*_kept(graph, node, padded), *_joined(graph, node))
    return _kept(graph, node, padded)


def _kept(graph: Graph, node: Node, padded: Mapping[int, Paddings]) -> Paddings:
    """The padded axes of operands that the result has: those that all operands have, for a multiplication those that any has.

    An operand that is constant along an axis (a bias, a maximum) counts as data there.
    """
    if padded.keys().isdisjoint(node.takes):
        return ()
    axes = index_map(graph, node)
    if axes is None:
        return ()
    result = {factors: axis for axis, factors in enumerate(axes.results[0]) if factors}
    operands = [
        [
            replace(padding, axis=result[factors])
            for padding in padded.get(array, ())
            if (factors := axes.operands[place][padding.axis]) in result and (place, padding.axis) not in axes.parts
        ]
        for place, array in enumerate(node.takes)
        if not _is_neutral(graph, node, place)
    ]
    if node.operator in _MULTIPLYING:
        return _least([padding for paddings in operands for padding in paddings])
    return _common(operands)


def _is_neutral(graph: Graph, node: Node, place: int) -> bool:
    """Whether an operand has no elements of its own along padded axes: it is repeated along them, constant, or chooses between others."""
    if len(node.takes) == 1:
        return False
    array = node.takes[place]
    if node.operator == Operator.CONCATENATE:
        return is_filler(graph, array)
    if node.operator == Operator.SELECT and place == 0:
        return True
    is_alike = graph.arrays[array].shape == graph.arrays[node.gives[0]].shape
    return (node.operator != Operator.DOT and not is_alike) or graph.made_by(array, *_NEUTRAL) is not None


def _least(paddings: Sequence[PaddedAxis]) -> Paddings:
    """Of paddings of the same axis the one with the least data."""
    least: dict[tuple[int, int], PaddedAxis] = {}
    for padding in paddings:
        key = padding.axis, padding.block
        least[key] = min(least.get(key, padding), padding, key=lambda padding: padding.data)
    return tuple(least.values())


def _common(operands: Sequence[Sequence[PaddedAxis]]) -> Paddings:
    """The axes that all operands are padded along, with the data of each."""
    if not operands:
        return ()
    common = {(padding.axis, padding.block): padding for padding in operands[0]}
    for others in operands[1:]:
        theirs = {(padding.axis, padding.block): padding for padding in others}
        common = {key: _together(padding, theirs[key]) for key, padding in common.items() if key in theirs}
    return tuple(padding for padding in common.values() if padding.data < padding.block)


def _together(padding: PaddedAxis, other: PaddedAxis) -> PaddedAxis:
    """An axis with the data of both, which add up if their places differ, such as parts of an array in its gradient."""
    longer = max(padding, other, key=lambda padding: padding.data)
    both = min(padding.data + other.data, padding.block)
    if padding.start is None or other.start is None:
        is_same_place = padding.start == other.start and padding.maker == other.maker
        return longer if is_same_place else replace(longer, data=both)
    start = min(padding.start, other.start)
    end = max(padding.start + padding.data, other.start + other.data)
    return longer if padding.start == other.start else replace(longer, data=min(both, end - start), start=start)


def _attended(graph: Graph, attention: Node, paddings: Paddings) -> Paddings:
    """The padded axes of queries in the result of attention, which may have heads before tokens."""
    shape, result = graph.arrays[attention.takes[0]].shape, graph.arrays[attention.gives[0]].shape
    if shape == result:
        return paddings
    order = (0, 2, 1, 3)
    if len(shape) != len(order) or tuple(shape[axis] for axis in order) != result:
        return ()
    return tuple(replace(padding, axis=order.index(padding.axis)) for padding in paddings)


def _looked_up(graph: Graph, gather: Node, paddings: Paddings) -> Paddings:
    """The padded axes of positions, each of which names a row of a table."""
    table, result = graph.arrays[gather.takes[0]].shape, graph.arrays[gather.gives[0]].shape
    rest = table[1:]
    if gather.params != 0 or not rest or result[-len(rest) :] != rest:
        return ()
    return _viewed(paddings, graph.arrays[gather.takes[1]], Array(result[: len(result) - len(rest)]), in_memory=False)


def _convolved(graph: Graph, convolution: Node, paddings: Paddings) -> Paddings:
    """The padded axes of a source along which windows move, and that of its batch, in the result: windows with any data count as data."""
    windows, shape, result = convolution.params, graph.arrays[convolution.takes[0]].shape, graph.arrays[convolution.gives[0]].shape
    if not isinstance(windows, Windows) or len(shape) != len(result):
        return ()
    sides = dict(zip(windows.positions, zip(windows.sizes, windows.strides, strict=True), strict=True))
    kept = []
    for padding in paddings:
        size, stride = sides.get(padding.axis, (1, 1))
        count, places = shape[padding.axis], result[padding.axis]
        # Windows inside of the source, or one for each place of it.
        if padding.block != count or places not in ((count - size) // stride + 1, -(-count // stride)):
            continue
        start = None if padding.start is None else padding.start // stride
        kept.append(replace(padding, block=places, data=-(-(padding.data + size - 1) // stride), start=start))
    return tuple(padding for padding in kept if padding.data < padding.block)


def _around(graph: Graph, node: Node, paddings: Paddings) -> list[PaddedAxis]:
    """The axes that a padding makes longer, perhaps once more; where it is between elements, another array may be interleaved."""
    shape, source = graph.arrays[node.gives[0]].shape, graph.arrays[node.takes[0]].shape
    if not isinstance(node.params, Padding):
        return []
    sides = zip(source, shape, node.params.low, node.params.interior, strict=True)
    before = {padding.axis: padding for padding in paddings if padding.block == source[padding.axis]}
    around = []
    for axis, (data, size, low, interior) in enumerate(sides):
        if not 0 < data < size or interior:
            continue
        if (padding := before.get(axis)) is not None:
            around.append(replace(padding, block=size, start=None if padding.start is None else padding.start + low))
        else:
            around.append(PaddedAxis(axis, size, data, node.gives[0], low, node.location))
    return around


def _joined(graph: Graph, node: Node) -> list[PaddedAxis]:
    """The axis of a concatenation, if some of the arrays have one value everywhere."""
    shape = graph.arrays[node.gives[0]].shape
    shapes = [graph.arrays[array].shape for array in node.takes]
    if not isinstance(node.params, int) or any(len(part) != len(shape) for part in shapes):
        return []
    axis = node.params % len(shape)
    parts = [(part[axis], is_filler(graph, array)) for part, array in zip(shapes, node.takes, strict=True)]
    data = sum(size for size, is_padding in parts if not is_padding)
    before = sum(size for size, _ in takewhile(lambda part: part[1], parts))
    return [PaddedAxis(axis, shape[axis], data, node.gives[0], before, node.location)] if 0 < data < shape[axis] else []


def is_filler(graph: Graph, array: int) -> bool:
    """Whether an array has given values, or selects from such, as zeros that JAX differentiates a scatter into."""
    node = graph.maker.get(graph.origin(array, SPREADING))
    if node is not None and node.operator == Operator.SELECT:
        return all(graph.made_by(side, *_CONSTANT, through=SPREADING) is not None for side in node.takes[1:])
    return node is not None and node.operator in _CONSTANT


def _updated(graph: Graph, node: Node, padded: Mapping[int, Paddings]) -> Paddings:
    """The axes of which updates leave a part of an array of one value, or of a padded one."""
    target, result = node.takes[0], node.gives[0]
    shape = graph.arrays[result].shape
    written = _written(graph, node)
    if written is None or graph.arrays[target].shape != shape:
        return ()
    if is_filler(graph, target):
        return tuple(padding for padding in written if padding.data)
    by_axis = {(padding.axis, padding.block): padding for padding in written}
    kept = [
        _together(padding, by_axis[padding.axis, padding.block])
        for padding in padded.get(target, ())
        if (padding.axis, padding.block) in by_axis
    ]
    return tuple(padding for padding in kept if padding.data < padding.block)


def _written(graph: Graph, node: Node) -> list[PaddedAxis] | None:
    """The axes of which an update writes a part, and its place there; ``None`` if they are not known."""
    shape, part = (graph.arrays[array].shape for array in (node.gives[0], node.takes[1])) if len(node.takes) > 1 else ((), ())
    starts: Sequence[float | None] = [graph.value(array) for array in node.takes[2:]]
    if isinstance(node.params, Part):
        part = tuple(len(range(*side)) for side in zip(node.params.starts, node.params.limits, node.params.strides, strict=True))
        starts = node.params.starts
    if len(part) != len(shape) or len(starts) != len(shape):
        return None
    sides = zip(part, shape, starts, strict=True)
    return [
        PaddedAxis(axis, size, data, node.gives[0], None if start is None else int(start), node.location)
        for axis, (data, size, start) in enumerate(sides)
        if data < size
    ]


def _scattered(graph: Graph, node: Node) -> Paddings:
    """The axes of which a scatter into an array of one value leaves a part, as it writes too few rows; with several indices per row, which
    select a group and a place in it, the largest axis.
    """
    if len(node.takes) < 3 or not is_filler(graph, node.takes[0]):
        return ()
    array, shape, rows = node.gives[0], graph.arrays[node.gives[0]].shape, graph.arrays[node.takes[2]]
    chosen = node.params.axes if isinstance(node.params, Rows) else (node.params,)
    indexed = [axis for axis in chosen if isinstance(axis, int) and 0 <= axis < len(shape) and shape[axis] > 1]
    if not indexed or not all(shape):
        return ()
    if len(rows.shape) == len(shape):
        sides = enumerate(zip(rows.shape, shape, strict=True))
        return tuple(PaddedAxis(axis, size, data, array, None, node.location) for axis, (data, size) in sides if 0 < data < size)
    axis = max(indexed, key=shape.__getitem__)
    data = -(-rows.elements * shape[axis] // prod(shape))
    is_room = len(indexed) > 1  # rows and their gradients are in the same places
    paddings = (PaddedAxis(axis, shape[axis], data, array, 0 if is_room else None, node.location, is_room),)
    return paddings if 0 < data < shape[axis] else ()


def _sliced(graph: Graph, node: Node, paddings: Paddings) -> Paddings:
    """The padded axes that a slice takes whole."""
    source, result = graph.arrays[node.takes[0]], graph.arrays[node.gives[0]]
    if isinstance(node.params, Part):
        sides = zip(node.params.starts, node.params.limits, node.params.strides, strict=True)
        part = replace(source, shape=tuple(len(range(*side)) for side in sides))
    else:
        part = result
    if len(part.shape) != len(source.shape):
        return ()
    whole = tuple(padding for padding in paddings if part.shape[padding.axis] == source.shape[padding.axis])
    return whole if part.shape == result.shape else _viewed(whole, part, result, in_memory=True)


def _viewed(paddings: Paddings, before: Array, after: Array, *, in_memory: bool) -> Paddings:
    """The padded axes of the same elements under other axes, in the same order."""
    if before.elements != after.elements or not after.elements:
        return ()
    ours, theirs = (array.distances(in_memory=in_memory) for array in (before, after))
    viewed = []
    for padding in paddings:
        step, period = ours[padding.axis], ours[padding.axis] * padding.block
        for axis, (size, distance) in enumerate(zip(after.shape, theirs, strict=True)):
            if distance < period <= distance * size and period % distance == 0:
                renamed = _in_steps(replace(padding, axis=axis, block=period // distance), step, distance)
                viewed += [renamed] if 0 < renamed.data < renamed.block else []
    return tuple(viewed)


def _in_steps(padding: PaddedAxis, step: int, distance: int) -> PaddedAxis:
    """A padding of elements this far apart along an axis where they are ``distance`` apart: steps with any data count as data."""
    first = padding.start or 0
    start, end = first * step // distance, -(-(first + padding.data) * step // distance)
    return replace(padding, data=end - start, start=None if padding.start is None else start)
