"""The bar of where the time went: its parts add up, it fits, and it reads without colour."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.causes import PARTS
from roofline.render.tables import Paper
from roofline.render.time_bar import bar_text, time_parts
from roofline.report import Point

PAINT = re.compile(r"\x1b\[[\d;]*m")
LOST = {"memory": 3.0, "compute": 1.0, "communication": 0.0, "latency": 0.5, "unpriced": 0.0, "idle": 1.0, "unneeded": 0.5}


def _point(at_roof_s: float = 4.0, lost: dict[str, float] = LOST) -> Point:
    return Point(scope="average", time_s=at_roof_s + sum(lost.values()), at_roof_s=at_roof_s, lost=lost)


def test_the_parts_are_the_needed_time_and_the_losses_in_a_fixed_order() -> None:
    parts = time_parts(_point())
    assert [part.name for part in parts] == ["needed", "unneeded", "memory", "compute", "latency", "idle"]
    assert sum(part.share for part in parts) == pytest.approx(1)


def test_without_colour_each_part_has_its_own_character_and_ten_seconds_take_ten_parts() -> None:
    bar, *legend = bar_text(time_parts(_point()), Paper(width=22)).splitlines()
    assert bar == "[########ummmmmmccl..]"  # 0.4 of 20 cells are needed, 0.3 memory, …
    assert "m memory 3" in legend


def test_in_colour_parts_are_painted_blocks_where_the_encoding_has_them() -> None:
    parts = time_parts(_point())
    assert "█" in bar_text(parts, Paper(width=60, colour=True, blocks=True))
    plain = bar_text(parts, Paper(width=60, colour=True))
    assert "█" not in plain
    assert "\x1b[33m" in plain  # memory is yellow
    assert PAINT.sub("", plain) == bar_text(parts, Paper(width=60))


def test_a_program_without_times_has_no_bar() -> None:
    assert time_parts(Point(scope="total", floor_s=1.0)) == []
    assert bar_text([]) == ""


def test_every_part_of_a_time_has_its_own_mark() -> None:
    assert len({part.mark for part in PARTS.values()}) == len(PARTS)


@given(st.lists(st.floats(0, 1e6), min_size=7, max_size=7), st.floats(1e-9, 1e6), st.integers(40, 200))
def test_no_bar_is_too_wide_and_every_shown_part_is_in_it(seconds: list[float], needed: float, width: int) -> None:
    parts = time_parts(_point(needed, dict(zip(LOST, seconds, strict=True))))
    lines = bar_text(parts, Paper(width=width)).splitlines()
    assert max(map(len, lines)) <= min(width, 100)
    assert len(lines[0]) == min(width, 100)
    assert all(PARTS[part.name].mark in lines[0] for part in parts)
