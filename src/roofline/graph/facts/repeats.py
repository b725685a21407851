"""Axes along which the rows of arrays are repeated: by a broadcast, or by a gather that takes more rows than its table has.

What is computed from each row alone is the same for equal rows, so repeated axes are followed through products, functions of elements,
lookups, and attention over equal sequences.
"""

from collections.abc import Mapping, Sequence
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from ..graph import Graph, Node, Phase
from ..node_axes import ELEMENTWISE
from ..operators import ROW_BY_ROW, SOFTMAXES, SPREADING, Array, Operator, Sizes, Windows
from .operand_axes import OperandAxes

TWICE = 2  # rows that are gathered for each row of a table
_KEEPING = SPREADING | SOFTMAXES | {Operator.REDUCE, Operator.SLICE, Operator.NORM}
_SEQUENCES = 0  # the axis of attention that its sequences are along


class Repeat(Struct, frozen=True):
    """An axis of which a share of the rows are different, and the array that repeats them: a broadcast, or the positions of a gather.

    Of a broadcast, equal rows are ``apart`` places from each other, as many as it repeats; of a gather they are anywhere.
    """

    axis: int
    share: float
    source: int
    is_gathered: bool = False
    apart: int = 1

    def covers(self, other: "Repeat") -> bool:
        """Whether all rows that another repeat has equal are equal in this one."""
        if self.is_gathered or other.is_gathered or self.axis != other.axis:
            return self.pattern == other.pattern
        ours, theirs = (round(repeat.apart / repeat.share) for repeat in (self, other))
        return ours % theirs == 0 and other.apart % self.apart == 0

    @property
    def pattern(self) -> tuple[float, ...]:
        """What is equal of two arrays whose rows are equal in the same places."""
        return (self.axis, self.source) if self.is_gathered else (self.axis, self.share, self.apart)


Repeats = Mapping[int, tuple[Repeat, ...]]


def repeated_axes(graph: Graph) -> dict[int, tuple[Repeat, ...]]:
    """The repeated axes of each array that has some."""
    repeats: dict[int, tuple[Repeat, ...]] = {}
    axes = OperandAxes(graph)
    for node in graph.nodes:
        if not node.gives or not node.takes or 0 in graph.arrays[node.gives[0]].shape:
            continue
        if node.operator not in (Operator.BROADCAST, Operator.GATHER) and repeats.keys().isdisjoint(node.takes):
            continue
        if repeated := _made(axes, node, repeats):
            repeats[node.gives[0]] = repeated
    return repeats


def image_axis(graph: Graph, convolution: Node) -> int | None:
    """The axis of the operand and the result of a convolution that its images are along; ``None`` if it might be that of channels."""
    windows, shapes = convolution.params, [graph.arrays[array].shape for array in (convolution.takes[0], convolution.gives[0])]
    if not isinstance(windows, Windows) or len(shapes[0]) != len(shapes[1]):
        return None
    others = [axis for axis in range(len(shapes[0])) if axis not in windows.positions]
    of_channels = [axis for axis in others if all(shape[axis] % size == 0 for shape, size in zip(shapes, windows.channels, strict=True))]
    images = [axis for axis in others if shapes[0][axis] == shapes[1][axis] and of_channels != [axis]]
    return images[0] if len(images) == 1 and (len(of_channels) == 1 or images[0] not in of_channels) else None


def share_along(repeats: Sequence[Repeat], axes: Sequence[int]) -> float:
    """The share of rows that are different along some axes."""
    return prod(repeat.share for repeat in repeats if repeat.axis in axes)


def _made(axes: OperandAxes, node: Node, repeats: Repeats) -> tuple[Repeat, ...]:
    if node.operator == Operator.GATHER:
        return _gathered(axes.graph, node, repeats)
    if node.operator == Operator.VIEW or (node.operator == Operator.SLICE and _is_strided(axes.graph, node)):
        return _viewed(axes.graph, node, repeats)
    if node.operator == Operator.ATTENTION:
        return _attended(axes.graph, node, repeats)
    if (node.operator in ELEMENTWISE and len(node.takes) > 1) or node.operator == Operator.CONCATENATE:
        return _together(axes, node, repeats)
    if node.operator == Operator.CONVOLUTION:
        images = image_axis(axes.graph, node)
        return tuple(repeat for repeat in repeats.get(node.takes[0], ()) if repeat.axis == images)
    if node.operator == Operator.DOT:
        is_plain = isinstance(node.params, Sizes) and not node.params.groups
        left, right = [_moved(axes, node, place, repeats) for place in (0, 1)] if is_plain else ((), ())
        batch, both = len(node.sizes.left.batch) if is_plain else 0, {repeat.pattern for repeat in left}
        batched = [repeat for repeat in right if repeat.axis < batch and repeat.pattern in both]
        return (*batched, *(repeat for repeat in (*left, *right) if repeat.axis >= batch))
    kept = _moved(axes, node, 0, repeats) if node.operator in _KEEPING or node.operator in ELEMENTWISE else ()
    return (*kept, *_spread(axes, node)) if node.operator == Operator.BROADCAST else kept


def _moved(axes: OperandAxes, node: Node, place: int, repeats: Repeats) -> tuple[Repeat, ...]:
    """The repeats of an operand in the axes of the result that are those of the operand, whole."""
    sources, shape = axes.of(node, place) or (), axes.graph.arrays[node.takes[place]].shape
    result, moved = axes.graph.arrays[node.gives[0]].shape, []
    for repeat in repeats.get(node.takes[place], ()):
        places = [axis for axis, before in enumerate(sources) if before == {repeat.axis}]
        if len(places) == 1 and result[places[0]] == shape[repeat.axis]:
            moved.append(replace(repeat, axis=places[0]))
    return tuple(moved)


def _viewed(graph: Graph, view: Node, repeats: Repeats) -> tuple[Repeat, ...]:
    """The repeats of the same elements under other axes; an axis that holds a part of a period loses them."""
    before, after = graph.arrays[view.takes[0]], graph.arrays[view.gives[0]]
    if view.operator == Operator.SLICE:
        return _along(before, after, repeats.get(view.takes[0], ()), before.strides or (), after.strides or ())
    return _renamed(before, after, repeats.get(view.takes[0], ()), in_memory=view.params != ROW_BY_ROW)


def _is_strided(graph: Graph, cut: Node) -> bool:
    """Whether a part of an array has other axes, which its strides tell."""
    before, after = graph.arrays[cut.takes[0]], graph.arrays[cut.gives[0]]
    return len(before.shape) != len(after.shape) and before.strides is not None and after.strides is not None


def _renamed(before: Array, after: Array, repeats: Sequence[Repeat], *, in_memory: bool) -> tuple[Repeat, ...]:
    if before.elements != after.elements or not after.elements:
        return ()
    return _along(before, after, repeats, *(array.distances(in_memory=in_memory) for array in (before, after)))


def _along(before: Array, after: Array, repeats: Sequence[Repeat], ours: Sequence[int], theirs: Sequence[int]) -> tuple[Repeat, ...]:
    """The repeats along the axes of other names, by the distances in memory of neighbours along each axis."""
    renamed = []
    for repeat in repeats:
        size = before.shape[repeat.axis]
        step = ours[repeat.axis] * repeat.apart
        period = ours[repeat.axis] * size if repeat.is_gathered else round(step / repeat.share)
        for axis, (count, distance) in enumerate(zip(after.shape, theirs, strict=True)):
            if 0 < distance <= step and period <= distance * count and step % distance == 0:
                renamed.append(replace(repeat, axis=axis, apart=step // distance))
            elif step <= distance and distance * count <= period and not repeat.is_gathered and count > 1:  # one of several that it became
                renamed.append(replace(repeat, axis=axis, apart=1, share=1 / count))
    return tuple(renamed)


def _attended(graph: Graph, attention: Node, repeats: Repeats) -> tuple[Repeat, ...]:
    """The repeats of whole sequences: those of queries, keys, values, and whatever else differs between sequences."""
    shape, result = graph.arrays[attention.takes[0]].shape, graph.arrays[attention.gives[0]].shape
    if not shape or result[:1] != shape[:1]:
        return ()
    others = [array for array in attention.takes[1:] if graph.arrays[array].shape[:1] == shape[:1] and graph.distinct(array) > 1]
    patterns = [{repeat.pattern for repeat in repeats.get(array, ())} for array in others]
    return tuple(
        repeat
        for repeat in repeats.get(attention.takes[0], ())
        if repeat.axis == _SEQUENCES and all(repeat.pattern in pattern for pattern in patterns)
    )


def _spread(axes: OperandAxes, broadcast: Node) -> list[Repeat]:
    """The axes along which a broadcast of the forward pass repeats its operand; a single number is the same everywhere."""
    users = axes.graph.users.get(broadcast.gives[0], ())
    is_gradient = broadcast.phase == Phase.BACKWARD or (users and all(user.phase == Phase.BACKWARD for user in users))  # that of a sum
    if axes.graph.distinct(broadcast.takes[0]) == 1 or is_gradient:
        return []
    shape, sources = axes.graph.arrays[broadcast.gives[0]].shape, axes.of(broadcast, 0) or ()
    return [Repeat(axis, 1 / shape[axis], broadcast.gives[0]) for axis, before in enumerate(sources) if not before and shape[axis] > 1]


def _gathered(graph: Graph, gather: Node, repeats: Repeats) -> tuple[Repeat, ...]:
    """The axis along which a gather takes more rows than its table has, if it takes whole ones, and the repeats of its positions."""
    table, result = graph.arrays[gather.takes[0]].shape, graph.arrays[gather.gives[0]].shape
    rest = table[1:]
    if gather.params != 0 or not rest or result[-len(rest) :] != rest or not table[0]:
        return ()
    rows = result[: len(result) - len(rest)]
    of_positions = repeats.get(gather.takes[1], ()) if len(gather.takes) > 1 else ()
    repeated = _renamed(graph.arrays[gather.takes[1]], Array(rows), of_positions, in_memory=False) if of_positions else ()
    if not rows or prod(rows) < TWICE * table[0]:
        return repeated
    source = graph.origin(gather.takes[1]) if len(gather.takes) > 1 else gather.gives[0]
    more = Repeat(max(range(len(rows)), key=rows.__getitem__), table[0] / prod(rows), source, is_gathered=True)
    return (more, *(repeat for repeat in repeated if repeat.axis != more.axis))


def _together(axes: OperandAxes, node: Node, repeats: Repeats) -> tuple[Repeat, ...]:
    """The repeats that all operands have, or are constant along; not along the axis of a join."""
    sides = [{repeat.pattern: repeat for repeat in _moved(axes, node, place, repeats)} for place in range(len(node.takes))]
    shape = axes.graph.arrays[node.gives[0]].shape
    joined = node.params % len(shape) if node.operator == Operator.CONCATENATE and isinstance(node.params, int) else None
    differing = [axes.differing(node, place) for place in range(len(node.takes))]

    def is_repeated(repeat: Repeat, place: int) -> bool:
        is_everywhere = share_along([*sides[place].values()], (repeat.axis,)) * shape[repeat.axis] <= 1
        return any(other.covers(repeat) for other in sides[place].values()) or repeat.axis not in differing[place] or is_everywhere

    together: dict[tuple[float, ...], Repeat] = {}
    for place, side in enumerate(sides):
        for pattern, repeat in side.items():
            if repeat.axis != joined and all(is_repeated(repeat, other) for other in range(len(sides)) if other != place):
                together[pattern] = repeat
    # A row that is repeated everywhere has the repeats of the other operands too, and none of its own.
    axes_of_others = {repeat.axis for repeat in together.values() if repeat.share * shape[repeat.axis] > 1}
    return tuple(repeat for repeat in together.values() if repeat.axis not in axes_of_others or repeat.share * shape[repeat.axis] > 1)
