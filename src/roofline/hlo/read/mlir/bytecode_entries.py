"""Types and attributes in MLIR bytecode, in the form that the text reader returns: attributes as plain Python values.

Each dialect encodes its own; the builtin dialect's codes (BuiltinDialectBytecode.td) are here, those of VHLO and StableHLO are passed in as
`Decoder` functions. Entries may refer to entries, so the expanded size is limited: a small file must not expand to a huge one.
"""

import re
import struct
from collections.abc import Callable, Mapping
from typing import TypeVar

from msgspec import Struct

from ...ir.malformed import Malformed, excerpt
from .attributes import parse_value
from .bytecode import Bytecode, Cursor, Entry, entry_at
from .elements import Elements, decoded
from .types import DYNAMIC, Type, parse_type
from .writing import Bare

MAX_DEPTH = 50
_INTEGER = re.compile(r"[su]?i([1-9]\d{0,7})")
_FLOATS = {"f16": (16, "e"), "f32": (32, "f"), "f64": (64, "d")}
_ARRAYS = {10: "memref", 11: "memref", 13: "tensor", 14: "tensor", 19: "vector"}
_ENCODED = (11, 14)


def types_by_code(*runs: tuple[int, tuple[str, ...]]) -> dict[int, Type]:
    """Types that are only a name, by their codes: in runs, each from a first code on."""
    types: dict[int, Type] = {}
    for first, names in runs:
        types |= enumerate(map(Type, names), first)
    return types


_SIMPLE = types_by_code(
    (1, ("index",)),
    (3, ("bf16", "f16", "f32", "f64", "f80", "f128")),
    (12, ("none",)),
    (21, ("tf32", "f8E5M2", "f8E4M3", "f8E4M3FN", "f8E5M2FNUZ", "f8E4M3FNUZ", "f8E4M3B11FNUZ", "f8E3M4")),
    (29, ("f4E2M1FN", "f6E2M3FN", "f6E3M2FN", "f8E8M0FNU")),
)
T = TypeVar("T")
Decoder = Callable[["Entries", Cursor], object]


class Encoding(Struct, frozen=True):
    """How a dialect encodes its types and its attributes."""

    type: Callable[["Entries", Cursor], Type]
    attribute: Decoder


class Entries:
    """The types and attributes of a file, each decoded once, on first use."""

    def __init__(self, bytecode: Bytecode, dialects: Mapping[str, Encoding]) -> None:
        self.bytecode = bytecode
        self.dialects = {"builtin": Encoding(_builtin_type, _builtin_attribute), **dialects}
        self.types: dict[int, tuple[Type, int]] = {}  # with their expanded sizes
        self.attributes: dict[int, tuple[object, int]] = {}
        self.depth = 0
        self.left = 2**22 + 64 * bytecode.size
        self.size = 0  # of the attribute being decoded
        self.has_binary_strings = any(not text.isascii() for text in bytecode.strings)

    def spend(self, size: int) -> None:
        """Adds to the expanded size; raises `Malformed` above the limit."""
        self.left -= size
        self.size += size
        if self.left < 0:
            raise Malformed("attributes or types of the bytecode expand to more than a file of this size can contain")

    def _decoded(self, decode: Callable[[Entry], T], entry: Entry) -> tuple[T, int]:
        """An entry's value, and its size with all that it refers to."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Malformed(f"attributes or types nested deeper than {MAX_DEPTH}, or in a cycle")
        outer, self.size = self.size, 0
        value = decode(entry)
        size, self.size = self.size + 1, outer
        self.depth -= 1
        return value, size

    def type(self, number: int) -> Type:
        if number not in self.types:
            self.types[number] = self._decoded(self._type, entry_at(self.bytecode.types, number))
        kind, size = self.types[number]
        self.spend(size if self.depth else 0)
        return kind

    def _type(self, entry: Entry) -> Type:
        if not entry.custom:
            return parse_type(entry.text)
        dialect = self.dialects.get(entry.dialect)
        return dialect.type(self, Cursor(entry.data)) if dialect is not None else Type(f"!{entry.dialect}")

    def attribute(self, number: int) -> object:
        if number not in self.attributes:
            self.attributes[number] = self._decoded(self._attribute, entry_at(self.bytecode.attributes, number))
        value, size = self.attributes[number]
        self.spend(size)
        return value

    def _attribute(self, entry: Entry) -> object:
        if not entry.custom:
            value = parse_value(entry.text)[0] if entry.text else ""
            return Bare(value) if isinstance(value, str) and not entry.text.startswith('"') else value
        dialect = self.dialects.get(entry.dialect)
        return dialect.attribute(self, Cursor(entry.data)) if dialect is not None else Bare(f"#{entry.dialect}")

    def string(self, cursor: Cursor) -> str:
        text = entry_at(self.bytecode.strings, cursor.number())
        self.spend(len(text))
        return text

    def word(self, number: int) -> str:
        """The value of an attribute that has to be a string."""
        value = self.attribute(number)
        if not isinstance(value, str):
            raise Malformed(f"expected a string attribute, found {excerpt(str(value))}")
        return value

    def named(self, number: int) -> dict[str, object]:
        """The value of an attribute that has to be a dictionary."""
        value = self.attribute(number)
        if not isinstance(value, dict):
            raise Malformed(f"expected a dictionary attribute, found {excerpt(str(value))}")
        return value

    def list(self, cursor: Cursor) -> list[object]:
        return [self.attribute(number) for number in cursor.numbers()]

    def dictionary(self, cursor: Cursor) -> dict[str, object]:
        return {self.word(cursor.number()): self.attribute(cursor.number()) for _ in range(cursor.count())}

    def integer(self, cursor: Cursor, kind: Type) -> int | bool:
        """An integer of a known type: a byte, or a signed number of variable size."""
        if kind.name == "i1":
            return bool(cursor.byte())
        width = 64 if kind.name == "index" else _width(kind)
        if width > 64:
            return sum((cursor.signed() % 2**64) << 64 * place for place in range(cursor.count()))
        value: int = (cursor.byte() if width <= 8 else cursor.signed()) % (1 << width)
        return value - 2**width if not kind.name.startswith("u") and value >> (width - 1) else value

    def float(self, cursor: Cursor, kind: Type) -> float | None:
        """A float of a known type, which is stored as the integer of its bits; ``None`` for types without a Python equivalent."""
        if kind.name not in _FLOATS and kind.name != "bf16":
            return None
        width, letter = _FLOATS.get(kind.name, (16, ""))
        bits = cursor.signed() % 2**width
        return float(struct.unpack(f"<{letter or 'f'}", (bits << (0 if letter else 16)).to_bytes(width // 8 if letter else 4, "little"))[0])

    def elements(self, kind: Type, data: bytes) -> Elements:
        """Dense elements."""
        elements = Elements(kind, decoded(data, kind))
        self.spend(8 * len(elements.values or ()))
        return elements


def array(name: str, entries: Entries, cursor: Cursor, encoding: tuple[int, ...] | str = "") -> Type:
    """A type of arrays: its sizes, and the type of its elements."""
    sizes = tuple(cursor.signeds())
    if any(size < 0 and size != DYNAMIC for size in sizes):
        raise Malformed(f"a {name} of negative size")
    return Type(name, sizes, (entries.type(cursor.number()),), encoding)


def encoded(name: str, entries: Entries, cursor: Cursor) -> Type:
    """A type of arrays that begins with its encoding: bounds of its sizes, a layout, or a memory space."""
    encoding = entries.attribute(cursor.number())
    bounds = tuple([bound for bound in encoding if isinstance(bound, int)]) if isinstance(encoding, list) else str(encoding)
    return array(name, entries, cursor, bounds)


def _width(kind: Type) -> int:
    match = _INTEGER.fullmatch(kind.name)
    if match is None:
        raise Malformed(f"an integer of type {excerpt(kind.name)}")
    return int(match[1])


def _builtin_type(entries: Entries, cursor: Cursor) -> Type:
    code = cursor.number()
    if code in _SIMPLE:
        return _SIMPLE[code]
    if code == 0:
        width = cursor.number()
        return Type(f"{('', 's', 'u')[min(width & 3, 2)]}i{width >> 2}")
    if code == 2:
        return Type("() -> ()")  # a function's types are read from its body
    if code == 9:
        return Type(f"complex<{entries.type(cursor.number()).name}>")
    if code in _ARRAYS:
        name = _ARRAYS[code]
        return encoded(name, entries, cursor) if code in _ENCODED else array(name, entries, cursor)
    if code == 15:
        return Type("tuple", (), tuple([entries.type(number) for number in cursor.numbers()]))
    if code == 18:
        return Type("tensor", (DYNAMIC,), (entries.type(cursor.number()),))
    return Type(f"!builtin.{code}")


def _builtin_attribute(entries: Entries, cursor: Cursor) -> object:
    code = cursor.number()
    if code == 0:
        return entries.list(cursor)
    if code == 1:
        return entries.dictionary(cursor)
    if code in (2, 3):
        return entries.string(cursor)
    if code == 4:
        return Bare("@" + entries.word(cursor.number()))
    if code == 5:
        return Bare("::".join(["@" + entries.word(cursor.number()), *(entries.word(number) for number in cursor.numbers())]))
    if code == 6:
        return Bare(entries.type(cursor.number()).name)
    if code == 7:
        return True
    if code == 8:
        return entries.integer(cursor, entries.type(cursor.number()))
    if code == 9:
        return entries.float(cursor, entries.type(cursor.number()))
    if code in (16, 19, 20):  # a resource of the file, strings, sparse elements
        return Elements(entries.type(cursor.number()))
    if code == 17:
        kind, count = entries.type(cursor.number()), cursor.number()
        return list(entries.elements(Type("tensor", (count,), (kind,)), cursor.take(cursor.number())).all)
    if code == 18:
        return entries.elements(entries.type(cursor.number()), cursor.take(cursor.number()))
    return Bare(f"#builtin.{code}")
