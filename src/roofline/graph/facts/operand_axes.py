"""From which axes of its operands those of a node's result come, and along which of them the elements differ."""

from collections.abc import Sequence

from ..graph import Graph, Node
from ..node_axes import ELEMENTWISE, index_map
from ..operators import SOFTMAXES, SPREADING, Axes, Operator, Part

_MOST_DEPTH = 16  # operators that an array is made of


class OperandAxes:
    """The axes of operands in a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._differing: dict[int, frozenset[int]] = {}

    def of(self, node: Node, place: int) -> Sequence[frozenset[int]] | None:
        """For each axis of the first result of a node the axes of an operand that it consists of; ``None`` where that is not known."""
        result, shape = self.graph.arrays[node.gives[0]].shape, self.graph.arrays[node.takes[place]].shape
        if node.operator in ELEMENTWISE:  # an operand with fewer axes, or one element along one, is repeated
            less = len(result) - len(shape)
            return [frozenset((axis - less,) if axis >= less and shape[axis - less] == size else ()) for axis, size in enumerate(result)]
        if node.operator == Operator.COLLECTIVE or node.operator in SOFTMAXES:
            same = len(shape) == len(result) and not isinstance(node.params, Axes)
            return [frozenset((axis,)) for axis in range(len(result))] if same else None
        if node.operator == Operator.SLICE and place == 0:
            return _cut(node, shape, result)
        maps = index_map(self.graph, node)
        if maps is None or place >= len(maps.operands):
            return None
        own = [{*factors} for factors in maps.operands[place]]
        return [frozenset(axis for axis, factors in enumerate(own) if not factors.isdisjoint(axes)) for axes in maps.results[0]]

    def differing(self, node: Node, place: int) -> frozenset[int]:
        """The axes of the first result of a node along which the elements of an operand differ."""
        sources, axes = self.of(node, place), self._axes(node.takes[place], _MOST_DEPTH)
        if sources is None:
            return frozenset(range(len(self.graph.arrays[node.gives[0]].shape)))
        return frozenset(axis for axis, before in enumerate(sources) if before & axes)

    def _axes(self, array: int, depth: int) -> frozenset[int]:
        """The axes along which the elements of an array differ."""
        if array not in self._differing:
            axes, maker = (
                frozenset(axis for axis, size in enumerate(self.graph.arrays[array].shape) if size > 1),
                self.graph.maker.get(array),
            )
            if maker is not None and maker.operator == Operator.FILL:
                axes = frozenset()
            elif maker is not None and maker.operator == Operator.IOTA:
                axes &= {maker.params or 0}
            elif maker is not None and depth and maker.operator in ELEMENTWISE | SPREADING:
                axes &= frozenset[int]().union(*(self._made_along(maker, place, depth - 1) for place in range(len(maker.takes))))
            self._differing[array] = axes
        return self._differing[array]

    def _made_along(self, maker: Node, place: int, depth: int) -> frozenset[int]:
        sources, axes = self.of(maker, place), self._axes(maker.takes[place], depth)
        return frozenset(axis for axis, before in enumerate(sources or ()) if before & axes)


def _cut(node: Node, whole: tuple[int, ...], part: tuple[int, ...]) -> list[frozenset[int]] | None:
    """The axes of an array of which a part is cut out, which may have fewer."""
    if len(whole) == len(part):
        return [frozenset((axis,)) for axis in range(len(part))]
    counts = (
        list(map(len, map(range, node.params.starts, node.params.limits, node.params.strides))) if isinstance(node.params, Part) else []
    )
    kept = [axis for axis, count in enumerate(counts) if count > 1]
    if [counts[axis] for axis in kept] != [size for size in part if size > 1]:
        return None
    left = iter(kept)
    return [frozenset((next(left),) if size > 1 else ()) for size in part]
