"""Launches faster than main memory allows: a cache served them."""

from msgspec.structs import replace

from every import every
from roofline.analysis import analyze
from roofline.analysis.cache_hits import with_cache_hits
from roofline.cost import Cost
from roofline.machine import Capacity, Machine
from roofline.placement import place_op
from roofline.render.screen import report_text
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
    return with_cache_hits(one, place_op(one.cost, TOY, one.time_s, executions=one.launches))


def test_a_launch_faster_than_memory_counts_on_the_cache() -> None:
    # 80 B take 8 s from memory; it took 4: all of them fit in the cache, which needs 2 s.
    found = moved_to_cache(op(80, 4))
    assert found is not None
    assert found.cost == Cost.of({"l2": 80, "vector/fp32": 1})
    report = analyze(Recording(workload=Workload((op(80, 4),)), format="xspace"), TOY)
    assert (report.ops[0].bound, report.ops[0].efficiency) == ("l2", 0.5)
    assert "faster than hbm allows (200%), so its 80 B per launch count as l2 traffic" in report.ops[0].notes[0]
    # That is no advice: it is a note, not a finding, and the text has it once.
    assert report_text(report).count("faster than hbm allows") == 1
    assert "copy: faster than hbm allows, so its data came from a cache: its bytes count as cache traffic" in report.input.notes
    assert "between-roofs" not in {finding.kind for finding in report.findings}


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


@every("provenance", ["user", "formula", "profile", "counter"])
def test_only_compulsory_traffic_is_moved(provenance: str) -> None:
    assert moved_to_cache(op(80, 4, bytes_provenance=provenance)) is None
    assert moved_to_cache(op(80, 4, bytes_provenance="shape")) is not None


def test_a_machine_without_a_known_cache_keeps_the_doubt() -> None:
    bare = replace(TOY, capacities=())
    one = op(80, 4)
    assert with_cache_hits(one, place_op(one.cost, bare, one.time_s)) is None
    assert analyze(Recording(workload=Workload((one,)), format="xspace"), bare).findings[0].kind in ("above-roof", "between-roofs")


# 10 B/s from memory, 20 B/s from an L3 of 200 B, 40 B/s from an L2 of 100 B, 100 B/s from an L1 of 20 B.
CPU = Machine.of(
    "cpu",
    {"vector/fp32": 1000, "hbm": 10, "l3": 20, "l2": 40, "l1": 100},
    kind="cpu",
    capacities=tuple(Capacity(level=Resource(name), bytes=held) for name, held in (("l1", 20), ("l2", 100), ("l3", 200))),
)


@every(
    ("moved", "time_s", "crossed"),
    [
        (80, 4, {"l3": 80}),  # L3 needs 4 s
        (80, 2, {"l2": 80}),  # too fast for L3, and all of it fits into L2
        (150, 3.8, {"l2": 150, "l3": 50}),  # 50 B were not in L2; they need 2.5 s from L3
        (250, 7.6, {"l2": 250, "l3": 150, "hbm": 50}),
        (16, 0.2, {"l1": 16}),
    ],
)
def test_each_memory_behind_a_cpus_cache_is_charged_with_what_did_not_fit(moved: float, time_s: float, crossed: dict[str, float]) -> None:
    one = op(moved, time_s)
    found = with_cache_hits(one, place_op(one.cost, CPU, time_s))
    assert found is not None
    assert found.cost == Cost.of({"vector/fp32": 1, **crossed})
    assert (place_op(found.cost, CPU, time_s).efficiency or 0) <= 1.02


def test_a_gpus_l1_keeps_nothing_between_launches() -> None:
    one = op(16, 0.2)
    gpu = replace(CPU, kind="gpu")
    assert with_cache_hits(one, place_op(one.cost, gpu, 0.2)) is None
