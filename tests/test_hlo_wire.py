"""Protobuf messages by plan: what native code reads is what a slow reading of the definition gives, for any bytes."""

import struct

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from every import every
from hlo_programs import load
from protobufs import integer, message, number, slow_fields, slow_unpack
from roofline.hlo.ir.malformed import Malformed
from roofline.hlo.read.proto import _COMPUTATION, _MODULE
from roofline.hlo.read.proto_attributes import MADE, PLAIN
from roofline.hlo.read.wire import VARINT, fields, unpack

INT64 = st.integers(-(2**63), 2**63 - 1)
PLANS = [
    "1t 2(1i 2i* 0b)* 3i 4i? 5i*",
    "1f 2f* 3d? 4d* 5b 6b*? 7m 8m*? 0m",
    "1(2(3(4i)*)*)* 2(1(1(1t)?)) 3(1i)?",
    "",
    _MODULE,
    _COMPUTATION,
    *PLAIN.values(),
    *[plan for readers in MADE.values() for plan, _ in readers],
]
# Bytes that are often fields: tags of every kind of the first fields, short lengths, and anything.
PIECES = st.sampled_from([bytes([field << 3 | kind]) for field in range(1, 9) for kind in (0, 1, 2, 5)]) | st.binary(max_size=9)
MESSAGES = st.deferred(
    lambda: st.lists(
        st.builds(integer, st.integers(1, 9), INT64)
        | st.builds(lambda field, parts: message(field, *parts), st.integers(1, 9), st.lists(MESSAGES | st.binary(max_size=16), max_size=3))
        | st.builds(lambda field, held: number(field << 3 | 5) + held, st.integers(1, 9), st.binary(min_size=4, max_size=4))
        | st.builds(lambda field, held: number(field << 3 | 1) + held, st.integers(1, 9), st.binary(min_size=8, max_size=8)),
        max_size=6,
    ).map(b"".join)
)


def outcome(read: object, *arguments: object) -> str:
    """What a reading gives, or that it refuses; NaNs are equal to themselves in this form."""
    try:
        return repr(read(*arguments))  # type: ignore[operator]
    except Malformed:
        return "malformed"


@given(st.sampled_from(PLANS), MESSAGES)
def test_any_message_is_read_as_the_plan_says(plan: str, data: bytes) -> None:
    assert outcome(unpack, plan, data) == outcome(slow_unpack, plan, data)


@given(st.sampled_from(PLANS), st.lists(PIECES, max_size=20).map(b"".join))
def test_any_bytes_are_read_as_the_plan_says_or_refused(plan: str, data: bytes) -> None:
    assert outcome(unpack, plan, data) == outcome(slow_unpack, plan, data)


@every("name", ["cond_switch.pb", "attention.pb"])
def test_a_real_program_is_read_as_the_plan_says(name: str) -> None:
    data = load(name)
    assert unpack(_MODULE, data) == slow_unpack(_MODULE, data)
    for begin, end in unpack("3m*", data)[0]:
        assert unpack(_COMPUTATION, data, begin, end) == slow_unpack(_COMPUTATION, data, begin, end)


@given(MESSAGES | st.binary(max_size=100))
def test_all_fields_are_given_where_they_stand(data: bytes) -> None:
    def slowly(data: bytes) -> list[tuple[int, int, int, int]]:
        found = slow_fields(data, 0, len(data))
        return [(one, kind, value, 0) if kind == VARINT else (one, kind, begin, end) for one, kind, value, begin, end in found]

    assert outcome(fields, data) == outcome(slowly, data)


@given(st.lists(INT64, max_size=20), st.lists(st.floats(width=32, allow_nan=False), max_size=20))
def test_lists_are_read_whole_packed_or_not(integers: list[int], floats: list[float]) -> None:
    packed = message(3, *map(number, integers)) + message(8, struct.pack(f"<{len(floats)}f", *floats))
    one_by_one = b"".join([integer(3, value) for value in integers] + [number(8 << 3 | 5) + struct.pack("<f", value) for value in floats])
    assert unpack("3i* 8f*", packed) == unpack("3i* 8f*", one_by_one) == (tuple(integers), tuple(floats))
    # A writer may stop and go on: the occurrences add up.
    assert unpack("3i*", packed + one_by_one) == (tuple(integers * 2),)


def test_the_last_of_several_is_a_single_fields_value() -> None:
    data = message(1, b"old") + integer(2, 1) + message(1, b"new") + integer(2, -1)
    assert unpack("2i 1t", data) == (-1, "new")


def test_a_part_of_the_data_is_read_with_places_in_the_whole() -> None:
    data = message(1, message(2, b"abc"))
    # Two bytes of tag and length stand before each payload.
    assert unpack("2m", data, 2, 7) == ((4, 7),)
    assert unpack("1(2m 0m)", data) == (((4, 7), (2, 7)),)


@given(MESSAGES, st.integers(-3, 40), st.integers(-3, 40))
def test_places_outside_the_data_are_refused(data: bytes, start: int, end: int) -> None:
    assume(not 0 <= start <= end <= len(data))
    with pytest.raises(ValueError, match="outside of"):
        unpack("1i", data, start, end)


@every(
    "plan",
    ["i", "1", "1x", "128i", "1i 1i", "1(2i", "1i)", "1i?*", "1i**", "0i", "0b*", "0(1i)"],
)
def test_what_is_no_plan_is_refused(plan: str) -> None:
    with pytest.raises(ValueError, match="not a plan"):
        unpack(plan, b"")


def test_a_plan_has_room_for_sixteen_columns_and_two_dozen_plans() -> None:
    assert unpack(" ".join(f"{field}i" for field in range(1, 17)), b"") == (0,) * 16
    assert str(unpack("1(" * 23 + ")" * 23, b"")).count("(") == 24
    for plan in (" ".join(f"{field}i" for field in range(1, 18)), "1(" * 24 + ")" * 24):
        with pytest.raises(ValueError, match="not a plan"):
            unpack(plan, b"")


@every(
    ("plan", "data", "complaint", "offset"),
    [
        ("1t", b"\x08\x01" + message(1, b"a"), "field 1 has wire type 0, expected 2", 0),
        ("1i", integer(2, 3) + message(1, b"a"), "field 1 has wire type 2, expected 0", 4),
        ("1f*", message(1, b"abcde"), "does not hold numbers of 4 bytes", 2),
        ("1i*", message(1, b"\x01\x80"), "a number is cut off", 3),
        ("1i", b"\x08" + b"\xff" * 10, "more than 64 bits", 1),
        ("9i", b"\x0a\x05abc", "field 1 runs past the end", 1),
        ("9i", b"\x0b", "field 1 has wire type 3", 0),
        ("9i", bytes(2), "number 0", 0),
        ("1(2(3t))", message(1, message(2, b"\x1a\x09")), "field 3 runs past the end", 5),
    ],
)
def test_what_is_wrong_with_a_message_is_said_with_its_byte(plan: str, data: bytes, complaint: str, offset: int) -> None:
    with pytest.raises(Malformed, match=complaint) as caught:
        unpack(plan, data)
    assert caught.value.offset == offset
