"""The elements of small constants, flat in row-major order: enough to read loop bounds and indices."""

import math
import re
import struct

from ..ir.malformed import Malformed, excerpt
from ..ir.shapes import Shape
from .lexing import without_comments

Element = bool | int | float | complex
MAX_ELEMENTS = 256  # constants beyond this are data, not bounds
MAX_TABLE = 2**16  # elements of a table of integers that a kernel reads, such as the blocks of a mask
MAX_TEXT = 2**16
# Old compilers repeat the shape: constant(f32[2] {1, 2}).
_SHAPE = re.compile(r"(?<!\w)[a-z]\w*+\[[^\[\]]*+\](?:\{[\d,]*+\})?\s*(?=[{\S])")
_PART = re.compile(r"\(\s*([^(),]+)\s*,\s*([^(),]+)\s*\)|-?nan(?:\(0x[0-9a-fA-F]+\))?|[^\s{},()]+")


def parse_literal(text: str, dtype: str, most: int = MAX_ELEMENTS) -> tuple[Element, ...] | None:
    """The elements of ``{ { 1, 2 }, { 3, 4 } }`` or of a scalar; ``None`` when they were elided (``{...}``) or are more than ``most``.

    >>> parse_literal("{ { 1, -2 }, { inf, 4.5 } }", "f32")
    (1.0, -2.0, inf, 4.5)
    """
    if "..." in text or text.count(",") > 2 * most or len(text) > MAX_TEXT * (most // MAX_ELEMENTS):
        return None
    body = _SHAPE.sub("", without_comments(text))
    values = tuple(_element(match, dtype) for match in _PART.finditer(body))
    return values if len(values) <= most else None


def _element(match: re.Match[str], dtype: str) -> Element:
    word = match[0]
    try:
        if match[1]:
            return complex(float(match[1]), float(match[2]))
        if dtype == "pred":
            return {"true": True, "false": False, "1": True, "0": False}[word]
        if word.startswith(("nan", "-nan")):
            return math.nan
        return int(word) if dtype[0] in "su" else float(word)
    except (ValueError, KeyError):
        raise Malformed(f"{excerpt(word)} is not a {dtype}") from None


# The letters of the formats that struct supports; others are decoded below or not supported.
_LETTERS = dict(zip(("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "f16", "f32", "f64"), "bBhHiIqQefd", strict=True))


def decode_elements(data: bytes, shape: Shape, most: int = MAX_ELEMENTS) -> tuple[Element, ...] | None:
    """The elements of little-endian bytes; ``None`` for formats that take fewer than 8 bits or that struct does not support."""
    name, count = shape.dtype, shape.elements
    if count > most:
        return None
    if name == "pred":
        return tuple(byte != 0 for byte in data[:count])
    if name == "bf16":
        return tuple(struct.unpack("<f", b"\0\0" + data[at : at + 2])[0] for at in range(0, len(data) - 1, 2))
    if name in ("c64", "c128"):
        letter, size = ("f", 4) if name == "c64" else ("d", 8)
        parts = struct.unpack(f"<{len(data) // size}{letter}", data[: len(data) // size * size])
        return tuple(complex(*pair) for pair in zip(parts[::2], parts[1::2], strict=False))
    letter = _LETTERS.get(name, "")
    if not letter or len(data) % struct.calcsize(letter):
        return None
    return struct.unpack(f"<{len(data) // struct.calcsize(letter)}{letter}", data)
