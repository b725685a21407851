"""How nodes change the order of elements in memory."""

from collections.abc import Sequence

from msgspec import Struct

from ..graph import Graph, Node
from ..operators import Array, Axes, Operator


class Reordered(Struct, frozen=True):
    """The sizes of an array in memory, the outermost first, without those of 1: before and after its elements were put in another order."""

    node: Node
    elements: int
    before: tuple[int, ...]
    after: tuple[int, ...]


def reordered(graph: Graph, node: Node) -> Reordered | None:
    """How a node puts the elements of an array in another order; ``None`` if it does not, or repeats elements."""
    if node.operator not in (Operator.COPY, Operator.TRANSPOSE) or not node.takes or not node.gives:
        return None
    source, result = graph.arrays[node.takes[0]], graph.arrays[node.gives[0]]
    axes: Sequence[int] = node.params.axes if isinstance(node.params, Axes) else range(len(source.shape))
    if sorted(axes) != [*range(len(source.shape))] or [source.shape[axis] for axis in axes] != [*result.shape]:
        return None
    if not _is_whole(source) or not _is_whole(result):
        return None
    before = [axis for axis in source.order(in_memory=True) if source.shape[axis] != 1]
    after = [axes[axis] for axis in result.order(in_memory=True) if result.shape[axis] != 1]
    if before == after:
        return None
    sizes = (tuple(source.shape[axis] for axis in order) for order in (before, after))
    return Reordered(node, result.elements, *sizes)


def _is_whole(array: Array) -> bool:
    return array.distinct == array.elements > 0
