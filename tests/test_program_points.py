"""Programs as points: the whole, the average of complete steps, each step, with and without infeed."""

from fractions import Fraction

import pytest

from every import every
from roofline.analysis import analyze
from roofline.cost import Amount, Cost
from roofline.machine import Machine
from roofline.report import Point, Report
from roofline.workload import Coverage, Device, Op, Recording, Share, Step, Workload
from toys import BF16, HBM, toy


def shares(*counts: float) -> tuple[Share, ...]:
    return tuple(Share(key=key, count=count, time_s=count) for key, count in enumerate(counts))


def recorded() -> Report:
    # A product that runs three times in step 0 and once in step 1, and a feed that runs once in each; step 2 was cut off.
    product = Op(name="dot", cost=Cost.of({BF16: 400, HBM: 4}), count=4, time_s=8.0, self_time_s=8.0, by_step=shares(3, 1))
    feed = Op(name="in", category="infeed", cost=Cost.of({HBM: 20}), count=2, time_s=4.0, self_time_s=4.0, by_step=shares(1, 1))
    steps = (
        Step(step=0, time_s=9.0, busy_s=8.0),
        Step(step=1, time_s=5.0, busy_s=4.0),
        Step(step=2, time_s=1.0, busy_s=1.0, complete=False),
    )
    coverage = Coverage(wall_s=16.0, busy_s=12.0, attributed_s=12.0, priced_s=12.0)
    return analyze(Recording(workload=Workload((product, feed)), format="xspace", steps=steps, coverage=coverage), toy())


def find(scope: str, step: int | None = None, feeds: bool = True) -> Point:
    return next(p for p in recorded().points if (p.scope, p.step, p.infeed_outfeed) == (scope, step, feeds))


def test_the_total_is_held_against_wall_time() -> None:
    total = find("total")
    # 400 FLOP are 4 s of the matrix unit, 24 B are 2.4 s of memory; the ops' own floors are 4 and 2 s.
    assert (total.time_s, total.busy_s, total.floor_s, total.bound) == (16.0, 12.0, 4.0, "matrix")
    assert total.efficiency == 0.25
    assert total.op_efficiency == 6 / 16


def test_minimum_times_of_ops_that_overlap_count_once() -> None:
    # Two copies of 40 B at 10 B/s, at once in the same 5 s, need 4 s each: each is at its roof in its half of the time, not for 8 of 5 s.
    ops = tuple(Op(name=name, cost=Cost.of({HBM: 40}), time_s=5.0, self_time_s=own_s) for name, own_s in (("a", 2.5), ("b", 2.5)))
    cover = Coverage(wall_s=5.0, busy_s=5.0, attributed_s=5.0, priced_s=5.0)
    (total,) = analyze(Recording(workload=Workload(ops), format="xspace", coverage=cover), toy()).points
    assert (total.floors_s, total.time_s, total.op_efficiency) == (8.0, 5.0, 1.0)
    assert total.at_roof_s == 5.0


def test_a_step_takes_the_share_of_executions_that_fell_into_it() -> None:
    assert (find("step", 0).work, find("step", 1).work) == ({"matrix/bf16": 300}, {"matrix/bf16": 100})
    assert [find("step", key).time_s for key in (0, 1)] == [9.0, 5.0]


def test_steps_that_were_cut_off_are_left_out() -> None:
    assert [point.step for point in recorded().points if point.scope == "step" and point.infeed_outfeed] == [0, 1]
    average = find("average")
    assert (average.time_s, average.busy_s, average.flops) == (7.0, 6.0, 200)


def test_the_average_is_over_steps_that_another_followed() -> None:
    def average(*steps: Step) -> float | None:
        op = Op(name="x", cost=Cost.of({HBM: 10}), count=2, time_s=2.0, by_step=shares(1, 1))
        report = analyze(Recording(workload=Workload((op,)), format="xspace", steps=steps), toy())
        return next(point.time_s for point in report.points if point.scope == "average")

    last = Step(step=1, time_s=1.0, followed=False)
    assert average(Step(step=0, time_s=7.0), last) == 7.0
    assert average(last) == 1.0  # a lone step lasts to the end of its work


def test_times_of_several_devices_are_wall_time_and_device_seconds() -> None:
    # Two devices, 8 s of work on each in a run of 10 s; the step takes 9 s on one of them and 10 on the other.
    op = Op(name="x", cost=Cost.of({HBM: 100}), count=2, time_s=16.0, self_time_s=16.0, by_step=(Share(key=0, count=2, time_s=16.0),))
    step = Step(step=0, time_s=9.5, slowest_s=10.0, span_s=9.0, busy_s=8.0, device_seconds=19.0)
    devices = tuple(Device(id=id, name="toy") for id in (0, 1))
    coverage = Coverage(wall_s=19.0, busy_s=16.0, run_s=10.0)
    recording = Recording(workload=Workload((op,)), format="xspace", devices=devices, steps=(step,), coverage=coverage)
    total, average, _ = analyze(recording, toy()).points
    assert (total.time_s, total.device_seconds, total.busy_s) == (10.0, 20.0, 8.0)
    # 100 B at 10 B/s are 10 s of one device, 5 s of two.
    assert (total.floor_s, total.efficiency, total.flops, total.bytes) == (5.0, 0.5, 0, {"hbm": 100})
    assert (average.time_s, average.slowest_s, average.span_s, average.busy_s, average.device_seconds) == (9.5, 10.0, 9.0, 8.0, 19.0)
    assert average.efficiency == pytest.approx(10 / 19)
    for point in (total, average):
        assert (point.at_roof_s or 0) + sum(point.lost.values()) == pytest.approx(point.time_s)


def test_infeed_and_outfeed_can_be_left_out() -> None:
    without = find("total", feeds=False)
    assert without.bytes == {"hbm": 4}
    assert without.time_s == pytest.approx(12.0)  # less the 4 s of the feed


def test_a_step_without_its_feed_is_shorter_by_it() -> None:
    # The feed took 1 s in each step, of 9 and 5 s of wall time, and of 8 and 4 s of busy time.
    assert [(find("step", key, False).time_s, find("step", key, False).busy_s) for key in (0, 1)] == [(8.0, 7.0), (4.0, 3.0)]
    assert find("step", 0, False).bytes == {"hbm": 3}


def test_the_report_names_every_step_it_saw() -> None:
    assert [(step.step, step.time_s, step.complete) for step in recorded().steps] == [(0, 9.0, True), (1, 5.0, True), (2, 1.0, False)]


def test_a_program_without_feeds_has_each_point_once() -> None:
    op = Op(name="x", cost=Cost.of({HBM: 10}), time_s=2.0)
    (point,) = analyze(Recording(workload=Workload((op,)), format="table"), toy()).points
    assert (point.scope, point.infeed_outfeed, point.efficiency) == ("total", True, 0.5)


def test_the_two_directions_of_the_hosts_bus_do_not_wait_for_each_other() -> None:
    # 30 B in and 20 B out at 10 B/s each way: 3 s at least, not 5.
    copies = [Op(name=way, cost=Cost.of({"pcie": size}), time_s=4.0, towards=way) for way, size in (("in", 30), ("out", 20))]
    bus = Machine.of("bus", {"pcie": 10, "hbm": 100})
    report = analyze(Recording(workload=Workload(tuple(copies)), format="xspace", coverage=Coverage(wall_s=4.0, busy_s=4.0)), bus)
    assert [op.bound for op in report.ops] == ["pcie", "pcie"]
    assert report.points[0].bytes == {"pcie.in": 30, "pcie.out": 20}
    assert (report.points[0].floor_s, report.points[0].bound) == (3.0, "pcie.in")


@every(
    ("amount", "total"),
    [(7, 21), (2**60 + 1, float(3 * 2**60 + 3)), (Fraction(1, 3), 1), (0.1, 0.1 + 0.1 + 0.1)],  # floats one after another, not 3 times 0.1
)
def test_costs_that_ops_share_are_counted_for_each(amount: Amount, total: float) -> None:
    cost = Cost.of({HBM: amount})
    (point,) = analyze(Recording(workload=Workload(tuple([Op(name="x", cost=cost)] * 3)), format="table"), toy()).points
    assert point.bytes == {"hbm": total}
