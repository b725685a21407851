"""Parts and sums of ops: what is cut, what is added, and that ratios follow."""

import pytest

from roofline.op_parts import part, summed
from roofline.operation import Label
from roofline.report import CounterInfo, Expected, OpInfo

# 8 executions in 4 s of a minimum of 2: expected 3 (2 to 3.5), so that 1 s is inherent and 1 s excess; half of the work is not needed.
WHOLE = OpInfo(
    id=0,
    rank=3,
    name="dot.1",
    bound="matrix",
    count=8,
    kernels=16,
    time_s=4.0,
    self_time_s=4.0,
    work={"matrix/bf16": 80, "vector/fp32": None},
    known={"vector/fp32": 8},
    bytes={"hbm": 40},
    floor_s=2.0,
    serial_s=2.4,
    times={"matrix": 2.0, "hbm": 0.4},
    needed={"matrix/bf16": 40},
    needed_s=1.0,
    unneeded={"masked": 40},
    expected=Expected(time_s=3.0, low_s=2.0, high_s=3.5, terms={"compute": 3.0}),
    excess_s=1.0,
    by_shape={"hbm": 40},
    counters=CounterInfo(work={"matrix/bf16": 88}, bytes={"hbm": 44}, flops=88, time_s=5.0),
)


def test_a_part_has_its_share_of_everything_and_its_own_time() -> None:
    half = part(WHOLE, 4, 3.0)  # the slower half of the executions
    assert (half.count, half.kernels, half.time_s, half.self_time_s) == (4, 8, 3.0, 3.0)
    assert (half.work, half.known, half.bytes) == ({"matrix/bf16": 40, "vector/fp32": None}, {"vector/fp32": 4}, {"hbm": 20})
    assert (half.floor_s, half.serial_s, half.times) == (1.0, 1.2, {"matrix": 1.0, "hbm": 0.2})
    assert half.expected == Expected(time_s=1.5, low_s=1.0, high_s=1.75, terms={"compute": 1.5})
    assert (half.excess_s, half.inherent_s) == (1.5, 0.5)  # 3 s are 1 of minimum, 0.5 that its shape takes, and the rest
    assert (half.needed, half.needed_s, half.unneeded, half.by_shape) == ({"matrix/bf16": 20}, 0.5, {"masked": 20}, {"hbm": 20})
    assert half.counters
    assert (half.counters.flops, half.counters.rate) == (44, 44 / 3.0)
    assert half.efficiency == 1 / 3


def test_the_parts_of_an_op_add_up_to_it() -> None:
    parts = [part(WHOLE, 4, 3.0), part(WHOLE, 4, 1.0)]
    assert sum(one.excess_s or 0.0 for one in parts) == 1.5  # the faster half has no time above what was expected
    total = summed(parts, name=WHOLE.name, label=Label(), scope="")
    for field in (
        "count",
        "kernels",
        "time_s",
        "self_time_s",
        "work",
        "known",
        "bytes",
        "floor_s",
        "serial_s",
        "times",
        "needed",
        "needed_s",
    ):
        assert getattr(total, field) == getattr(WHOLE, field), field
    assert (total.expected, total.unneeded, total.by_shape) == (WHOLE.expected, WHOLE.unneeded, WHOLE.by_shape)


def test_a_row_for_eight_equal_ops_is_expected_to_take_eight_times_as_long() -> None:
    row = summed([WHOLE] * 8, name="dot.1 and 7 more", label=Label("layer*", "dot"), scope="layer*")
    assert row.expected
    assert (row.expected.time_s, row.expected.low_s, row.expected.high_s) == (24.0, 16.0, 28.0)
    assert (row.inherent_s, row.excess_s, row.floor_s, row.needed_s) == (8.0, 8.0, 16.0, 8.0)
    assert (row.efficiency, row.rank, row.rate) == (0.5, 3, None)  # not all of its FLOP are known


def test_a_sum_is_unknown_where_an_op_is() -> None:
    unknown = OpInfo(id=1, rank=1, name="call", count=1)
    row = summed([WHOLE, unknown], name="", label=Label(), scope="")
    assert (row.time_s, row.floor_s, row.expected, row.counters, row.excess_s) == (None,) * 5
    assert row.work == WHOLE.work


def test_the_part_that_is_the_whole_is_the_op_itself() -> None:
    assert part(WHOLE, 8, 4.0) is WHOLE


def test_of_a_part_without_a_time_nothing_is_lost_or_reached() -> None:
    half = part(WHOLE, 4, None)
    assert (half.time_s, half.self_time_s, half.efficiency, half.lost_s, half.inherent_s) == (None,) * 5
    assert half.floor_s == pytest.approx(1.0)
