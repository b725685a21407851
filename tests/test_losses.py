"""Where the time went: at the roofs and lost by cause, which together are the wall time."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from every import every
from roofline.analysis import analyze
from roofline.analysis.losses import OpLoss, split_losses
from roofline.analysis.placed_ops import PlacedOps
from roofline.causes import CAUSES
from roofline.cost import Cost
from roofline.machine import Machine
from roofline.placement import IDEAL
from roofline.report import Point
from roofline.workload import Coverage, Op, Recording, Share, Step, Workload
from toys import BF16, HBM, toy

LINKED = Machine.of("linked", {"matrix/bf16": 100, "hbm": 10, "ici": 1})


@every(
    ("amounts", "expected"),
    [
        ({"hbm": 10}, "memory"),
        ({"matrix/bf16": 100}, "compute"),
        ({"ici": 10, "hbm": 1}, "communication"),
        ({}, "latency"),  # it needs nothing: control flow, waiting
        ({"hbm": 1e-9}, "latency"),  # far below what a launch takes
        ({"hbm": 10, "matrix/bf16": None}, "unpriced"),
        ({"nvlink": 10}, "unpriced"),  # the machine has no rate for it
        ({"nvlink": 10, "hbm": 1}, "unpriced"),  # the link may take longer than the rated unit
    ],
)
def test_time_above_the_floor_is_lost_to_what_binds(amounts: dict[str, float | None], expected: str) -> None:
    op = Op(name="op", cost=Cost.of(amounts), time_s=2e-6 if amounts == {"hbm": 1e-9} else 20.0)
    assert PlacedOps([op], LINKED, IDEAL).causes == [expected]


def test_an_op_is_at_its_roof_for_its_floor_and_the_rest_is_lost() -> None:
    # 10 s of wall: one op 4 s of which 3 at the roof, one 2 s of which 0.5; 4 s in which nothing ran.
    found = split_losses([OpLoss(4.0, 3.0, "memory"), OpLoss(2.0, 0.5, "compute")], 10.0, 6.0)
    assert found.at_roof_s == 3.5
    causes = {"memory": 1.0, "compute": 1.5, "idle": 4.0}
    assert found.lost == dict.fromkeys(CAUSES, 0.0) | causes


def test_work_that_was_not_needed_is_lost_as_such() -> None:
    # 4 s, of which 3 at the roof, of which the model needed 1.
    found = split_losses([OpLoss(4.0, 3.0, "memory", 1.0)], 4.0, 4.0)
    assert (found.at_roof_s, found.lost["unneeded"], found.lost["memory"]) == (1.0, 2.0, 1.0)


def test_streams_that_overlap_lose_nothing_twice() -> None:
    # Two streams of 4 s side by side are busy for 4 s, half of which is each one's.
    found = split_losses([OpLoss(4.0, 1.0, "memory"), OpLoss(4.0, 4.0, "compute")], 5.0, 4.0)
    assert (found.at_roof_s, found.lost["memory"], found.lost["compute"], found.lost["idle"]) == (3.0, 1.0, 0.0, 1.0)


def test_busy_time_that_no_op_has_is_unpriced() -> None:
    assert split_losses([OpLoss(1.0, 1.0, "memory")], 4.0, 3.0).lost["unpriced"] == 2.0


def test_an_op_above_its_roof_loses_nothing() -> None:
    found = split_losses([OpLoss(1.0, 5.0, "memory")], 1.0)
    assert (found.at_roof_s, sum(found.lost.values())) == (1.0, 0.0)


SECONDS = st.floats(0, 1e3, allow_nan=False)


@given(st.lists(st.builds(OpLoss, SECONDS, SECONDS, st.sampled_from(CAUSES), st.none())), SECONDS, st.none() | SECONDS)
def test_the_roofs_and_the_losses_make_up_the_wall_time(held: list[OpLoss], wall_s: float, busy_s: float | None) -> None:
    found = split_losses(held, wall_s, busy_s)
    assert found.at_roof_s + sum(found.lost.values()) == pytest.approx(wall_s, rel=1e-9, abs=1e-9)
    assert found.at_roof_s >= 0
    assert min(found.lost.values()) >= 0
    assert tuple(found.lost) == CAUSES


OPS = st.lists(
    st.tuples(
        st.sampled_from([{BF16: 100}, {HBM: 10}, {HBM: 1, "ici": 5}, {}, {HBM: None}]),
        st.lists(st.tuples(st.integers(1, 4), st.floats(0.01, 10)), min_size=2, max_size=2),
        st.floats(0, 1),
    ),
    min_size=1,
    max_size=6,
)


@example([({HBM: 10}, [(1, 0.01), (1, 0.01)], 0.0)], 5e-324)  # ops without time of their own, in a run that takes almost none
@given(OPS, st.floats(0, 5))
def test_the_law_holds_for_every_point_of_a_program(rows: list, idle: float) -> None:
    ops = tuple(
        Op(
            name=f"op{place}",
            category="infeed" if place == 3 else "",
            cost=Cost.of(amounts),
            count=sum(count for count, _ in shares),
            time_s=sum(seconds for _, seconds in shares),
            self_time_s=sum(seconds for _, seconds in shares) * own,
            by_step=tuple(Share(key=key, count=count, time_s=seconds) for key, (count, seconds) in enumerate(shares)),
        )
        for place, (amounts, shares, own) in enumerate(rows)
    )
    busy = sum(op.self_time_s or 0 for op in ops)
    steps = tuple(Step(step=key, time_s=busy / 2 + idle, busy_s=busy / 2) for key in (0, 1))
    recording = Recording(workload=Workload(ops), format="xspace", steps=steps, coverage=Coverage(wall_s=busy + 2 * idle, busy_s=busy))
    for point in analyze(recording, LINKED).points:
        assert parts(point) == pytest.approx(point.time_s, rel=1e-9, abs=1e-9)


def parts(point: Point) -> float:
    assert point.at_roof_s is not None
    return point.at_roof_s + sum(point.lost.values())


def test_a_program_without_times_has_no_losses() -> None:
    (point,) = analyze(Recording(workload=Workload((Op(name="x", cost=Cost.of({HBM: 10})),)), format="hlo"), toy()).points
    assert (point.at_roof_s, point.lost) == (None, {})


def test_an_op_at_its_roof_loses_nothing_though_the_seconds_were_added_up() -> None:
    # 3 B at 10 B/s take 0.3 s; 0.1 + 0.2 is more than 0.3 by a rounding error.
    found = analyze(Recording(workload=Workload((Op(name="copy", time_s=0.1 + 0.2, cost=Cost.of({"hbm": 3})),)), format="table"), LINKED)
    assert [op.lost_s for op in found.ops] == [0.0]
