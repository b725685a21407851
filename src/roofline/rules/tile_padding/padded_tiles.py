"""Kernels that move much padding: a TPU stores arrays in tiles of 8 by 128 elements and moves whole tiles, even if few elements are data.

Padding counts that the array would have in the order of its dimensions too, without those of size 1: the compiler chooses other orders, and
adds dimensions of size 1, for reasons of its own. Arrays of one dimension, indices and masks do not count: they have the shape of what they
are for.
"""

from collections.abc import Iterator, Sequence
from math import prod

from ...cost import Cost
from ...graph import Array, Graph
from ...resource import HBM
from ...workload import Avoidable

KIND, CLASS = "tile-padding", "padded"
LEAST = 0.1  # of a kernel's bytes: less is only the last tile of an array (a choice)
_INDICES = frozenset(("int32", "int64", "uint32", "uint64", "bool"))


def padded_tiles(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that move much padding of tiles, and their cost without it."""
    if not any(array.tile for array in graph.arrays):
        return
    for kernel, nodes in graph.inside.items():
        cost = graph.kernels[kernel].cost
        if not cost.known(HBM):
            continue
        results = {array for node in nodes for array in node.gives}
        read = dict.fromkeys(array for node in nodes for array in node.takes if array not in results)
        arrays = [graph.arrays[number] for number in (*graph.written(kernel), *read) if not graph.arrays[number].space]
        whole = sum(map(_stored_bytes, arrays))
        share = sum(_stored_bytes(array) - array.bytes for array in arrays) / whole if whole else 0.0
        if share < LEAST:
            continue
        worst = max(arrays, key=lambda array: _stored_bytes(array) - array.bytes)
        amounts = {resource: amount * (1 - share) if resource == HBM else amount for resource, amount in cost.amounts}
        facts = {"share": share, "elements": worst.shape[-1] if worst.shape else 1}
        yield kernel, Avoidable(kind=KIND, instead=Cost.of(amounts), facts=facts, unneeded=CLASS)


def _stored_bytes(array: Array) -> float:
    """The bytes of an array in whole tiles: in its order in memory, or in that of its dimensions, whichever pads less."""
    sizes = [size for size in array.shape if size > 1]
    is_index = array.dtype is not None and array.dtype.name in _INDICES
    if array.tile is None or len(sizes) < 2 or not array.elements or is_index:
        return array.bytes
    in_memory = [array.shape[axis] for axis in array.order(in_memory=True)]
    stored = min(_in_tiles(in_memory, array.tile), _in_tiles(sizes, array.tile))
    return array.bytes * stored / array.elements


def _in_tiles(sizes: Sequence[int], tile: tuple[int, int]) -> int:
    """The elements of an array in whole tiles of its last two axes."""
    *outer, rows, columns = sizes
    return prod(outer) * -(-rows // tile[0]) * tile[0] * -(-columns // tile[1]) * tile[1]
