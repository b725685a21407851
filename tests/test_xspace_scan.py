"""Profiles are read exactly, once, and in little memory."""

import random
import signal
import subprocess
import sys
import threading
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.errors import UsageError
from roofline.sources.xspace import reading, scan
from roofline.sources.xspace.scan import NO_STEP, Pair, Rows, RowsOf, Slice, Steps, Totals, TotalsOf, open_bytes, read_rows, read_totals
from xspace_writer import Event, Line, Metadata, Plane, Ref, Unsigned, space


def plane_of(events: list[Event], name: str = "ops", timestamp_ns: int = 0) -> Plane:
    return Plane("/device:GPU:0", [Line(name, events, timestamp_ns=timestamp_ns)])


def rows_of(plane: Plane, **asked: object) -> Rows:
    with open_bytes(space([plane]), "toy") as opened:
        return read_rows(opened, [RowsOf(line=opened.planes[0].lines[0], **asked)])[0]  # type: ignore[arg-type]


def totals_of(plane: Plane, **asked: object) -> Totals:
    with open_bytes(space([plane]), "toy") as opened:
        return read_totals(opened, [TotalsOf(line=opened.planes[0].lines[0], **asked)])[0]  # type: ignore[arg-type]


def by_name(plane: Plane, totals: Totals, column: str) -> dict[str, int]:
    values = getattr(totals, column)
    names = {plane.event_id(known.name): known.name for known in plane.metadata}
    return {names[id]: values[row] for row, id in enumerate(totals.metadata_id)}


def test_the_index_has_planes_lines_stats_and_metadata() -> None:
    proto = b"\x0a\x03hlo"
    metadata = Metadata("%dot = ...", "dot", {"flops": 7, "Hlo Proto": proto, "hlo_category": Ref("convolution")}, b"raw", (3, 4))
    device = Plane("/device:TPU:0", [Line("XLA Ops", id=3)], {"peak": 918.0, "kind": "v6e"}, [metadata], id=2)
    data = space([device, Plane("/host:CPU")], hostnames=["vm"], errors=["bad"], warnings=["so so"])
    with open_bytes(data, "toy") as opened:
        plane, host = opened.planes
        assert (plane.name, plane.id, host.name, host.lines) == ("/device:TPU:0", 2, "/host:CPU", ())
        assert [(line.name, line.id, line.whole) for line in plane.lines] == [("XLA Ops", 3, True)]
        assert (plane.stat("peak"), plane.stat("kind"), plane.stat("absent")) == (918.0, "v6e", None)
        assert (opened.hostnames, opened.errors, opened.warnings, opened.notes) == (("vm",), ("bad",), ("so so",), ())
        event = plane.event(device.event_id("%dot = ..."))
        assert event is not None
        assert (event.name, event.display_name, event.children) == ("%dot = ...", "dot", (3, 4))
        assert (event.stat("flops"), event.stat("hlo_category")) == (7, "convolution")
        slice_ = event.stat("Hlo Proto")
        assert isinstance(slice_, Slice)
        assert (opened.bytes_of(slice_), opened.bytes_of(event.metadata)) == (proto, b"raw")
        assert plane.event(99) is None
        assert plane.event_names == {1: "%dot = ..."}


def test_rows_hold_every_event_and_every_kind_of_value() -> None:
    stats = {"i": -5, "u": Unsigned(2**64 - 1), "d": 0.25, "s": "text", "b": b"\0\1", "r": Ref("shared")}
    rows = rows_of(plane_of([Event("a", 10, 3, stats), Event("b", 20)], timestamp_ns=2), stats=(*stats, "nowhere"))
    # The line begins at 2 ns, which are 2,000 ps.
    assert (list(rows.start_ps), list(rows.duration_ps), list(rows.metadata_id)) == ([2010, 2020], [3, 0], [1, 2])
    assert [rows.stats[name][0] for name in stats] == [-5, 2**64 - 1, 0.25, "text", b"\0\1", "shared"]
    assert all(rows.stats[name][1] is None for name in stats)
    assert rows.stats["nowhere"][0] is None
    assert (rows.events, rows.notes) == (2, ())


def test_rows_are_kept_by_the_instants_they_cover() -> None:
    # "outer" covers 5 to 24, "inner" 10 to 14, "later" 30; an event without length covers nothing.
    plane = plane_of([Event("outer", 5, 20), Event("inner", 10, 5), Event("point", 12, 0), Event("later", 30, 1)])

    def names(*at: int, **asked: object) -> list[int]:
        return list(rows_of(plane, at=array("q", at), **asked).start_ps)

    assert names() == []
    assert names(4) == []
    assert names(5) == [5]
    assert names(12) == [5, 10]
    assert names(15) == [5]
    assert names(0, 24, 25, 30) == [5, 30]
    assert names(12, only=[plane.event_id("inner")]) == [10]
    with pytest.raises(ValueError, match="order"):
        names(3, 2)


def test_rows_are_kept_by_stat_or_by_metadata_id() -> None:
    events = [Event("a", 1, 1, {"correlation_id": 8}), Event("b", 2), Event("c", 3), Event("b", 4, 1, {"other": 1})]
    plane = plane_of(events)
    assert list(rows_of(plane, having=("correlation_id",)).start_ps) == [1]
    assert list(rows_of(plane, only=[plane.event_id("b")]).start_ps) == [2, 4]
    assert list(rows_of(plane, having=("correlation_id",), only=[plane.event_id("c")]).start_ps) == [1, 3]
    assert list(rows_of(plane, only=[]).start_ps) == []
    assert rows_of(plane, having=("absent",)).events == 4


def test_totals_add_up_by_metadata_and_stats() -> None:
    events = [
        Event("k", 0, 5, {"op": Ref("dot"), "x": 1}),
        Event("k", 10, 7, {"op": Ref("dot"), "x": 2}),
        Event("k", 20, 1, {"op": "dot"}),
        Event("k", 30, 2),
    ]
    totals = totals_of(plane_of(events), by=("op",), sums=("x",))
    # The same word as a reference and as a string are two keys: only the layer above knows that they mean one op.
    assert [totals.by["op"][row] for row in range(3)] == ["dot", "dot", None]
    assert (list(totals.count), list(totals.time_ps)) == ([2, 1, 1], [12, 1, 2])
    assert (list(totals.first_ps), list(totals.last_ps)) == ([0, 20, 30], [17, 21, 32])
    assert list(totals.sums["x"]) == [3.0, 0.0, 0.0]
    assert (totals.start_ps, totals.end_ps, totals.events) == (0, 32, 4)


def test_changes_of_an_executions_id_count_executions() -> None:
    # Two launches: a memset and a kernel each, the kernel of the second in two parts.
    launches = [("memset", 1), ("kernel", 1), ("memset", 2), ("kernel", 2), ("kernel", 2)]
    plane = plane_of([Event(name, 10 * i, 5, {"correlation_id": Unsigned(launch)}) for i, (name, launch) in enumerate(launches)])
    totals = totals_of(plane, distinct=("correlation_id", "scope_range_id"))
    assert (list(totals.count), list(totals.distinct["correlation_id"]), list(totals.distinct["scope_range_id"])) == (
        [2, 3],
        [2, 2],
        [0, 0],
    )


def test_steps_are_found_by_time_by_the_devices_clock_and_by_a_stat() -> None:
    events = [
        Event("a", 10 * i, 5, {"device_offset_ps": Unsigned(100 - 10 * i), "device_duration_ps": Unsigned(2), "id": i}) for i in range(4)
    ]
    plane = plane_of(events)
    by_event = totals_of(plane, steps=Steps.of([(20, 40, 8), (0, 15, 7)]))
    # Starts 0 and 10 lie in step 7, 20 and 30 in step 8.
    assert (list(by_event.cells.label), list(by_event.cells.count), list(by_event.cells.time_ps)) == ([7, 8], [2, 2], [10, 10])
    # From the first start to the last end: 0 to 10 + 5, and 20 to 30 + 5.
    assert (list(by_event.cells.first_ps), list(by_event.cells.last_ps)) == ([0, 20], [15, 35])
    by_device = totals_of(plane, device_clock=True, steps=Steps.of([(0, 75, 1), (90, 100, 2)], by="device"))
    # Starts 100, 90, 80, 70: one in each step, the others in none.
    assert sorted(zip(by_device.cells.label, by_device.cells.count, by_device.cells.time_ps, strict=True)) == [(1, 1, 2), (2, 1, 2)]
    by_stat = totals_of(plane, steps=Steps.of([(1, 2, 5), (3, 9, 6)], by="id"))
    assert list(by_stat.cells.label) == [5, 6]
    assert list(by_stat.count) == [4]


def test_a_loop_gives_its_time_to_its_body() -> None:
    # while [0, 100) holds a [10, 30) and b [30, 90); b holds c [40, 50).
    plane = plane_of([Event("while", 0, 100), Event("a", 10, 20), Event("b", 30, 60), Event("c", 40, 10)])
    totals = totals_of(plane, nested=True, intervals=True, steps=Steps.of([(0, 35, 0), (35, 200, 1)]))
    assert by_name(plane, totals, "self_ps") == {"while": 20, "a": 20, "b": 50, "c": 10}
    assert (totals.busy_ps, list(totals.intervals)) == (100, [0, 100])
    assert sum(totals.cells.self_ps) == 100


def test_on_a_stream_the_earlier_kernel_keeps_what_both_cover() -> None:
    # a [0, 10), b [8, 20), c [12, 15) inside b, d [30, 31): own times 10, 10, 0, 1.
    stats = {"scope_range_id": 1}
    plane = plane_of([Event("a", 0, 10, stats), Event("b", 8, 12, stats), Event("c", 12, 3, {"scope_range_id": 2}), Event("d", 30, 1)])
    totals = totals_of(plane, distinct=("scope_range_id",), intervals=True)
    assert by_name(plane, totals, "self_ps") == {"a": 10, "b": 10, "c": 0, "d": 1}
    assert (totals.busy_ps, list(totals.intervals)) == (21, [0, 20, 30, 31])
    # Only a and b belong to one execution; they overlap for 2 ps.
    overlaps = totals.overlaps
    assert [list(column) for column in (overlaps.covering, overlaps.covered, overlaps.count, overlaps.time_ps)] == [[0], [1], [1], [2]]


def test_the_devices_clock_may_reorder_neighbours() -> None:
    # By the events' clock the body comes before its loop.
    clock = {"body": (10, 5), "while": (0, 20), "next": (20, 4)}
    stats = {name: {"device_offset_ps": Unsigned(start), "device_duration_ps": Unsigned(time)} for name, (start, time) in clock.items()}
    plane = plane_of([Event(name, i, 0, stats[name]) for i, name in enumerate(clock)])
    totals = totals_of(plane, device_clock=True, nested=True)
    assert by_name(plane, totals, "self_ps") == {"body": 5, "while": 15, "next": 4}
    assert (totals.rewinds, totals.busy_ps) == (0, 24)


def test_a_clock_that_is_turned_back_is_told_and_its_stretches_are_merged() -> None:
    once = [Event("a", 10 * i, 5) for i in range(100)]
    totals = totals_of(plane_of([*once, *once]), intervals=True)
    assert (list(totals.time_ps), list(totals.self_ps), totals.rewinds) == ([1000], [1000], 1)
    # The union of a hundred intervals of 5 with themselves.
    assert (totals.busy_ps, len(totals.intervals)) == (500, 200)
    assert totals.notes == ("plane '/device:GPU:0', line 'ops': the clock goes backwards 1 times",)


def test_async_pairs_go_from_start_to_done_and_share_their_link() -> None:
    # x runs 0 to 40, y 20 to 60: one union of 60 on one link, shared 1 to 3 by bytes. z, on another link, runs 70 to 80.
    events = [
        Event("x-start", 0, 1),
        Event("y-start", 20, 1),
        Event("x-done", 30, 10),
        Event("y-done", 50, 10),
        Event("z-start", 70, 1),
        Event("z-done", 71, 9),
    ]
    plane = plane_of([*events, Event("z-start", 90, 1), Event("x-done", 95, 1)])
    weights = {"x": (0, 100.0), "y": (0, 300.0), "z": (1, 0.0)}
    pairs = tuple(
        Pair(start=plane.event_id(f"{name}-start"), done=plane.event_id(f"{name}-done"), group=group, weight=weight)
        for name, (group, weight) in weights.items()
    )
    found = totals_of(plane, pairs=pairs, steps=Steps.of([(0, 65, 4)])).pairs
    assert found is not None
    assert [list(column) for column in (found.pair, found.label, found.count, found.time_ps)] == [
        [0, 1, 2],
        [4, 4, NO_STEP],
        [1, 1, 1],
        [40, 40, 10],
    ]
    assert list(found.share_ps) == [15.0, 45.0, 10.0]
    # The last start of z has no done, the last done of x no start.
    assert found.unpaired == 2


def test_transfers_that_do_not_overlap_share_nothing() -> None:
    events = [Event(name, 10 * i, 5) for i, name in enumerate(["start", "done", "start", "done"])]
    plane = plane_of(events)
    found = totals_of(plane, pairs=(Pair(start=1, done=2, weight=8.0),)).pairs
    assert found is not None
    # Each from the start's begin to the done's end: 15.
    assert (list(found.count), list(found.time_ps), list(found.share_ps)) == ([2], [30], [30.0])


def test_an_aggregated_event_counts_for_many_and_has_no_place_in_time() -> None:
    plane = plane_of([Event("a", 5, 10), Event("a", duration_ps=40, occurrences=4)])
    totals = totals_of(plane)
    assert (list(totals.count), list(totals.time_ps), totals.busy_ps, totals.aggregated) == ([5], [50], 10, 1)


def union_length(intervals: list[tuple[int, int]]) -> int:
    return len({tick for start, duration in intervals for tick in range(start, start + duration)})


INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=40)


@given(INTERVALS, st.booleans())
def test_self_times_add_up_to_the_union(intervals: list[tuple[int, int]], nested: bool) -> None:
    ordered = sorted(intervals, key=lambda interval: (interval[0], -interval[1]))
    totals = totals_of(
        plane_of([Event(f"e{i % 5}", start, time) for i, (start, time) in enumerate(ordered)]), nested=nested, intervals=True
    )
    assert sum(totals.self_ps) == totals.busy_ps == union_length(intervals)
    assert sum(totals.time_ps) == sum(time for _, time in intervals)
    assert sum(totals.intervals[1::2]) - sum(totals.intervals[0::2]) == totals.busy_ps


@given(INTERVALS, st.randoms(use_true_random=False))
def test_small_disorder_changes_nothing(intervals: list[tuple[int, int]], shuffle: random.Random) -> None:
    ordered = sorted(intervals, key=lambda interval: (interval[0], -interval[1]))
    mixed = ordered.copy()
    shuffle.shuffle(mixed)  # 40 events fit into the window
    for nested in (True, False):
        tables = [totals_of(plane_of([Event("e", *interval) for interval in some]), nested=nested) for some in (ordered, mixed)]
        assert list(tables[0].self_ps) == list(tables[1].self_ps)


@given(st.lists(INTERVALS, max_size=4))
def test_the_union_of_lines_is_the_union_of_their_intervals(lines: list[list[tuple[int, int]]]) -> None:
    plane = Plane("p", [Line(str(i), [Event("e", *interval) for interval in sorted(line)]) for i, line in enumerate(lines)])
    with open_bytes(space([plane]), "toy") as opened:
        tables = read_totals(opened, [TotalsOf(line=line, intervals=True) for line in opened.planes[0].lines])
    merged, length = scan.union(table.intervals for table in tables)
    assert length == union_length([interval for line in lines for interval in line]) == sum(merged[1::2]) - sum(merged[0::2])


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 5)), max_size=60), st.lists(st.integers(0, 1000), max_size=4), st.integers(1, 20)
)
def test_gaps_stand_for_all_of_the_time_between_intervals(stretches: list[tuple[int, int]], edges: list[int], most: int) -> None:
    """Long ones for themselves, short ones together until they are as long, or until an edge."""
    ends = list(accumulate(time for stretch in stretches for time in stretch))  # of a gap, of work, of a gap, …
    between = dict(zip(ends[1::2], ends[2::2], strict=False))
    idle = sum(end - begin for begin, end in between.items())
    found = scan.gaps(memoryview(array("q", ends)), sorted(edges), most)
    assert (sum(weight for _, _, weight, _, _ in found), sum(count for *_, count, _ in found)) == (idle, len(between))
    assert len(found) <= 2 * most + len(edges) + 1
    least = max(idle // most, 1)
    for begin, end, weight, count, since in found:
        assert between[begin] == end
        mine = [(first, last) for first, last in between.items() if since <= first <= begin and (count == 1 or last - first < least)]
        assert (sum(last - first for first, last in mine), len(mine)) == (weight, count)
        assert weight < 2 * least or count == 1
        assert not any(since < edge <= begin for edge in edges)


def test_too_many_stats_at_once_are_refused() -> None:
    with pytest.raises(UsageError, match="25 stats requested at once; 24 at most"):
        rows_of(plane_of([]), stats=tuple(map(str, range(25))))
    with pytest.raises(UsageError, match="3 stats in 'distinct'; 2 at most"):
        totals_of(plane_of([]), distinct=("a", "b", "c"))


def test_threads_and_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [Line(f"Stream #{i}", [Event(f"k{j % 7}", 10 * j, 12, {"id": j // 3}) for j in range(300 * i)]) for i in range(1, 5)]
    with open_bytes(space([Plane("/device:GPU:0", lines)]), "toy") as opened:
        requests = [TotalsOf(line=line, distinct=("id",), intervals=True) for line in opened.planes[0].lines]
        plain = read_totals(opened, requests, threads=1)
        monkeypatch.setattr(reading, "CHUNK_BYTES", 100)
        told: list[tuple[int, int]] = []
        pieces = read_totals(opened, requests, threads=4, progress=lambda done, total: told.append((done, total)))
        for one, other in zip(plain, pieces, strict=True):
            for column in ("count", "time_ps", "self_ps", "intervals", "metadata_id"):
                assert list(getattr(one, column)) == list(getattr(other, column))
            assert list(one.distinct["id"]) == list(other.distinct["id"])
        total = sum(request.line.length for request in requests)
        assert told[-1] == (total, total)
        assert [done for done, _ in told] == sorted(done for done, _ in told)


@pytest.mark.parametrize(("threads", "done"), [(1, []), (2, ["beside"]), (4, ["beside"])])
def test_work_beside_the_reading_changes_no_table(monkeypatch: pytest.MonkeyPatch, threads: int, done: list[str]) -> None:
    lines = [Line(f"Stream #{i}", [Event(f"k{j % 7}", 10 * j, 12) for j in range(300)]) for i in range(2)]
    monkeypatch.setattr(reading, "THREAD_BYTES", 1)
    monkeypatch.setattr(reading, "BESIDE_BYTES", 100)
    beside: list[str] = []
    with open_bytes(space([Plane("/device:GPU:0", lines)]), "toy") as opened:
        requests = [TotalsOf(line=line) for line in opened.planes[0].lines]
        plain = read_totals(opened, requests)
        found = read_totals(opened, requests, threads=threads, meanwhile=lambda: beside.append("beside"))
    assert beside == done  # a thread that is alone has nobody to leave the reading to
    assert [list(table.self_ps) for table in found] == [list(table.self_ps) for table in plain]


def test_for_a_small_profile_nothing_is_done_beside() -> None:
    with open_bytes(space([plane_of([Event("k", 0, 1)])]), "toy") as opened:
        requests = [TotalsOf(line=line) for line in opened.planes[0].lines]
        (totals,) = read_totals(opened, requests, threads=4, meanwhile=lambda: pytest.fail("a thread costs more than it saves"))
    assert list(totals.count) == [1]


def test_work_beside_that_is_interrupted_stops_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "THREAD_BYTES", 1)

    def interrupt() -> None:
        raise KeyboardInterrupt

    # A profile cannot be closed while it is read.
    with pytest.raises(KeyboardInterrupt), open_bytes(space([plane_of([Event("k", 0, 1)])]), "toy") as opened:
        read_totals(opened, [TotalsOf(line=opened.planes[0].lines[0])], threads=2, meanwhile=interrupt)


def test_every_core_reads_while_this_thread_does_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "THREAD_BYTES", 1)
    both, waited = threading.Event(), list[bool]()
    together = threading.Barrier(2, action=both.set, timeout=120)
    read = reading._Reader.read

    def read_together(reader: reading._Reader, part: reading.Part) -> None:
        together.wait()
        read(reader, part)

    monkeypatch.setattr(reading._Reader, "read", read_together)
    lines = [Line(f"Stream #{i}", [Event("k", 0, 12)]) for i in range(2)]
    with open_bytes(space([Plane("/device:GPU:0", lines)]), "toy") as opened:
        requests = [TotalsOf(line=line) for line in opened.planes[0].lines]
        found = read_totals(opened, requests, threads=2, meanwhile=lambda: waited.append(both.wait(120)))
    assert waited == [True]
    assert [list(table.count) for table in found] == [[1], [1]]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C as in a command: processes that run tests beside each other ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals of one thread are POSIX")
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_waiting_for_the_readers_stops_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "THREAD_BYTES", 1)
    monkeypatch.setattr(reading, "BESIDE_BYTES", 100)
    told: list[tuple[int, int]] = []

    def press_a_key(done: int, total: int) -> None:
        if len(told) == 5:  # the main thread waits by now
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        told.append((done, total))
        time.sleep(0.02)  # the next piece begins after the signal arrived

    with pytest.raises(KeyboardInterrupt), open_bytes(space([plane_of([Event("k", 10 * j, 12) for j in range(600)])]), "toy") as opened:
        read_totals(opened, [TotalsOf(line=opened.planes[0].lines[0])], threads=2, progress=press_a_key, meanwhile=lambda: None)
    assert told[-1][0] < told[-1][1]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=60))
def test_keys_are_told_apart_in_whatever_order_they_come(kinds: list[tuple[str, int]]) -> None:
    plane = plane_of([Event(name, 10 * i, 1, {"node": node}) for i, (name, node) in enumerate(kinds)])
    totals = totals_of(plane, by=("node",))
    names = {plane.event_id(known.name): known.name for known in plane.metadata}
    found = [(names[id], node) for id, node in zip(totals.metadata_id, totals.by["node"], strict=True)]
    # Keys are in the order of their first events, however the program went on from each.
    assert dict(zip(found, totals.count, strict=True)) == Counter(kinds)
    assert found == list(dict.fromkeys(kinds))


def test_reading_imports_no_numpy() -> None:
    program = "import sys, roofline.sources.xspace.scan; print('numpy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_without_the_extension_the_error_says_how_to_build_it() -> None:
    """Also for what reads no XSpace: the gaps between the kernels of a PyTorch trace."""
    program = (
        "import sys; sys.modules['roofline.sources.xspace._scan'] = None\n"
        "from roofline.sources.xspace import scan\n"
        "for call in (lambda: scan.open_bytes(b'x', 'toy'), lambda: scan.gaps(memoryview(b''), [], 1)):\n"
        "    try: call()\n"
        "    except Exception as error: print(type(error).__name__, error)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, second = run.stdout.splitlines()
    assert first.startswith("SourceError toy: the native scanner is not built")
    assert second.startswith("SourceError the native scanner is not built")
    assert "pip install -e ." in first
    assert "pip install -e ." in second


def test_reading_is_linear_in_what_is_kept_not_in_what_is_there() -> None:
    events = [Event("k", 10 * i, 10) for i in range(20000)]
    totals = totals_of(plane_of(events), intervals=True)
    # 20,000 events that touch are one key and one interval.
    assert (len(totals), len(totals.intervals), totals.busy_ps) == (1, 2, 200000)
