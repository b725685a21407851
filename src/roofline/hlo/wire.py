"""The protobuf wire format, decoded by hand: fields by number, without a schema.

A message is a run of tagged fields; the tag's low three bits say how the value is stored: 0 a varint, 1 eight bytes, 2 a length and that
many bytes, 5 four bytes. Groups (3 and 4) are long gone from the messages read here.
"""

import struct
from collections.abc import Iterator

from .malformed import Malformed

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_SIGN = 2**63
_WRAP = 2**64

Field = tuple[int, int, int, int]  # number, kind, then the value and 0, or where the bytes start and end


def varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """An unsigned number of seven bits a byte, and where it ends."""
    value = shift = 0
    begin = position
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (_WRAP - 1), position
        shift += 7
        if shift > 63:
            raise Malformed("a number of more than ten bytes", begin)
    raise Malformed("a number is cut off", begin)


def signed(value: int) -> int:
    """An int64 from the unsigned number that carries it."""
    return value - _WRAP if value >= _SIGN else value


def fields(data: bytes, start: int = 0, end: int | None = None) -> Iterator[Field]:
    """The fields of a message in order."""
    stop = len(data) if end is None else end
    position = start
    try:
        while position < stop:
            begin = position
            tag = data[position]
            position += 1
            if tag > 127:
                # Two bytes hold every field number up to 2047; the general case is rare.
                second = data[position]
                position += 1
                tag = tag & 127 | second << 7
                if second > 127:
                    tag, position = varint(data, begin, stop)
            if tag < 8:
                raise Malformed("a field with number 0; not a protobuf, or damaged", begin)
            kind = tag & 7
            if kind == BYTES:
                length = data[position]
                position += 1
                if length > 127:
                    length, position = varint(data, position - 1, stop)
                begin, position = position, position + length
                if position > stop:
                    raise Malformed(
                        f"field {tag >> 3} wants {length:,} bytes where {max(stop - begin, 0):,} are left; the data is cut off", begin
                    )
                yield tag >> 3, BYTES, begin, position
            elif kind == VARINT:
                value = data[position]
                position += 1
                if value > 127:
                    value, position = varint(data, position - 1, stop)
                elif position > stop:
                    raise Malformed(f"field {tag >> 3} is cut off", begin)
                yield tag >> 3, VARINT, value, 0
            elif kind in (FIXED64, FIXED32):
                begin, position = position, position + (8 if kind == FIXED64 else 4)
                if position > stop:
                    raise Malformed(f"field {tag >> 3} is cut off", begin)
                yield tag >> 3, kind, begin, position
            else:
                raise Malformed(
                    f"field {tag >> 3} is stored as kind {kind}, which these messages do not use; not a protobuf, or damaged", begin
                )
    except IndexError:
        raise Malformed("a field is cut off", position) from None


def last_fields(data: bytes, start: int = 0, end: int | None = None) -> dict[int, Field]:
    """The last field of each number: what a field that is not repeated holds."""
    return {field[0]: field for field in fields(data, start, end)}


def text_of(data: bytes, field: Field) -> str:
    """A string field; bytes that are not UTF-8 show as ``\\xEF``."""
    expect(field, BYTES)
    return data[field[2] : field[3]].decode("utf-8", "backslashreplace")


def expect(field: Field, kind: int) -> None:
    if field[1] != kind:
        raise Malformed(f"field {field[0]} is stored as kind {field[1]}, expected {kind}", field[2] if field[1] != VARINT else None)


def number_of(field: Field) -> int:
    """A signed number field."""
    expect(field, VARINT)
    return signed(field[2])


def numbers_of(data: bytes, field: Field) -> list[int]:
    """The signed numbers of one occurrence of a repeated field, packed or not."""
    _, kind, start, end = field
    if kind == VARINT:
        return [signed(start)]
    expect(field, BYTES)
    found = []
    while start < end:
        byte = data[start]
        if byte < 128:
            found.append(byte)
            start += 1
        else:
            value, start = varint(data, start, end)
            found.append(signed(value))
    return found


def fixed_of(data: bytes, field: Field, letter: str) -> tuple[float, ...]:
    """The floats (``f``) or doubles (``d``) of one occurrence of a repeated field, packed or not."""
    _, kind, start, end = field
    width = struct.calcsize(letter)
    if kind == VARINT or (end - start) % width:
        raise Malformed(f"field {field[0]} does not hold numbers of {width} bytes", start if kind != VARINT else None)
    return struct.unpack(f"<{(end - start) // width}{letter}", data[start:end])


def all_numbers(data: bytes, start: int, end: int, *numbers: int) -> dict[int, tuple[int, ...]]:
    """Repeated number fields of a message, by field number, those that are absent empty."""
    found: dict[int, list[int]] = {number: [] for number in numbers}
    for field in fields(data, start, end):
        if field[0] in found:
            found[field[0]] += numbers_of(data, field)
    return {number: tuple(values) for number, values in found.items()}
