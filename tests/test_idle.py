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
from roofline.workload import FETCHES, PASSES_ARRAYS, IdleReason
from xspace_profiles import MICROSECOND, annotation, gpu, host, kernel, launch, recorded
from xspace_writer import Event, Line, Plane, space

US = MICROSECOND
RUN = "PjRtCApiLoadedExecutable::Execute"
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


def kinds(found: tuple[IdleReason, ...]) -> list[tuple[str, str, str]]:
    return [(reason.kind, reason.activity, reason.location) for reason in found]


TWO_STEPS = gpu([work(1, 10, 20), work(2, 120, 130)])  # idle from 20 to 120


def test_python_before_a_launch_is_input(tmp_path: Path) -> None:
    thread = [
        did("$train.py:3 main", 0, 200),
        launch(1, 9 * US),
        did("$data.py:7 load_batch", 15, 115),
        did("$time sleep", 16, 115),
        launch(2, 119 * US),
    ]
    (found,) = reasons(tmp_path, TWO_STEPS, host(thread))
    assert kinds((found,)) == [("input", "time.sleep, called from load_batch", "data.py:7")]
    assert (found.time_s, found.gaps) == (pytest.approx(100e-6), 1)


@pytest.mark.parametrize(("waits", "kind"), [(50, "sync"), (900, "input")])
def test_a_function_that_calls_nothing_until_the_device_ends_waits_for_it(tmp_path: Path, waits: int, kind: str) -> None:
    """A block_until_ready of an array leaves no event: it ends shortly after the device's work; Python that takes long does not."""
    end = 20 + waits
    thread = [did("$train.py:3 main", 0, 2000), launch(1, 9 * US), did("PjitFunction(f)", end, end + 10), launch(2, (end + 8) * US)]
    found = reasons(tmp_path, gpu([work(1, 10, 20), work(2, end + 10, end + 20)]), host(thread))
    assert [reason.kind for reason in found] == [kind]
    assert found[0].location == "train.py:3"


def test_another_thread_that_loads_data_is_not_the_reason(tmp_path: Path) -> None:
    main = [did("$train.py:3 main", 0, 200), launch(1, 9 * US), did("PjitFunction(f)", 15, 125), launch(2, 119 * US)]
    loader = [did("$data.py:7 load_batch", 0, 200), did("$time sleep", 0, 200)]
    assert kinds(reasons(tmp_path, TWO_STEPS, host(loader, main))) == [("dispatch", "main", "train.py:3")]


def test_host_code_after_a_value_was_read_back_is_a_sync(tmp_path: Path) -> None:
    thread = [
        did("$train.py:3 main", 0, 200),
        launch(1, 9 * US),
        did("$array.py:293 __float__", 10, 40),
        did("$<unknown> join", 40, 118),
        launch(2, 119 * US),
    ]
    assert kinds(reasons(tmp_path, TWO_STEPS, host(thread))) == [("sync", "main, which calls float() on a device value", "train.py:3")]


def test_the_search_for_nan_takes_the_copies_and_launches_around_it(tmp_path: Path) -> None:
    # Both gaps, 30 µs and 60 µs, begin in a launch; in the first the host copies 1 MB of results, which the search then reads.
    copy = kernel("MemcpyD2H", 50 * US, 10 * US, correlation_id=2, memcpy_details=COPIED.format(1 << 20))
    thread = [
        did("$train.py:3 main", 0, 200),
        did("PjitFunction(f)", 5, 115),
        launch(1, 9 * US),
        did("$api.py:106 _nan_check_posthook", 25, 100),
        did("$dispatch.py:308 _check_special", 30, 100),
        launch(2, 49 * US, name="MemcpyD2H"),
        did("PjitFunction(f)", 116, 125),
        launch(3, 119 * US),
    ]
    found = reasons(tmp_path, gpu([work(1, 10, 20), work(3, 120, 130)], [copy]), host(thread))
    assert kinds(found) == [
        ("sync", "main, which copies every result to the host to look for NaN, as jax_debug_nans does", "train.py:3"),
    ]
    assert (found[0].cause, found[0].time_s) == ("nans", pytest.approx(90e-6))


def test_a_loader_after_a_wait_is_still_input(tmp_path: Path) -> None:
    thread = [
        did("$train.py:3 main", 0, 200),
        launch(1, 9 * US),
        did("$api.py:9 block_until_ready", 10, 22),
        did("$data.py:7 load_batch", 22, 118),
        launch(2, 119 * US),
    ]
    assert kinds(reasons(tmp_path, TWO_STEPS, host(thread))) == [("input", "load_batch", "data.py:7")]


def test_a_callback_runs_inside_of_a_program(tmp_path: Path) -> None:
    thread = [
        did("$train.py:3 main", 0, 200),
        did(RUN, 5, 150),
        launch(1, 9 * US),
        did("$train.py:1 on_host", 15, 118),
        launch(2, 119 * US),
    ]
    assert kinds(reasons(tmp_path, TWO_STEPS, host(thread))) == [("callback", "on_host", "train.py:1")]


def test_a_program_that_is_launched_late_because_of_a_callback_waits_for_it(tmp_path: Path) -> None:
    thread = [
        did("$train.py:3 main", 0, 200),
        did(RUN, 5, 60),
        launch(1, 9 * US),
        did("$train.py:1 on_host", 15, 60),
        did("PjitFunction(f)", 60, 125),
        launch(2, 119 * US),
    ]
    assert kinds(reasons(tmp_path, TWO_STEPS, host(thread))) == [("callback", "on_host", "train.py:1")]


def test_compilation_names_its_function(tmp_path: Path) -> None:
    thread = [
        did("$train.py:3 main", 0, 200),
        launch(1, 9 * US),
        did("PjitFunction(f)", 15, 125),
        did("PJRT_Client_Compile", 18, 118),
        launch(2, 119 * US),
    ]
    assert kinds(reasons(tmp_path, TWO_STEPS, host(thread))) == [("compile", "f, called from main", "train.py:3")]


def test_work_that_was_launched_already_waits_for_nobody_on_the_host(tmp_path: Path) -> None:
    thread = [did("$train.py:3 main", 0, 200), launch(1, 5 * US), launch(2, 8 * US), did("$time sleep", 15, 190)]
    assert kinds(reasons(tmp_path, TWO_STEPS, host(thread))) == [("latency", "kernels that were already launched", "")]


def test_with_several_devices_it_waits_for_another(tmp_path: Path) -> None:
    thread = [launch(1, 5 * US), launch(2, 8 * US), launch(3, 9 * US)]
    other = gpu([work(3, 10, 125)], number=1)
    assert kinds(reasons(tmp_path, TWO_STEPS, other, host(thread))) == [("device", "work that was already launched", "")]


def test_kernels_that_one_program_launches_one_by_one_are_latency(tmp_path: Path) -> None:
    thread = [did("$train.py:3 main", 0, 200), did(RUN, 5, 150), launch(1, 9 * US), launch(2, 119 * US)]
    found = reasons(tmp_path, TWO_STEPS, host(thread))
    assert kinds(found) == [("latency", "launches of the kernels of one program, one by one", "train.py:3")]


@pytest.mark.parametrize(("size", "kind"), [(1 << 28, "transfer"), (4, "dispatch")])
def test_staging_a_large_copy_is_a_transfer_and_passing_a_scalar_is_not(tmp_path: Path, size: int, kind: str) -> None:
    copy = kernel("MemcpyH2D", 120 * US, 10 * US, correlation_id=2, memcpy_details=COPIED.format(size))
    main = [did("$train.py:3 main", 0, 200), launch(1, 9 * US), did("PjitFunction(f)", 15, 160)]
    worker = [did("H2D Dispatch", 19, 125), launch(2, 119 * US, name="MemcpyH2D")]
    (found,) = reasons(tmp_path, gpu([work(1, 10, 20)], [copy]), host(main, worker))
    assert (found.kind, found.location) == (kind, "train.py:3")


@pytest.mark.parametrize(
    ("name", "ends", "cause"), [("MemcpyH2D", "pageable device", PASSES_ARRAYS), ("MemcpyD2H", "device pageable", FETCHES)]
)
def test_the_direction_of_copies_is_told(tmp_path: Path, name: str, ends: str, cause: str) -> None:
    source, target = ends.split()
    moved = kernel(name, 120 * US, 10 * US, correlation_id=2, memcpy_details=f"kind_src:{source} kind_dst:{target} size:{1 << 28} async:1")
    main = [did("$train.py:3 main", 0, 200), launch(1, 9 * US), did("PjitFunction(f)", 15, 160)]
    worker = [did("H2D Dispatch", 19, 125), launch(2, 119 * US, name=name)]
    (found,) = reasons(tmp_path, gpu([work(1, 10, 20)], [moved]), host(main, worker))
    assert (found.kind, found.cause) == ("transfer", cause)


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


def test_without_frames_of_python_the_kind_is_still_told(tmp_path: Path) -> None:
    calls = [did("PjitFunction(f)", 5, 12), launch(1, 9 * US), did("PjitFunction(f)", 112, 125), launch(2, 119 * US)]
    (found,) = reasons(tmp_path, TWO_STEPS, host(calls))
    assert (found.kind, found.location) == ("input", "")
    assert "Python not recorded" in found.activity


@pytest.mark.parametrize(("size", "kind"), [(1 << 18, "transfer"), (1 << 16, "input")])
def test_a_copy_that_nobody_sees_takes_no_longer_than_its_bytes(tmp_path: Path, size: int, kind: str) -> None:
    # Nothing shows what the host did in 100 µs before a copy: staging of 256 KiB, but not of 64 KiB.
    copy = kernel("MemcpyH2D", 120 * US, 10 * US, correlation_id=2, memcpy_details=COPIED.format(size))
    main = [did("PjitFunction(f)", 5, 12), launch(1, 9 * US), did("PjitFunction(f)", 118, 125), launch(2, 119 * US, name="MemcpyH2D")]
    assert reasons(tmp_path, gpu([work(1, 10, 20)], [copy]), host(main))[0].kind == kind


def test_without_a_host_the_reason_is_unknown(tmp_path: Path) -> None:
    assert [kind for kind, _, _ in kinds(reasons(tmp_path, TWO_STEPS))] == ["unknown"]


def test_a_gap_counts_for_the_step_it_began_in_and_devices_are_averaged(tmp_path: Path) -> None:
    thread = [
        annotation(0, 5 * US, 10 * US),
        launch(1, 9 * US),
        launch(11, 9 * US),
        did("$data.py:7 load_batch", 20, 110),
        annotation(1, 110 * US, 15 * US),
        launch(2, 119 * US),
        launch(12, 119 * US),
    ]
    other = gpu([work(11, 10, 20), work(12, 120, 130)], number=1)
    recording = recorded(tmp_path, TWO_STEPS, other, host(thread))
    (found,) = recording.idle
    assert (found.time_s, found.gaps) == (pytest.approx(200e-6), 2)
    assert [(share.key, share.count, share.time_s) for share in found.by_step] == [(0, 2, pytest.approx(200e-6))]
    (shown,) = analyze(recording).idle
    assert (shown.reason, shown.time_s, shown.gaps, shown.by_step[0].time_s) == ("input", pytest.approx(100e-6), 2, pytest.approx(100e-6))


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
