"""The host's pace: how short and how long steps get once their device work changes."""

from pathlib import Path
from statistics import median

import pytest

from every import every
from roofline import analyze
from roofline.analysis.changes.host_pace import pace_of, paced, recovery
from roofline.sources.report_json import as_recording
from roofline.workload import Step
from torch_writer import training

MLP = Path(__file__).parent / "data" / "h200" / "pairs" / "mlp_bf16.xplane.pb.gz"
MS = 1e-3


def steps_of(*steps: tuple[float, float, float, float]) -> list[Step]:
    """Steps from their milliseconds: time, work, lead, and from first to last launch; each of them waits for nothing once it has begun."""
    return [
        Step(step=key, time_s=time * MS, span_s=time * MS, busy_s=busy * MS, lead_s=lead * MS, launching_s=launching * MS)
        for key, (time, busy, lead, launching) in enumerate(steps)
    ]


def test_a_device_that_is_faster_than_its_host_waits_for_the_launches() -> None:
    # The host launches a step every 4 ms; the device takes 10 ms a step and falls 6 ms behind in each.
    steps = steps_of((10, 10, 0, 3), (10, 10, 6, 3), (10, 10, 12, 3), (10, 10, 18, 3))
    pace = pace_of(steps, {})
    assert pace is not None
    assert pace.next_s == pytest.approx([4 * MS] * 4)
    now = [10 * MS] * 4
    assert paced(pace, now, now)[:3] == pytest.approx([10 * MS] * 3)
    assert paced(pace, now, [6 * MS] * 4)[:3] == pytest.approx([6 * MS] * 3)
    assert paced(pace, now, [1 * MS] * 4)[:3] == pytest.approx([4 * MS] * 3)
    assert paced(pace, now, [6 * MS] * 4, slower=2)[:3] == pytest.approx([8 * MS] * 3)


def test_a_device_that_was_behind_when_the_recording_began_is_not_if_it_is_faster_than_the_host() -> None:
    steps = steps_of((10, 10, 30, 3), (10, 10, 36, 3), (10, 10, 42, 3))
    pace = pace_of(steps, {})
    assert pace is not None
    assert paced(pace, [10 * MS] * 3, [1 * MS] * 3)[:2] == pytest.approx([4 * MS] * 2)


def test_the_first_step_waits_for_its_last_launch_however_long_its_work_is() -> None:
    # A graph that runs from 2 ms after the first launch on: 1 ms of launching, 1 ms until it runs.
    first = Step(step=0, time_s=5 * MS, span_s=5 * MS, busy_s=3 * MS, lead_s=0.0, launching_s=1 * MS)
    steps = [first, *(replaced for replaced in steps_of((3, 3, 0, 0.5), (3, 3, 4, 0.5), (3, 3, 6, 0.5))[1:])]
    pace = pace_of(steps, {0: 2 * MS})
    assert pace is not None
    assert (pace.delay_s[0], pace.tail[0]) == pytest.approx((1 * MS, 1.0))
    now = [3 * MS] * 3
    assert paced(pace, now, [9 * MS] * 3)[:2] == pytest.approx([11 * MS, 9 * MS])


def test_a_host_whose_launches_still_become_faster_has_not_settled() -> None:
    # It takes 8, 4 and 4 ms a step, and launches in half the time in the last one: 2 ms then, and 1.85 times that in a first step usually.
    steps = steps_of((10, 10, 0, 2), (10, 10, 2, 1), (10, 10, 8, 1), (10, 10, 14, 0.5))
    pace = pace_of(steps, {})
    assert pace is not None
    assert pace.next_s[1:] == pytest.approx([2 * MS] * 3)
    assert pace.next_s[0] == pytest.approx((8 * 1.85 * 2) ** 0.5 * MS)
    slow = pace_of(steps, {}, median)
    assert slow is not None
    assert slow.next_s == pytest.approx([8 * MS, 4 * MS, 4 * MS, 4 * MS])


def test_a_host_that_waits_for_the_device_shows_no_pace_of_its_own() -> None:
    # It is one step ahead and stays so: its launches come as often as the device ends a step.
    pace = pace_of(steps_of((10, 10, 10, 3), (10, 10, 10, 3), (10, 10, 10, 3)), {})
    assert pace is not None
    assert paced(pace, [10 * MS] * 3, [1 * MS] * 3)[:2] == pytest.approx([1 * MS] * 2)


def test_without_launches_there_is_no_pace() -> None:
    assert pace_of([Step(step=key, time_s=1.0, span_s=1.0, busy_s=1.0) for key in range(3)], {}) is None


@every(("call_us", "times"), [(28, 0.5), (7, 1.0), (3, 1.0), (None, 1.0)])
def test_a_host_that_other_work_slows_down_is_faster_in_another_recording(call_us: float | None, times: float) -> None:
    steps = [Step(step=key, launch_call_s=None if call_us is None else call_us * 1e-6) for key in range(3)]
    assert recovery(steps) == pytest.approx(times)


def test_profiles_say_when_the_host_launched_each_step(tmp_path: Path) -> None:
    report = analyze(MLP)
    assert all(step.lead_s is not None and step.lead_s > 0 for step in report.steps)
    leads = [step.lead_s or 0.0 for step in report.steps]
    assert leads == sorted(leads)  # the host gets ahead of the device
    assert all(step.launching_s is not None and step.launching_s < 1 * MS for step in report.steps)
    assert [step.lead_s for step in as_recording(report).steps] == leads


def test_traces_say_when_the_host_launched_each_step(tmp_path: Path) -> None:
    report = analyze(training().write(tmp_path / "trace.json"))
    # Launched at 5 to 32 µs of every 50, run at 1,000 µs and every 100 after that.
    assert [step.lead_s for step in report.steps] == pytest.approx([995e-6, 1045e-6, 1095e-6])
    assert [step.launching_s for step in report.steps] == pytest.approx([27e-6] * 3)
    assert [step.launch_call_s for step in report.steps] == pytest.approx([6.2e-6] * 3)
    assert [step.launch_call_s for step in as_recording(report).steps] == [step.launch_call_s for step in report.steps]
