"""Idle time has a reason: what the host did until it launched the next work."""

from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.analysis import analyze
from roofline.machines import load
from roofline.sources import idle
from roofline.sources.xspace.idle import stacks
from roofline.sources.xspace.scan import RowsOf, open_bytes, read_rows
from roofline.workload import IdleReason
from xspace_profiles import MICROSECOND, annotation, gpu, host, kernel, launch, recorded
from xspace_writer import Event, Line, Plane, space

US = MICROSECOND
COPIED = "kind_src:pageable kind_dst:device size:{} async:1"


def work(id: int, start: int, end: int, name: str = "add") -> Event:
    return kernel(name, start * US, (end - start) * US, correlation_id=id)


def did(name: str, start: int, end: int) -> Event:
    return Event(name, start * US, (end - start) * US)


def reasons(folder: Path, *planes: Plane) -> tuple[IdleReason, ...]:
    recording = recorded(folder, *planes)
    wall, busy = recording.coverage.wall_s, recording.coverage.busy_s
    assert wall is not None
    assert busy is not None
    assert sum(reason.time_s for reason in recording.idle) == pytest.approx(wall - busy, rel=1e-12)
    return recording.idle


def test_host_arrays_passed_to_a_jitted_function_are_told_with_their_copies(tmp_path: Path) -> None:
    # Each step waits 70 µs while the host stages 1 MB that is passed to predict, copies it for 20 µs, and computes for 5 µs.
    main, worker, copies, kernels = [], [], [], []
    for number in range(5):
        at, ids = 100 * number, (2 * number + 1, 2 * number + 2)
        main += [did("$serve.py:3 answer", at, at + 99), did("PjitFunction(predict)", at + 1, at + 98), launch(ids[1], (at + 91) * US)]
        worker += [did("H2D Dispatch", at + 2, at + 70), launch(ids[0], (at + 71) * US, name="MemcpyH2D")]
        copied = COPIED.format(1 << 20)
        copies.append(kernel("MemcpyH2D", (at + 72) * US, 20 * US, correlation_id=ids[0], memcpy_details=copied))
        kernels.append(work(ids[1], at + 92, at + 97))
    steps = [annotation(number, 100 * number * US, 99 * US) for number in range(5)]
    recording = recorded(tmp_path, gpu(kernels, copies), host(sorted([*steps, *main], key=lambda event: event.offset_ps), worker))
    assert {(reason.activity, reason.cause) for reason in recording.idle if reason.kind == "transfer"} == {
        ("copies to the device of host arrays that are passed to predict, called from answer", "arguments")
    }
    found = analyze(recording, load("h200")).findings[0]
    assert "Keep arrays that do not change on the device" in found.message
    assert "The copies there take another 20 µs" in found.message
    assert (found.kind, found.saving_per_step_s) == ("idle-transfer", pytest.approx(95e-6, rel=0.05)), "all but the 5 µs of work"


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30), st.integers(0, 3)), max_size=12),
    st.sets(st.integers(0, 100), min_size=1, max_size=12),
)
def test_a_thread_is_in_the_events_that_have_begun_and_not_ended(spans: list[tuple[int, int, int]], instants: set[int]) -> None:
    """In the order in which they began, the longest first, whether or not they lie in one another."""
    spans.sort(key=lambda span: (span[0], -span[1]))
    at = array("q", sorted(instants))
    with open_bytes(
        space([Plane("p", [Line("thread", [Event(f"e{name}", start, time) for start, time, name in spans])])]), "toy"
    ) as opened:
        (plane,) = opened.planes
        (rows,) = read_rows(opened, [RowsOf(line=plane.lines[0], at=at)])
        names, run = plane.event_names, next((id for id, name in plane.event_names.items() if name == "e0"), 0)
        found = stacks(rows, at, {run})
    for instant in at:
        inside = [(start, f"e{name}") for start, time, name in spans if start <= instant < start + time]
        assert [names[id] for id in found.open.get(instant, ())] == [name for _, name in inside]
        assert found.running.get(instant) == next((start for start, name in inside if name == "e0"), None)


def test_many_short_gaps_are_looked_at_in_part_and_counted_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "MOST_LOOKS", 10)
    monkeypatch.setattr(idle, "LEAST_LOOKS", 10)
    count = 200
    kernels = [work(n, 10 * n, 10 * n + 4) for n in range(1, count + 1)]
    thread = [did("$train.py:3 main", 0, 10 * count + 20)]
    for n in range(1, count + 1):
        thread += [did("PjitFunction(f)", 10 * n - 5, 10 * n + 5), launch(n, (10 * n - 1) * US)]
    found = reasons(tmp_path, gpu(kernels), host(thread))
    assert sum(reason.gaps for reason in found) == count - 1
    assert [reason.kind for reason in found] == ["dispatch"]


def test_devices_of_a_file_share_what_is_looked_at() -> None:
    busy = array("q", [edge for n in range(3_000) for edge in (10 * n, 10 * n + 4)])
    alone, shared = (idle.gaps_between(memoryview(busy), {}, devices) for devices in (1, 4))
    assert len(shared) <= idle.MOST_LOOKS // 4 < len(alone) <= idle.MOST_LOOKS
    for gaps in (alone, shared):
        assert (sum(gap.weight for gap in gaps), sum(gap.count for gap in gaps)) == (2_999 * 6, 2_999)
