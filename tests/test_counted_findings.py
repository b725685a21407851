"""Counters name the fault of a kernel, and what it costs: kernels with one fault each, and the same without it, on an H200."""

import re
from pathlib import Path

import pytest

import roofline as rl
from every import every
from roofline.analysis.findings.counted import Good, losses
from roofline.cost import Cost
from roofline.machines.catalogue import load
from roofline.placement import MinimumTimes
from roofline.rules.words import page
from roofline.sources.ncu.recording import read_counters
from roofline.workload import Launch, Op, Usage

DATA = Path(__file__).parent / "data"
FAULTS, TRITON = DATA / "ncu_faults.csv.gz", DATA / "ncu_triton.csv.gz"
H200 = load("h200")
GOOD = Good(MinimumTimes(H200), H200.launch_latency_s)
# The launch with a fault, the kind of finding, and the launch without it, where the file has one.
PLANTED = [
    (0, "bank-conflicts", 1),
    (2, "bank-conflicts", 3),
    (4, "spilled-registers", 5),
    (6, "local-arrays", None),
    (7, "low-occupancy", 8),
    (9, "divergence", 10),
    (11, "uneven-blocks", 12),
    (13, "narrow-access", 14),
    (15, "contended-atomics", 16),
    (17, "contended-atomics", None),
    (18, "scattered-access", 19),
    (20, "uneven-blocks", None),
]


def launches(path: Path) -> tuple[Launch, ...]:
    return read_counters(path)[0]


def lost(launch: Launch) -> dict[str, float]:
    return {kind: share for kind, (share, _) in losses(Op(name=launch.name, cost=launch.cost, counted=(launch,)), GOOD).items()}


def made(usage: Usage, **cost: float) -> Launch:
    return Launch(name="k", cost=Cost.of(cost or {"hbm": 1e6}), time_s=1e-3, usage=usage)


@every(("faulty", "kind", "repaired"), PLANTED)
def test_a_planted_fault_is_named_with_the_time_it_costs(faulty: int, kind: str, repaired: int | None) -> None:
    every = launches(FAULTS)
    found = lost(every[faulty])
    assert list(found) == [kind]
    if repaired is None:
        return
    took, then = every[faulty].time_s, every[repaired].time_s
    assert took is not None
    assert then is not None
    assert found[kind] * took == pytest.approx(took - then, rel=0.25)


@every("place", sorted({repaired for _, _, repaired in PLANTED if repaired is not None} | {22}))
def test_kernels_without_a_fault_have_none(place: int) -> None:
    assert lost(launches(FAULTS)[place]) == {}


def test_good_kernels_have_none() -> None:
    clean = ("add", "softmax_rows", "poly", "nvjet", "void at::<unnamed>::vectorized_layer_norm")
    found = {launch.name: lost(launch) for launch in launches(TRITON) if launch.name.startswith(clean) and launch.name != "add_strided"}
    assert len(found) == len(clean)
    assert not any(found.values())


def test_small_tiles_are_bound_by_the_cache() -> None:
    tiled, small = (launch for launch in launches(TRITON) if launch.name == "matmul")
    assert lost(tiled) == {}
    ((kind, share),) = lost(small).items()
    assert kind == "cache-traffic"
    assert small.time_s is not None
    assert tiled.time_s is not None
    assert share * small.time_s == pytest.approx(small.time_s - tiled.time_s, rel=0.25)


def test_a_report_says_what_to_change() -> None:
    report = rl.analyze(TRITON)
    first = report.findings[0]
    assert first.kind == "cache-traffic"
    assert first.levers == page("cache-traffic").levers
    assert {"contended-atomics", "scattered-access", "few-blocks"} <= {finding.kind for finding in report.findings}
    blocks = next(finding for finding in report.findings if finding.kind == "few-blocks")
    assert "serial keeps the SMs busy for 0.76% of its time, with 1 block for 132 SMs" in blocks.message


def test_what_was_not_counted_is_no_fault() -> None:
    assert lost(made(Usage())) == {}
    assert lost(made(Usage(sms_busy=0.5, blocks=None, sms=None))) == {"uneven-blocks": pytest.approx(0.5)}


def test_conflicts_and_few_warps_do_not_matter_where_another_unit_is_busy() -> None:
    assert lost(made(Usage(passes=32.0, passes_needed=1.0, busy={"shared memory": 0.4, "memory": 0.9}))) == {}
    assert lost(made(Usage(occupancy=0.1, occupancy_limit="registers", busy={"memory": 0.9}))) == {}
    assert "low-occupancy" in lost(made(Usage(occupancy=0.1, occupancy_limit="registers", busy={"memory": 0.2})))


def test_kernels_on_the_matrix_unit_may_have_few_warps() -> None:
    usage = Usage(occupancy=0.1, occupancy_limit="registers", busy={"memory": 0.2})
    assert lost(made(usage, **{"matrix/bf16": 1e9})) == {}


def test_a_launch_is_not_promised_less_than_launches_take() -> None:
    short = Launch(name="k", cost=Cost.of({"hbm": 1e3}), time_s=1.5 * H200.launch_latency_s, usage=Usage(sms_busy=0.01, blocks=1, sms=132))
    assert lost(short) == {"few-blocks": pytest.approx(1 / 3)}


def test_the_clock_that_the_profiler_sets_is_told() -> None:
    notes = rl.analyze(FAULTS).input.notes
    assert any("the SMs ran at 1.43 GHz to 1.51 GHz, while the chip reaches 1.98 GHz" in note for note in notes)


def test_the_page_of_findings_has_these_times() -> None:
    page = (Path(__file__).parent.parent / "docs" / "findings.md").read_text()
    rows = re.findall(r"^\| [^|`]+ \| `([a-z-]+)` \| ([\d,]+) µs \| ([\d,]+) µs \| ([\d,]+) µs \|$", page, re.MULTILINE)
    pairs = [(FAULTS, faulty, repaired) for faulty, _, repaired in PLANTED if repaired is not None] + [(TRITON, 1, 0), (TRITON, 5, 4)]
    assert len(rows) == len(pairs)
    for row, (path, faulty, repaired) in zip(rows, pairs, strict=True):
        every = launches(path)
        took, then = every[faulty].time_s or 0.0, every[repaired].time_s or 0.0
        ((kind, share),) = lost(every[faulty]).items()
        assert row == (kind, *(f"{seconds * 1e6:,.0f}" for seconds in (took, share * took, took - then)))
