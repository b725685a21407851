"""Shapes of HLO values: arrays with their layout, tuples, tokens. Each spelling is parsed once, and equal shapes are one object.

>>> shape = parse_shape("(bf16[8,<=128]{1,0:T(8,128)(2,1)S(1)}, s32[])", {})
>>> shape.parts[0].elements, shape.parts[0].bytes, shape.parts[0].layout.memory_space, shape.bytes
(1024, 2048, 1, 2052)
"""

import math
import re
from functools import cached_property
from itertools import accumulate, chain

from msgspec import Struct

from ...dtypes import DType, dtype
from ...errors import FormulaError
from .malformed import Malformed, excerpt

# PrimitiveType of xla_data.proto, in HLO's spelling, numbered from 1; 0 is invalid.
_TYPES = """
    pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 tuple opaque c64 bf16 token c128 f8e5m2 f8e4m3fn s4 u4 f8e4m3b11fnuz
    f8e5m2fnuz f8e4m3fnuz s2 u2 f8e4m3 f8e3m4 s1 u1 f4e2m1fn f8e8m0fnu buffer f6e3m2fn f6e2m3fn
"""
PRIMITIVE_TYPES = dict(enumerate(_TYPES.split(), 1))
VALUELESS = ("token", "opaque")  # types that occupy no memory a program can count
NUMBERS: dict[str, DType] = {name: dtype(name) for name in PRIMITIVE_TYPES.values() if name not in (*VALUELESS, "tuple", "buffer")}

UNBOUNDED = -1  # a dimension without a size or an upper bound, written `?`
MAX_RANK = 256
MAX_DEPTH = 100
MAX_SIZE = 2**63 - 1  # what an int64 holds; XLA counts with those


class Layout(Struct, frozen=True, kw_only=True):
    """How an array is laid out in memory: dimensions from minor to major, tiles, memory space, bits per element.

    ``memory_space`` is the compiler's number: on TPU 1 is VMEM and 5 the host's memory. ``element_bits`` is 0 if elements have the bits of
    their number format. A tile dimension of -1 is ``*``, a dimension combined with the next.
    """

    minor_to_major: tuple[int, ...] = ()
    tiles: tuple[tuple[int, ...], ...] = ()
    memory_space: int = 0
    element_bits: int = 0
    tail_alignment: int = 1
    metadata_prefix_bytes: int = 0

    def __post_init__(self) -> None:
        if any(not tile or min(tile) < UNBOUNDED or 0 in tile for tile in self.tiles):
            raise Malformed(f"a tile without elements in a layout: {excerpt(str(self.tiles))}")
        if self.element_bits < 0 or self.tail_alignment < 1:
            raise Malformed("a layout whose elements or end have no size")

    def __str__(self) -> str:
        marks = "T" + "".join(f"({_joined(tile).replace('-1', '*')})" for tile in self.tiles) if self.tiles else ""
        marks += f"L({self.tail_alignment})" if self.tail_alignment != 1 else ""
        marks += f"E({self.element_bits})" if self.element_bits else ""
        marks += f"S({self.memory_space})" if self.memory_space else ""
        marks += f"M({self.metadata_prefix_bytes})" if self.metadata_prefix_bytes else ""
        return "{" + _joined(self.minor_to_major) + (":" + marks if marks else "") + "}"


class Shape(Struct, frozen=True, dict=True, cache_hash=True):  # dict: for its cached properties; instructions share their shapes
    """The shape of a value: an array (``dtype`` and ``dims``), a tuple (``parts``), a token or an opaque handle.

    ``dims`` holds upper bounds where ``dynamic`` says so, and `UNBOUNDED` where there is none.
    """

    dtype: str
    dims: tuple[int, ...] = ()
    layout: Layout | None = None
    dynamic: tuple[bool, ...] = ()
    parts: tuple["Shape", ...] = ()

    def __post_init__(self) -> None:
        if self.dtype not in NUMBERS and self.dtype not in ("tuple", "buffer", *VALUELESS):
            raise Malformed(f"unknown element type {excerpt(self.dtype)}")
        if len(self.dims) > MAX_RANK:
            raise Malformed(f"a shape of {len(self.dims):,} dimensions; at most {MAX_RANK} are supported")
        if self.dims:
            if min(self.dims) < UNBOUNDED:
                raise Malformed(f"a dimension of size {min(self.dims):,}; sizes are 0 or more")
            if math.prod(dim for dim in self.dims if dim > 0) > MAX_SIZE // 16:
                raise Malformed(f"a shape of more elements than an int64 counts: {excerpt(f'{self.dtype}[{_joined(self.dims)}]')}")

    @cached_property
    def is_tuple(self) -> bool:
        return self.dtype == "tuple"

    @cached_property
    def is_array(self) -> bool:
        return self.dtype in NUMBERS

    @property
    def number(self) -> DType:
        """The number format of an array's elements."""
        number = NUMBERS.get(self.dtype)
        if number is None:
            raise FormulaError(f"a {self.dtype} has no number format")
        return number

    @cached_property
    def is_bounded(self) -> bool:
        """Whether every dimension has a size or an upper bound."""
        return UNBOUNDED not in self.dims and all(part.is_bounded for part in self.parts)

    @cached_property
    def is_dynamic(self) -> bool:
        return any(self.dynamic) or any(part.is_dynamic for part in self.parts)

    @property
    def rank(self) -> int:
        return len(self.dims)

    @cached_property
    def elements(self) -> int:
        """Elements of an array at its upper bound, or of all the arrays of a tuple; tokens have none."""
        if self.parts:
            return sum(part.elements for part in self.parts)
        if self.dtype not in NUMBERS:
            return 0
        if UNBOUNDED in self.dims:
            raise FormulaError(f"{self} has a dimension without bound; its elements cannot be counted")
        return math.prod(self.dims)

    @cached_property
    def bytes(self) -> int:
        """Bytes of the elements, packed: tiles' padding is not counted."""
        if self.parts:
            return sum(part.bytes for part in self.parts)
        number = NUMBERS.get(self.dtype)
        if number is None:
            return 0
        if self.layout is not None and self.layout.element_bits:
            return -(-self.elements * self.layout.element_bits // 8)
        return number.bytes(self.elements)

    @cached_property
    def padded_elements(self) -> int:
        """Elements that an array takes in memory: its minor dimensions in whole tiles. Later tiles only divide the first."""
        tile = self.layout.tiles[0] if self.layout is not None and self.layout.tiles else ()
        if not tile or UNBOUNDED in tile or self.layout is None or len(self.dims) < len(tile):
            return self.elements
        sizes = [self.dims[axis] for axis in reversed(self.layout.minor_to_major)]
        minor = [-(-size // side) * side for size, side in zip(sizes[-len(tile) :], tile, strict=True)]
        return math.prod(sizes[: -len(tile)]) * math.prod(minor)

    @cached_property
    def major_to_minor(self) -> tuple[int, ...]:
        """The dimensions from the slowest to the fastest in memory: as the layout orders them, or else row by row."""
        if self.layout is None or len(self.layout.minor_to_major) != len(self.dims):
            return tuple(range(len(self.dims)))
        return self.layout.minor_to_major[::-1]

    @cached_property
    def minor_axis(self) -> int:
        """The dimension whose elements are contiguous in memory; dimensions of size 1 do not count."""
        return next((axis for axis in reversed(self.major_to_minor) if self.dims[axis] != 1), len(self.dims) - 1)

    @property
    def memory_space(self) -> int:
        return self.layout.memory_space if self.layout is not None else 0

    @cached_property
    def leaves(self) -> tuple["Shape", ...]:
        """The arrays of a tuple however nested; an array is its own only leaf."""
        inner = tuple(chain.from_iterable([part.leaves for part in self.parts]))
        return inner if self.is_tuple else (self, *inner)

    @cached_property
    def paths(self) -> tuple[tuple[int, ...], ...]:
        """Where its leaves are: the number of a part, of a part of it, and so on."""
        paths: list[tuple[int, ...]] = [] if self.is_tuple else [()]
        for place, part in enumerate(self.parts):
            paths += [(place, *path) for path in part.paths]
        return tuple(paths)

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """The number of the first leaf of each part."""
        return tuple(accumulate([len(part.leaves) for part in self.parts], initial=0 if self.is_tuple else 1))

    def leaf_range(self, path: tuple[int, ...]) -> range:
        """The numbers of the leaves of a part; none if there is no such part."""
        start, shape = 0, self
        for place in path:
            if place >= len(shape.parts):
                return range(0)
            start, shape = start + shape._starts[place], shape.parts[place]
        return range(start, start + len(shape.leaves))

    def __str__(self) -> str:
        if self.is_tuple:
            return f"({', '.join(map(str, self.parts))})"
        if self.dtype == "buffer":
            return f"b({', '.join(map(str, self.parts))})"
        dynamic = self.dynamic or (False,) * len(self.dims)
        return f"{self.dtype}[{','.join(map(_size, self.dims, dynamic))}]{self.layout or ''}"


def _size(dim: int, moves: bool) -> str:
    if dim == UNBOUNDED:
        return "?"
    return f"<={dim}" if moves else str(dim)


def _joined(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def tuple_of(parts: tuple[Shape, ...]) -> Shape:
    """A tuple of these shapes."""
    return Shape("tuple", parts=parts)


_TOKEN = re.compile(
    r"\s*(?:/\*.*?\*/\s*)*(?:(?P<array>([a-z]\w*)\[([^\[\]]*)\](\{[^{}]*\})?)|(?P<open>b?\()|(?P<close>\))|(?P<comma>,))", re.DOTALL
)
_MARK = re.compile(r"((?<![A-Z])[A-Z]++|[#*])((?:\([^()]*\))+)")
_GROUP = re.compile(r"\(([^()]*)\)")


def parse_shape(text: str, known: dict[str, Shape]) -> Shape:
    """A shape from its spelling; ``known`` caches the shapes by their spelling, so that equal ones are one object."""
    shape = known.get(text)
    if shape is None:
        shape = known[text] = _parse(text, known)
    return shape


def _parse(text: str, known: dict[str, Shape]) -> Shape:
    match = _TOKEN.match(text)
    if match is not None and match["array"] and match.end() == len(text.rstrip()):
        return _array(match[2], match[3], match[4])
    # A stack of open tuples instead of recursion: a file may nest as deep as it is long.
    stack: list[tuple[str, list[Shape]]] = []
    position = 0
    done: Shape | None = None
    while done is None:
        match = _TOKEN.match(text, position)
        if match is None:
            raise Malformed(f"not a shape: {excerpt(text[position:].strip() or text)}")
        position = match.end()
        kind = match.lastgroup or ("array" if match["array"] else "")
        complete: Shape | None = None
        if match["array"]:
            spelling = match["array"]
            complete = known.get(spelling)
            if complete is None:
                complete = known[spelling] = _array(match[2], match[3], match[4])
        elif kind == "open":
            if len(stack) == MAX_DEPTH:
                raise Malformed(f"tuples nested deeper than {MAX_DEPTH}")
            stack.append(("buffer" if match["open"] == "b(" else "tuple", []))
        elif kind == "close":
            if not stack:
                raise Malformed(f"unmatched ')' in the shape {excerpt(text)}")
            dtype_name, parts = stack.pop()
            complete = Shape(dtype_name, parts=tuple(parts))
        if complete is not None:
            if stack:
                stack[-1][1].append(complete)
            else:
                done = complete
    if text[position:].strip():
        raise Malformed(f"text after a shape: {excerpt(text[position:].strip())}")
    return done


def _array(name: str, sizes: str, layout: str | None) -> Shape:
    if name in VALUELESS:
        return Shape(name)
    dims: list[int] = []
    dynamic: list[bool] = []
    for size in sizes.split(",") if sizes.strip() else ():
        size = size.strip()
        moves = size.startswith("<=") or size == "?"
        dims.append(UNBOUNDED if size == "?" else whole(size.removeprefix("<=")))
        if dims[-1] < 0 and size != "?":
            raise Malformed(f"a dimension of size {size}; sizes are 0 or more")
        dynamic.append(moves)
        if len(dims) > MAX_RANK:
            raise Malformed(f"a shape of more than {MAX_RANK} dimensions")
    return Shape(name, tuple(dims), _layout(layout, len(dims)), tuple(dynamic) if any(dynamic) else ())


def _layout(text: str | None, rank: int) -> Layout | None:
    """A layout from ``{1,0:T(8,128)(2,1)E(4)S(1)}``; a scalar's empty one counts as no layout."""
    if text is None or (rank == 0 and text == "{}"):
        return None
    order, _, marks = text[1:-1].partition(":")
    minor_to_major = tuple(whole(index) for index in order.split(",")) if order.strip() else ()
    if sorted(minor_to_major) != list(range(rank)):
        raise Malformed(f"the layout {excerpt(text)} does not order {rank} dimensions")
    values: dict[str, str] = {}
    for match in _MARK.finditer(marks):
        values[match[1]] = match[2]
    tiles = tuple(
        tuple(UNBOUNDED if size.strip() == "*" else whole(size) for size in tile.split(","))
        for tile in _GROUP.findall(values.get("T", ""))
        if tile
    )
    numbers = {mark: whole(values[mark][1:-1]) for mark in "SELM" if mark in values}
    return Layout(
        minor_to_major=minor_to_major,
        tiles=tiles,
        memory_space=numbers.get("S", 0),
        element_bits=numbers.get("E", 0),
        tail_alignment=numbers.get("L", 1),
        metadata_prefix_bytes=numbers.get("M", 0),
    )


_WHOLE = re.compile(r"\s*-?\d{1,20}\s*")


def whole(text: str) -> int:
    """A whole number that an int64 or uint64 could hold."""
    if not _WHOLE.fullmatch(text):
        raise Malformed(f"not a whole number: {excerpt(text)}")
    return int(text)


def whole_or_none(text: str) -> int | None:
    """The same number; ``None`` for anything else."""
    return int(text) if _WHOLE.fullmatch(text) else None
