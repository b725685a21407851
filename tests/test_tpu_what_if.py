"""What if: changes of programs compiled for TPUs."""

import gzip
from pathlib import Path

import pytest

import roofline as rl
from roofline.analysis.what_if import BF16, CANDIDATES, measured_source
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
    assert candidates(recording, chip) == [words for words in CANDIDATES if words != BF16]
    assert not any("dtype bf16" in note for note in rl.what_if(DATA / "matmul_v5e.hlo.gz", "best").input.notes)


@pytest.mark.parametrize(("precision", "is_proposed"), [("", False), (", operand_precision={highest,highest}", True)])
def test_best_proposes_bf16_to_products_of_several_passes_alone(tmp_path: Path, precision: str, is_proposed: bool) -> None:
    # fp32 operands are multiplied in one pass of bf16 by default, in six at the highest precision.
    text = gzip.decompress((DATA / "matmul_v5e.hlo.gz").read_bytes()).decode().replace("bf16", "f32").replace("(2,1)", "")
    (tmp_path / "product.hlo").write_text(text.replace("dim_labels=bf_io->bf", f"dim_labels=bf_io->bf{precision}"))
    recording, chip = measured_source(tmp_path / "product.hlo", "v5e")
    assert (BF16 in candidates(recording, chip)) is is_proposed


def test_gpus_have_every_candidate() -> None:
    recording, chip = measured_source("sample:train")
    assert candidates(recording, chip) == list(CANDIDATES)
