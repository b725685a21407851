"""A long line read in parts is the line read as a whole, to the last bit, or the parts are thrown away."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline.errors import SourceError
from roofline.sources.xspace import _scan, reading
from roofline.sources.xspace.scan import Line as FoundLine
from roofline.sources.xspace.scan import Steps, Totals, TotalsOf, open_bytes, read_totals
from xspace_writer import Event, Line, Plane, Ref, Unsigned, space

EVENTS = 400


@contextmanager
def small_parts() -> Iterator[list[bool]]:
    """Lines of a few kilobytes are read in four parts; yields, for each part behind the first, whether it was absorbed whole."""
    absorb = _scan.Totals.absorb
    told: list[bool] = []

    def spy(job: _scan.Totals, part: _scan.Totals) -> bool:
        told.append(False)
        told[-1] = absorb(job, part)
        return told[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "PART_BYTES", 100)
        patch.setattr(reading, "THREAD_BYTES", 1)
        patch.setattr(reading, "SETTLED_HOPS", 8)  # no event here has more stats
        patch.setattr(_scan.Totals, "absorb", spy)
        yield told


def totals_of(events: list[Event], threads: int = 2, salvage: bool = False, **asked: object) -> Totals:
    data = space([Plane("/device:GPU:0", [Line("Stream #14", events, timestamp_ns=3)])])
    with open_bytes(data, "toy", salvage=salvage) as opened:
        return read_totals(opened, [TotalsOf(line=opened.planes[0].lines[0], **asked)], threads=threads)[0]  # type: ignore[arg-type]


def facts(totals: Totals) -> dict[str, object]:
    """All that a table holds, as plain values."""
    columns = ("metadata_id", "count", "time_ps", "self_ps", "first_ps", "last_ps", "intervals")
    held: dict[str, object] = {name: list(getattr(totals, name)) for name in columns}
    for name in ("busy_ps", "start_ps", "end_ps", "rewinds", "aggregated", "events", "notes"):
        held[name] = getattr(totals, name)
    held["by"] = {name: [column[row] for row in range(len(totals))] for name, column in totals.by.items()}
    held["distinct"] = {name: list(column) for name, column in totals.distinct.items()}
    cells, overlaps = totals.cells, totals.overlaps
    held["cells"] = [
        list(column) for column in (cells.key, cells.label, cells.count, cells.time_ps, cells.self_ps, cells.first_ps, cells.last_ps)
    ]
    held["overlaps"] = [list(column) for column in (overlaps.covering, overlaps.covered, overlaps.count, overlaps.time_ps)]
    return held


def kernels() -> list[Event]:
    """Launches of five kernels each, of which neighbours overlap; between launches the stream rests."""
    events = []
    for i in range(EVENTS):
        launch, place = divmod(i, 5)
        stats = {"op": f"op{place}" if i < 300 else Ref("late"), "launch": Unsigned(launch), "pass": Unsigned(launch // 50)}
        events.append(Event(f"k{i * i % 7}", 100 * launch + 10 * place, 12, stats))
    return events


@every("nested", [True, False])
def test_the_parts_of_a_line_add_up_to_the_line(nested: bool) -> None:
    asked = {
        "by": ("op",),
        "distinct": ("launch", "pass"),
        "steps": Steps.of([(low, low + 25, low) for low in range(0, 80, 25)], by="launch"),
        "intervals": True,
        "nested": nested,
    }
    serial = totals_of(kernels(), threads=1, **asked)
    with small_parts() as absorbed:
        parts = totals_of(kernels(), **asked)
    assert facts(parts) == facts(serial)
    assert absorbed == [True, True, True]
    # The last hundred events bring keys that are nowhere before.
    assert [parts.by["op"][row] for row in range(len(parts))].count("late") == len({i * i % 7 for i in range(7)})


@every("nested", [True, False])
def test_a_part_into_which_an_event_reaches_is_read_again(nested: bool) -> None:
    # A loop around the first 250 kernels reaches into the second and the third of four parts, the last stands alone.
    events = [Event("loop", 0, 10 * 250, {"launch": 1}), *(Event("k", 10 * i, 5, {"launch": 1}) for i in range(EVENTS))]
    serial = totals_of(events, threads=1, nested=nested, distinct=("launch",), intervals=True)
    with small_parts() as absorbed:
        parts = totals_of(events, nested=nested, distinct=("launch",), intervals=True)
    assert facts(parts) == facts(serial)
    assert absorbed == [False, False, True]


@every(("place", "before"), [(20, 0), (200, 1), (390, 3)])
def test_damage_is_told_as_of_the_whole_line_in_whatever_part_it_is(place: int, before: int) -> None:
    events = kernels()
    events[place] = Event("k", 100 * (place // 5), -1)  # no event lasts less than nothing
    for salvage in (False, True):
        found = []
        for threads in (1, 2):
            with small_parts() as absorbed:
                try:
                    found.append(facts(totals_of(events, threads, salvage, by=("op",), distinct=("launch",), intervals=True)))
                except SourceError as error:
                    found.append({"error": str(error)})
        assert found[0] == found[1]
        assert ("error" in found[0]) != salvage
        assert len(absorbed) == before  # what lies behind the damage is not looked at


def test_a_sum_that_only_both_parts_make_too_great_is_told_as_of_the_whole_line() -> None:
    events = kernels()
    events[52] = events[392] = Event("many", duration_ps=2**62, occurrences=9)  # twice that is more than 63 bits hold
    with pytest.raises(SourceError) as serial:
        totals_of(events, threads=1)
    with small_parts() as absorbed, pytest.raises(SourceError) as parts:
        totals_of(events)
    assert str(parts.value) == str(serial.value)
    assert absorbed == [True, True, False]


@given(st.integers(0, 2**32), st.booleans())
def test_parts_change_nothing_wherever_events_lie(seed: int, nested: bool) -> None:
    dice, clock, events = random.Random(seed), 0, []
    turn, longest = dice.choice([0.0, 0.01]), dice.choice([3, 10, 1000])
    for _ in range(EVENTS):
        clock = clock + dice.choice([0, 1, 5, 5]) if dice.random() >= turn else max(0, clock - dice.randrange(500))
        stats = {"op": dice.choice("xyz"), "id": Unsigned(clock // 40)}
        events.append(Event(dice.choice("abc"), clock, dice.randrange(longest), stats, occurrences=2 if dice.random() < 0.01 else None))
    asked = {"by": ("op",), "distinct": ("id",), "intervals": dice.random() < 0.5, "steps": Steps.of([(0, 9, 1), (12, 30, 2)], by="id")}
    serial = totals_of(events, threads=1, nested=nested, **asked)
    with small_parts():
        assert facts(totals_of(events, nested=nested, **asked)) == facts(serial)


def test_work_beside_leaves_parts_to_both_threads() -> None:
    serial = totals_of(kernels(), threads=1)
    beside: list[str] = []
    with small_parts() as absorbed, open_bytes(space([Plane("p", [Line("l", kernels(), timestamp_ns=3)])]), "toy") as opened:
        (line,) = opened.planes[0].lines
        (totals,) = read_totals(opened, [TotalsOf(line=line)], threads=2, meanwhile=lambda: beside.append("done"))
    assert beside == ["done"]
    assert absorbed == [True, True, True]
    assert facts(totals) == facts(serial)


def test_an_interrupt_lets_go_of_every_part() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    # A profile cannot be closed while a part of it is read.
    with small_parts(), pytest.raises(KeyboardInterrupt), open_bytes(space([Plane("p", [Line("l", kernels())])]), "toy") as opened:
        read_totals(opened, [TotalsOf(line=opened.planes[0].lines[0])], threads=4, meanwhile=interrupt)


def test_lines_are_read_in_parts_where_there_are_more_threads_than_long_lines() -> None:
    def counts(threads: int, *sizes: int) -> list[int]:
        lines = [
            FoundLine(row=row, plane=0, id=0, name="", offset=0, length=size * reading.PART_BYTES, whole=True)
            for row, size in enumerate(sizes)
        ]
        return reading.part_counts(lines, threads)

    assert counts(4, 100) == [8]  # two a thread
    assert counts(4, 3, 1) == [3, 1]  # no part is shorter than it may be
    assert counts(4, 100, 100) == [4, 4]
    assert counts(2, 100, 100) == [1, 1]  # both threads have a line of their own
    assert counts(1, 100) == [1]
    assert counts(4, 1, 1) == [1, 1]
    assert counts(4) == []
