"""Arrays that are zero but for what was chosen: the gates of experts, by a top-k or an index, and what is multiplied by them.

A choice takes, for each row, a few of several groups. They are along an axis of an array, or one of them, its ``member``, has an array of
its own: `where(chosen == 3, …, 0)` is zero in the rows that did not choose the fourth.
"""

from collections.abc import Sequence
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from ..graph import Graph, Node
from ..operators import SPREADING, Axes, Operator, Part, Rows
from .one_hot import hot_axes, position
from .operand_axes import OperandAxes

NEVER = -1e4  # in place of what was not chosen: its exponential is zero
_ADDED = (Operator.ADD, Operator.MAXIMUM, Operator.ELEMENTWISE)  # of booleans, the last one is "or"


class Choice(Struct, frozen=True):
    """For each row ``chosen`` of ``groups`` elements along an axis, or of the groups that the ``source`` tells apart, this ``member``.

    It differs along the axes of ``rows``. What was not chosen is ``fill``: zero, or so little that its exponential is.
    """

    rows: frozenset[int]
    axis: int | None
    groups: int
    chosen: float
    source: int
    member: object = None
    fill: float = 0.0

    @property
    def key(self) -> tuple[object, ...]:
        """What is equal for two choices of the same groups."""
        return (self.axis is None, self.groups, self.chosen, self.source, self.member)

    def moved(self, sources: Sequence[frozenset[int]]) -> "Choice | None":
        """The choice in other axes, of which each consists of these; ``None`` if the groups got lost, or are mixed with rows."""
        rows = frozenset(axis for axis, before in enumerate(sources) if before & self.rows)
        if self.axis is None:
            return replace(self, rows=rows)
        places = [axis for axis, before in enumerate(sources) if self.axis in before]
        return replace(self, rows=rows, axis=places[0]) if len(places) == 1 and places[0] not in rows else None

    def before(self, sources: Sequence[frozenset[int]]) -> "Choice | None":
        """The choice in the axes of which its own consist; ``None`` if one of them is repeated, for which all elements are needed."""
        if any(not sources[axis] for axis in self.rows):
            return None
        rows = frozenset[int]().union(*(sources[axis] for axis in self.rows))
        if self.axis is None:
            return replace(self, rows=rows)
        (axis, *others) = sources[self.axis] or (None,)
        return replace(self, rows=rows, axis=axis) if axis is not None and not others and axis not in rows else None


class Choices:
    """The choices by which arrays of a graph are zero, or nearly so in a sum of exponentials."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self.axes = graph, OperandAxes(graph)
        self.of: dict[int, Choice] = {}
        for node in graph.nodes:
            if not node.gives or not node.takes or 0 in graph.arrays[node.gives[0]].shape:
                continue
            find = _SOURCES.get(node.operator)
            choice = find(self.axes, node) if find is not None else None
            if choice is None and any(array in self.of for array in node.takes):
                choice = self._made(node)
            if choice is not None and (choice.axis is None or choice.chosen < choice.groups):
                self.of[node.gives[0]] = choice

    def zero(self, array: int) -> Choice | None:
        """The choice by which elements of an array are zero."""
        choice = self.of.get(array)
        return choice if choice is not None and choice.fill == 0 else None

    def _moved(self, node: Node, place: int) -> Choice | None:
        """The choice of an operand, in the axes of the result."""
        choice = self.of.get(node.takes[place]) if place < len(node.takes) else None
        sources = self.axes.of(node, place) if choice is not None else None
        return choice.moved(sources) if choice is not None and sources is not None else None

    def _made(self, node: Node) -> Choice | None:
        """The choice of a result by those of operands."""
        choices = [self._moved(node, place) for place in range(len(node.takes))]
        zeros = [choice if choice is not None and choice.fill == 0 else None for choice in choices]
        first, known = choices[0], [choice for choice in zeros if choice is not None]
        match node.operator:
            case Operator.MULTIPLY | Operator.AND if known:
                return replace(known[0], rows=known[0].rows.union(*(_axes_of(other) - _axes_of(known[0]) for other in known[1:])))
            case Operator.SELECT:
                return self._selected(node, choices)
            case Operator.ADD | Operator.SUBTRACT if first is not None and (first.fill or set(choices) == {first}):
                return first
            case Operator.EXPONENTIAL | Operator.SOFTMAX if first is not None and first.fill:
                return replace(first, fill=0.0)
            case Operator.DOT:
                return self._product(node, zeros)
            case Operator.REDUCE:
                return self._reduced(node)
            case Operator.SLICE:
                return self._cut(node)
            case Operator.COLLECTIVE if first is not None and first.axis is not None:  # more rows, of other devices
                return first if self._graph.arrays[node.gives[0]].shape[first.axis] == first.groups else None
            case operator if operator in SPREADING or operator in (Operator.DIVIDE, Operator.NEGATE):
                return first
        return None

    def _selected(self, select: Node, choices: list[Choice | None]) -> Choice | None:
        predicate, taken, *others = choices
        value = self._graph.value(select.takes[2])
        if value is not None and (value == 0 or value <= NEVER) and (choice := predicate or (None if value else taken)) is not None:
            return replace(choice, fill=float(value))
        return taken if taken is not None and others == [taken] else None

    def _product(self, product: Node, zeros: list[Choice | None]) -> Choice | None:
        """The choice of a product, if rows that are zero in a factor stay apart."""
        factors = (product.sizes.left, product.sizes.right)
        for place, (choice, factor) in enumerate(zip(zeros, factors, strict=False)):
            given = self.zero(product.takes[place])
            if choice is not None and given is not None and not given.rows & {*factor.summed}:
                return choice
        return None

    def _reduced(self, total: Node) -> Choice | None:
        """Of a sum over rows each element has as many choices as rows were added; of one over groups nothing is left."""
        choice, sources = self.of.get(total.takes[0]), self.axes.of(total, 0)
        if choice is None or sources is None or not isinstance(total.params, Axes) or total.params.function not in _ADDED or choice.fill:
            return None
        gone, shape = frozenset(total.params.axes), self._graph.arrays[total.takes[0]].shape
        added = replace(choice, chosen=choice.chosen * prod(shape[axis] for axis in gone & choice.rows))
        return added.moved(sources)

    def _cut(self, cut: Node) -> Choice | None:
        """A slice of groups, of which one has an array of its own."""
        whole, part = (self._graph.arrays[array].shape for array in (cut.takes[0], cut.gives[0]))
        choice, sources = self.of.get(cut.takes[0]), self.axes.of(cut, 0)
        if choice is None or sources is None or choice.axis is None:
            return choice.moved(sources) if choice is not None and sources is not None else None
        places = [axis for axis, before in enumerate(sources) if choice.axis in before]
        size = part[places[0]] if places else 1
        if size == whole[choice.axis]:
            return choice.moved(sources)
        if size > 1 or whole[choice.axis] != choice.groups:
            return None
        member = cut.params.starts[choice.axis] if isinstance(cut.params, Part) else None
        return replace(choice, axis=None, source=self._graph.origin(cut.takes[0]), member=member).moved(sources)


def _axes_of(choice: Choice) -> frozenset[int]:
    return choice.rows if choice.axis is None else choice.rows | {choice.axis}


def _indexed(axes_of: OperandAxes, equal: Node) -> Choice | None:
    """A comparison of an index with the positions along an axis, or with one number."""
    graph = axes_of.graph
    shape = graph.arrays[equal.gives[0]].shape
    sides = range(len(equal.takes))
    hot = hot_axes(graph, equal.gives[0]).axes if len(equal.takes) > 1 else frozenset()
    if len(hot) == 1:
        (axis,) = hot
        index = next((side for side in sides if position(graph, equal.takes[side]) is None), 0)
        return Choice(axes_of.differing(equal, index) - hot, axis, shape[axis], 1, graph.origin(equal.takes[index], SPREADING))
    values = [graph.value(array) for array in equal.takes]
    members = [equal.params] if len(values) == 1 else [value for value in values if value is not None]
    number = next((side for side in sides if values[side] is None), None)
    if number is None or len(members) != 1 or members[0] is None:
        return None
    return Choice(axes_of.differing(equal, number), None, 0, 1, graph.origin(equal.takes[number], SPREADING), members[0])


def _above(axes_of: OperandAxes, compare: Node) -> Choice | None:
    """A comparison of scores with the least of the largest few."""
    graph = axes_of.graph
    for least, scores in ((1, 0), (0, 1)):
        best = _best(graph, compare.takes[least]) if len(compare.takes) > 1 else None
        if best is None:
            continue
        chosen, groups, source = best
        rows, shape = axes_of.differing(compare, least), graph.arrays[compare.gives[0]].shape
        axes = [axis for axis in axes_of.differing(compare, scores) - rows if shape[axis] == groups]
        if len(axes) == 1:
            return Choice(rows, axes[0], groups, chosen, source)
    return None


def _best(graph: Graph, array: int) -> tuple[int, int, int] | None:
    """How many of how many elements of a row are as large as an array's, and the sorted rows: those up to a slice of these."""
    cuts: list[Part] = []
    while (node := graph.maker.get(graph.origin(array, SPREADING))) is not None and node.operator == Operator.SLICE:
        if not isinstance(node.params, Part):
            return None
        cuts, array = [*cuts, node.params], node.takes[0]
    if node is None or node.operator not in (Operator.SORT, Operator.TOP_K) or not node.gives:
        return None
    before, after = graph.arrays[node.takes[0]].shape, graph.arrays[graph.origin(array, SPREADING)].shape
    if not before or len(after) != len(before):
        return None
    axis = node.params if isinstance(node.params, int) else len(before) - 1
    groups, kept = before[axis], after[axis]
    for cut in reversed(cuts):
        if len(cut.starts) != len(before):
            return None
        # The best may be at either end of a sorted row.
        kept = min(cut.limits[axis], groups - cut.starts[axis]) if kept == groups else cut.limits[axis]
    return (kept, groups, node.gives[0]) if kept < groups else None


def _between_bounds(axes_of: OperandAxes, both: Node) -> Choice | None:
    """Rows between two bounds for each group, as of rows that are sorted by their group."""
    graph = axes_of.graph
    axes: list[tuple[frozenset[int], frozenset[int]]] = []
    source = both.gives[0]
    for array in both.takes:
        compare = graph.made_by(array, Operator.COMPARE, through=SPREADING)
        if compare is None or len(compare.takes) != 2 or graph.arrays[compare.gives[0]].shape != graph.arrays[both.gives[0]].shape:
            return None
        counted = [side for side in (0, 1) if position(graph, compare.takes[side]) is not None]
        if len(counted) != 1:
            return None
        axes.append((axes_of.differing(compare, counted[0]), axes_of.differing(compare, 1 - counted[0])))
        source = graph.origin(compare.takes[1 - counted[0]], SPREADING)
    if len(axes) != 2 or axes[0] != axes[1] or len(axes[0][1]) != 1 or axes[0][0] & axes[0][1]:
        return None
    rows, (axis,) = axes[0]
    return Choice(rows, axis, graph.arrays[both.gives[0]].shape[axis], 1, source)


def _scattered(axes_of: OperandAxes, scatter: Node) -> Choice | None:
    """Single elements that are written to zeros: of each row as many as of all rows on average."""
    graph = axes_of.graph
    if len(scatter.takes) < 2 or graph.value(scatter.takes[0]) != 0:
        return None
    whole, positions = graph.arrays[scatter.gives[0]], graph.arrays[scatter.takes[1]]
    last = len(whole.shape) - 1
    axes = scatter.params.axes if isinstance(scatter.params, Rows) else (scatter.params,)
    written = graph.arrays[scatter.takes[2]].elements if len(scatter.takes) > 2 else positions.elements
    if last < 1 or last not in axes or positions.elements not in (written, written * len(axes)):
        return None
    groups = whole.shape[last]
    return Choice(frozenset(range(last)), last, groups, written * groups / whole.elements, scatter.gives[0])


_SOURCES = {
    Operator.EQUAL: _indexed,
    Operator.COMPARE: _above,
    Operator.AND: _between_bounds,
    Operator.SCATTER: _scattered,
    Operator.SCATTER_ADD: _scattered,
}
