"""The columnar law agrees with the scalar one, op by op."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from roofline.columns.cost_columns import Columns, place_columns
from roofline.cost import Cost
from roofline.errors import FormulaError, MachineError
from roofline.placement import place
from toys import BF16, FP8, FP32, HBM, toy

INT4 = "matrix/int4"
resources = st.sampled_from([str(BF16), str(FP8), str(FP32), str(HBM), "ici", INT4])
amounts = st.one_of(st.none(), st.floats(0, 1e15))
rows = st.lists(st.tuples(st.dictionaries(resources, amounts), st.one_of(st.none(), st.floats(1e-9, 1e3))), min_size=1, max_size=20)


@given(rows)
def test_it_agrees_with_the_scalar_law(table: list[tuple[dict[str, float | None], float | None]]) -> None:
    chip = replace(toy(), launch_latency_s=0.1)
    costs = [Cost.of({**cost, "hbm": cost.get("hbm") or 1.0}) for cost, _ in table]
    times = [time for _, time in table]
    placed = place_columns(Columns.of(costs, times), chip)
    efficiency, known = placed.efficiency
    for index, (cost, time) in enumerate(zip(costs, times, strict=True)):
        scalar = place(cost, chip, time)
        assert placed.floor_s[index] == pytest.approx(scalar.floor_s)
        assert placed.serial_s[index] == pytest.approx(scalar.serial_s)
        assert placed.bound[index] == scalar.bound
        assert bool(placed.priced[index]) == cost.is_known
        assert (efficiency[index] if known[index] else None) == (None if scalar.efficiency is None else pytest.approx(scalar.efficiency))


def test_a_million_ops_are_placed_from_arrays_alone() -> None:
    many = np.full((2, 10**6), 50.0)
    placed = place_columns(
        Columns((BF16, HBM), many, np.zeros(many.shape, dtype=np.bool_), np.full(10**6, 10.0), np.ones(10**6, dtype=np.bool_)), toy()
    )
    assert placed.floor_s.sum() == 5e6  # each is 50 B at 10 B/s


def test_negative_amounts_are_refused() -> None:
    with pytest.raises(FormulaError, match="negative"):
        Columns((HBM,), np.array([[-1.0]]), np.array([[False]]), np.array([1.0]), np.array([True]))


def test_columns_no_unit_is_rated_for_are_an_error() -> None:
    with pytest.raises(MachineError, match="toy has no known rate for matrix/int4"):
        place_columns(Columns.of([Cost.of({INT4: 1})]), toy())
