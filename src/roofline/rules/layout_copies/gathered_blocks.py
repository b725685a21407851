"""Blocks of an array that are gathered into a contiguous array before matmuls read them: the pages of a cache, for attention.

A paged attention kernel reads the pages in place.
"""

from collections.abc import Iterator
from math import prod

from ...cost import NOTHING
from ...graph import NO_KERNEL, RENAMING, Graph, Node, Operator, Rows
from ...units import parse
from ...workload import Avoidable, Usual

KIND, GROUP, CLASS = "layout-copies", "blocks", "copied"
LEAST = parse("1 MB", "B")  # of what is gathered
_MOVING = RENAMING | {Operator.GATHER}


def gathered_blocks(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that only gather blocks of an array, each once, if only batched products and attention use them."""
    for gather in graph.of(Operator.GATHER):
        if gather.kernel == NO_KERNEL or not _are_blocks(graph, gather) or not only_gathers(graph, gather):
            continue
        users = {node.kernel for array in graph.written(gather.kernel) for node, _ in graph.uses(array)}
        if users and all(any(map(_multiplies_in_batches, graph.inside.get(kernel, ()))) for kernel in users):
            yield gather.kernel, Avoidable(kind=KIND, instead=NOTHING, unneeded=CLASS, group=GROUP, usual=Usual.UNLESS_ASKED)


def _are_blocks(graph: Graph, gather: Node) -> bool:
    """Whether a gather takes blocks of several rows, and not more than the array has, which would repeat some."""
    source, result = graph.arrays[gather.takes[0]], graph.arrays[gather.gives[0]] if gather.gives else None
    if result is None or result.bytes < LEAST or result.elements >= 2 * source.elements:
        return False
    if isinstance(gather.params, int):
        sizes = [size for axis, size in enumerate(source.shape) if axis != gather.params]
    else:
        sizes = list(gather.params.sizes) if isinstance(gather.params, Rows) else []
    return len([size for size in sizes if size > 1]) > 1 and prod(sizes) < source.elements


def only_gathers(graph: Graph, gather: Node) -> bool:
    """Whether the kernel of a gather computes nothing else but indices."""
    least = graph.arrays[gather.gives[0]].elements
    large = [node for node in graph.inside[gather.kernel] if any(graph.arrays[array].elements >= least for array in node.gives)]
    return all(node.operator in _MOVING for node in large)


def _multiplies_in_batches(node: Node) -> bool:
    return node.operator == Operator.ATTENTION or (node.operator == Operator.DOT and node.sizes.batch > 1)
