"""Costs add and scale; unknown never becomes 0."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline.cost import Cost
from roofline.errors import FormulaError
from toys import BF16, FP8, FP32, HBM

amounts = st.dictionaries(st.sampled_from([BF16, FP8, FP32, HBM]), st.one_of(st.none(), st.integers(0, 10**15)))
costs = amounts.map(Cost.of)


def test_an_absent_resource_is_a_known_zero() -> None:
    assert Cost.of({HBM: 10})[BF16] == 0
    assert Cost.of({HBM: 10}).is_known


def test_unknown_is_none_and_stays_so_in_sums() -> None:
    total = Cost.of({FP32: None, HBM: 10}) + Cost.of({FP32: 5})
    assert total[FP32] is None
    assert total.known(FP32) == 5  # the known part is still there
    assert total.flops is None
    assert total.bytes() == 10


def test_flops_leave_transcendentals_apart() -> None:
    assert Cost.of({"vector/fp32": 7, "vector/transcendental": 3, "matrix/bf16": 10}).flops == 17


def test_bytes_of_a_memory_sum_its_reads_and_writes() -> None:
    assert Cost.of({"vmem.read": 3, "vmem.write": 4, "vmem2.read": 100}).bytes("vmem") == 7


def test_intensity_is_per_level() -> None:
    cost = Cost.of({BF16: 60, HBM: 10, "ici": 3})
    assert (cost.intensity(), cost.intensity("ici"), cost.intensity("l2")) == (6.0, 20.0, None)


@given(costs, costs, costs)
def test_addition_commutes_and_associates(a: Cost, b: Cost, c: Cost) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert sum([a, b, c]) == a + b + c


@given(costs, st.integers(1, 9), st.integers(1, 9))
def test_scaling_distributes_over_addition(a: Cost, m: int, n: int) -> None:
    assert m * a + n * a == (m + n) * a


@given(costs)
def test_doing_something_no_times_costs_nothing(a: Cost) -> None:
    assert 0 * a == Cost()


def test_exact_fractions_stay_exact() -> None:
    assert (Cost.of({HBM: 3}) * Fraction(1, 3))[HBM] == 1


@every("amount", [-1, float("nan")])
def test_impossible_amounts_are_refused(amount: float) -> None:
    with pytest.raises(FormulaError, match="amounts are 0 or more"):
        Cost.of({HBM: amount})


def test_work_cannot_be_done_a_negative_number_of_times() -> None:
    with pytest.raises(FormulaError, match="0 or more"):
        Cost.of({HBM: 1}) * -1


@given(st.lists(costs))
def test_the_sum_of_many_is_that_of_each_in_turn(many: list[Cost]) -> None:
    assert Cost.total(many) == sum(many, Cost())


@given(costs)
def test_resources_come_in_order_of_name_with_their_amounts(cost: Cost) -> None:
    assert list(cost.items()) == [(resource, cost[resource]) for resource in sorted({r for r, _ in cost.amounts} | cost.unknown)]
    assert list(cost) == [resource for resource, _ in cost.items()]
