"""Steps after a change: bounds by the host's pace."""

import pytest

from roofline.changed_steps import host_bounds, launching_bounds
from roofline.changed_times import Changed, applied
from roofline.cost import Cost
from roofline.workload import IdleReason, Op, Recording, Share, Step, Workload

MS = 1e-3
STEPS = 4


def recording() -> Recording:
    """The device works 10 ms in each of four steps; the host launches one every 4 ms, 3 ms of it from the first launch to the last."""
    shares = tuple(Share(key=key, count=1, time_s=10 * MS) for key in range(STEPS))
    op = Op(name="a", cost=Cost.of({"hbm": 1}), time_s=10 * MS * STEPS, count=STEPS, by_step=shares)
    steps = tuple(
        Step(
            key=key,
            time_s=10 * MS,
            span_s=10 * MS,
            busy_s=10 * MS,
            device_seconds=10 * MS,
            lead_s=6 * MS * key,
            launching_s=3 * MS,
            followed=key < STEPS - 1,
        )
        for key in range(STEPS)
    )
    return Recording(format="xspace", workload=Workload((op,)), steps=steps)


def after(each_s: float, **options: bool) -> Recording:
    whole = each_s * STEPS
    return applied(recording(), {0: Changed(time_s=whole, low_s=whole, high_s=whole, cost=Cost.of({"hbm": 1}))}, **options)


def test_a_step_gets_no_shorter_than_the_host_takes_to_launch_it() -> None:
    assert [step.time_s for step in after(6 * MS).steps[:3]] == pytest.approx([6 * MS] * 3)
    assert [step.time_s for step in after(1 * MS).steps[:3]] == pytest.approx([4 * MS] * 3)


def test_bounds_say_that_the_host_may_be_twice_as_fast_or_as_slow() -> None:
    assert host_bounds(recording(), after(1 * MS)) == pytest.approx((2 * MS, 4 * MS))  # 4 ms a step: 2 to 8
    assert host_bounds(recording(), after(20 * MS)) == pytest.approx((0.0, 0.0))  # the device takes longer than any host
    assert host_bounds(recording(), recording()) is None  # nothing changes


def test_without_waiting_the_host_still_has_to_launch() -> None:
    faster = after(1 * MS, no_idle=True)
    assert [step.time_s for step in faster.steps] == pytest.approx([3 * MS] * STEPS)
    assert [(one.kind, one.time_s) for one in faster.idle] == [("dispatch", pytest.approx(2 * MS * STEPS))]
    assert launching_bounds(recording(), faster) == pytest.approx((1.5 * MS, 3 * MS))  # 3 ms a step: 1.5 to 6
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
    steps = tuple(Step(key=key, time_s=8 * MS, span_s=8 * MS, busy_s=2 * MS, lead_s=0.0, launching_s=7 * MS) for key in range(2))
    waiting = Recording(format="xspace", workload=Workload((op,)), steps=steps, idle=idle)
    assert [step.time_s for step in applied(waiting, {}, no_idle=True).steps] == pytest.approx([3 * MS] * 2)
