"""Shapes from ShapeProto messages."""

from .malformed import Malformed
from .shapes import MAX_DEPTH, PRIMITIVE_TYPES, UNBOUNDED, VALUELESS, Layout, Shape
from .wire import Field, all_numbers, expect, fields, last_fields, number_of, numbers_of

_NO_BOUND = -(2**63)  # Shape::kUnboundedSize, and a tile's combined dimension


def read_shape(data: bytes, field: Field, known: dict[bytes, Shape]) -> Shape:
    """A shape field; ``known`` keeps every encoding met, so that equal shapes are one object."""
    expect(field, 2)
    key = data[field[2] : field[3]]
    found = known.get(key)
    if found is None:
        found = known[key] = _shape(data, field[2], field[3], 0)
    return found


def _shape(data: bytes, start: int, end: int, depth: int) -> Shape:
    if depth > MAX_DEPTH:
        raise Malformed(f"tuples nested deeper than {MAX_DEPTH}", start)
    kind = 0
    dims: list[int] = []
    dynamic: list[int] = []
    parts: list[Shape] = []
    layout: Field | None = None
    for field in fields(data, start, end):
        number = field[0]
        if number == 2:  # element_type
            kind = number_of(field)
        elif number == 3:  # dimensions
            dims += numbers_of(data, field)
        elif number == 6:  # is_dynamic_dimension
            dynamic += numbers_of(data, field)
        elif number == 4:  # tuple_shapes
            expect(field, 2)
            parts.append(_shape(data, field[2], field[3], depth + 1))
        elif number == 5:
            layout = field
    name = PRIMITIVE_TYPES.get(kind)
    if name is None:
        raise Malformed(f"no element type has the number {kind}", start)
    if name in (*VALUELESS, "tuple", "buffer"):
        return Shape(name, parts=tuple(parts))
    sizes = tuple(UNBOUNDED if size == _NO_BOUND else size for size in dims)
    moves = tuple(bool(flag) for flag in dynamic) if any(dynamic) else ()
    if moves and len(moves) != len(sizes):
        raise Malformed(f"{len(moves)} dynamic marks for {len(sizes)} dimensions", start)
    try:
        return Shape(name, sizes, _layout(data, layout, len(sizes)) if layout is not None else None, moves)
    except Malformed as error:
        raise Malformed(str(error), error.offset or start) from None


def _layout(data: bytes, field: Field, rank: int) -> Layout | None:
    """A LayoutProto; a scalar's is none unless it says something."""
    expect(field, 2)
    start, end = field[2], field[3]
    order = all_numbers(data, start, end, 1)[1]  # minor_to_major
    if sorted(order) != list(range(rank)):
        raise Malformed(f"a layout that does not order {rank} dimensions", start)
    tiles = []
    for part in fields(data, start, end):
        if part[0] == 6:  # tiles, their dimensions = 1
            expect(part, 2)
            tiles.append(tuple(UNBOUNDED if size == _NO_BOUND else size for size in all_numbers(data, part[2], part[3], 1)[1]))
    single = last_fields(data, start, end)
    # memory_space = 8, element_size_in_bits = 7, tail_padding_alignment_in_elements = 16, dynamic_shape_metadata_prefix_bytes = 15
    space, bits, tail, prefix = (number_of(single[number]) if number in single else 0 for number in (8, 7, 16, 15))
    layout = Layout(
        minor_to_major=order,
        tiles=tuple(tiles),
        memory_space=space,
        element_bits=bits,
        tail_alignment=tail or 1,
        metadata_prefix_bytes=prefix,
    )
    return None if rank == 0 and layout == Layout() else layout
