"""Which arrays follow from a comparison of two positions, such as those of queries and keys: causal masks, and windows around a query."""

from ..graph import Graph, Node, Region
from ..node_axes import ELEMENTWISE
from ..operators import SPREADING, Array, Operator

_KEEPING = ELEMENTWISE | SPREADING | {Operator.SLICE, Operator.PAD, Operator.CONCATENATE, Operator.UPDATE}
_NEGLIGIBLE = -1e3  # a score, or what is added to one, whose exponential is zero beside that of others


def positional_arrays(graph: Graph) -> set[int]:
    """The arrays whose elements a comparison of the positions along two axes keeps or removes."""
    search = _Search(graph)
    starting: dict[int, list[Region]] = {}
    for region in sorted(graph.regions, key=lambda region: -len(region.nodes)):
        starting.setdefault(region.nodes.start, []).append(region)
    for place, node in enumerate(graph.nodes) if graph.of(Operator.COMPARE, Operator.TRIANGLE) else ():
        for region in starting.get(place, ()):
            search.enter(region)
        if node.gives:
            search.follow(node)
    return search.compared


class _Search:
    """The arrays that only count along axes, and those that are ``compared``."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._counted: dict[int, frozenset[int]] = {}  # the axes along which arrays of positions, and what follows from these, differ
        self.compared = set[int]()

    def enter(self, region: Region) -> None:
        """Follows what a loop begins with: compilers compute a mask before a loop."""
        for initial, carried in zip(region.initial, region.carried, strict=True):
            if initial in self._counted:
                self._counted[carried] = self._counted[initial]
            if initial in self.compared:
                self.compared.add(carried)

    def follow(self, node: Node) -> None:
        """Adds the results of a node."""
        is_masked = node.operator == Operator.TRIANGLE or _is_column_with_row(self._graph, node)
        if is_masked or (node.operator in _KEEPING and self._keeps_compared(node)):
            self.compared.update(node.gives)
            return
        axes = self._axes(node)
        if axes is not None and len(axes) > 1 and node.operator == Operator.COMPARE:
            self.compared.update(node.gives)
        elif axes is not None:
            self._counted[node.gives[0]] = axes

    def _keeps_compared(self, node: Node) -> bool:
        """Whether a node changes what is compared, or removes elements by it; selecting one of two numbers removes none."""
        if node.operator != Operator.SELECT or not self.compared.isdisjoint(node.takes[1:]):
            return not self.compared.isdisjoint(node.takes)
        if self.compared.isdisjoint(node.takes[:1]):
            return False
        fills = [self._graph.value(array) for array in node.takes[1:] if self._graph.distinct(array) == 1]
        if isinstance(node.params, int | float):
            fills.append(float(node.params))
        is_of_positions = any(array in self._counted for array in node.takes[1:])
        return any(fill is None or fill < _NEGLIGIBLE or (fill == 0 and not is_of_positions) for fill in fills)

    def _axes(self, node: Node) -> frozenset[int] | None:
        """The axes along which the result of a node differs, if it follows from positions and single numbers alone."""
        arrays, result = self._graph.arrays, node.gives[0]
        rank = len(arrays[result].shape)
        if node.operator == Operator.IOTA:
            return frozenset((node.params if isinstance(node.params, int) else 0,))
        if node.operator not in ELEMENTWISE | SPREADING or not any(array in self._counted for array in node.takes):
            return None
        if node.operator in SPREADING:
            axes = self._counted.get(node.takes[0], frozenset())
            return frozenset(axis for axis in range(rank) if self._graph.axis_before(node, result, axis) in axes)
        together = set[int]()
        for array in node.takes:
            if array in self._counted:
                shape = arrays[array].shape  # aligned with the last axes of the result
                together |= {axis + rank - len(shape) for axis in self._counted[array] if shape[axis] > 1}
            elif arrays[array].elements != 1 and self._graph.distinct(array) != 1:
                return None
        return frozenset(together)


def _is_column_with_row(graph: Graph, node: Node) -> bool:
    """Whether a comparison has a column and a row of whole numbers, where the recording does not tell what they count."""
    if node.operator != Operator.COMPARE or len(node.takes) != 2:
        return False
    row, column = sorted((graph.arrays[operand] for operand in node.takes), key=_is_column)
    return all(map(_is_unknown_count, (row, column))) and _is_column(column) and row.elements == row.shape[-1] > 1


def _is_unknown_count(array: Array) -> bool:
    return not array.sure and bool(array.shape) and array.dtype is not None and array.dtype.name.startswith("int")


def _is_column(array: Array) -> bool:
    return len(array.shape) > 1 and array.elements == array.shape[-2] > 1
