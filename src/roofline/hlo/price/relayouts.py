"""Changes of layout on a TPU: moving another dimension into the lanes of registers, or other tiles, is work of the cross-lane unit."""

from ...cost import Cost
from ...resource import XLU
from ..ir.shapes import Shape
from .types import Site
from .work import NO_WORK, Work

RELAYOUTS = frozenset(("copy", "transpose", "reshape"))


def relayout(site: Site) -> Work:
    """The bytes of the array, where its elements change lanes or tiles; none where only the order of rows changes."""
    before, after = site.operands[0].shape, site.instruction.shape
    if not (before.is_array and after.is_array and before.dims and after.dims) or max(after.dims, default=0) < 2:
        return NO_WORK
    return NO_WORK if _lanes_stay(site) and _tiles(site.operands[0].shape) == _tiles(after) else Work(Cost.of({XLU: after.bytes}))


def _lanes_stay(site: Site) -> bool:
    """Whether the elements of a row stay a row."""
    before, after = site.operands[0].shape, site.instruction.shape
    if site.instruction.opcode == "reshape":
        return before.dims[before.minor_axis] == after.dims[after.minor_axis]
    order = site.instruction.dimensions if site.instruction.opcode == "transpose" else tuple(range(before.rank))
    return order[after.minor_axis] == before.minor_axis


def _tiles(shape: Shape) -> tuple[tuple[int, ...], ...] | None:
    """The tiles of a layout; ``None`` where the program does not state them."""
    return shape.layout.tiles if shape.layout is not None and shape.layout.tiles else None
