"""Positions in arrays: what a comparison with an iota, and a diagonal matrix, are made of."""

from .axes import source_axis
from .values import SPREAD, Value, Values

_ADDED = frozenset(("add", "subtract"))


def is_diagonal(values: Values, value: Value) -> bool:
    """Whether a matrix is zero outside its diagonal: only elements with two equal positions are selected or multiplied by one."""
    made = values.origin(value)
    places = values.operands(made)[: {"select": 1, "multiply": 2}.get(made.opcode, 0)]
    for place in (made, *places):
        compared = values.origin(place)
        if compared.opcode != "compare" or compared.instruction.word("direction").upper() != "EQ" or len(compared.shape.dims) != 2:
            continue
        counted = [position(values, side) for side in values.operands(compared)]
        if all(counted) and {one[1] for one in counted if one and len(one[0].shape.dims) == 2} == {0, 1}:
            return made.opcode != "select" or values.origin(values.operand(made, 2), SPREAD).opcode == "constant"
    return False


def follows(values: Values, counter: Value, axis: int | None) -> bool:
    """Whether a dimension of a value is that of the iota it is made from."""
    for _ in range(64):
        if axis is None:
            return False
        axis, counter = source_axis(values, counter, axis, SPREAD), values.origin(counter, SPREAD)
        if counter.opcode == "iota":
            return axis == (counter.instruction.integer("iota_dimension") or 0)
        if not counter.instruction.operands:
            return False
        counter = values.operand(counter, 0)
    return False


def position(values: Values, value: Value) -> tuple[Value, int] | None:
    """The iota that a value is made from by broadcasts and additions of constants, and the iota's dimension."""
    for _ in range(64):
        value = values.origin(value, SPREAD)
        if value.opcode == "iota":
            axis = value.instruction.integer("iota_dimension") or 0
            return (value, axis) if axis < len(value.shape.dims) else None
        if value.opcode not in _ADDED:
            return None
        constant = values.origin(values.operand(value, 1), SPREAD)
        if constant.opcode != "constant":
            return None
        value = values.operand(value, 0)
    return None
