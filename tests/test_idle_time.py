"""Idle time in findings is that of an average step, and gaps between kernels are won only where kernels could be fewer."""

import pytest
from msgspec.structs import replace

from every import every
from roofline.analysis import assemble
from roofline.analysis.idle_time import waiting
from roofline.cost import Cost
from roofline.machine import Machine
from roofline.report import Finding
from roofline.workload import CHECKS_RESULTS, READS_VALUES, Coverage, IdleReason, Op, Recording, Share, Step, Workload

CHIP = replace(Machine.of("toy", {"vector/fp32": 20, "hbm": 10}), launch_latency_s=0.001)


def reason(kind: str, *seconds: float) -> IdleReason:
    """A reason with these seconds in steps 0, 1, 2 …"""
    shares = tuple(Share(key=key, count=1, time_s=time_s) for key, time_s in enumerate(seconds) if time_s)
    return IdleReason(kind=kind, activity="load", time_s=sum(seconds), gaps=len(shares), by_step=shares)


def recording(*idle: IdleReason, steps: int = 5, op: Op | None = None) -> Recording:
    """Steps of one second of work each, and of three seconds of idle time between them; no gap follows the last."""
    each = tuple(Share(key=key, count=1, time_s=1.0) for key in range(steps))
    op = op or Op(name="add", cost=Cost.of({"hbm": 10}) * steps, time_s=float(steps), count=steps)
    made = [Step(step=key, time_s=4.0 if key < steps - 1 else 1.0, busy_s=1.0, followed=key < steps - 1) for key in range(steps)]
    wall = 4.0 * steps - 3.0
    return Recording(
        workload=Workload((replace(op, by_step=each),)),
        format="xspace",
        steps=tuple(made),
        coverage=Coverage(wall_s=wall, busy_s=float(steps)),
        idle=idle,
    )


def finding(kind: str, recording: Recording) -> Finding | None:
    return next((one for one in assemble(recording, CHIP).findings if one.kind == kind), None)


def test_the_gaps_between_five_steps_are_not_spread_over_five() -> None:
    found = finding("idle-input", recording(reason("input", 3, 3, 3, 3)))
    assert found is not None
    assert found.saving_per_step_s == 3.0
    assert found.saving_s == 12.0, "in the run there are four of them"
    assert "3 s of 4 s per step" in found.message
    assert "the step would take 1 s" in found.message


def test_the_search_for_nan_is_told_to_be_turned_off() -> None:
    found = finding("idle-sync", recording(replace(reason("sync", 3, 3, 3, 3), cause=CHECKS_RESULTS)))
    assert found is not None
    assert "Turn on NaN checks only while looking for a NaN" in found.message
    assert "jax_debug_nans" in found.levers[0]


@every(("reads", "together"), [(13, True), (2, False)])
def test_values_that_are_read_one_by_one_are_told_to_be_read_together(reads: int, together: bool) -> None:
    one = reason("sync", 3, 3, 3, 3)
    each = tuple(replace(share, count=reads) for share in one.by_step)
    found = finding("idle-sync", recording(replace(one, cause=READS_VALUES, by_step=each)))
    assert found is not None
    assert ("jax.device_get(metrics)" in found.levers[0]) == together


def test_what_only_the_first_step_of_a_profile_waited_for_does_not_recur() -> None:
    assert finding("idle-dispatch", recording(reason("dispatch", 3))) is None
    later = finding("idle-dispatch", recording(reason("dispatch", 0, 3)))
    assert later is not None
    assert later.saving_per_step_s == pytest.approx(1.0, rel=1e-3), "one of the three steps that are averaged"


def test_reasons_are_no_longer_than_the_average_step_is_idle() -> None:
    """The first step is left out of the reasons but not of the average, which a slower second step is above."""
    uneven = recording(reason("dispatch", 2, 4), steps=3)
    steps = [replace(step, time_s=time_s) for step, time_s in zip(uneven.steps, (3.0, 5.0, 1.0), strict=True)]
    found = finding("idle-dispatch", replace(uneven, steps=tuple(steps)))
    assert found is not None
    assert "3 s of 4 s per step" in found.message


def test_the_first_step_counts_where_few_others_do() -> None:
    # Of three steps the last has no gap after it, so only two have idle time to average.
    found = finding("idle-input", recording(reason("input", 3, 3), steps=3))
    assert found is not None
    assert found.saving_per_step_s == 3.0


def test_a_run_without_steps_waits_as_a_whole() -> None:
    plain = replace(recording(reason("input", 3, 3, 3, 3)), steps=())
    assert [(one.each_s, one.whole_s) for one in waiting(plain.idle, plain.steps, len(plain.devices), 2)] == [(6.0, 12.0)]


def test_gaps_between_large_kernels_are_told_and_not_promised() -> None:
    found = finding("latency", recording(reason("latency", 3, 3, 3, 3, 0)))
    assert found is not None
    assert found.saving_s is None
    assert "Between kernels the device is idle 3 s of 4 s per step" in found.message


def test_gaps_between_kernels_as_short_as_a_launch_can_be_won() -> None:
    # Each takes a second for a launch of as long, and 1 B of work; with the gaps there are 4 s a step to win.
    slow = replace(CHIP, launch_latency_s=1.0)
    small = Op(name="add", cost=Cost.of({"hbm": 0.001}) * 5, time_s=5.0, count=5)
    found = next(one for one in assemble(recording(reason("latency", 3, 3, 3, 3, 0), op=small), slow).findings if one.kind == "latency")
    assert "4 s of 4 s per step, including the gaps between kernels" in found.message
    assert found.saving_per_step_s == pytest.approx(4.0, rel=1e-3)


def test_gaps_between_small_products_can_be_won_though_their_launches_remain() -> None:
    slow = replace(Machine.of("toy", {"matrix/bf16": 20, "hbm": 10}), launch_latency_s=1.0)
    small = Op(name="dot", cost=Cost.of({"matrix/bf16": 0.001}) * 5, time_s=5.0, count=5)
    found = next(one for one in assemble(recording(reason("latency", 3, 3, 3, 3, 0), op=small), slow).findings if one.kind == "latency")
    assert found.ops == (0,)
    assert found.saving_per_step_s == pytest.approx(3.0, rel=1e-3)


def test_most_of_the_gaps_on_a_gpu_is_the_profiler() -> None:
    # As above: 1 s of small kernels a step, and 3 s between them.
    slow = replace(CHIP, launch_latency_s=1.0, kind="gpu")
    small = Op(name="add", cost=Cost.of({"hbm": 0.001}) * 5, time_s=5.0, count=5)
    profile = replace(recording(reason("latency", 3, 3, 3, 3, 0), op=small), format="xspace")
    found = next(one for one in assemble(profile, slow).findings if one.kind == "latency")
    assert "4 s of 4 s per step, including the gaps between kernels (about 70% of them profiler overhead)" in found.message
    assert found.saving_per_step_s == pytest.approx(1.0 + 3.0 * 0.3, rel=1e-3)
