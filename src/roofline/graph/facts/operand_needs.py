"""Which elements of its operands a node needs, if only some of its result is needed.

Elementwise work before a slice is needed for the slice alone. A rule that cannot be exact over-estimates: it returns the whole operand, or
a number of elements at unknown positions.
"""

from collections.abc import Callable, Sequence
from math import prod

from ..graph import Graph, Node
from ..index_sets import (
    NO_AXES,
    NOTHING,
    WHOLE,
    Box,
    Region,
    common,
    count,
    full_box,
    loosely,
    moved,
    reshaped,
    reshaped_lines,
)
from ..operators import ROW_BY_ROW, Array, Axes, Factor, Operator, Padding, Part, Rows, Sizes

Rule = Callable[[Graph, Node, Region], Sequence[Region]]

_NAMES = """
equal compare select add subtract multiply divide negate remainder and maximum minimum exponential square-root absolute elementwise cast
copy triangle
"""
_ELEMENTWISE = frozenset(map(Operator, _NAMES.split()))
_SELECTIVE = frozenset((Operator.SLICE, Operator.GATHER, Operator.PAD, Operator.UPDATE))  # need a part of an operand for a whole result


def operand_needs(graph: Graph, node: Node, region: Region) -> Sequence[Region]:
    """The part of each operand that a part of the result of a node needs."""
    if not region:
        return (NOTHING,) * len(node.takes)
    rule = _RULES.get(node.operator)
    if rule is None or not node.gives or not node.takes or (region.whole and node.operator not in _SELECTIVE):
        return (WHOLE,) * len(node.takes)
    return rule(graph, node, region)


def _first(node: Node, region: Region, others: Region = WHOLE) -> Sequence[Region]:
    """A part of the first operand."""
    return (region, *(others for _ in node.takes[1:]))


def _shapes(graph: Graph, node: Node) -> tuple[Array, Array]:
    """The first operand and the first result."""
    return graph.arrays[node.takes[0]], graph.arrays[node.gives[0]]


def _elementwise(graph: Graph, node: Node, region: Region) -> Sequence[Region]:
    """The same elements of each operand; one with fewer axes, or with one element along an axis, is repeated along it."""
    result = graph.arrays[node.gives[0]].shape
    return [_aligned(region, graph.arrays[operand].shape, result) for operand in node.takes]


def _aligned(region: Region, shape: tuple[int, ...], result: tuple[int, ...]) -> Region:
    if shape == result:
        return region
    more = len(result) - len(shape)
    if more < 0 or any(size not in (1, whole) for size, whole in zip(shape, result[more:], strict=True)):
        return WHOLE

    def back(box: Box) -> Box:
        return tuple(range(1) if size == 1 else side for size, side in zip(shape, box[more:], strict=True))

    return moved(region, shape, back)


def _broadcast(graph: Graph, node: Node, region: Region) -> Sequence[Region]:
    source, result = _shapes(graph, node)
    place = {before: axis for axis in range(len(result.shape)) if (before := graph.axis_before(node, node.gives[0], axis)) is not None}

    def back(box: Box) -> Box:
        return tuple(range(size) if size == 1 or axis not in place else box[place[axis]] for axis, size in enumerate(source.shape))

    kept = {place[axis] for axis, size in enumerate(source.shape) if size != 1 and axis in place}
    repeats = prod(size for axis, size in enumerate(result.shape) if axis in region.lines and axis not in kept)
    lines = [before for before, axis in place.items() if axis in region.lines]
    return _first(node, moved(region, source.shape, back, -(-region.loose // max(1, repeats)), lines))


def _transpose(graph: Graph, node: Node, region: Region) -> Sequence[Region]:
    axes, source = node.params.axes if isinstance(node.params, Axes) else (), _shapes(graph, node)[0]
    if sorted(axes) != list(range(len(source.shape))):
        return _first(node, loosely(count(region, _shapes(graph, node)[1].shape)))

    def back(box: Box) -> Box:
        return tuple(box[axes.index(axis)] for axis in range(len(axes)))

    return _first(node, moved(region, source.shape, back, lines=[axes[axis] for axis in region.lines]))


def _reverse(graph: Graph, node: Node, region: Region) -> Sequence[Region]:
    source, _ = _shapes(graph, node)
    turned = node.params.axes if isinstance(node.params, Axes) else ()

    def back(box: Box) -> Box:
        return tuple(side if axis not in turned else _turned(side, source.shape[axis]) for axis, side in enumerate(box))

    return _first(node, moved(region, source.shape, back, lines=region.lines))


def _turned(side: range, size: int) -> range:
    return range(size - 1 - side[-1], size - side.start, side.step)


def _view(graph: Graph, node: Node, region: Region) -> Sequence[Region]:
    source, result = _shapes(graph, node)
    return _first(node, _renamed(region, result, source, in_memory=node.params != ROW_BY_ROW))


def _renamed(region: Region, result: Array, source: Array, *, in_memory: bool) -> Region:
    """The same elements under other axes, in the same order."""
    here, there = result.order(in_memory=in_memory), source.order(in_memory=in_memory)
    before, after = tuple(result.shape[axis] for axis in here), tuple(source.shape[axis] for axis in there)
    if region.whole:
        return WHOLE
    if prod(before) != prod(after):  # between number formats of different sizes: the same fraction
        return loosely(-(-count(region, result.shape) * prod(after) // max(1, prod(before))))
    boxes, loose = [], region.loose
    for box in region.boxes:
        sides = reshaped(tuple(box[axis] for axis in here), before, after)
        if sides is None:
            loose += prod(map(len, box))
        else:
            boxes.append(tuple(sides[there.index(axis)] for axis in range(len(there))))
    lines = reshaped_lines(frozenset(map(here.index, region.lines)), before, after) if loose == region.loose else ()
    return moved(Region(tuple(boxes), loose), source.shape, lambda box: box, lines=[there[place] for place in lines])


def _slice(graph: Graph, node: Node, region: Region) -> Sequence[Region]:
    source, result = _shapes(graph, node)
    if not isinstance(node.params, Part):
        taken = count(region, result.shape)
        lines = _lines_of_part(result, source) if region.whole else NO_AXES
        return _first(node, WHOLE if taken >= source.elements else loosely(taken, lines))
    sides = tuple(map(range, node.params.starts, node.params.limits, node.params.strides))
    if region.whole:
        return _first(node, moved(Region((sides,)), source.shape, lambda box: box))
    cut = Array(tuple(map(len, sides)), source.dtype, source.strides)
    if cut.shape != result.shape:  # without axes of one element, or with others
        region = _renamed(region, result, cut, in_memory=True)

    def back(box: Box) -> Box:
        return tuple(whole[side.start : side.stop : side.step] for whole, side in zip(sides, box, strict=True))

    kept = [axis for axis in region.lines if len(sides[axis]) == source.shape[axis]]
    whole = region.whole and Region((full_box(cut.shape),))
    return _first(node, moved(whole or region, source.shape, back, lines=kept))


def _taken_whole(taken: tuple[int, ...], shape: tuple[int, ...]) -> frozenset[int]:
    """The axes of an array that slices of as many axes take whole, whatever their positions are."""
    return frozenset(axis for axis, (part, size) in enumerate(zip(taken, shape, strict=False)) if part == size)


def _lines_of_part(part: Array, whole: Array) -> frozenset[int]:
    """The axes of an array that a part of it at an unknown position takes whole; of one with other axes only the last is known."""
    if len(part.shape) == len(whole.shape):
        return _taken_whole(part.shape, whole.shape)
    is_dense = part.strides is not None and part.strides[-1:] == (1,) and part.shape[-1:] == whole.shape[-1:]
    return frozenset((len(whole.shape) - 1,)) if is_dense else frozenset()


def _pad(graph: Graph, node: Node, region: Region) -> Sequence[Region]:
    """The elements that are not padding, all if some are at unknown positions; a negative padding cuts some off."""
    source, result = _shapes(graph, node)
    if not isinstance(node.params, Padding) or region.loose:
        return (WHOLE,) * len(node.takes)
    pads = list(zip(node.params.low, node.params.high, node.params.interior, strict=True))

    def back(box: Box) -> Box:
        sides = []
        for side, size, (low, _, interior) in zip(box, source.shape, pads, strict=True):
            step = interior + 1
            kept = common(side, range(low, low + (size - 1) * step + 1, step))
            # `common` steps by a multiple of either step, so these divisions are exact.
            first, last = (kept.start - low) // step, (kept[-1] - low) // step if kept else -1
            sides.append(range(first, last + 1, max(1, kept.step // step)) if kept else range(0))
        return tuple(sides)

    return _first(node, moved(Region((full_box(result.shape),)) if region.whole else region, source.shape, back))


def _concatenate(graph: Graph, node: Node, region: Region) -> Sequence[Region]:
    shapes, total = [graph.arrays[operand].shape for operand in node.takes], graph.arrays[node.gives[0]].shape
    axis = node.params % len(total) if isinstance(node.params, int) and total else 0
    if any(len(shape) != len(total) for shape in shapes):
        return (WHOLE,) * len(shapes)
    parts, offset = [], 0
    for shape in shapes:
        here = range(offset, offset + shape[axis])

        def back(box: Box, here: range = here) -> Box:
            kept = common(box[axis], here)
            return (*box[:axis], range(kept.start - here.start, kept.stop - here.start, kept.step), *box[axis + 1 :])

        # Elements at unknown positions are divided among the operands by size.
        parts.append(moved(region, shape, back, -(-region.loose * shape[axis] // max(1, total[axis]))))
        offset += shape[axis]
    return parts


def _update(graph: Graph, node: Node, region: Region) -> Sequence[Region]:
    """The part of the operand that is not overwritten, and the update."""
    source, result = _shapes(graph, node)
    if len(node.takes) < 2 or source.elements != result.elements:
        return (WHOLE,) * len(node.takes)
    total, wanted, written = result.elements, count(region, result.shape), graph.arrays[node.takes[1]].elements
    kept = loosely(total - written) if region.whole else loosely(min(wanted, total - written))
    update = WHOLE if region.whole or wanted >= written else loosely(wanted)
    return (kept, update, *(WHOLE for _ in node.takes[2:]))


def _gather(graph: Graph, node: Node, region: Region) -> Sequence[Region]:
    source, result = _shapes(graph, node)
    sizes: tuple[int, ...] = node.params.sizes if isinstance(node.params, Rows) else ()
    if isinstance(node.params, int) and source.shape:
        chosen = node.params % len(source.shape)
        sizes = tuple(1 if axis == chosen else size for axis, size in enumerate(source.shape))
    if len(sizes) != len(source.shape):
        return _first(node, WHOLE)
    taken, slices = count(region, result.shape), max(1, prod(sizes))
    lines = _taken_whole(sizes, source.shape) if region.whole else NO_AXES
    rows, positions = max(1, result.elements // slices), []
    for operand in node.takes[1:]:
        indices = graph.arrays[operand].elements
        positions.append(WHOLE if region.whole else loosely(min(indices, taken * -(-indices // rows))))
    return (loosely(min(source.elements, taken), lines), *positions)


def _reduce(graph: Graph, node: Node, region: Region) -> Sequence[Region]:
    """All elements along the reduced axes; the result may have them still, of one element."""
    source, result = _shapes(graph, node)
    gone = {axis % max(len(source.shape), 1) for axis in node.params.axes} if isinstance(node.params, Axes) else set()
    axes = [axis for axis in range(len(source.shape)) if axis not in gone]
    kept = {axis: axis if len(result.shape) == len(source.shape) else place for place, axis in enumerate(axes)}
    if not gone or len(result.shape) not in (len(axes), len(source.shape)):
        return (WHOLE,) * len(node.takes)

    def back(box: Box) -> Box:
        return tuple(range(size) if axis in gone else box[kept[axis]] for axis, size in enumerate(source.shape))

    line = prod(source.shape[axis] for axis in gone)
    lines = {*gone, *(axis for axis, place in kept.items() if place in region.lines)}
    return (moved(region, source.shape, back, region.loose * line, lines),) * len(node.takes)


def _along_axis(graph: Graph, node: Node, region: Region) -> Sequence[Region]:
    """All elements along one axis of each operand of the same shape."""
    source, result = _shapes(graph, node)
    if not isinstance(node.params, int) or source.shape != result.shape or not source.shape:
        return (WHOLE,) * len(node.takes)
    along = node.params % len(source.shape)

    def back(box: Box) -> Box:
        return tuple(range(source.shape[axis]) if axis == along else side for axis, side in enumerate(box))

    part = moved(region, source.shape, back, region.loose * source.shape[along], {*region.lines, along})
    return [part if graph.arrays[operand].shape == source.shape else WHOLE for operand in node.takes]


def _product(graph: Graph, node: Node, region: Region) -> Sequence[Region]:
    """All elements along the summed axes. The result has the axes of the batch, then those of the left factor alone, then the right's."""
    sizes = node.params
    if not isinstance(sizes, Sizes) or len(node.takes) != 2 or sizes.groups:
        return (WHOLE,) * len(node.takes)
    result = graph.arrays[node.gives[0]].shape
    batches, rows = len(sizes.left.batch), len(sizes.left.free)
    ours, theirs = range(batches, batches + rows), range(batches + rows, len(result))
    if len(theirs) != len(sizes.right.free):
        return (WHOLE, WHOLE)
    parts = []
    for operand, factor, here, others in ((node.takes[0], sizes.left, ours, theirs), (node.takes[1], sizes.right, theirs, ours)):
        shape = graph.arrays[operand].shape
        place = {axis: number for number, axis in enumerate(factor.batch)} | dict(zip(factor.free, here, strict=True))

        def back(box: Box, place: dict[int, int] = place, shape: tuple[int, ...] = shape) -> Box:
            return tuple(box[place[axis]] if axis in place else range(size) for axis, size in enumerate(shape))

        parts.append(_factor_needs(region, factor, others, shape, result, back))
    return parts


def _factor_needs(
    region: Region,
    factor: Factor,
    others: range,
    shape: tuple[int, ...],
    result: tuple[int, ...],
    back: Callable[[Box], Box],
) -> Region:
    """The part of a factor. Elements of the result at unknown positions need all of it, unless they extend over the other's axes."""
    if not region.loose:
        return moved(region, shape, back)
    if not others or not region.lines.issuperset(others):
        return WHOLE
    vectors = -(-region.loose // max(1, prod(result[axis] for axis in others)))
    depth = prod(shape[axis] for axis in factor.summed)
    return moved(region, shape, back, vectors * depth, frozenset(factor.summed))


_RULES: dict[Operator, Rule] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    Operator.BROADCAST: _broadcast,
    Operator.TRANSPOSE: _transpose,
    Operator.REVERSE: _reverse,
    Operator.VIEW: _view,
    Operator.SLICE: _slice,
    Operator.PAD: _pad,
    Operator.CONCATENATE: _concatenate,
    Operator.UPDATE: _update,
    Operator.GATHER: _gather,
    Operator.REDUCE: _reduce,
    Operator.SORT: _along_axis,
    Operator.SCAN: _along_axis,
    Operator.SOFTMAX: _along_axis,
    Operator.DOT: _product,
}
