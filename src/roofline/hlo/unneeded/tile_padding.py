"""Padded tiles: a TPU stores arrays in tiles of 8 by 128 elements and moves whole tiles, even if few elements are data.

Padding counts that the array would have in the order of its dimensions too, without those of size 1: the compiler chooses other orders, and
adds dimensions of size 1, for reasons of its own. Arrays of one dimension, indices and masks do not count: they have the shape of what they
are for.
"""

from collections.abc import Iterator
from math import prod

from ...cost import Cost
from ...resource import HBM
from ...workload import Avoidable
from ..ir.shapes import Shape
from .kernels import Kernels

KIND, CLASS = "tile-padding", "padded"
_INDICES = frozenset(("s32", "s64", "u32", "u64", "pred"))
_LEAST = 0.1  # of a kernel's bytes: less is only the last tile of an array


def padded_tiles(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of a computation that move much padding of tiles, and their cost without it."""
    shapes = {id(one.shape): one.shape for one in kernels.computation.instructions}  # instructions share shape objects
    if not any(leaf.layout is not None and leaf.layout.tiles for shape in shapes.values() for leaf in shape.leaves):
        return
    for index, cost in kernels.costs.items():
        moved = cost.known(HBM)
        if not moved:
            continue
        arrays = [leaf for leaf in kernels.computation[index].shape.leaves if _in_main_memory(leaf)]
        for operand in dict.fromkeys(kernels.computation[index].operands):
            arrays += [leaf for leaf in kernels.computation[operand].shape.leaves if _in_main_memory(leaf)]
        whole = sum(_padded_bytes(one) for one in arrays)
        share = sum(_padded_bytes(one) - one.bytes for one in arrays) / whole if whole else 0.0
        if share < _LEAST:
            continue
        worst = max(arrays, key=lambda one: _padded_bytes(one) - one.bytes)
        amounts = {resource: amount * (1 - share) if resource == HBM else amount for resource, amount in cost.amounts}
        facts = {"share": share, "elements": worst.dims[-1] if worst.dims else 1}
        yield index, Avoidable(kind=KIND, instead=Cost.of(amounts), facts=facts, unneeded=CLASS)


def _in_main_memory(shape: Shape) -> bool:
    return shape.is_array and shape.is_bounded and shape.layout is not None and not shape.layout.memory_space


def _padded_bytes(shape: Shape) -> float:
    """The bytes of an array in whole tiles: in its layout, or in the order of its dimensions, whichever pads less."""
    tiles, sizes = shape.layout.tiles if shape.layout is not None else (), [size for size in shape.dims if size > 1]
    if not tiles or len(sizes) < 2 or not shape.elements or shape.dtype in _INDICES:
        return shape.bytes
    rows, columns = tiles[0][-2:] if len(tiles[0]) > 1 else (1, tiles[0][0])
    in_order = prod(sizes[:-2]) * _whole(sizes[-2], rows) * _whole(sizes[-1], columns)
    return shape.bytes * min(shape.padded_elements, in_order) / shape.elements


def _whole(size: int, tile: int) -> int:
    return -(-size // tile) * tile
