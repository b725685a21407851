"""Timelines: what each device did when, bucket by bucket, of which the sums are those of the whole."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from every import every
from roofline import analyze
from roofline.cli import main
from roofline.cost import Cost
from roofline.render.timeline import MOST_DEVICES, timeline_text
from roofline.report import LaneInfo, Point, Report
from roofline.sources import read, timeline
from roofline.sources.cache import pack, unpack
from roofline.sources.parts import DevicePart, Extent, IdleKey, Pause, Subject, Tally
from roofline.sources.timeline import BUCKETS, MOST_OPS, Span, lane, spans, typical, with_host
from roofline.sources.xspace import timeline as of_tables
from roofline.sources.xspace.recording import read_part
from roofline.sources.xspace.scan import Buckets, Totals, TotalsOf, open_bytes, read_totals
from roofline.workload import Lane, Op, Recording, Workload
from toys import HBM
from toys import toy as machine
from xspace_profiles import MICROSECOND, annotation, gpu, host, kernel, launch, write
from xspace_writer import Event, Line, Plane, space

DATA = Path(__file__).parent / "data"
TRAIN, CPU = DATA / "h200" / "jax_train.xplane.pb.gz", DATA / "cpu" / "jax_one.xplane.pb.gz"
SLOW_INPUT = DATA.parent.parent / "benchmarks" / "faults" / "captures" / "slow_input.xplane.pb.gz"
US = MICROSECOND


def bucketed(events: list[Event], *buckets: Buckets, nested: bool = False) -> Totals:
    with open_bytes(space([Plane("/device:GPU:0", [Line("ops", events)])]), "toy") as opened:
        return read_totals(opened, [TotalsOf(line=opened.planes[0].lines[0], nested=nested, buckets=buckets)])[0]


def cells(totals: Totals) -> dict[tuple[int, int], int]:
    spread = totals.spread
    return dict(zip(zip(spread.key, spread.bucket, strict=True), spread.self_ps, strict=True))


def test_an_event_is_shared_out_among_the_buckets_it_runs_through() -> None:
    # 5 to 32 in buckets of 10: 5, 10, 10, 2; the second span ends at 12, in a bucket of 2, and its buckets go on from number 4.
    found = bucketed([Event("a", 5, 27)], Buckets(0, 40, 10), Buckets(0, 12, 10))
    assert cells(found) == {(0, 0): 5, (0, 1): 10, (0, 2): 10, (0, 3): 2, (0, 4): 5, (0, 5): 2}


def test_an_event_inside_another_takes_its_time_where_it_ran() -> None:
    # A loop from 0 to 30 with a body from 8 to 22: the loop keeps 8 of the first bucket and 8 of the last.
    found = bucketed([Event("loop", 0, 30), Event("body", 8, 14)], Buckets(0, 30, 10), nested=True)
    assert cells(found) == {(0, 0): 8, (0, 1): 0, (0, 2): 8, (1, 0): 2, (1, 1): 10, (1, 2): 2}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(0, 90)), max_size=30), st.integers(1, 40), st.booleans())
def test_buckets_of_a_key_sum_to_its_self_time(events: list[tuple[int, int, int]], width: int, nested: bool) -> None:
    begin, made = 0, []
    for name, gap, duration in events:
        begin += gap
        made.append(Event(f"op{name}", begin, duration))
    found = bucketed(made, Buckets(0, 5_000, width), nested=nested)
    sums = [0] * len(found)
    for (key, _), self_ps in cells(found).items():
        sums[key] += self_ps
    assert sums == list(found.self_ps)


def device(*times_us: int, complete: bool = True) -> DevicePart:
    """A device with steps of these times, of each of which half is busy."""
    steps, begin = {}, 0
    for mark, time in enumerate(times_us):
        steps[mark] = Extent(begin * US, (begin + time // 2) * US, time // 2 * US, complete)
        begin += time
    subject = Subject(name="op")
    end = begin - times_us[-1] + times_us[-1] // 2
    return DevicePart(plane="", ordinal=0, name="", rates={}, wall_ps=end * US, busy_ps=end * US // 2, rows={subject: Tally()}, steps=steps)


def test_the_typical_step_is_the_median_of_those_that_others_follow() -> None:
    # The last of 2 µs has no successor; of 90, 10, 30 and 20 the lower median is 20, which is the fourth.
    assert typical([device(90, 10, 30, 20, 2)]) == 3
    step, run = spans([device(90, 10, 30, 20, 2)])
    assert (step.mark, step.buckets.begin_ps, step.buckets.end_ps) == (3, 130 * US, 150 * US)
    assert (run.mark, run.buckets.begin_ps, run.buckets.end_ps) == (None, 0, 151 * US)


def test_steps_of_the_warm_up_are_not_typical_unless_there_are_no_others() -> None:
    # Of 90, 80 and 10 the median is 80, which compiled like the first; the last has no successor.
    assert typical([device(90, 80, 10, 10)]) == 1
    assert typical([device(90, 80, 10, 10)], warm={0, 1}) == 2
    assert typical([device(90, 80)], warm={0, 1}) == 0


def test_a_single_step_is_typical_and_without_steps_there_is_the_run_alone() -> None:
    assert typical([device(10, complete=False)]) == 0
    assert [span.mark for span in spans([replace(device(10), steps={})])] == [None]


def test_a_bucket_keeps_its_longest_ops_and_the_sum_of_the_rest() -> None:
    # Two buckets of 100: forty ops of 1 to 2 in the first, one of 50 in the second.
    spent = [{op: 2 if op < 20 else 1 for op in range(40)}, {7: 50}]
    made = lane(Span(None, Buckets(0, 200, 100)), spent, [60, 50])
    assert made.ops == (tuple(range(MOST_OPS)), (7,))
    assert made.ops_ps == ((2,) * MOST_OPS, (50,))
    assert dict(made.rest) == {op: 2 if op < 20 else 1 for op in range(MOST_OPS, 40)}
    assert sum(made.ops_ps[0]) + sum(time for _, time in made.rest) == 60


def lane_of(report: Report, step: int | None) -> LaneInfo:
    return next(lane for lane in report.timeline if (lane.step is None) == (step is None))


def parts_of(lane: LaneInfo) -> dict[str, float]:
    return {"at_roof": sum(lane.at_roof_s), **{cause: sum(seconds) for cause, seconds in lane.causes.items()}}


def check(lane: LaneInfo, point: Point, busy_s: float, near: float) -> None:
    """The buckets sum to their lengths, the lane to its time, busy and idle as told, and the causes to those of the point."""
    count = len(lane.at_roof_s)
    assert count <= BUCKETS
    for bucket in range(count):
        length = min(lane.bucket_s, lane.time_s - bucket * lane.bucket_s)
        assert lane.at_roof_s[bucket] + sum(seconds[bucket] for seconds in lane.causes.values()) == pytest.approx(length, rel=1e-3)
        assert len(lane.ops[bucket]) == len(lane.ops_s[bucket]) <= MOST_OPS
    parts = parts_of(lane)
    assert sum(parts.values()) == pytest.approx(lane.time_s, rel=1e-5)
    assert lane.time_s - parts.get("idle", 0.0) == pytest.approx(busy_s, rel=1e-4)
    assert point.time_s == pytest.approx(lane.time_s)
    for cause, seconds in {"at_roof": point.at_roof_s or 0.0, **point.lost}.items():
        assert parts.get(cause, 0.0) == pytest.approx(seconds, abs=near * lane.time_s), cause


@every(("capture", "near"), [(TRAIN, 2e-3), (CPU, 0.06)])
def test_a_lane_of_a_capture_sums_to_the_times_and_losses_of_its_step_and_run(capture: Path, near: float) -> None:
    report = analyze(capture, timeline=True)
    total = next(point for point in report.points if point.scope == "total" and point.infeed_outfeed)
    run = lane_of(report, None)
    assert report.coverage.busy_s
    check(run, total, report.coverage.busy_s, 1e-4)
    step = lane_of(report, 0)
    (point,) = [point for point in report.points if point.scope == "step" and point.step == step.step and point.infeed_outfeed]
    assert point.busy_s
    check(step, point, point.busy_s, near)
    assert run.start_s == 0 <= step.start_s < run.time_s


def test_plain_reports_have_no_timeline_and_are_otherwise_the_same() -> None:
    plain, timed = read(TRAIN), read(TRAIN, timeline=True)
    assert plain.timeline == ()
    assert timed.timeline
    assert (plain.workload, plain.coverage, plain.steps) == (timed.workload, timed.coverage, timed.steps)


def toy(folder: Path) -> Path:
    """One step of 40 µs: a copy beside a kernel on another stream, a gap, a kernel; and the first kernel of the next."""
    first = [kernel("k1", 0, 10 * US, correlation_id=1), kernel("k2", 30 * US, 10 * US, correlation_id=2)]
    first.append(kernel("k1", 40 * US, 10 * US, correlation_id=4))
    second = [kernel("k3", 0, 20 * US, correlation_id=3)]
    annotations = [annotation(0, 0, 10 * US), annotation(1, 20 * US, 10 * US)]
    launches = [launch(1, 1), launch(3, 2), launch(2, 3), launch(4, 21 * US)]
    return write(folder, [gpu(first, second), host([*annotations, *launches])])


def test_streams_that_run_at_the_same_time_share_it(tmp_path: Path) -> None:
    # Of 40 µs in buckets of 40 ns: to 10 µs k1 and k3 share each bucket, to 20 µs k3 is alone, to 30 µs nothing runs, then k2.
    recording = read(toy(tmp_path), timeline=True)
    step = recording.timeline[0]
    names = [recording.workload.ops[ops[0]].name if ops else "" for ops in step.ops]
    assert (step.step, step.bucket_s, len(step.ops)) == (0, pytest.approx(40e-9), 1_000)
    assert [sorted(recording.workload.ops[op].name for op in ops) for ops in step.ops[:250]] == [["k1", "k3"]] * 250
    assert step.ops_s[0] == (pytest.approx(20e-9), pytest.approx(20e-9))
    assert names[250:] == ["k3"] * 250 + [""] * 250 + ["k2"] * 250
    assert [round(busy * 1e9) for busy in step.busy_s] == [40] * 500 + [0] * 250 + [40] * 250


def test_ops_that_buckets_do_not_list_count_by_their_own_causes(tmp_path: Path) -> None:
    # Twenty kernels of unknown cost, in turn, 100 ns each in a run of 2 ms: each bucket of 2 µs has all of them, and lists eight.
    events = [kernel(f"k{place % 20}", place * 100_000, 100_000, correlation_id=place) for place in range(20_000)]
    report = analyze(write(tmp_path, [gpu(events)]), timeline=True)
    (run,) = report.timeline
    assert {len(ops) for ops in run.ops} == {MOST_OPS}
    assert parts_of(run) == {"at_roof": 0, "unpriced": pytest.approx(2e-3)}


def test_memory_and_the_report_grow_with_buckets_not_with_events_or_ops(tmp_path: Path) -> None:
    events = [kernel(f"k{place % 1_000}", place * 1_000, 1_000, correlation_id=place) for place in range(50_000)]
    (lane,) = read_part(write(tmp_path, [gpu(events)]), timeline=True).devices[0].lanes
    assert sum(map(len, lane.ops)) <= MOST_OPS * BUCKETS
    assert len(lane.rest) <= 1_000
    assert sum(map(sum, lane.ops_ps)) + sum(time for _, time in lane.rest) == sum(lane.busy_ps) == 50_000 * 1_000


def test_parts_with_lanes_are_packed_and_come_back(tmp_path: Path) -> None:
    part = read_part(toy(tmp_path), timeline=True)
    assert unpack(pack(part)) == part


def test_a_cached_profile_without_a_timeline_is_read_again_for_one(tmp_path: Path) -> None:
    profile = toy(tmp_path)
    assert read(profile, cache=tmp_path / "cache").timeline == ()
    assert len(read(profile, cache=tmp_path / "cache", timeline=True).timeline) == 2
    assert read(profile, cache=tmp_path / "cache").timeline == ()


def test_each_device_has_a_lane_up_to_a_number_and_a_note_says_what_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [gpu([kernel("k", place * US, US, correlation_id=place + 1)], number=place) for place in range(3)]
    recording = read(write(tmp_path, devices), timeline=True)
    assert [lane.device for lane in recording.timeline] == [0, 1, 2]
    # All lanes of a host show the same 3 µs, in which each device is busy for one.
    assert [(lane.start_s, round(lane.time_s * 1e6), round(sum(lane.busy_s) * 1e6)) for lane in recording.timeline] == [(0, 3, 1)] * 3
    monkeypatch.setattr(timeline, "MOST_LANES", 2)
    fewer = read(tmp_path / "host.xplane.pb", timeline=True)
    assert [lane.device for lane in fewer.timeline] == [0, 1]
    assert "the timeline shows the first 2 devices; 1 more are left out" in fewer.notes


def three_gpus() -> list[Plane]:
    return [gpu([kernel("k", place * US, US, correlation_id=place + 1)], number=place) for place in range(3)]


def three_tpus() -> list[Plane]:
    clock = {"device_offset_ps": 0, "device_duration_ps": US}
    return [Plane(f"/device:TPU:{place}", [Line("XLA Ops", [Event("%f = f32[8]{0} fusion()", 0, US, clock)])]) for place in range(3)]


@pytest.mark.parametrize("planes", [three_gpus, three_tpus])
def test_timelines_are_made_for_the_devices_alone_that_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planes: Callable[[], list[Plane]]
) -> None:
    """A small file may name hundreds of devices, of which each would take a thousand buckets."""
    made = list[Span]()

    def counted(span: Span, *rest: Any) -> Any:
        made.append(span)
        return lane(span, *rest)

    monkeypatch.setattr(of_tables, "lane", counted)
    monkeypatch.setattr(timeline, "MOST_LANES", 2)
    part = read_part(write(tmp_path, planes()), timeline=True)
    assert [len(device.lanes) for device in part.devices] == [1, 1, 0]
    assert len(made) == 2


def test_cpu_devices_beyond_those_shown_have_no_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MOST_LANES", 3)
    part = read_part(DATA / "cpu" / "jax_four.xplane.pb.gz", timeline=True)
    assert [bool(device.lanes) for device in part.devices] == [True, True, True, False]


def test_many_devices_list_fewer_ops_of_a_bucket() -> None:
    # Eight ops of 1 s each in a bucket of 8 s: 16 devices list 4 of them, 64 // 16.
    ops = tuple(Op(name=f"op{place}", cost=Cost.of({HBM: 10}), time_s=1.0, self_time_s=1.0) for place in range(8))
    one = {
        "step": None,
        "start_s": 0.0,
        "time_s": 8.0,
        "bucket_s": 8.0,
        "busy_s": (8.0,),
        "ops": (tuple(range(8)),),
        "ops_s": ((1.0,) * 8,),
    }
    for devices, listed in ((1, 8), (8, 8), (16, 4), (64, 1)):
        lanes = tuple(Lane(device=device, **one) for device in range(devices))
        report = analyze(Recording(workload=Workload(ops), format="table", timeline=lanes), machine())
        assert [len(lane.ops[0]) for lane in report.timeline] == [listed] * devices
        assert [sum(lane.at_roof_s) for lane in report.timeline] == [8.0] * devices


def test_the_command_writes_a_timeline_when_asked_and_for_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile, plain, timed, page = toy(tmp_path), tmp_path / "plain.json", tmp_path / "timed.json", tmp_path / "page.html"
    assert main(["analyze", str(profile), "--json", str(plain)]) == 0
    assert main(["analyze", str(profile), "--json", str(timed), "--timeline"]) == 0
    assert main(["analyze", str(profile), "-o", str(page)]) == 0
    capsys.readouterr()
    assert json.loads(plain.read_text())["timeline"] == []
    lanes = json.loads(timed.read_text())["timeline"]
    assert [(lane["device"], lane["step"]) for lane in lanes] == [(0, 0), (0, None)]
    assert '"bucket_s"' in page.read_text()


def test_each_idle_bucket_has_the_reason_of_most_of_its_idle_time() -> None:
    # Four buckets of 100: busy, half idle for one reason, idle for two, busy but for short gaps that stand for each other.
    made = lane(Span(None, Buckets(0, 400, 100)), [{0: 100}, {0: 50}, {}, {0: 90}], [100, 50, 0, 90])
    slow, read = IdleKey("input", "load", "data.py:3"), IdleKey("sync", "show")
    pauses = [Pause(150, 230, 80, slow), Pause(230, 300, 70, read), Pause(300, 390, 10, slow)]
    (found,) = with_host([made], pauses)
    assert found.reasons == (slow, read)
    assert found.host == (None, 0, 1, 0)


def test_the_host_is_above_the_idle_buckets_of_a_capture() -> None:
    report = analyze(SLOW_INPUT, timeline=True)
    run = lane_of(report, None)
    idle = run.causes["idle"]
    by_reason = dict.fromkeys(range(len(report.idle)), 0.0)
    for place, seconds in zip(run.host, idle, strict=True):
        assert (place is None) == (seconds == 0) or seconds < 1e-3 * run.bucket_s
        if place is not None:
            by_reason[place] += seconds
    longest = report.idle[0]
    assert (longest.reason, longest.location) == ("input", "programs.py:42")
    assert by_reason[0] == pytest.approx(longest.time_s, rel=0.02)


def test_the_command_draws_the_timeline_with_the_host_above_what_is_idle(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(SLOW_INPUT), "--timeline"]) == 0
    lines = capsys.readouterr().out.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("Timeline of step"))
    above, below = lines[begin + 1], lines[begin + 2]
    assert (above[:10].strip(), below[:10].strip()) == ("host", "device 0")
    assert "p" in above[10:]
    assert all(mark == " " or under == "." for mark, under in zip(above[10:], below[10:], strict=False))
    assert any(line.startswith("p host in Python: ") and "programs.py:42" in line for line in lines)
    assert main(["analyze", str(SLOW_INPUT)]) == 0
    assert "Timeline of" not in capsys.readouterr().out


def test_many_devices_are_drawn_up_to_a_number() -> None:
    row: dict[str, Any] = {"time_s": 1.0, "bucket_s": 1.0, "at_roof_s": (1.0,), "causes": {}, "ops": ((),), "ops_s": ((),)}
    lanes = tuple(LaneInfo(device=device, step=None, start_s=0.0, **row) for device in range(MOST_DEVICES + 2))
    text = timeline_text(replace(analyze(TRAIN), timeline=lanes))
    assert text.count("\ndevice ") == MOST_DEVICES
    assert "… and 2 more; --only device=" in text
    assert timeline_text(replace(analyze(TRAIN), timeline=lanes), devices=[3]).count("\ndevice ") == 1
