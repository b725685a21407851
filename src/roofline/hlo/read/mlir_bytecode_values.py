"""Types and attributes in MLIR bytecode, in the form that the text reader returns: types as text, attributes as plain Python values.

Each dialect encodes its own; the builtin dialect's codes (BuiltinDialectBytecode.td) are here, those of VHLO and StableHLO are passed in as
`Decoder` functions. Entries may refer to entries, so the expanded size is limited: a small file must not expand to a huge one.
"""

import struct
from collections.abc import Callable, Mapping
from math import prod

from msgspec import Struct

from ..ir.malformed import Malformed, excerpt
from ..ir.shapes import Shape
from .literals import MAX_ELEMENTS, decode_elements
from .mlir_attributes import Typed, parse_value
from .mlir_bytecode import Bytecode, Cursor, Entry, entry_at
from .mlir_writing import Bare, written

MAX_DEPTH = 50
MAX_NUMBERS = 2**13  # elements of a dense attribute that are read, such as replica groups of thousands of devices
UNREAD = '""'  # elements that are not read, because they are data
DYNAMIC = -(2**63)
_WIDTHS = {8: "bB", 16: "hH", 32: "iI", 64: "qQ"}
_FLOATS = {"f16": (16, "e"), "f32": (32, "f"), "f64": (64, "d")}
_BUILTIN_FLOATS = {
    number: name
    for first, names in (
        (3, ("bf16", "f16", "f32", "f64", "f80", "f128")),
        (21, ("tf32", "f8E5M2", "f8E4M3", "f8E4M3FN", "f8E5M2FNUZ", "f8E4M3FNUZ", "f8E4M3B11FNUZ", "f8E3M4")),
        (29, ("f4E2M1FN", "f6E2M3FN", "f6E3M2FN", "f8E8M0FNU")),
    )
    for number, name in enumerate(names, first)
}

Decoder = Callable[["Values", Cursor], object]


class Dialect(Struct, frozen=True):
    """How a dialect encodes its types and its attributes."""

    type: Callable[["Values", Cursor], str]
    attribute: Decoder


class Values:
    """The types and attributes of a file, each decoded once, on first use."""

    def __init__(self, bytecode: Bytecode, dialects: Mapping[str, Dialect]) -> None:
        self.bytecode = bytecode
        self.dialects = {"builtin": Dialect(_builtin_type, _builtin_attribute), **dialects}
        self.types: dict[int, str] = {}
        self.attributes: dict[int, object] = {}
        self.sizes: dict[int, int] = {}  # expanded sizes of attributes
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

    def enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Malformed(f"attributes or types nested deeper than {MAX_DEPTH}, or in a cycle")

    def type(self, number: int) -> str:
        if number not in self.types:
            entry = entry_at(self.bytecode.types, number)
            self.enter()
            self.types[number] = self._type(entry)
            self.depth -= 1
        if self.depth:
            self.spend(len(self.types[number]))
        return self.types[number]

    def _type(self, entry: Entry) -> str:
        if not entry.custom:
            return entry.text
        dialect = self.dialects.get(entry.dialect)
        return dialect.type(self, Cursor(entry.data)) if dialect is not None else f"!{entry.dialect}"

    def attribute(self, number: int) -> object:
        if number not in self.attributes:
            entry = entry_at(self.bytecode.attributes, number)
            self.enter()
            outer, self.size = self.size, 0
            self.attributes[number] = self._attribute(entry)
            self.sizes[number], self.size = self.size + 1, outer
            self.depth -= 1
        self.spend(self.sizes[number])
        return self.attributes[number]

    def _attribute(self, entry: Entry) -> object:
        if not entry.custom:
            found = parse_value(entry.text)[0] if entry.text else ""
            return Bare(found) if isinstance(found, str) and not entry.text.startswith('"') else found
        dialect = self.dialects.get(entry.dialect)
        return dialect.attribute(self, Cursor(entry.data)) if dialect is not None else Bare(f"#{entry.dialect}")

    def string(self, cursor: Cursor) -> str:
        found = entry_at(self.bytecode.strings, cursor.number())
        self.spend(len(found))
        return found

    def word(self, number: int) -> str:
        """The value of an attribute that has to be a string."""
        found = self.attribute(number)
        if not isinstance(found, str):
            raise Malformed(f"expected a string attribute, found {excerpt(str(found))}")
        return found

    def named(self, number: int) -> dict[str, object]:
        """The value of an attribute that has to be a dictionary."""
        found = self.attribute(number)
        if not isinstance(found, dict):
            raise Malformed(f"expected a dictionary attribute, found {excerpt(str(found))}")
        return found

    def list(self, cursor: Cursor) -> list[object]:
        return [self.attribute(number) for number in cursor.numbers()]

    def dictionary(self, cursor: Cursor) -> dict[str, object]:
        return {self.word(cursor.number()): self.attribute(cursor.number()) for _ in range(cursor.count())}

    def integer(self, cursor: Cursor, kind: str) -> int | bool:
        """An integer of a known type: a byte, or a signed number of variable size."""
        if kind == "i1":
            return bool(cursor.byte())
        width = 64 if kind == "index" else _width(kind)
        if width > 64:
            return sum((cursor.signed() % 2**64) << 64 * place for place in range(cursor.count()))
        value: int = (cursor.byte() if width <= 8 else cursor.signed()) % (1 << width)
        return value - 2**width if not kind.startswith("u") and value >> (width - 1) else value

    def float(self, cursor: Cursor, kind: str) -> float | None:
        """A float of a known type, which is stored as the integer of its bits; ``None`` for types without a Python equivalent."""
        if kind not in _FLOATS and kind != "bf16":
            return None
        width, letter = _FLOATS.get(kind, (16, ""))
        bits = cursor.signed() % 2**width
        return float(struct.unpack(f"<{letter or 'f'}", (bits << (0 if letter else 16)).to_bytes(width // 8 if letter else 4, "little"))[0])

    def elements(self, kind: str, data: bytes) -> Typed:
        """Dense elements; a single one is the value of all elements."""
        shape, element = tensor_parts(kind)
        text = _written(element, _count(shape), data)
        self.spend(len(text))
        return Typed(text, kind)


def tensor_parts(kind: str) -> tuple[tuple[int, ...], str]:
    """The sizes (`DYNAMIC` for ``?``) and the element type of ``tensor<4x?xf32, encoding>``; a type that is not a tensor has no sizes.

    >>> tensor_parts("tensor<4x8xf32>"), tensor_parts("tensor<16x!tt.ptr<f32>>"), tensor_parts("i32")
    (((4, 8), 'f32'), ((16,), '!tt.ptr<f32>'), ((), 'i32'))
    """
    name, _, inside = kind.partition("<")
    if name not in ("tensor", "vector", "memref"):
        return (), kind
    inside = inside[:-1]
    sizes = []
    while (head := inside.partition("x")[0]) and (head.isdecimal() or head == "?"):
        sizes.append(DYNAMIC if head == "?" else int(head[:20]))
        inside = inside[len(head) + 1 :]
    return tuple(sizes), inside if inside.startswith("!") else inside.partition(",")[0]


def _count(shape: tuple[int, ...]) -> int:
    return prod(max(size, 0) for size in shape)


def _width(kind: str) -> int:
    digits = kind.lstrip("sui")
    if not digits.isdecimal() or len(digits) > 8 or not kind.startswith(("i", "ui", "si")) or int(digits) == 0:
        raise Malformed(f"an integer of type {excerpt(kind)}")
    return int(digits)


def _written(element: str, count: int, data: bytes) -> str:
    """The text of elements; `UNREAD` for unsupported formats and for more than `MAX_NUMBERS` elements."""
    if element == "i1":
        flags = _flags(data, count)
        return UNREAD if flags is None else _bracketed(["true" if flag else "false" for flag in flags])
    if element in ("bf16", *_FLOATS, "complex<f32>", "complex<f64>"):
        dtype = {"complex<f32>": "c64", "complex<f64>": "c128"}.get(element, element)
        found = decode_elements(data, Shape(dtype, (count,))) if len(data) <= 16 * MAX_ELEMENTS and count <= MAX_ELEMENTS else None
        return UNREAD if found is None else _bracketed([_number(value) for value in found])
    if not element.startswith(("i", "ui", "si")):
        return UNREAD
    width = 64 if element == "index" else max(8, _width(element))
    if width not in _WIDTHS or len(data) * 8 % width or len(data) * 8 // width > MAX_NUMBERS:
        return UNREAD
    letter = _WIDTHS[width][element.startswith("u")]
    return _bracketed([str(value) for value in struct.unpack(f"<{len(data) * 8 // width}{letter}", data)])


def _number(value: complex) -> str:
    return f"({value.real!r}, {value.imag!r})" if isinstance(value, complex) else repr(value)


def _bracketed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"[{', '.join(words)}]"


def _flags(data: bytes, count: int) -> list[bool] | None:
    """Elements of i1: a bit each, or a byte each; a single byte of ones means that all are true."""
    if count > MAX_NUMBERS:
        return [data[0] != 0] if len(data) == 1 else None
    if data == b"\xff":
        return [True]
    if len(data) == -(-count // 8) and len(data) != count:
        return [bool(data[place // 8] >> place % 8 & 1) for place in range(count)]
    return [byte != 0 for byte in data]


def tensor(shape: list[int], element: str, encoding: str = "") -> str:
    """The text of a tensor's type."""
    sizes = "".join("?x" if size == DYNAMIC else f"{size}x" for size in shape)
    if any(size < 0 and size != DYNAMIC for size in shape):
        raise Malformed("a tensor of negative size")
    return f"tensor<{sizes}{element}{', ' + encoding if encoding else ''}>"


def _builtin_type(values: Values, cursor: Cursor) -> str:
    code = cursor.number()
    if code in _BUILTIN_FLOATS:
        return _BUILTIN_FLOATS[code]
    if code == 0:
        width = cursor.number()
        return f"{('', 's', 'u')[min(width & 3, 2)]}i{width >> 2}"
    if code == 1:
        return "index"
    if code == 2:
        return "() -> ()"  # a function's types are read from its body
    if code == 9:
        return f"complex<{values.type(cursor.number())}>"
    if code in (10, 11):
        space = written(values.attribute(cursor.number())) if code == 11 else ""
        return "memref" + tensor(cursor.signeds(), values.type(cursor.number()), space).removeprefix("tensor")
    if code == 12:
        return "none"
    if code == 13:
        return tensor(cursor.signeds(), values.type(cursor.number()))
    if code == 14:
        encoding = values.attribute(cursor.number())
        return tensor(cursor.signeds(), values.type(cursor.number()), written(encoding))
    if code == 15:
        return f"tuple<{', '.join(values.type(number) for number in cursor.numbers())}>"
    if code == 18:
        return f"tensor<*x{values.type(cursor.number())}>"
    if code == 19:
        return "vector" + tensor(cursor.signeds(), values.type(cursor.number())).removeprefix("tensor")
    return f"!builtin.{code}"


def _builtin_attribute(values: Values, cursor: Cursor) -> object:
    code = cursor.number()
    if code == 0:
        return values.list(cursor)
    if code == 1:
        return values.dictionary(cursor)
    if code in (2, 3):
        return values.string(cursor)
    if code == 4:
        return Bare("@" + values.word(cursor.number()))
    if code == 5:
        return Bare("::".join(["@" + values.word(cursor.number()), *(values.word(number) for number in cursor.numbers())]))
    if code == 6:
        return Bare(values.type(cursor.number()))
    if code == 7:
        return True
    if code == 8:
        return values.integer(cursor, values.type(cursor.number()))
    if code == 9:
        return values.float(cursor, values.type(cursor.number()))
    if code in (16, 19, 20):  # a resource of the file, strings, sparse elements
        return Typed(UNREAD, values.type(cursor.number()))
    if code == 17:
        kind, count = values.type(cursor.number()), cursor.number()
        return dense_list(values.elements(f"tensor<{count}x{kind}>", cursor.take(cursor.number())))
    if code == 18:
        return values.elements(values.type(cursor.number()), cursor.take(cursor.number()))
    return Bare(f"#builtin.{code}")


def dense_list(dense: Typed) -> list[object]:
    """A one-dimensional dense attribute as the array attribute that newer programs have instead.

    >>> dense_list(Typed("2", "tensor<3xi64>")), dense_list(Typed("[true, false]", "tensor<2xi1>"))
    ([2, 2, 2], [True, False])
    """
    count = _count(tensor_parts(dense.type)[0])
    if dense.elements == UNREAD or count > MAX_NUMBERS:
        return []
    found = parse_value(dense.elements)[0] if count else []
    return found if isinstance(found, list) else [found] * count
