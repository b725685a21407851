"""The law: bounds over any number of units, what binds, how far from the roof."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from roofline.cost import Cost
from roofline.errors import MachineError, UsageError
from roofline.machine import Capacity, Machine
from roofline.placement import Corrections, fit, place, place_op
from toys import BF16, FP8, FP32, HBM, toy

positive = st.integers(1, 10**12)
costs = st.dictionaries(st.sampled_from([BF16, FP8, FP32, HBM]), positive, min_size=1).map(Cost.of)


def test_below_the_ridge_memory_binds() -> None:
    # 50 FLOP over 10 B is 5 FLOP/B, left of the ridge at 10.
    placed = place(Cost.of({BF16: 50, HBM: 10}), toy(), time_s=2.0)
    assert (placed.bound, placed.floor_s, placed.efficiency) == ("hbm", 1.0, 0.5)


def test_above_the_ridge_compute_binds() -> None:
    placed = place(Cost.of({BF16: 200, HBM: 10}), toy(), time_s=2.0)
    assert (placed.bound, placed.floor_s, placed.serial_s, placed.efficiency) == ("matrix", 2.0, 3.0, 1.0)


def test_on_the_ridge_the_compute_unit_is_named() -> None:
    assert place(Cost.of({BF16: 100, HBM: 10}), toy()).bound == "matrix"


def test_formats_on_one_unit_add_up() -> None:
    # 100/100 s in bf16 and 100/200 s in fp8 on one matrix unit.
    assert place(Cost.of({BF16: 100, FP8: 100}), toy()).times == (("matrix", 1.5),)


def test_hops_and_bytes_share_their_link() -> None:
    # 3 B at 1 B/s and 2 hops at 4 a second.
    assert place(Cost.of({"ici": 3, "ici/hop": 2}), toy()).times == (("ici", 3.5),)


def test_attainable_achieved_and_headroom() -> None:
    placed = place(Cost.of({BF16: 50, HBM: 10}), toy(), time_s=4.0)
    assert (placed.attainable, placed.achieved, placed.headroom_s) == (50.0, 12.5, 3.0)
    assert placed.utilization == {"hbm": 0.25, "matrix": 0.125}


def test_an_efficiency_above_one_is_not_clipped() -> None:
    assert place(Cost.of({HBM: 10}), toy(), time_s=0.5).efficiency == 2.0


def test_an_unrated_resource_leaves_the_floor_to_the_rated_units() -> None:
    placed = place(Cost.of({"matrix/int4": 50, HBM: 10}), toy())
    assert (placed.floor_s, [str(resource) for resource in placed.unrated]) == (1.0, ["matrix/int4"])


def test_work_no_unit_is_rated_for_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(MachineError, match=r"toy has no known rate for matrix/int4; known: .*; add one with --set"):
        place(Cost.of({"matrix/int4": 50}), toy())


def test_unknown_work_gives_a_floor_from_what_is_known() -> None:
    placed = place(Cost.of({FP32: None, HBM: 10}), toy(), time_s=2.0)
    assert (placed.floor_s, placed.efficiency) == (1.0, 0.5)
    assert [str(resource) for resource in placed.unknown] == ["vector/fp32"]


def test_work_that_asks_for_nothing_is_bound_by_nothing() -> None:
    placed = place(Cost(), toy(), time_s=1.0)
    assert (placed.bound, placed.efficiency, placed.floor_s) == (None, None, 0.0)


def test_a_short_op_with_a_tiny_floor_is_bound_by_latency() -> None:
    chip = replace(toy(), launch_latency_s=1.0)
    assert place(Cost.of({HBM: 5}), chip, time_s=4.9).bound == "latency"  # floor 0.5 < 1 and time < 5
    assert place(Cost.of({HBM: 5}), chip, time_s=5.0).bound == "hbm"
    assert place(Cost.of({HBM: 10}), chip, time_s=4.9).bound == "hbm"
    assert place(Cost.of({HBM: 5}), chip).bound == "hbm"  # nothing was measured


def test_latency_is_judged_by_the_execution_not_by_the_total() -> None:
    chip = replace(toy(), launch_latency_s=1.0)
    # A hundred executions of half a second's floor, 2 s each.
    assert place(Cost.of({HBM: 500}), chip, time_s=200.0, executions=100).bound == "latency"
    assert place(Cost.of({HBM: 500}), chip, time_s=200.0).bound == "hbm"


def test_an_unknown_minimum_is_below_a_launch_only_where_the_time_is() -> None:
    chip = replace(toy(), launch_latency_s=1.0)
    nothing_known, bytes_known = Cost.of({FP32: None, HBM: None}), Cost.of({FP32: None, HBM: 5})
    # 3 s are below five launches, but the unknown work may need all of them.
    assert place_op(nothing_known, chip, time_s=3.0).bound is None
    assert place_op(bytes_known, chip, time_s=3.0).bound == "hbm"  # of what is known
    # In 0.9 s no work needs as long as a launch.
    assert place_op(nothing_known, chip, time_s=0.9).bound == "latency"
    assert place_op(bytes_known, chip, time_s=9.0, executions=10).bound == "latency"


def test_negative_times_are_refused() -> None:
    with pytest.raises(UsageError, match="measured time"):
        place(Cost.of({HBM: 1}), toy(), time_s=-1)


class TestCorrections:
    """Each is off by default; they apply in their order."""

    cost = Cost.of({BF16: 200, HBM: 10})  # 2 s of compute and 1 s of memory

    def test_a_sustained_fraction_lowers_rates(self) -> None:
        assert place(self.cost, toy(), corrections=Corrections(sustained=0.5)).floor_s == 4.0
        assert place(self.cost, toy(), corrections=Corrections(sustained={"matrix": 0.8})).floor_s == 2.5
        assert place(self.cost, toy(), corrections=Corrections(sustained={"hbm": 0.25})).bound == "hbm"

    @pytest.mark.parametrize("fraction", [0.2, 0.4, 0.6])
    def test_communication_lowers_the_chips_roofs_but_not_the_links(self, fraction: float) -> None:
        placed = place(self.cost + Cost.of({"ici": 1}), toy(), corrections=Corrections(communication=fraction))
        assert placed.floor_s == pytest.approx(2 / (1 - fraction))
        assert dict(placed.times)["ici"] == 1.0

    def test_overlap_moves_the_expected_time_between_the_bounds(self) -> None:
        assert [place(self.cost, toy(), corrections=Corrections(overlap=o)).expected_s for o in (1, 0.5, 0)] == [2.0, 2.5, 3.0]

    def test_launches_set_a_least_time(self) -> None:
        chip = replace(toy(), launch_latency_s=1.0)
        assert place(self.cost, chip, corrections=Corrections(launches=10)).expected_s == 10.0
        assert place(self.cost, chip, corrections=Corrections(launches=1)).expected_s == 2.0

    def test_they_apply_in_order(self) -> None:
        # 2 s / 0.5 sustained / (1 - 0.5) = 8 s and 1 s / 0.25 = 4 s; half overlapped 8 + 0.5 * 4 = 10.
        placed = place(self.cost, toy(), corrections=Corrections(sustained=0.5, communication=0.5, overlap=0.5))
        assert (placed.floor_s, placed.serial_s, placed.expected_s) == (8.0, 12.0, 10.0)

    @pytest.mark.parametrize("bad", [{"communication": 1.0}, {"overlap": 1.5}, {"launches": -1}, {"communication": -0.1}])
    def test_impossible_corrections_are_refused(self, bad: dict[str, float]) -> None:
        with pytest.raises(UsageError):
            Corrections(**bad)


@given(costs)
def test_the_bounds_are_ordered_and_at_most_a_factor_of_units_apart(cost: Cost) -> None:
    placed = place(cost, toy())
    assert placed.floor_s <= placed.serial_s * (1 + 1e-12)
    assert placed.serial_s <= len(placed.times) * placed.floor_s * (1 + 1e-12)


@given(costs, st.integers(1, 1000))
def test_the_floor_is_linear_in_cost(cost: Cost, times: int) -> None:
    assert place(times * cost, toy()).floor_s == pytest.approx(times * place(cost, toy()).floor_s)


@given(costs, st.floats(1, 100))
def test_a_faster_memory_never_raises_the_floor(cost: Cost, factor: float) -> None:
    assert place(cost, toy().override({"hbm": 10 * factor})).floor_s <= place(cost, toy()).floor_s


@given(costs, costs)
def test_a_sum_takes_at_least_its_dearest_part_and_at_most_both(a: Cost, b: Cost) -> None:
    both = place(a + b, toy()).floor_s
    one, other = place(a, toy()).floor_s, place(b, toy()).floor_s
    assert max(one, other) <= both * (1 + 1e-12)
    assert both <= (one + other) * (1 + 1e-12)


@given(positive, positive)
def test_two_units_are_the_classical_roofline(flops: int, moved: int) -> None:
    chip = Machine.of("two", {"matrix/bf16": 100, "hbm": 10})
    cost = Cost.of({BF16: flops, HBM: moved})
    classical = min(100, 10 * flops / moved)
    assert place(cost, chip).attainable == pytest.approx(classical)
    assert chip.attainable(flops / moved, BF16) == pytest.approx(classical)


def test_work_fits_or_says_by_how_much_it_does_not() -> None:
    chip = replace(toy(), capacities=(Capacity(level=HBM, bytes=100),))
    small, large = fit(60, chip), fit(160, chip)
    assert small is not None
    assert large is not None
    assert (small.fits, small.spare, large.fits, large.spare) == (True, 40, False, -60)
    assert fit(60, toy()) is None  # nobody knows how much a toy holds


def test_one_op_that_no_unit_is_rated_for_does_not_spoil_a_program() -> None:
    from roofline.analysis import analyze
    from roofline.workload import Op, Recording, Workload

    ops = (Op(name="exchange", cost=Cost.of({"dcn": 5}), time_s=1.0), Op(name="copy", cost=Cost.of({HBM: 10}), time_s=2.0))
    report = analyze(Recording(workload=Workload(ops), format="table"), toy())
    assert {op.name: op.efficiency for op in report.ops} == {"exchange": None, "copy": 0.5}
    assert "unrated" in {finding.kind for finding in report.findings}
    alone = replace(ops[0], time_s=None)
    with pytest.raises(MachineError, match="toy has no known rate for dcn"):
        analyze(Recording(workload=Workload((alone,)), format="table"), toy())


def test_without_a_rate_for_the_matrix_unit_a_product_has_no_bound() -> None:
    # int8 products have no path but the matrix unit; the 1 s of its bytes says nothing about its arithmetic.
    placed = place_op(Cost.of({"matrix/int8": 1000, "hbm": 10}), toy(), time_s=20.0)
    assert (placed.bound, placed.unit, placed.efficiency, placed.floor_s) == (None, None, None, 1.0)
    assert [resource.name for resource in placed.may_bind] == ["matrix/int8"]


def test_an_unrated_link_or_a_chip_without_compute_rates_gives_no_bound_either() -> None:
    assert place_op(Cost.of({"nvlink": 100, "hbm": 10}), toy()).bound is None
    assert place_op(Cost.of({"vector/fp32": 100, "hbm": 10}), Machine.of("bare", {"hbm": 10})).bound is None


def test_a_product_without_a_matrix_rate_has_no_bound_and_no_attainable_rate() -> None:
    # 1000 FLOP/B would be 10,000 FLOP/s by the memory alone.
    found = place_op(Cost.of({"matrix/bf16": 10_000, "hbm": 10}), Machine.of("gpu", {"vector/fp32": 20, "hbm": 10}, kind="gpu"), time_s=5.0)
    assert (found.bound, found.attainable, found.efficiency) == (None, None, None)
    assert [resource.name for resource in found.unrated] == ["matrix/bf16"]
    # Beside a rated matrix unit an unrated vector unit leaves the bound, as do on-chip memories.
    assert place_op(Cost.of({"vector/fp32": 100, "hbm": 10}), Machine.of("tpu", {"matrix/bf16": 100, "hbm": 10})).bound == "hbm"
    assert place_op(Cost.of({"vmem.read": 100, "hbm": 10}), toy()).bound == "hbm"
