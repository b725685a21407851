"""Dense elements of MLIR attributes, from text or from bytes."""

import re
import struct

from msgspec import Struct

from ...ir.malformed import Malformed, excerpt
from ...ir.shapes import NUMBERS, Shape
from ..literals import MAX_ELEMENTS, Element, decode_elements, parse_literal
from .types import Type, element_type

MAX_INTEGERS = 2**14  # that are read, such as replica groups of thousands of devices; other numbers are data
_HEX = re.compile(r"0x[0-9a-fA-F]+")  # a float as its bits
_FLOAT_LETTERS = {"f16": ("H", "e"), "f32": ("I", "f"), "f64": ("Q", "d"), "bf16": ("H", "")}
_STORED = {"s2": "s8", "s4": "s8", "u1": "u8", "u2": "u8", "u4": "u8"}  # a byte each


class Elements(Struct, frozen=True):
    """The elements of a dense attribute; a single one is the value of all. ``values`` is ``None`` for data, which is not read."""

    type: Type
    values: tuple[Element, ...] | None = None

    @property
    def all(self) -> tuple[Element, ...]:
        """Every element; none for data."""
        values, count = self.values or (), self.type.elements
        return values * count if len(values) == 1 and count <= MAX_INTEGERS else values


def parse_elements(text: str, kind: Type) -> Elements:
    """Elements as text has them: lists of lists, a single one, or their bytes in hexadecimal, as MLIR writes more than a hundred.

    >>> parse_elements('"0x010000000200000003000000"', Type("tensor", (3,), (Type("i32"),))).values
    (1, 2, 3)
    """
    dtype = element_type(kind.element)
    if text.startswith('"0x'):
        try:
            return Elements(kind, decoded(bytes.fromhex(text[3:-1]), kind))
        except ValueError:
            raise Malformed(f"not hexadecimal bytes: {excerpt(text)}") from None
    if not dtype or text.startswith('"'):
        return Elements(kind)
    written = text.replace("[", "{").replace("]", "}")
    if "0x" in text:
        written = _HEX.sub(lambda match: _float(match[0], dtype), written)
    return Elements(kind, parse_literal(written, dtype, _most(dtype)))


def decoded(data: bytes, kind: Type) -> tuple[Element, ...] | None:
    """Elements from their bytes; ``None`` for data, and for formats that take fewer than 8 bits."""
    dtype = element_type(kind.element)
    dtype = _STORED.get(dtype, dtype)
    if dtype == "pred":
        return _flags(data, kind.elements)
    if not dtype or len(data) * 8 % NUMBERS[dtype].bits:
        return None
    return decode_elements(data, Shape(dtype, (len(data) * 8 // NUMBERS[dtype].bits,)), _most(dtype))


def _most(dtype: str) -> int:
    return MAX_INTEGERS if dtype[0] in "pus" else MAX_ELEMENTS


def _flags(data: bytes, count: int) -> tuple[bool, ...] | None:
    """Elements of i1: a bit each, or a byte each; a single byte of ones means that all are true."""
    if count > MAX_INTEGERS:
        return (data[0] != 0,) if len(data) == 1 else None
    if data == b"\xff":
        return (True,)
    if len(data) == -(-count // 8) and len(data) != count:
        return tuple([bool(data[place // 8] >> place % 8 & 1) for place in range(count)])
    return tuple([byte != 0 for byte in data])


def _float(text: str, dtype: str) -> str:
    """A float written as its bits: 0x7F800000 is inf."""
    bits = int(text, 16)
    if dtype not in _FLOAT_LETTERS:
        return str(bits)
    if dtype == "bf16":
        bits, dtype = bits << 16, "f32"
    whole_letter, float_letter = _FLOAT_LETTERS[dtype]
    width = struct.calcsize(whole_letter)
    return repr(struct.unpack(f"<{float_letter}", (bits % 256**width).to_bytes(width, "little"))[0])
