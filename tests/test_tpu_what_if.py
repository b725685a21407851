"""What if: changes of programs compiled for TPUs."""

import gzip
from pathlib import Path

import pytest

import roofline as rl
from every import every
from roofline.analysis.what_if import BF16, CANDIDATES, FP8, measured_source
from roofline.analysis.what_if import _candidates as candidates

DATA = Path(__file__).parent / "data" / "tpu"


def test_another_chip_changes_every_op() -> None:
    # A v6e has 918 TFLOP/s for 197, and 1638 GB/s for 819: each op takes at most three quarters of the time.
    report = rl.what_if(DATA / "matmul_v5e.hlo.gz", "chip v6e")
    assert report.machine.name == "tpu-v6e"
    assert len(report.ops) == 2
    assert all(op.time_s is not None and op.before_s is not None and op.time_s < 0.75 * op.before_s for op in report.ops)


def test_a_program_of_one_device_is_moved_to_one_device() -> None:
    assert rl.what_if(DATA / "matmul_v5e.hlo.gz", "chip v7x").machine.name == "tpu-v7x/device"


def test_best_does_not_propose_bf16_to_a_program_in_bf16() -> None:
    recording, chip = measured_source(DATA / "matmul_v5e.hlo.gz")
    assert candidates(recording, chip) == [words for words in CANDIDATES if words not in (BF16, FP8)]
    assert not any("dtype bf16" in note for note in rl.what_if(DATA / "matmul_v5e.hlo.gz", "best").input.notes)


@pytest.mark.parametrize(("precision", "is_proposed"), [("", False), (", operand_precision={highest,highest}", True)])
def test_best_proposes_bf16_to_products_of_several_passes_alone(tmp_path: Path, precision: str, is_proposed: bool) -> None:
    # fp32 operands are multiplied in one pass of bf16 by default, in six at the highest precision.
    text = gzip.decompress((DATA / "matmul_v5e.hlo.gz").read_bytes()).decode().replace("bf16", "f32").replace("(2,1)", "")
    (tmp_path / "product.hlo").write_text(text.replace("dim_labels=bf_io->bf", f"dim_labels=bf_io->bf{precision}"))
    recording, chip = measured_source(tmp_path / "product.hlo", "v5e")
    assert (BF16 in candidates(recording, chip)) is is_proposed


@every(("chip", "is_proposed"), [("v5e", False), ("v6e", False), ("v7x", True)])
def test_best_proposes_fp8_where_it_has_a_higher_rate_alone(chip: str, is_proposed: bool) -> None:
    # A v5e has no fp8, a v6e has it at the rate of bf16, a v7x at twice that.
    recording, machine = measured_source(DATA / f"matmul_{chip}.hlo.gz", chip)
    assert (FP8 in candidates(recording, machine)) is is_proposed


def test_products_in_a_format_without_a_rate_keep_their_unit() -> None:
    # 2048^3 in bf16 takes 87.2 us at 197 TFLOP/s, however narrow its operands are.
    report = rl.what_if(DATA / "matmul_v5e.hlo.gz", FP8)
    flops, peak = 2 * 2048**3, 197e12
    assert all(op.time_s is not None and op.time_s >= flops / peak for op in report.ops if op.flops == flops)
    assert any(op.flops == flops for op in report.ops)
    assert "dtype fp8: tpu-v5e has no rate for matmuls in fp8: computed in bf16" in report.input.notes
    assert not any("transpose" in op.name for op in report.ops)  # what cuBLAS needs


def test_a_program_that_no_change_helps_is_told_so_in_the_first_line() -> None:
    report = rl.what_if(DATA / "matmul_v5e.hlo.gz", "best")
    assert report.summary.startswith("best: no known change helps this program, which takes ")
    assert report.changes == ()


def test_gpus_have_every_candidate() -> None:
    recording, chip = measured_source("sample:train")
    assert candidates(recording, chip) == list(CANDIDATES)


def test_the_interval_of_a_predicted_step_is_that_of_its_schedule() -> None:
    program, chip = DATA / "steps" / "decoder_32b_v5p_4x4x4.hlo.gz", "v5p:4x4x4"
    predicted = rl.analyze(program, chip).predicted
    assert predicted is not None
    report = rl.what_if(program, "set hbm=x1", chip)  # nothing changes
    (point,) = [point for point in report.points if point.scope == "total"]
    assert point.expected is not None
    assert point.expected.low_s == pytest.approx(predicted.low_s, rel=0.01)
    assert point.expected.high_s == pytest.approx(predicted.high_s, rel=0.01)
    assert "uncertainty" not in rl.what_if(program, "set ici=x2", chip).summary  # both times have the same errors
