"""Arrays that are stored several times over for a matmul: keys and values, repeated for each of the query heads that share them; and masks
of attention, repeated for each head or query.

A copy of a broadcast array writes the repeats, and attention or a batched product reads them all; grouped-query attention, and attention
with a mask that is only expanded, would read the array once.
"""

from collections.abc import Iterator

from ...cost import NOTHING, less_traffic
from ...graph import Array, Graph, Node, Operator
from ...units import parse
from ...workload import Avoidable

KIND, GROUP, MASK = "repeated-operand", "stored", "mask"
FIRST_MASK = 3  # the first operand of attention that may be a mask, after queries, keys and values
_MULTIPLY = (Operator.DOT, Operator.ATTENTION)
LEAST = parse("1 MB", "B")  # of the array that is repeated, or of a mask with its repeats


def stored_repeats(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The copies that store repeats of an array for products alone, and those products."""
    spared: dict[int, tuple[Node, float]] = {}  # bytes that products would not read, by their kernels
    for copy, expanded in _copies(graph):
        times = _times(expanded)
        uses = list(graph.uses(copy.gives[0]))
        multiply = [node for node, array in uses if node.operator in _MULTIPLY and not _is_mask(node, array)]
        if not times or not multiply or len(multiply) < len(uses):
            continue
        yield copy.kernel, Avoidable(kind=KIND, instead=NOTHING, cause=GROUP, group=GROUP)
        for node in multiply:
            before = spared.get(node.kernel, (node, 0.0))[1]
            spared[node.kernel] = node, before + expanded.bytes * (1 - 1 / times)
    for kernel, (node, less) in spared.items():
        yield kernel, Avoidable(kind=KIND, instead=less_traffic(graph.cost(node), less), cause=GROUP, group=GROUP)


def stored_masks(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The copies that store a mask several times over, and the attention that reads it."""
    for copy, expanded in _copies(graph):
        readers = [node for node, array in graph.uses(copy.gives[0]) if _is_mask(node, array)]
        if not readers or expanded.bytes < LEAST:
            continue
        yield copy.kernel, Avoidable(kind=KIND, instead=NOTHING, group=MASK)
        spared = expanded.bytes * (1 - expanded.distinct / expanded.elements)
        for node in readers:
            yield node.kernel, Avoidable(kind=KIND, instead=less_traffic(graph.cost(node), spared), group=MASK)


def _copies(graph: Graph) -> Iterator[tuple[Node, Array]]:
    """The copies of broadcast arrays in which each element occurs at least twice, and those arrays."""
    for copy in graph.of(Operator.COPY):
        expanded = graph.arrays[copy.takes[0]]
        if len(expanded.shape) > 3 and expanded.elements >= 2 * expanded.distinct > 0:
            yield copy, expanded


def _times(expanded: Array) -> int:
    """How often an array is repeated along one axis before the last two, if it is nowhere else; else 0."""
    outer = zip(expanded.shape[:-2], (expanded.strides or ())[:-2], strict=False)
    times = max((size for size, stride in outer if stride == 0), default=1)
    return times if times > 1 and expanded.elements == times * expanded.distinct and expanded.bytes >= LEAST else 0


def _is_mask(node: Node, array: int) -> bool:
    """Whether attention takes an array as its mask."""
    return node.operator == Operator.ATTENTION and array in node.takes[FIRST_MASK:]
