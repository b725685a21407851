"""Protobuf messages for tests: written field by field, and read slowly, as a second opinion on `roofline.hlo.read.wire`."""

import re
import struct
from collections.abc import Iterator

from roofline.hlo.ir.malformed import Malformed
from xspace_writer import bytes_field
from xspace_writer import number_field as integer
from xspace_writer import varint as number

__all__ = ["integer", "message", "number", "slow_fields", "slow_unpack"]
_WIDTHS = {1: 8, 5: 4}
_KINDS = {"i": 0, "d": 1, "f": 5}
Field = tuple[int, int, int, int, int]  # number, kind, value of a varint, begin and end of other payloads


def message(field: int, *parts: bytes) -> bytes:
    """A field that holds a message of these fields."""
    return bytes_field(field, b"".join(parts))


def slow_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    begin = at
    while at < end and data[at] > 127:
        at += 1
    value = sum((byte & 127) << 7 * place for place, byte in enumerate(data[begin : at + 1]))
    if at >= end or at - begin > 9 or value >= 2**64:
        raise Malformed("a number", begin)
    return value, at + 1


def slow_fields(data: bytes, at: int, end: int) -> Iterator[Field]:
    while at < end:
        begin = at
        tag, at = slow_varint(data, at, end)
        kind, value = tag & 7, 0
        if tag < 8 or kind not in (0, 1, 2, 5):
            raise Malformed("a tag", begin)
        start = at
        if kind == 0:
            value, at = slow_varint(data, at, end)
        elif kind == 2:
            length, start = slow_varint(data, at, end)
            at = start + length
        else:
            at += _WIDTHS[kind]
        if at > end:
            raise Malformed("cut off", start)
        yield tag >> 3, kind, value, start, at


def slow_unpack(plan: str, data: bytes, start: int = 0, end: int | None = None) -> tuple[object, ...]:
    """What `roofline.hlo.read.wire.unpack` gives, from its definition."""
    stop = len(data) if end is None else end
    list(slow_fields(data, start, stop))  # a plan that asks for nothing still refuses what is not a message
    return tuple(_column(column, data, start, stop) for column in _columns(plan))


def _columns(plan: str) -> list[tuple[int, str, bool, bool]]:
    """Number, letter or inner plan, whether repeated, whether optional."""
    columns, depth, begin = [], 0, 0
    for at, letter in enumerate(plan + " "):
        depth += (letter == "(") - (letter == ")")
        if letter == " " and not depth:
            word, begin = plan[begin:at], at + 1
            bare = word.rstrip("*?")
            digits = re.match(r"\d+", word)
            if digits is not None:
                columns.append((int(digits[0]), bare[digits.end() :], "*" in word[len(bare) :], word.endswith("?")))
    return columns


def _column(column: tuple[int, str, bool, bool], data: bytes, start: int, end: int) -> object:
    wanted, how, repeated, optional = column
    values: list[object] = []
    found = False
    for one, kind, value, begin, stop in [*slow_fields(data, start, end), *([(0, 2, 0, start, end)] if wanted == 0 else [])]:
        if one != wanted:
            continue
        found = True
        expected = _KINDS.get(how, 2)
        if kind == 2 and expected != 2 and repeated:
            values += _packed(how, data, begin, stop)
        elif kind != expected:
            raise Malformed("another kind", begin)
        elif repeated:
            values.append(_value(how, data, value, begin, stop))
        else:
            values = [lambda value=value, begin=begin, stop=stop: _value(how, data, value, begin, stop)]
    if not found:
        absent = {"i": 0, "f": 0.0, "d": 0.0, "t": "", "b": b"", "m": None}
        return None if optional else () if repeated else slow_unpack(how[1:-1], b"") if how[0] == "(" else absent[how]
    return tuple(values) if repeated else values[0]()  # type: ignore[operator]


def _packed(how: str, data: bytes, at: int, end: int) -> list[object]:
    if how == "i":
        values: list[object] = []
        while at < end:
            value, at = slow_varint(data, at, end)
            values.append(_signed(value))
        return values
    if (end - at) % struct.calcsize(how):
        raise Malformed("not a whole number of them", at)
    return [value for (value,) in struct.iter_unpack(f"<{how}", data[at:end])]


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _value(how: str, data: bytes, value: int, begin: int, end: int) -> object:
    if how == "i":
        return _signed(value)
    if how in "fd":
        return struct.unpack(f"<{how}", data[begin:end])[0]
    if how == "t":
        return data[begin:end].decode("utf-8", "backslashreplace")
    if how == "b":
        return data[begin:end]
    return (begin, end) if how == "m" else slow_unpack(how[1:-1], data, begin, end)
