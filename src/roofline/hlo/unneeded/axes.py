"""Which dimension of an earlier value a dimension of a later one is, through changes of layout."""

from ..ir.shapes import Shape
from .values import Value, Values

_MOST_STEPS = 64


def source_axis(values: Values, value: Value, axis: int, passing: frozenset[str]) -> int | None:
    """The dimension of a value's origin (first producer not in ``passing``) that is this axis; ``None`` if it was split, merged, added."""
    for _ in range(_MOST_STEPS):
        value = values.made_by(value)
        if value.opcode not in passing or not value.instruction.operands:
            return axis
        before = values.operand(value, 0)
        found = _before(value, before.shape, axis)
        if found is None:
            return None
        value, axis = before, found
    return None


def _before(value: Value, before: Shape, axis: int) -> int | None:
    dimensions = value.instruction.dimensions
    if value.opcode == "transpose":
        return dimensions[axis] if axis < len(dimensions) else None
    if value.opcode == "broadcast":
        return dimensions.index(axis) if axis in dimensions else None
    if value.opcode in ("bitcast", "reshape"):
        by_storage = value.opcode == "bitcast"  # keeps the order in memory; a reshape keeps the row-major order
        place = next((place for place, mine in _places(value.shape, by_storage) if mine == axis), None)
        return next((theirs for there, theirs in _places(before, by_storage) if there == place), None)
    return axis


def _places(shape: Shape, by_storage: bool) -> list[tuple[tuple[int, int], int]]:
    """The dimensions of an array except those of size 1: the product of the sizes before each, and its own size; then its index."""
    found, before = [], 1
    for axis in shape.major_to_minor if by_storage else range(shape.rank):
        if shape.dims[axis] != 1:
            found.append(((before, shape.dims[axis]), axis))
        before *= shape.dims[axis]
    return found
