"""Ops placed in batches give the report that ops placed one by one give, byte for byte."""

from fractions import Fraction

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import roofline.analysis as analysis
from roofline.analysis import assemble, batches
from roofline.cost import Cost
from roofline.machine import Machine
from roofline.placement import IDEAL, Corrections
from roofline.workload import Op, Recording, Workload

CHIP = replace(
    Machine.of("toy", {"matrix/bf16": 100, "vector/fp32": 20, "hbm": 10, "l2": 40, "ici": 1, "ici/hop": 5}), launch_latency_s=0.05
)
RESOURCES = st.sampled_from(["matrix/bf16", "vector/fp32", "vector/transcendental", "hbm", "hbm.read", "l2", "ici", "ici/hop", "dcn"])
# Whole numbers, fractions and numbers beyond what an array holds exactly are all amounts.
AMOUNTS = st.one_of(st.none(), st.integers(0, 1000), st.floats(1e-3, 1e3), st.just(Fraction(1, 3)), st.just(2**60 + 1))
COSTS = st.dictionaries(RESOURCES, AMOUNTS, max_size=4)
TIMES = st.one_of(st.none(), st.just(0.0), st.floats(1e-3, 1e3))
NAMES = st.sampled_from(["fusion", "gemm", "dot.3", "copy"])
OPS = st.lists(st.tuples(COSTS, TIMES, NAMES, st.sampled_from([0, 1, 7])), min_size=1, max_size=30)
WAYS = st.sampled_from([IDEAL, Corrections(overlap=0.5), Corrections(sustained=0.7, launches=3)])


def recording(rows: list[tuple[dict[str, float | None], float | None, str, int]]) -> Recording:
    ops = [
        Op(name=f"{name}.{number}", cost=Cost.of({**cost, "hbm": cost.get("hbm") or 3}), time_s=time_s, count=count)
        for number, (cost, time_s, name, count) in enumerate(rows)
    ]
    return Recording(workload=Workload(tuple(ops)), format="table")


@settings(max_examples=150, deadline=None)
@given(OPS, WAYS)
def test_batches_give_the_same_report(rows: list[tuple[dict[str, float | None], float | None, str, int]], way: Corrections) -> None:
    given = recording(rows)
    expected = msgspec.json.encode(assemble(given, CHIP, way))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "MANY", 0)
        patch.setattr(batches, "FEW", 1)
        assert msgspec.json.encode(assemble(given, CHIP, way)) == expected


def test_plain_ops_are_all_placed_in_batches() -> None:
    # 20 B take 2 s of memory; 50 FLOP half a second: every op is the same batch, whatever its time.
    ops = [Op(name=f"op{number}", cost=Cost.of({"matrix/bf16": 50, "hbm": 20}), time_s=3.0 + number) for number in range(100)]
    (batch,), alone = batches.split(ops, CHIP, IDEAL)
    assert (batch.units, len(batch.ids), alone) == (("hbm", "matrix"), 100, [])
    assert batch.floors == [2.0] * 100


def test_ops_about_which_there_is_more_to_say_are_placed_one_by_one() -> None:
    plain = [Op(name="op", cost=Cost.of({"hbm": 20}), time_s=3.0)] * 100
    odd = [
        Op(name="unknown", cost=Cost.of({"hbm": 20, "matrix/bf16": None}), time_s=3.0),
        Op(name="too fast", cost=Cost.of({"hbm": 20}), time_s=1.0),
        Op(name="no rate", cost=Cost.of({"hbm": 20, "dcn": 1}), time_s=3.0),
    ]
    (batch,), alone = batches.split([*plain, *odd], CHIP, IDEAL)
    assert (len(batch.ids), alone) == (100, [100, 101, 102])
