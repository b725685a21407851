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
from roofline.sources.xspace.scan import Pair, Steps, Totals, TotalsOf, open_bytes, read_totals
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


def test_an_execution_that_goes_on_in_the_next_part_is_one_execution() -> None:
    events = [Event("k", 10 * i, 5, {"launch": Unsigned(7)}) for i in range(EVENTS)]
    with small_parts() as absorbed:
        totals = totals_of(events, distinct=("launch",))
    assert absorbed == [True, True, True]
    assert (list(totals.count), list(totals.distinct["launch"])) == ([EVENTS], [1])


def test_intervals_that_touch_where_parts_meet_are_one() -> None:
    with small_parts() as absorbed:
        totals = totals_of([Event("k", 10 * i, 10) for i in range(EVENTS)], intervals=True)
    assert absorbed == [True, True, True]
    # From 3 ns, when the line begins, on without a rest.
    assert (list(totals.intervals), totals.busy_ps) == ([3000, 3000 + 10 * EVENTS], 10 * EVENTS)


@every("nested", [True, False])
def test_a_part_into_which_an_event_reaches_is_read_again(nested: bool) -> None:
    # A loop around the first 250 kernels reaches into the second and the third of four parts, the last stands alone.
    events = [Event("loop", 0, 10 * 250, {"launch": 1}), *(Event("k", 10 * i, 5, {"launch": 1}) for i in range(EVENTS))]
    serial = totals_of(events, threads=1, nested=nested, distinct=("launch",), intervals=True)
    with small_parts() as absorbed:
        parts = totals_of(events, nested=nested, distinct=("launch",), intervals=True)
    assert facts(parts) == facts(serial)
    assert absorbed == [False, False, True]


def test_a_part_that_begins_inside_an_event_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    guess = _scan.Index.rest_near
    serial = totals_of(kernels(), threads=1, by=("op",), intervals=True)
    monkeypatch.setattr(_scan.Index, "rest_near", lambda *asked: guess(*asked) + 2)
    with small_parts() as absorbed:
        parts = totals_of(kernels(), by=("op",), intervals=True)
    assert facts(parts) == facts(serial)
    assert absorbed == [False, False, False]


def cut_at(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """Parts begin with these events."""

    def place(index: _scan.Index, line: int, near: int, hops: int) -> int:
        walk = _scan.Totals(index, line, [])
        for _ in range(next(places)):
            walk.run(1)
        return walk.position

    places = iter(numbers)
    monkeypatch.setattr(_scan.Index, "rest_near", place)


def test_reading_goes_on_behind_a_part_as_if_it_had_not_been_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # The second part knows a and d only, and its last event reaches into the third.
    names = ["abc"[i % 3] if i < 100 else "ad"[i % 2] for i in range(EVENTS)]
    events = [Event(name, 10 * i, 200 if i == 199 else 5, {"launch": 1}) for i, name in enumerate(names)]
    asked = {"steps": Steps.of([(0, 10 * EVENTS + 3000, 1)]), "distinct": ("launch",)}
    serial = totals_of(events, threads=1, **asked)
    cut_at(monkeypatch, 100, 200, 300)
    with small_parts() as absorbed:
        assert facts(totals_of(events, **asked)) == facts(serial)
    assert absorbed == [True, False, True]


def test_a_clock_that_is_turned_back_where_a_part_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [Event("k", 10 * (i if i < 200 else i - 90), 7) for i in range(EVENTS)]
    serial = totals_of(events, threads=1, intervals=True)
    cut_at(monkeypatch, 100, 200, 300)
    with small_parts() as absorbed:
        assert facts(totals_of(events, intervals=True)) == facts(serial)
    # From event 199 back to the time of event 110; the last part begins after all that.
    assert (serial.rewinds, absorbed) == (1, [True, False, True])


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


def test_fractions_and_pairs_are_summed_up_in_the_order_of_the_line() -> None:
    events = [Event("ab"[i % 2], 10 * i, 5, {"x": 0.1 * i}) for i in range(EVENTS)]
    with small_parts() as absorbed:
        sums = totals_of(events, sums=("x",))
        pairs = totals_of(events, pairs=(Pair(start=1, done=2),)).pairs
    assert absorbed == []  # nothing to absorb: there was one part
    first = second = 0.0
    for i in range(0, EVENTS, 2):
        first, second = first + 0.1 * i, second + 0.1 * (i + 1)
    assert list(sums.sums["x"]) == [first, second]
    assert pairs is not None
    assert list(pairs.count) == [EVENTS // 2]


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


@every("reach", [5, 10 * EVENTS])
def test_every_byte_is_told_once(reach: int) -> None:
    events = [Event("first", 0, reach), *(Event("k", 10 * i, 5) for i in range(1, EVENTS))]
    told: list[tuple[int, int]] = []
    with small_parts() as absorbed, open_bytes(space([Plane("p", [Line("l", events)])]), "toy") as opened:
        (line,) = opened.planes[0].lines
        read_totals(opened, [TotalsOf(line=line)], threads=2, progress=lambda done, total: told.append((done, total)))
    assert absorbed == [reach == 5] * 3  # an event that reaches over all of them spoils every part
    assert told[-1] == (line.length, line.length)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


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
