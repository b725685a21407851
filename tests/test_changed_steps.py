"""Steps after a change: bounds by the host's pace."""

import pytest
from msgspec.structs import replace

from every import every
from roofline import analyze
from roofline.analysis.changes.changed_steps import host_bounds, launching_bounds
from roofline.analysis.changes.changed_times import Changed, applied
from roofline.analysis.changes.host_pace import pace_of, paced
from roofline.analysis.changes.outcome import Uncertainty
from roofline.analysis.what_if import _point
from roofline.cost import Cost
from roofline.machines import load
from roofline.report import Point
from roofline.workload import Device, IdleReason, Op, Recording, Share, Step, Workload

MS = 1e-3
STEPS = 4


def recording(call_s: float | None = None, waits_s: float = 0.0) -> Recording:
    """The device works 10 ms in each of four steps; the host launches one every 4 ms, 3 ms of it from the first launch to the last."""
    shares = tuple(Share(key=key, count=1, time_s=10 * MS) for key in range(STEPS))
    op = Op(name="a", cost=Cost.of({"hbm": 1}), time_s=10 * MS * STEPS, count=STEPS, by_step=shares)
    steps = tuple(
        Step(
            step=key,
            time_s=10 * MS,
            span_s=10 * MS,
            busy_s=10 * MS,
            device_seconds=10 * MS,
            lead_s=6 * MS * key,
            launching_s=3 * MS,
            launch_call_s=call_s,
            followed=key < STEPS - 1,
        )
        for key in range(STEPS)
    )
    waits = (IdleReason(kind="dispatch", activity="step", time_s=waits_s, gaps=1, by_step=(Share(key=0, count=1, time_s=waits_s),)),)
    return Recording(format="xspace", workload=Workload((op,)), steps=steps, idle=waits if waits_s else ())


def after(each_s: float, before: Recording | None = None, **options: bool) -> Recording:
    whole = each_s * STEPS
    return applied(before or recording(), {0: Changed(time_s=whole, low_s=whole, high_s=whole, cost=Cost.of({"hbm": 1}))}, **options)


def test_a_step_gets_no_shorter_than_the_host_takes_to_launch_it() -> None:
    assert [step.time_s for step in after(6 * MS).steps[:3]] == pytest.approx([6 * MS] * 3)
    assert [step.time_s for step in after(1 * MS).steps[:3]] == pytest.approx([4 * MS] * 3)


def test_a_host_that_was_slowed_down_and_held_nothing_up_takes_less_the_next_time() -> None:
    assert [step.time_s for step in after(1 * MS, recording(call_s=28e-6)).steps[:3]] == pytest.approx([2 * MS] * 3)
    assert [step.time_s for step in after(6 * MS, recording(call_s=28e-6)).steps[:3]] == pytest.approx([6 * MS] * 3)
    held_up = recording(call_s=28e-6, waits_s=0.1 * MS)  # its pace is that of the step
    assert [step.time_s for step in after(1 * MS, held_up).steps[1:3]] == pytest.approx([4 * MS] * 2)


def test_bounds_say_that_the_host_may_be_much_faster_or_slower() -> None:
    assert host_bounds(recording(), after(1 * MS)) == pytest.approx((2.4 * MS, 6 * MS))  # 4 ms a step: 1.6 to 10
    assert host_bounds(recording(), after(20 * MS)) == pytest.approx((0.0, 0.0))  # the device takes longer than any host
    assert host_bounds(recording(), recording()) is None  # nothing changes


def test_without_waiting_the_host_still_has_to_launch() -> None:
    faster = after(1 * MS, no_idle=True)
    assert [step.time_s for step in faster.steps] == pytest.approx([3 * MS] * STEPS)
    assert [(one.kind, one.time_s) for one in faster.idle] == [("dispatch", pytest.approx(2 * MS * STEPS))]
    assert launching_bounds(recording(), faster) == pytest.approx((1.8 * MS, 4.5 * MS))  # 3 ms a step: 1.2 to 7.5
    slower = after(20 * MS, no_idle=True)
    assert [step.time_s for step in slower.steps] == pytest.approx([20 * MS] * STEPS)
    assert not slower.idle
    assert launching_bounds(recording(), slower) == pytest.approx((0.0, 0.0))
    assert [step.time_s for step in after(1 * MS, no_idle=True, one_graph=True).steps] == pytest.approx([1 * MS] * STEPS)


def test_a_host_that_waits_in_the_middle_of_a_step_launches_faster_than_that() -> None:
    """It launches 1 ms of work, reads a value for 5 ms, and launches another: 1 ms of idle time is its own."""

    def shares(seconds: float) -> tuple[Share, ...]:
        return tuple(Share(key=key, count=1, time_s=seconds) for key in range(2))

    op = Op(name="a", cost=Cost.of({"hbm": 1}), time_s=4 * MS, count=2, by_step=shares(2 * MS))
    idle = tuple(
        IdleReason(kind=kind, activity="f", time_s=2 * each, gaps=2, by_step=shares(each))
        for kind, each in (("sync", 5 * MS), ("dispatch", 1 * MS))
    )
    steps = tuple(Step(step=key, time_s=8 * MS, span_s=8 * MS, busy_s=2 * MS, lead_s=0.0, launching_s=7 * MS) for key in range(2))
    waiting = Recording(format="xspace", workload=Workload((op,)), steps=steps, idle=idle)
    assert [step.time_s for step in applied(waiting, {}, no_idle=True).steps] == pytest.approx([3 * MS] * 2)


def test_a_device_that_waits_for_a_faster_host_does_so_at_the_beginning_of_a_step() -> None:
    first = Step(step=0, time_s=8.2 * MS, span_s=8.2 * MS, busy_s=8 * MS, lead_s=0.1 * MS, launching_s=2.7 * MS)
    second = Step(step=1, time_s=8 * MS, span_s=8 * MS, busy_s=8 * MS, lead_s=5 * MS, launching_s=2 * MS)
    pace = pace_of((first, second), {0: 0.2 * MS})
    assert pace is not None
    assert paced(pace, [8 * MS] * 2, [4 * MS] * 2) == pytest.approx([4.2 * MS, 4 * MS])  # the wait stays, and does not grow


def test_a_host_whose_lead_grows_by_more_than_a_step_takes_no_negative_time() -> None:
    steps = [Step(step=key, time_s=MS, span_s=MS, busy_s=MS, lead_s=lead, launching_s=MS) for key, lead in enumerate((MS, 2 * MS, 9 * MS))]
    pace = pace_of(tuple(steps), {})
    assert pace is not None
    assert all(each >= 0 for each in pace.next_s)
    assert paced(pace, [MS] * 3, [MS] * 3) == pytest.approx([MS] * 3)


def test_a_step_is_as_short_as_device_and_host_may_be_together() -> None:
    # Ops of 24 ms may be 4 ms shorter or 6 ms longer; the step has a quarter of them.
    doubt = Uncertainty(ops_s=24 * MS, low_s=4 * MS, high_s=6 * MS, again=0.0, host_s=0.0, gone_s=0.0, launched=None, hotter=0.0)
    point = Point(scope="average", infeed_outfeed=True, time_s=8 * MS, busy_s=6 * MS)
    old = analyze(recording(), load("h200"))
    device, both = (_point(point, old, replace(doubt, launched=(host, 0.0)), None).expected for host in (0.0, 2 * MS))
    assert device is not None
    assert both is not None
    assert (device.low_s, both.low_s) == (pytest.approx(7 * MS), pytest.approx(5 * MS))
    assert both.high_s == device.high_s == pytest.approx(9.5 * MS)
    roof = _point(replace(point, floor_s=5.9 * MS), old, replace(doubt, launched=(4 * MS, 0.0)), None).expected
    assert roof is not None
    assert roof.low_s == 5.9 * MS  # never below the minimum


def on_the_cpu() -> Recording:
    """PyTorch on the CPU: in each of four steps ops of 10 ms, and 2 ms between them."""
    found = recording(waits_s=1 * MS)
    shares = tuple(Share(key=key, count=5, time_s=2 * MS) for key in range(STEPS))
    idle = (replace(found.idle[0], time_s=2 * MS * STEPS, gaps=5 * STEPS, by_step=shares),)
    steps = tuple(replace(step, time_s=12 * MS, span_s=12 * MS, lead_s=None, launching_s=None) for step in found.steps)
    return replace(found, format="torch", devices=(Device(id=0, name="CPU"),), steps=steps, idle=idle)


@every(("ops_ms", "step_ms"), [(1, 3), (5, 7), (40, 42)])
def test_between_ops_on_the_cpu_the_host_works_as_long_as_before(ops_ms: int, step_ms: int) -> None:
    assert [step.time_s for step in after(ops_ms * MS, on_the_cpu()).steps] == pytest.approx([step_ms * MS] * STEPS)
