"""Quantities survive being written and read, and nonsense is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline.errors import UnitError
from roofline.units import EXAMPLES, parse, percent, plain, show


@every(
    ("text", "dimension", "value"),
    [
        ("12 GB", "B", 12e9),
        ("12 GiB", "B", 12 * 2**30),
        ("3.1 ms", "s", 0.0031),
        ("5ms", "s", 0.005),
        ("2 µs", "s", 2e-6),
        ("2.2 TFLOP", "FLOP", 2.2e12),
        ("989.4 TFLOP/s", "FLOP/s", 9.894e14),
        ("4614 TFLOPS", "FLOP/s", 4.614e15),
        ("1979 TOPS", "FLOP/s", 1.979e15),
        ("1,048,576 B", "B", 2**20),
        ("400 Gbit/s", "B/s", 5e10),
        ("85%", "1", 0.85),
        ("0.85", "1", 0.85),
        ("1.98 GHz", "Hz", 1.98e9),
        ("2575 GiB/s", "B/s", 2575 * 2**30),
        (7.2e12, "B/s", 7.2e12),
    ],
)
def test_people_write_the_unit_with_the_value(text: str | float, dimension: str, value: float) -> None:
    assert parse(text, dimension) == value


@every(
    ("text", "dimension", "says"),
    [
        ("3 GHz", "B/s", "is in Hz, not in B/s"),
        ("twelve", "B", "is not a quantity"),
        ("-3 GB", "B", "negative"),
        ("3 Gb/s", "B/s", "bits or bytes"),
        ("3 GB/fortnight", "B/s", "unknown unit 'GB/fortnight'"),
        ("", "s", "is not a quantity"),
        ("-inf", "s", "negative"),
        ("1e308 TB", "B", "larger than any quantity"),
        ("1e999999999", "s", "is not a quantity"),
        ("1e-999999999 GB", "B", "is not a quantity"),
        (float("nan"), "s", "not a number"),
        (True, "s", "is not a quantity"),
    ],
)
def test_a_bad_quantity_says_what_to_write_instead(text: str | float, dimension: str, says: str) -> None:
    with pytest.raises(UnitError, match=says) as error:
        parse(text, dimension)
    assert "\n" not in str(error.value)


@given(st.floats(min_value=1e-9, max_value=1e18), st.sampled_from(["B", "B/s", "FLOP", "FLOP/s", "s"]))
def test_a_shown_quantity_reads_back_to_its_digits(value: float, dimension: str) -> None:
    assert parse(show(value, dimension, digits=6), dimension) == pytest.approx(value, rel=1e-5)


@given(st.floats(min_value=1e-12, max_value=1e20), st.sampled_from(sorted(EXAMPLES)))
def test_no_shown_quantity_has_four_digits_before_the_point_where_a_prefix_would_do(value: float, dimension: str) -> None:
    text = show(value, dimension)
    assert "nan" not in text
    if dimension in ("B", "B/s", "FLOP", "FLOP/s") and 1 <= value < 1e18:
        assert float(text.split()[0]) < 1000


def test_unknown_is_shown_as_a_dash_and_never_as_zero() -> None:
    assert show(None, "s") == percent(None) == "–"
    assert show(0, "s") == "0 s"


def test_plain_numbers_group_their_digits() -> None:
    assert plain(3120.76) == "3,121"
    assert plain(math.inf) == "inf"
