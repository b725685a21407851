"""Launches faster than main memory allows: a cache served them."""

import pytest
from msgspec.structs import replace

from roofline.analysis import analyze
from roofline.analysis.cache_hits import resident
from roofline.cost import Cost
from roofline.machine import Capacity, Machine
from roofline.placement import hold
from roofline.resource import Resource
from roofline.workload import Op, Recording, Workload

# 10 B/s from memory, 40 B/s from a cache of 100 B.
TOY = Machine.of(
    "toy", {"vector/fp32": 1000, "hbm": 10, "l2": 40}, capacities=(Capacity(level=Resource("l2"), bytes=100, provenance="user"),)
)


def op(moved: float, time_s: float, count: int = 1, **details: object) -> Op:
    cost = Cost.of({"hbm": moved, "vector/fp32": 1})
    return Op(name="copy", cost=cost, count=count, time_s=time_s, **{"bytes_provenance": "compiler"} | details)  # type: ignore[arg-type]


def moved_to_cache(one: Op) -> Op | None:
    return resident(one, hold(one.cost, TOY, one.time_s, executions=one.launches))


def test_a_launch_faster_than_memory_counts_on_the_cache() -> None:
    # 80 B take 8 s from memory; it took 4: all of them fit in the cache, which needs 2 s.
    found = moved_to_cache(op(80, 4))
    assert found is not None
    assert found.cost == Cost.of({"l2": 80, "vector/fp32": 1})
    report = analyze(Recording(workload=Workload((op(80, 4),)), format="xspace"), TOY)
    assert (report.ops[0].bound, report.ops[0].efficiency) == ("l2", 0.5)
    assert "faster than hbm allows (200%), so its 80 B per launch are counted on l2" in report.ops[0].notes[0]
    told = next(finding for finding in report.findings if finding.kind == "between-roofs")
    assert told.ops == (0,)
    assert told.message == "faster than hbm allows, so their bytes are counted on the cache: copy."


def test_memory_is_charged_with_what_the_cache_cannot_hold_at_each_launch() -> None:
    # Two launches of 150 B in 12 s each: 50 B of each cannot have been in a cache of 100 B.
    found = moved_to_cache(op(300, 24, count=2))
    assert found is not None
    assert found.cost == Cost.of({"hbm": 100, "l2": 300, "vector/fp32": 1})


def test_a_launch_that_memory_can_have_served_stays_where_it_is() -> None:
    assert moved_to_cache(op(80, 8)) is None
    assert moved_to_cache(op(80, 8 / 1.01)) is None  # rates are not known better than that


def test_a_launch_too_fast_for_the_cache_too_is_a_wrong_count() -> None:
    assert moved_to_cache(op(80, 1)) is None
    # 300 B in one launch: 200 B came from memory and need 20 s.
    assert moved_to_cache(op(300, 15)) is None


@pytest.mark.parametrize("provenance", ["user", "formula", "profile", "counter"])
def test_only_what_a_compiler_counted_is_moved(provenance: str) -> None:
    assert moved_to_cache(op(80, 4, bytes_provenance=provenance)) is None


def test_a_machine_without_a_known_cache_keeps_the_doubt() -> None:
    bare = replace(TOY, capacities=())
    one = op(80, 4)
    assert resident(one, hold(one.cost, bare, one.time_s)) is None
    assert analyze(Recording(workload=Workload((one,)), format="xspace"), bare).findings[0].kind in ("above-roof", "between-roofs")
