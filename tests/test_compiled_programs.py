"""The minimum and the expected time of the ops of programs that the TPU compiler made."""

from pathlib import Path

import pytest

from every import every
from program_texts import program_text
from roofline.analysis import analyze
from roofline.cost import Cost
from roofline.errors import UsageError
from roofline.grouping.folding import table_rows
from roofline.hlo.price.program import program
from roofline.hlo.read import parse
from roofline.machine import Machine
from roofline.machines import load
from roofline.machines.calibrations import calibration_for
from roofline.operation import Compiled, MatrixWork
from roofline.prediction import predict
from roofline.render.export import to_json
from roofline.render.op_table import usual_columns

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "tpu"
shared = pytest.mark.skipif(not SHARED.is_dir(), reason="needs the programs in ../shared/data/tpu")

PREFETCHED = program_text("compiled_programs/prefetched.hlo").replace(
    "CONFIG", 'backend_config={"window_config":{"estimated_cycles":"1083068"}}'
)


def chip() -> Machine:
    # A product of 4096³ takes 2·4096³/(137.4 TFLOP/s) = 1 ms, an array of 33.6 MB 0.034 ms.
    return Machine.of("toy", {"matrix/bf16": 2 * 4096**3 * 1e3, "hbm": "1 TB/s", "vmem.read": "20 TB/s"}, kind="tpu", matrix_side=128)


def test_a_prefetch_beside_a_product_costs_nothing(tmp_path: Path) -> None:
    file = tmp_path / "prefetched.hlo"
    file.write_text(PREFETCHED)
    report = analyze(str(file), chip())
    assert [(op.name, op.compiled.beside if op.compiled else False) for op in report.ops if op.name == "start"] == [("start", True)]
    # Two products of 1 ms; the copy runs while the first computes, and main memory has time for it.
    assert report.points[0].floors_s == pytest.approx(2e-3)


def test_copies_that_keep_main_memory_busy_for_longer_than_the_products_are_the_minimum(tmp_path: Path) -> None:
    file = tmp_path / "prefetched.hlo"
    file.write_text(PREFETCHED)
    slow = chip().override({"hbm": "0.1 TB/s"})
    # Arrays of 33.6 MB: a, b, c and the first result once more are read, two are written: six in all.
    assert analyze(str(file), slow).points[0].floors_s == pytest.approx(6 * 4096**2 * 2 / 0.1e12)


RING, BACK, SECOND = "{{0,1},{1,2},{2,3},{3,0}}", "{{0,3},{1,0},{2,1},{3,2}}", "{{0,2},{1,3},{2,0},{3,1}}"
EXCHANGES = program_text("compiled_programs/exchanges.hlo")


@pytest.mark.parametrize(
    ("one", "other", "ways", "payloads"),
    [
        (RING, BACK, ["up", "down"], 1),  # round the ring both ways: two directions of its links
        (RING, RING, ["up", "up"], 2),
        ("{{0,1},{1,3},{3,2},{2,0}}", "{{1,0},{3,1},{2,3},{0,2}}", ["up", "down"], 1),  # a ring of 2x2
        ("{{0,1},{1,2}}", "{{1,0},{2,1}}", ["up", "down"], 1),  # a part of a line
        (SECOND, SECOND, ["", ""], 2),  # each pair exchanges, over both directions
        (RING, SECOND, ["up", ""], 2),
    ],
)
def test_permutes_round_a_ring_the_two_ways_run_at_once(tmp_path: Path, one: str, other: str, ways: list[str], payloads: int) -> None:
    file = tmp_path / "exchanges.hlo"
    file.write_text(EXCHANGES.replace("ONE", one).replace("OTHER", other))
    assert [op.towards for op in program(parse(file.read_text(), "exchanges"), "tpu").ops] == ways
    ring = Machine.of("toy", {"matrix/bf16": "100 TFLOP/s", "hbm": "1 TB/s", "ici": "100 GB/s"}, kind="tpu")
    report = analyze(str(file), ring)
    sent = 1024 * 1024 * 2  # by each op
    assert [op.bytes["ici"] for op in report.ops] == [sent, sent]
    assert report.points[0].bytes["ici"] == payloads * sent
    assert report.points[0].floors_s == pytest.approx(payloads * sent / 100e9)


def test_what_the_compiler_says_of_an_op_is_kept_in_its_report(tmp_path: Path) -> None:
    file, kept = tmp_path / "prefetched.hlo", tmp_path / "report.json"
    file.write_text(PREFETCHED)
    report = analyze(str(file), "v5e")
    kept.write_bytes(to_json(report))
    again = analyze(str(kept), "v5p")
    before = {op.name: op.compiled for op in report.ops}
    assert before["first"] == Compiled(cycles=1083068.0, products=(MatrixWork(flops=2 * 4096**3, depth=4096, widths=(4096, 4096)),))
    assert {op.name: op.compiled for op in again.ops} == before


def test_a_number_longer_than_any_compiler_writes_is_no_estimate(tmp_path: Path) -> None:
    # Python refuses to make a number of more than 4,300 digits.
    windows = '"used_scoped_memory_configs":[{"memory_space":"1","offset":"0","size":"DIGITS"}],"window_config"'
    text = PREFETCHED.replace("1083068", "9" * 5000).replace('"window_config"', windows.replace("DIGITS", "9" * 5000))
    assert {op.compiled.cycles for op in program(parse(text, "prefetched"), "tpu").ops if op.compiled} == {None}
    file = tmp_path / "prefetched.hlo"
    file.write_text(text)
    with pytest.raises(UsageError, match="may be v5e, v5p or v6e"):  # which its layouts leave, as without these numbers
        analyze(str(file))


def test_a_product_takes_the_cycles_of_the_compiler() -> None:
    machine = load("v5e")
    ops = {op.name: op for op in program(parse(PREFETCHED, "prefetched"), "tpu").ops}
    first, second = (predict(None, ops[n].cost, machine, calibration_for(machine), compiled=ops[n].compiled) for n in ("first", "second"))
    assert first is not None
    assert second is not None
    # 1,083,068 cycles at 1.5 GHz; without cycles 88% of the peak, and the first window of 16 MiB and 1.2 µs before it.
    assert first.time_s == pytest.approx(1083068 / 1.5e9)
    assert second.time_s == pytest.approx(2 * 4096**3 / 197e12 / 0.88 + 16 * 2**20 / machine.rate("hbm") + 1.2e-6)


@every(
    ("chip", "in_place", "times"), [("v5e", False, 2.0), ("v5p", False, 2.0), ("v5e", True, 2.0), ("v6e", False, 2.0), ("v5p", False, 1.05)]
)
def test_cycles_are_trusted_as_far_as_products_sustain_less(chip: str, *, in_place: bool, times: float) -> None:
    # Products sustain 88% of the peak: 1/0.88 = 1.14 times the time at the peak. The cycles are the upper bound.
    machine, flops = load(chip), 2 * 4096**3
    calibration = calibration_for(machine)
    peak_s = flops / machine.rate("matrix/bf16")
    compiled = Compiled(
        in_place=in_place,
        cycles=times * peak_s * (calibration.clock_hz or 0),
        products=(MatrixWork(flops=flops, depth=4096, widths=(4096, 4096)),),
    )
    expected = predict(None, Cost.of({"matrix/bf16": flops}), machine, calibration, compiled=compiled)
    assert expected is not None
    assert expected.time_s == pytest.approx(min(times, 1 / 0.88) * peak_s)
    assert expected.high_s == pytest.approx(times * peak_s)


@every(("share", "is_near"), [(0.96, True), (0.9, False)])
def test_an_estimate_a_few_per_cent_below_the_minimum_is_the_minimum(share: float, *, is_near: bool) -> None:
    # 768 x 6272 x 768 on v5p: 36 pairs of tiles and 784 rows for each of 8 units are 28,224 cycles; the compiler states 27,118.
    machine, flops = load("v5p"), 2 * 768 * 6272 * 768
    calibration = calibration_for(machine)
    peak_s = flops / machine.rate("matrix/bf16")
    product = MatrixWork(flops=flops, depth=6272, widths=(768, 768))
    compiled = Compiled(cycles=share * peak_s * (calibration.clock_hz or 0), products=(product,))
    expected = predict(None, Cost.of({"matrix/bf16": flops}), machine, calibration, compiled=compiled)
    assert expected is not None
    assert expected.time_s == pytest.approx(peak_s if is_near else peak_s / 0.88)
    assert expected.low_s == pytest.approx(peak_s)
    assert expected.high_s == pytest.approx(peak_s / 0.88 * (1 if is_near else 1.4))
    assert ("leaves out" in expected.evidence) is not is_near


def test_an_estimate_below_the_minimum_says_nothing_and_the_evidence_says_so() -> None:
    # A copy within VMEM of 256 registers of 4 KiB: v5e stores one a cycle, the compiler's 100 cycles are for any size. Its bundles: 540.
    machine = load("v5e")
    stores = Cost.of({"vmem.write": 256 * 4096})
    expected = predict(None, stores, machine, calibration_for(machine), compiled=Compiled(cycles=100.0))
    assert expected is not None
    assert expected.floor_s == expected.low_s == pytest.approx(256 / 1.5e9)
    assert expected.time_s == pytest.approx(256 / 1.5e9 / 0.4)
    assert expected.floor_s < 540 / 1.5e9 < expected.high_s == pytest.approx(1.4 * expected.time_s)
    assert "vmem.write at its sustained rate, which the compiler's own estimate (66.67 ns) leaves out" in expected.evidence


def test_units_of_a_core_sustain_a_share_of_their_peak_and_vmem_beside_a_product_all_of_it() -> None:
    machine = load("v5e")
    calibration = calibration_for(machine)
    flops = 2 * 4096 * 4096 * 64
    alone, beside = (
        predict(None, Cost.of({"vmem.write": 1e9, **products}), machine, calibration, compiled=Compiled(cycles=1e9))
        for products in ({}, {"matrix/bf16": flops})
    )
    assert alone is not None
    assert beside is not None
    assert alone.time_s == pytest.approx(1e9 / machine.rate("vmem.write") / 0.4)
    assert beside.time_s == pytest.approx(1e9 / machine.rate("vmem.write"))


def test_a_fusion_that_writes_over_an_operand_is_in_place() -> None:
    config = PREFETCHED.replace('"estimated_cycles":"1083068"}', '"estimated_cycles":"1083068"},"aliasing_operands":{"lists":[LIST]}')
    for lists, in_place in (("", False), ('{"indices":["0","1"]}', True)):
        ops = program(parse(config.replace("LIST", lists), "prefetched"), "tpu").ops
        assert [op.compiled.in_place for op in ops if op.name == "first"] == [in_place]


@every(("side", "fill"), [(128, 0.5), (256, 0.25)])
def test_a_short_contraction_fills_part_of_the_matrix_unit(side: int, fill: float) -> None:
    # Scores of heads of 64: 64 of 128 or 256 rows; the columns are full.
    assert MatrixWork(flops=1, depth=64, widths=(2048, 2048)).fill(side) == fill


def test_a_narrow_result_is_put_where_it_wastes_nothing() -> None:
    # The compiler puts the 4096 rows in the columns instead: on v5e (4096, 4096, 64) takes 1.4 times its FLOP, not twice.
    assert MatrixWork(flops=1, depth=4096, widths=(4096, 64)).fill(128) == 1


def test_padding_of_the_matrix_unit_is_in_the_expected_time_but_not_in_the_minimum() -> None:
    machine, flops = load("v5e"), 2 * 4096 * 64 * 4096
    compiled = Compiled(products=(MatrixWork(flops=flops, depth=64, widths=(4096, 4096)),))
    expected = predict(None, Cost.of({"matrix/bf16": flops}), machine, calibration_for(machine), compiled=compiled)
    assert expected is not None
    assert expected.time_s == pytest.approx(2 * flops / 197e12 / 0.88)
    assert expected.floor_s == pytest.approx(flops / 197e12)


@shared
@pytest.mark.parametrize(("name", "chip", "clock"), [("matmul_v5e", "v5e", 1.5e9), ("matmul_v2", "tpu-v2/device", 0.7e9)])
def test_a_large_product_takes_about_the_cycles_of_the_compiler(name: str, chip: str, clock: float) -> None:
    machine = load(chip.removesuffix("/device"))
    report = analyze(str(SHARED / "more" / f"{name}.pb.gz"), machine.per_device() if "/" in chip else machine)
    (op,) = report.ops
    assert op.compiled is not None
    assert op.expected is not None
    assert op.expected.time_s == pytest.approx((op.compiled.cycles or 0) / clock, rel=0.15)


@shared
def test_the_minimum_of_an_op_is_never_far_above_the_estimate_of_the_compiler() -> None:
    report = analyze(str(SHARED / "layer_v5e.hlo.gz"), "v5e")
    stated = [(op, op.compiled.cycles / 1.5e9 * op.count) for op in report.ops if op.compiled and op.compiled.cycles]
    assert len(stated) == 19
    assert all((op.floor_s or 0) <= 1.05 * seconds for op, seconds in stated)


NARROW = """HloModule narrow, is_scheduled=true

ENTRY %main {
  %a = bf16[8192,64]{1,0:T(8,128)(2,1)S(1)} parameter(0)
  %b = bf16[64,8192]{1,0:T(8,128)(2,1)S(1)} parameter(1)
  ROOT %scores = bf16[8192,8192]{1,0:T(8,128)(2,1)S(1)} convolution(%a, %b), dim_labels=bf_io->bf
}
"""


def test_a_product_that_fills_half_of_the_matrix_unit_is_told_with_its_size(tmp_path: Path) -> None:
    file = tmp_path / "narrow.hlo"
    file.write_text(NARROW)
    report = analyze(str(file), load("v5e"))
    (op,) = report.ops
    flops = 2 * 8192 * 64 * 8192
    # 64 of 128 rows: as many FLOP again are spent on padding.
    assert (op.work["matrix/bf16"], op.unneeded, op.needed) == (flops, {"padded": flops}, None)
    finding = next(one for one in report.findings if one.kind == "matrix-fill")
    assert "fills 50% of the matrix unit: 64 contracted elements for 128 rows" in finding.message
    assert finding.saving_s is None
    assert f"Padding is expected to take {1e6 * flops / 197e12 / 0.88:.3g} µs, which the minimum time leaves out." in finding.message
    # On a chip of 256 rows it is a quarter.
    wide = next(one for one in analyze(str(file), load("v6e")).findings if one.kind == "matrix-fill")
    assert "25% of the matrix unit: 64 contracted elements for 256 rows" in wide.message


def test_a_product_of_padded_tiles_is_told_to_fill_part_of_the_matrix_unit_too(tmp_path: Path) -> None:
    # Its left operand is in HBM, where 64 columns take 128: half of what it reads there is padding.
    file = tmp_path / "padded.hlo"
    file.write_text(
        NARROW.replace("(2,1)S(1)} parameter(0)", "(2,1)} parameter(0)")
        .replace("8192", "65536")
        .replace("bf16[64,65536]", "bf16[64,512]")
        .replace("bf16[65536,65536]", "bf16[65536,512]")
    )
    kinds = {finding.kind: finding.message for finding in analyze(str(file), load("v6e")).findings}
    assert "tile-padding" in kinds
    assert "fills 25% of the matrix unit: 64 contracted elements for 256 rows" in kinds["matrix-fill"]


def test_products_that_a_compiler_writes_out_of_a_transform_have_no_sizes_to_change(tmp_path: Path) -> None:
    file = tmp_path / "transform.hlo"
    for name, is_told in (("jit(f)/dot_general", True), ("jit(f)/jit(fft)", False), ("jit(f)/jit(cholesky)/cholesky", False)):
        file.write_text(NARROW.replace("dim_labels=bf_io->bf", f'dim_labels=bf_io->bf, metadata={{op_name="{name}"}}'))
        report = analyze(str(file), load("v5e"))
        assert any(finding.kind == "matrix-fill" for finding in report.findings) == is_told
        assert report.ops[0].unneeded == {"padded": 2 * 8192 * 64 * 8192}


def test_sizes_that_fill_the_matrix_unit_are_no_finding(tmp_path: Path) -> None:
    file = tmp_path / "prefetched.hlo"
    file.write_text(PREFETCHED)
    report = analyze(str(file), load("v5e"))
    assert not [one for one in report.findings if one.kind == "matrix-fill"]
    assert not any(op.unneeded for op in report.ops)


def test_a_folded_row_is_expected_to_take_as_long_as_its_ops(tmp_path: Path) -> None:
    file = tmp_path / "twice.hlo"
    file.write_text(
        NARROW.replace("ROOT %scores", "%scores").replace(
            "dim_labels=bf_io->bf\n}",
            "dim_labels=bf_io->bf\n  %again = bf16[8192,8192]{1,0:T(8,128)(2,1)S(1)} convolution(%a, %b), dim_labels=bf_io->bf\n"
            "  ROOT %both = (bf16[8192,8192]{1,0:T(8,128)(2,1)S(1)}, bf16[8192,8192]{1,0:T(8,128)(2,1)S(1)}) tuple(%scores, %again)\n}",
        )
    )
    report = analyze(str(file), "v5e")
    (row,) = table_rows(report).rows
    assert len(report.ops) == 2
    assert row.expected is not None
    assert row.expected.time_s == pytest.approx(sum(op.expected.time_s for op in report.ops if op.expected))
    assert row.expected.terms["matrix"] == pytest.approx(sum(op.expected.terms["matrix"] for op in report.ops if op.expected))


def test_the_table_of_a_program_of_the_tpu_compiler_has_the_expected_times_as_times(tmp_path: Path) -> None:
    file = tmp_path / "prefetched.hlo"
    file.write_text(PREFETCHED)
    report = analyze(str(file), "v5e")
    assert usual_columns(report)[:3] == ["label", "time", "share"]
    of_core = [op for op in report.ops if op.expected and op.compiled and not op.compiled.beside]
    assert of_core
    assert all(op.expected and op.time_s == op.expected.time_s for op in of_core)
    file.write_text(NARROW)  # without cycles
    assert "expected" not in usual_columns(analyze(str(file), "v5e"))
