"""Values of StableHLO's attributes: numbers, lists of numbers, dimension numbers, and the elements of constants."""

import re
import struct
from math import prod

from ..ir.malformed import Malformed, excerpt
from ..ir.shapes import Shape, whole
from .literals import MAX_ELEMENTS, Element, parse_literal
from .mlir_attributes import MAX_DENSE, Typed, parse_value

SIZE = re.compile(r"(?<!\d)(\d++)x")  # a dimension of ``tensor<2x4xi64>``
_WIDTH = re.compile(r"i(8|16|32|64)>$")  # of the integers in it
_HEX = re.compile(r"0x[0-9a-fA-F]+")  # a float as its bits
_FLOAT_LETTERS = {"f16": ("H", "e"), "f32": ("I", "f"), "f64": ("Q", "d"), "bf16": ("H", "")}


def numbers(value: object) -> tuple[int, ...]:
    """Whole numbers from a list, from ``array<i64: …>`` or from dense elements, flat."""
    if isinstance(value, bool):
        return (int(value),)
    if isinstance(value, int):
        return (value,)
    if isinstance(value, list):
        return tuple(number for item in value for number in numbers(item))
    if isinstance(value, Typed):
        count = prod(map(whole, SIZE.findall(value.type)))
        if value.elements.startswith('"0x'):
            return _stored_numbers(value)
        found = tuple(whole(word) for word in re.findall(r"-?\d+", value.elements)) if len(value.elements) <= MAX_DENSE else ()
        if value.elements.strip() in ("true", "false"):
            found = (int(value.elements.strip() == "true"),)
        # A single element is the value of all elements.
        return found * count if len(found) == 1 and count <= MAX_DENSE else found
    if isinstance(value, str) and value.startswith("["):
        return numbers(parse_value(value)[0])
    raise Malformed(f"not whole numbers: {excerpt(str(value))}")


def _stored_numbers(value: Typed) -> tuple[int, ...]:
    """Whole numbers written as hexadecimal bytes, as MLIR does for more than a hundred.

    >>> _stored_numbers(Typed('"0x010000000200000003000000"', "tensor<3xi32>"))
    (1, 2, 3)
    """
    width = _WIDTH.search(value.type)
    try:
        raw = bytes.fromhex(value.elements[3:-1])
    except ValueError:
        raise Malformed(f"not whole numbers: {excerpt(value.elements)}") from None
    size = int(width[1]) // 8 if width else 0
    if not size or len(raw) % size:
        raise Malformed(f"not whole numbers: {excerpt(value.elements)} : {excerpt(value.type)}")
    return tuple(int.from_bytes(raw[at : at + size], "little", signed=True) for at in range(0, len(raw), size))


def number(value: object) -> int:
    found = numbers(value)
    if len(found) != 1:
        raise Malformed(f"not one whole number: {excerpt(str(value))}")
    return found[0]


def literal(value: object, shape: Shape) -> tuple[Element, ...] | None:
    """The elements of a constant; a single one is the value of all elements."""
    if not isinstance(value, Typed) or not shape.is_bounded or shape.elements > MAX_ELEMENTS or value.elements.startswith('"'):
        return None
    found = parse_literal(
        _HEX.sub(lambda match: _float(match[0], shape.dtype), value.elements.replace("[", "{").replace("]", "}")), shape.dtype
    )
    if found is None:
        return None
    return found * shape.elements if len(found) == 1 else found


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
