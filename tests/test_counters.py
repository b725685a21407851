"""Counters stand beside the model: joined launch by launch, scaled only by saying so, and held against it."""

import csv
import gzip
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from roofline.analysis import ONLY_HBM, analyze
from roofline.analysis.counters import LaunchCounters, hardware, model_against_counters
from roofline.analysis.counters.joining import KernelUse, Launch, counted, join, scaled
from roofline.cost import Cost
from roofline.errors import SourceError
from roofline.sources.ncu.recording import read_counters
from roofline.workload import Counters, Coverage, Op, Recording, Workload
from toys import toy

DATA = Path(__file__).parent / "data"
SHARED = Path(__file__).parents[2] / "shared" / "data" / "h200"
CAPTURE = next((path for path in (DATA / "h200" / "jax_fusion.xplane.pb", SHARED / "jax_fusion.xplane.pb") if path.exists()), None)
TENSOR = 2**28 * 2  # bytes of 32 x 2048 x 4096 in bf16


def recording(*ops: Op) -> Recording:
    return Recording(workload=Workload(ops), format="test")


def op(name: str, flop: float = 10, moved: float = 100, count: float = 1) -> Op:
    return Op(name=name, cost=Cost.of({"matrix/bf16": flop, "hbm": moved}), count=count, time_s=float(count))


def launch(name: str, flop: int = 1, moved: int = 1, time_s: float | None = 1.0, grid: tuple[int, ...] | None = None) -> Launch:
    return Launch(name=name, cost=Cost.of({"matrix/bf16": flop, "hbm": moved}), time_s=time_s, grid=grid)


def counters(one: Op) -> LaunchCounters:
    assert isinstance(one.counters, LaunchCounters)
    return one.counters


def test_an_op_gets_what_its_launches_counted_and_says_how_many() -> None:
    uses = [KernelUse(0, "k", order, count=1) for order in range(10)]
    joined = join(recording(op("dot", count=10)), [launch("k", 7, 90, 0.5), launch("k", 9, 110, 0.7)], uses)
    (dot,) = joined.workload
    assert dot.counters == LaunchCounters(
        cost=Cost.of({"matrix/bf16": 16, "hbm": 200}),
        time_s=1.2,
        launches=2,
        of=10,
        total=Cost.of({"matrix/bf16": 80, "hbm": 1000}),  # five times what two launches did
        total_s=pytest.approx(6.0),
    )
    assert dot.cost == op("dot").cost  # beside the model, never instead of it
    assert dot.notes == ("counters: counted 2 of 10 launches",)
    assert joined.notes == ("counters: 2 of 2 launches matched to 1 of 1 ops with kernels",)


def test_one_use_an_event_and_one_with_a_count_join_alike() -> None:
    launches = [launch("a"), launch("b", 5)]
    each = [KernelUse(0, "a", 0), KernelUse(1, "b", 1), KernelUse(0, "a", 2), KernelUse(1, "b", 3)]
    summed = [KernelUse(1, "b", 1, count=2), KernelUse(0, "a", 0, count=2)]
    both = recording(op("x"), op("y"))
    assert join(both, launches, each) == join(both, launches, summed)


def test_totals_scale_each_kernel_by_its_own_launches() -> None:
    # The op launches its product twice and its sum once; the file has one of each.
    uses = [KernelUse(0, "product", 0, count=20), KernelUse(0, "sum", 1, count=10)]
    (one,) = join(recording(op("x")), [launch("product", 100), launch("sum", 1)], uses).workload
    assert (counters(one).launches, counters(one).of) == (2, 30)
    assert counters(one).total == Cost.of({"matrix/bf16": 20 * 100 + 10 * 1, "hbm": 30})


def test_a_kernel_that_was_never_counted_leaves_the_total_unknown() -> None:
    uses = [KernelUse(0, "product", 0), KernelUse(0, "sum", 1)]
    joined = join(recording(op("x")), [launch("product", 100)], uses)
    (one,) = joined.workload
    assert counters(one).cost["matrix/bf16"] == 100
    assert counters(one).total is None
    assert "counters: incomplete (some kernels not counted) for x" in joined.notes
    assert hardware(joined.workload) is None
    assert scaled(joined).workload.ops[0].counters is None


def test_an_op_of_unknown_cost_gets_the_counted_one() -> None:
    own = Op(name="mine", cost=Cost.of({"hbm": None}), count=2, time_s=2.0, notes=("unpriced: record with shapes", "a caveat"))
    uses = (KernelUse(0, "k", 0, count=2), KernelUse(1, "gemm", 1))
    profile = replace(recording(own, op("known")), kernels=uses, coverage=Coverage(busy_s=3.0, priced_s=1.0))
    mine, known = (found := counted(profile, [launch("k", 8, 90), launch("gemm", 7, 7)], "c.csv")).workload
    assert mine.cost == Cost.of({"matrix/bf16": 16, "hbm": 180})  # of both launches
    assert (mine.work_provenance, mine.bytes_provenance) == ("counter", "counter")
    assert mine.notes[0] == "a caveat"  # and nothing about how to price it
    assert known.cost == op("known").cost
    assert found.coverage.priced_s == 3.0
    rows = model_against_counters(found.workload)
    assert {(row.name, row.quantity, row.modelled, row.counted) for row in rows if row.name == "mine"} == {
        ("mine", "matrix", None, 16.0),
        ("mine", "hbm", None, 180.0),
    }


def test_memsets_are_not_missed() -> None:
    uses = [KernelUse(0, "Memset 0", 0), KernelUse(0, "gemm", 1)]
    (one,) = join(recording(op("x")), [launch("gemm")], uses).workload
    assert (counters(one).launches, counters(one).of) == (1, 1)
    assert counters(one).total == counters(one).cost


def test_what_found_no_partner_is_named() -> None:
    joined = join(
        recording(op("x"), op("y"), op("idle")), [launch("a"), launch("z"), launch("z")], [KernelUse(0, "a", 0), KernelUse(1, "b", 1)]
    )
    assert joined.notes == (
        "counters: 1 of 3 launches matched to 1 of 2 ops with kernels",
        "counters: not matched to any op: z (2 times)",
        "counters: missing for y",
    )
    assert [one.counters is None for one in joined.workload] == [False, True, True]


def test_scaling_says_so() -> None:
    joined = join(recording(op("x", count=4)), [launch("a", 3)], [KernelUse(0, "a", 0, count=4)])
    (one,) = scaled(joined).workload
    assert one.counters is not None
    assert (one.counters.cost["matrix/bf16"], one.counters.time_s) == (12, 4.0)
    assert one.notes[-1] == "counters: scaled from 1 to 4 launches"
    assert scaled(recording(op("x"))) == recording(op("x"))


def test_a_launch_without_a_time_leaves_the_time_unknown() -> None:
    (one,) = join(recording(op("x")), [launch("a", time_s=None), launch("a")], [KernelUse(0, "a", 0, count=2)]).workload
    assert counters(one).time_s is None


def test_the_hardware_point_sums_what_was_counted_whole() -> None:
    whole = join(
        recording(op("x", count=2), op("y"), op("z")),
        [launch("a", 5, 50, 0.25), launch("b", 1, 10, 0.5)],
        [KernelUse(0, "a", 0, count=2), KernelUse(1, "b", 1), KernelUse(2, "c", 2)],
    )
    point = hardware(whole.workload)
    assert point is not None
    # Two launches of a and one of b; z was not counted, so neither its work nor its second is here.
    assert point.cost == Cost.of({"matrix/bf16": 11, "hbm": 110})
    assert (point.time_s, point.counted_s, point.ops, point.of) == (3.0, 1.0, 2, 3)
    assert not point.covers_all
    assert hardware([replace(op("t"), counters=Counters(cost=Cost.of({"hbm": 8}), time_s=1.0))]).cost["hbm"] == 8  # type: ignore[union-attr]
    assert hardware([op("x")]) is None


def test_the_model_is_held_against_the_counters() -> None:
    modelled = Op(name="x", cost=Cost.of({"matrix/bf16": 100, "vector/fp32": 9, "vector/transcendental": 5, "hbm": 1000}), count=2)
    counted = Launch(
        name="a", cost=Cost.of({"matrix/bf16": 50, "vector/fp32": 10, "vector/fp16": 0.5, "vector/int32": 99, "hbm": 490, "l2": 7})
    )
    joined = join(recording(modelled, op("uncounted")), [counted], [KernelUse(0, "a", 0, count=2)])
    rows = {row.quantity: row for row in model_against_counters(joined.workload)}
    assert list(rows) == ["matrix", "vector", "hbm", "l2"]
    assert (rows["matrix"].modelled, rows["matrix"].counted, rows["matrix"].ratio) == (100, 100, 1)
    assert rows["vector"].ratio == pytest.approx(21 / 9)  # floating point only: neither exponentials nor addresses
    assert rows["hbm"].ratio == 0.98
    assert (rows["hbm"].launches, rows["hbm"].of) == (1, 2)
    assert (rows["l2"].modelled, rows["l2"].counted, rows["l2"].ratio) == (None, 14, None)  # of caches the model says nothing


def test_what_either_does_not_know_has_no_ratio() -> None:
    modelled = Op(name="x", cost=Cost.of({"matrix/bf16": None, "hbm": 10}))
    counted = Launch(name="a", cost=Cost.of({"matrix/bf16": 50, "hbm": None}))
    rows = model_against_counters(join(recording(modelled), [counted], [KernelUse(0, "a", 0)]).workload)
    assert [(row.quantity, row.modelled, row.counted, row.ratio) for row in rows] == [("matrix", None, 50, None), ("hbm", 10, None, None)]


# The fusion capture: programs of 4, 2 and 1 pieces, ten runs each, in order; every kernel reads one tensor and writes one, but for the
# small comparisons. Two programs have a loop_add_fusion of one grid, three a loop_compare_fusion.
PIECES = (
    ("fusion_4", "loop_multiply_fusion", "loop_compare_fusion", "loop_select_fusion", "loop_add_fusion"),
    ("fusion_10", "loop_compare_fusion", "loop_add_fusion"),
    ("loop_compare_fusion", "fusion_6"),
)


def test_the_fusion_capture_joins_by_order() -> None:
    names = [(program, kernel) for program, kernels in enumerate(PIECES) for kernel in kernels]
    ops = [
        Op(name=f"{program}/{kernel}", cost=Cost.of({"hbm": 4096 if "compare" in kernel else 2 * TENSOR}) * 10) for program, kernel in names
    ]
    uses, order = [], 0
    for program, kernels in enumerate(PIECES):
        for _ in range(10):
            for kernel in kernels:
                uses.append(KernelUse(names.index((program, kernel)), kernel, order))
                order += 1
    launches = read_counters(DATA / "ncu_jax_fusion.csv.gz")[0]
    joined = join(recording(*ops), launches, uses)
    assert joined.notes == ("counters: 10 of 10 launches matched to 10 of 10 ops with kernels",)
    for one, seen in zip(joined.workload, launches, strict=True):  # the file has the programs in this order, once
        assert counters(one).cost == seen.cost
        assert (counters(one).launches, counters(one).of) == (1, 10)
    big = [row for row in model_against_counters(joined.workload) if row.quantity == "hbm" and (row.modelled or 0) >= 10 * 10_000_000]
    assert len(big) == 7
    assert all(1.0175 <= 1 / (row.ratio or 0) <= 1.0215 for row in big)


@pytest.mark.skipif(CAPTURE is None, reason="the capture is not here")
def test_our_own_price_of_the_captured_programs_agrees_with_the_counters() -> None:
    scan = pytest.importorskip("roofline.sources.xspace.scan")
    from roofline.hlo.ir.platforms import detect_platform
    from roofline.hlo.price.program import program
    from roofline.hlo.read import parse

    with scan.open_space(CAPTURE) as space:
        metadata = next(plane for plane in space.planes if plane.name == "/host:metadata")
        priced = {}
        for number, name in metadata.event_names.items():
            for held in metadata.event(number).stats.values():
                if isinstance(held, scan.Slice):
                    module = parse(space.bytes_of(held), name)
                    key = name.rpartition("(")[2].rstrip(")")
                    priced |= {(key, one.name): one for one in program(module, detect_platform(module)).ops}
        device = next(plane for plane in space.planes if plane.name.startswith("/device:GPU"))
        (rows,) = scan.read_rows(space, [scan.RowsOf(line=line, stats=("hlo_op", "program_id", "kernel_details")) for line in device.lines])
        keys = [(str(rows.stats["program_id"][row]), str(rows.stats["hlo_op"][row])) for row in range(len(rows))]
        executed = Counter(keys)
        places = {key: place for place, key in enumerate(executed)}
        uses = [
            KernelUse(
                places[key], device.event_names[rows.metadata_id[row]], rows.start_ps[row], grid_of(str(rows.stats["kernel_details"][row]))
            )
            for row, key in enumerate(keys)
        ]
    ops = [replace(priced[key], cost=priced[key].cost * times, count=times) for key, times in executed.items()]
    joined = join(recording(*ops), read_counters(DATA / "ncu_jax_fusion.csv.gz")[0], uses)
    assert joined.notes[0] == "counters: 10 of 10 launches matched to 10 of 10 ops with kernels"
    for row in model_against_counters(joined.workload):
        if row.quantity != "hbm":
            continue
        each = (row.modelled or 0) / 10
        # The small comparison only writes; the others read half of what they move, and up to 4096 bytes more.
        reads = 0 if each <= 4096 else TENSOR
        assert 0.98 * reads <= (row.counted or 0) / 10 <= 1.02 * each
        if each >= 10_000_000:
            assert 0.95 <= (row.ratio or 0) <= 1.05


def grid_of(details: str) -> tuple[int, ...]:
    return tuple(int(size) for size in details.partition("grid:")[2].split(" ")[0].split(","))


def test_the_kernels_of_a_step_join_the_ops_that_launched_them() -> None:
    with gzip.open(DATA / "ncu_torch_profile.csv.gz", "rt") as file:
        rows = list(csv.reader(file))[1:]
    names = list(dict.fromkeys(name for name, _ in rows))
    uses = [KernelUse(names.index(name), name, place, tuple(map(int, grid.split("x")))) for place, (name, grid) in enumerate(rows)]
    launches = read_counters(DATA / "ncu_torch_eager.csv.gz")[0]
    joined = join(recording(*(Op(name=name, cost=Cost()) for name in names)), launches, uses)
    assert joined.notes[0].startswith("counters: 200 of 200 launches matched to ")
    had = {one.name: counters(one) for one in joined.workload if one.counters is not None}
    flash = next(counted for name, counted in had.items() if "flash_fprop" in name)
    assert (flash.launches, flash.of) == (4, 12)  # four layers, three steps


@given(
    launches=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9)), max_size=12),
    uses=st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc"), st.integers(1, 3)), max_size=8),
)
def test_nothing_that_was_counted_is_lost_or_doubled(launches: list[tuple[str, int]], uses: list[tuple[int, str, int]]) -> None:
    ops = recording(op("x"), op("y"), op("z"))
    counted = [launch(name, flop) for name, flop in launches]
    joined = join(ops, counted, [KernelUse(index, name, order, count=times) for order, (index, name, times) in enumerate(uses)])
    known = {name for _, name, _ in uses}
    total = sum((one.counters.cost for one in joined.workload if one.counters), Cost())
    assert total == sum((one.cost for one in counted if one.name in known), Cost())
    assert sum(counters(one).launches for one in joined.workload if one.counters) == sum(one.name in known for one in counted)


def profile(*ops: Op, kernels: tuple[KernelUse, ...], wall_s: float = 20.0) -> Recording:
    busy = sum(one.time_s or 0 for one in ops)
    return replace(recording(*ops), kernels=kernels, files=("run.xplane.pb",), coverage=Coverage(wall_s=wall_s, busy_s=busy))


def test_counters_beside_a_profile_are_totals_and_cover_what_they_cover() -> None:
    found = counted(
        profile(op("x", count=2), op("y"), kernels=(KernelUse(0, "a", 0, count=2), KernelUse(1, "b", 1))), [launch("a", 5)], "n.csv"
    )
    x, y = found.workload
    assert x.counters is not None
    assert (x.counters.cost["matrix/bf16"], y.counters) == (10, None)
    assert found.coverage.counted_s == 2.0  # of x, and not of y
    assert "counters: missing for y" in found.notes


def test_counters_that_match_nothing_are_refused() -> None:
    with pytest.raises(SourceError, match=r"n.csv: none of its kernels ran in run.xplane.pb \(z\)"):
        counted(profile(op("x"), kernels=(KernelUse(0, "a", 0),)), [launch("z")], "n.csv")
    with pytest.raises(SourceError, match=r"counters need a GPU profile, but run\.xplane\.pb has no kernels"):
        counted(profile(op("x"), kernels=(KernelUse(0, "Memcpy D2H", 0),)), [launch("z")], "n.csv")


def test_the_hardware_point_takes_the_programs_time_when_all_was_counted() -> None:
    uses = (KernelUse(0, "a", 0), KernelUse(1, "b", 1), KernelUse(2, "MemcpyD2D", 2))
    ops = (op("x"), op("y"), op("copy"))
    whole = analyze(counted(profile(*ops, kernels=uses), [launch("a", 100, 10), launch("b", 300, 10)], "n.csv"), toy())
    (point,) = [point for point in whole.points if point.scope == "hardware"]
    # Copies launch no kernel, so x and y are all there is to count: 400 FLOP are 4 s of the matrix unit in 20 s of wall time.
    assert (point.time_s, point.flops, point.bytes, point.floor_s, point.efficiency) == (20.0, 400, {"hbm": 20}, 4.0, 0.2)
    some = analyze(counted(profile(*ops, kernels=uses), [launch("a", 100, 10)], "n.csv"), toy())
    (point,) = [point for point in some.points if point.scope == "hardware"]
    assert (point.time_s, point.flops) == (1.0, 100)  # of the op that was counted


def test_the_report_has_both_and_their_ratio() -> None:
    report = analyze(
        counted(profile(op("x", 10, 100, count=2), kernels=(KernelUse(0, "a", 0, count=2),)), [launch("a", 6, 49)], "n"), toy()
    )
    seen = report.ops[0].counters
    assert seen is not None
    assert (seen.launches, seen.of, seen.flops, seen.work, seen.bytes) == (1, 2, 12, {"matrix/bf16": 12}, {"hbm": 98})
    assert seen.ratio == {"matrix": 1.2, "hbm": 0.98}
    assert (seen.rate, seen.bandwidth, seen.intensities) == (6, {"hbm": 49}, {"hbm": 12 / 98})  # in the profile's 2 s
    assert (report.ops[0].flops, report.ops[0].bytes) == (10, {"hbm": 100})  # the model stays
    assert ONLY_HBM not in report.input.notes


def test_a_gpu_profile_without_counters_says_that_only_main_memory_is_known() -> None:
    assert ONLY_HBM in analyze(profile(op("x"), kernels=(KernelUse(0, "a", 0),)), toy()).input.notes
    assert ONLY_HBM not in analyze(profile(op("x"), kernels=()), toy()).input.notes  # no GPU


def test_counters_of_a_whole_chip_are_the_law_read_backwards() -> None:
    report = analyze(replace(profile(op("x"), kernels=()), measured={"matrix": 0.25, "hbm": 0.75}), toy())
    (point,) = [point for point in report.points if point.scope == "hardware"]
    # Busy for three quarters of 20 s is 15 s that memory needs; how many bytes that were nobody says.
    assert (point.time_s, point.bound, point.floor_s, point.serial_s, point.efficiency) == (20.0, "hbm", 15.0, 20.0, 0.75)
    assert (point.work, point.bytes, point.flops) == ({"matrix": None}, {"hbm": None}, None)
