"""Blocks of an array that are gathered into a contiguous array before products read them: the pages of a cache, for attention.

A paged attention kernel reads the pages in place.
"""

from collections.abc import Iterator
from math import prod

from ...cost import NOTHING
from ...units import parse
from ...workload import Avoidable, Usual
from .kernels import Kernels
from .layout import KIND
from .stacked_arguments import CLASS
from .values import LAYOUT, Value

GROUP = "blocks"
_LEAST = parse("1 MB", "B")  # bytes gathered
_MOVED = LAYOUT | {"convert", "parameter", "gather"}


def gathered_blocks(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that only gather blocks of an array, each once, if only batched products use the result."""
    if "gather" not in kernels.module.opcodes:
        return
    for index in kernels.costs:
        made = kernels.values.origin(Value(kernels.computation, index), LAYOUT | {"convert"})
        if made.opcode != "gather" or kernels.holding(made) != index or not _are_blocks(kernels, made) or not _only_gathers(kernels, index):
            continue
        users = kernels.users(index)
        if users and all(user in kernels.products and kernels.products[user].batch > 1 for user in users):
            yield index, Avoidable(kind=KIND, instead=NOTHING, unneeded=CLASS, group=GROUP, usual=Usual.UNLESS_ASKED)


def _are_blocks(kernels: Kernels, gather: Value) -> bool:
    """Whether a gather takes blocks of several rows, and not more blocks than the array has, which would repeat some."""
    source, sizes = kernels.values.operand(gather, 0).shape, gather.instruction.integers("slice_sizes")
    if not (source.is_array and source.is_bounded and gather.shape.is_bounded) or gather.shape.bytes < _LEAST:
        return False
    return len([size for size in sizes if size > 1]) > 1 and prod(sizes) < source.elements and gather.shape.elements < 2 * source.elements


def _only_gathers(kernels: Kernels, index: int) -> bool:
    """Whether a kernel only gathers, and computes nothing but indices."""
    body = kernels.values.body(kernels.computation[index])
    least = kernels.computation[index].shape.elements
    return body is None or all(one.opcode in _MOVED for one in body if one.shape.is_array and one.shape.elements >= least)
