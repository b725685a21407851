"""Steps after a change: bounds by the host's pace."""

import pytest

from roofline.changed_steps import host_bounds, launching_bounds
from roofline.changed_times import Changed, applied
from roofline.cost import Cost
from roofline.workload import Op, Recording, Share, Step, Workload

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
    assert launching_bounds(recording(), after(1 * MS, no_idle=True)) == pytest.approx((0.0, 2 * MS))
    assert launching_bounds(recording(), after(20 * MS, no_idle=True)) == pytest.approx((0.0, 0.0))
