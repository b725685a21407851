"""JSON by hand against msgspec: the same bytes, so that nobody can tell who wrote them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import roofline as rl
from roofline.render import json as written
from roofline.render.json import NotPlain, to_json, write
from roofline.report import CounterInfo
from roofline.value import replace, value

SAMPLE = Path(rl.__file__).parent / "samples" / "gpt_training_h200.csv"


@value
class Nothing:
    """A value of no fields."""


@value
class One:
    only: tuple[int, ...]


def by_msgspec(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=12,
)


@given(plain)
def test_any_plain_value_is_written_as_msgspec_writes_it(value: Any) -> None:
    assert write(value).encode() == by_msgspec(value)


@given(st.floats(1, 10), st.integers(-20, 20), st.sampled_from((1, -1)))
def test_numbers_near_the_changes_of_form_are_written_alike(mantissa: float, exponent: int, sign: int) -> None:
    # Below 1e-5 and from 1e16 on numbers have an exponent; Python's own form changes at 1e-4.
    number = sign * mantissa * 10.0**exponent
    assert write(number).encode() == by_msgspec(number)


def test_a_zero_keeps_its_sign_beside_the_other_zero() -> None:
    # They are equal, so what remembers numbers cannot tell them apart.
    assert write((0.0, -0.0, 0.0)) == "[\n 0.0,\n -0.0,\n 0.0\n]"


def test_values_of_no_field_and_of_one_are_objects_too() -> None:
    assert write((Nothing(), One(only=(1,)))) == '[\n {},\n {\n  "only": [\n   1\n  ]\n }\n]'


def test_whole_reports_are_written_alike() -> None:
    report = rl.analyze(rl.read(SAMPLE), rl.chip("h200"))
    assert to_json(report) == write(report).encode() + b"\n" == by_msgspec(report) + b"\n"
    hostile = replace(
        report.ops[0], name='</script>"\\\u2028\u202e\x00\x1f\x7f\t\n\r\b\fé😀', counters=CounterInfo(work={"hbm": float("inf")})
    )
    assert write(hostile).encode() == by_msgspec(hostile)


def test_a_large_report_is_written_by_msgspec(monkeypatch: pytest.MonkeyPatch) -> None:
    report = rl.analyze(rl.read(SAMPLE), rl.chip("h200"))
    large = replace(report, ops=report.ops * (written.FEW_CELLS // len(report.ops)))

    def refuse(*_: object) -> str:
        raise AssertionError("by hand this takes longer than importing msgspec")

    expected = write(large).encode() + b"\n"
    monkeypatch.setattr(written, "write", refuse)
    assert to_json(large) == expected


@pytest.mark.parametrize("value", [{1: 2}, [Path("x")], {"a": b"bytes"}, 2**70 * 1j])
def test_what_is_not_plain_is_left_to_msgspec(value: Any) -> None:
    with pytest.raises(NotPlain):
        write(value)


def test_keys_that_are_numbers_are_written_by_msgspec() -> None:
    assert to_json({1: 2}) == b'{\n "1": 2\n}\n'
