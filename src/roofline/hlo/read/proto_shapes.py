"""Shapes from ShapeProto messages."""

from ..ir.malformed import Malformed
from ..ir.shapes import MAX_DEPTH, PRIMITIVE_TYPES, UNBOUNDED, VALUELESS, Layout, Shape
from .wire import unpack

# ShapeProto: element_type = 2, dimensions = 3, is_dynamic_dimension = 6, tuple_shapes = 4, layout = 5.
# LayoutProto: minor_to_major = 1, tiles = 6 with their dimensions = 1, memory_space = 8, element_size_in_bits = 7,
# tail_padding_alignment_in_elements = 16, dynamic_shape_metadata_prefix_bytes = 15.
_PLAN = "2i 3i* 6i* 4m* 5(1i* 6(1i*)* 8i 7i 16i 15i)?"
_WITHOUT_DIMENSIONS = (*VALUELESS, "tuple", "buffer")
_NO_BOUND = -(2**63)  # Shape::kUnboundedSize, and a tile's combined dimension


def read_shape(data: bytes, place: tuple[int, int], known: dict[bytes, Shape], depth: int = 0) -> Shape:
    """The shape whose message is at ``place`` in the file; ``known`` caches shapes by their encoding, so that equal ones are one object."""
    start, end = place
    key = data[start:end]
    shape = known.get(key)
    if shape is None:
        shape = known[key] = _shape(data, start, end, known, depth)
    return shape


def _shape(data: bytes, start: int, end: int, known: dict[bytes, Shape], depth: int) -> Shape:
    if depth > MAX_DEPTH:
        raise Malformed(f"tuples nested deeper than {MAX_DEPTH}", start)
    kind, dims, dynamic, inner, layout = unpack(_PLAN, data, start, end)
    name = PRIMITIVE_TYPES.get(kind)
    if name is None:
        raise Malformed(f"unknown element type number {kind}", start)
    if name in _WITHOUT_DIMENSIONS:
        return Shape(name, parts=tuple([read_shape(data, part, known, depth + 1) for part in inner]))
    moves = tuple(flag != 0 for flag in dynamic) if any(dynamic) else ()
    if moves and len(moves) != len(dims):
        raise Malformed(f"{len(moves)} dynamic marks for {len(dims)} dimensions", start)
    try:
        return Shape(name, _sizes(dims), None if layout is None else _layout(len(dims), *layout), moves)
    except Malformed as error:
        raise Malformed(str(error), start) from None


def _sizes(dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(UNBOUNDED if size == _NO_BOUND else size for size in dims) if _NO_BOUND in dims else dims


def _layout(
    rank: int, order: tuple[int, ...], tiles: tuple[tuple[tuple[int, ...]], ...], space: int, bits: int, tail: int, prefix: int
) -> Layout | None:
    """A layout; ``None`` for a scalar's default one."""
    if sorted(order) != list(range(rank)):
        raise Malformed(f"a layout that does not order {rank} dimensions")
    layout = Layout(
        minor_to_major=order,
        tiles=tuple([_sizes(tile) for (tile,) in tiles]),
        memory_space=space,
        element_bits=bits,
        tail_alignment=tail or 1,
        metadata_prefix_bytes=prefix,
    )
    return None if rank == 0 and layout == Layout() else layout
