"""``kernel attention=flash``: which kernels go, how long the new ones take, and how far a chip at its power limit may be slower."""

from pathlib import Path

import pytest

from every import every
from program_texts import program_text
from roofline.analysis import analyze
from roofline.analysis.changes import change
from roofline.analysis.changes.changed_times import HELD, slowed
from roofline.analysis.changes.state import State
from roofline.analysis.what_if import measured_source, what_if
from roofline.cost import NOTHING, Cost
from roofline.machines import load
from roofline.machines.calibrations import calibration_for
from roofline.operation import Attention
from roofline.prediction import predict
from roofline.sources.embedded import programs_behind
from roofline.workload import IdleReason, Op, Recording, Workload

H200 = load("h200")
STEP = program_text("what_if_flash/step.hlo")


def test_copies_into_another_layout_go_and_those_that_cut_out_a_part_stay(tmp_path: Path) -> None:
    (tmp_path / "step.hlo").write_text(STEP)
    recording, chip = measured_source(tmp_path / "step.hlo", "h200")
    state = State(recording, {}, chip, calibration_for(chip))
    change(state, ["kernel", "attention=flash"])
    left = {op.name: op.operation for op in state.ops if op.cost != NOTHING}
    assert left.keys() == {"part", "scores"}
    assert left["scores"] == Attention(batch=1, heads=2, queries=512, keys=512, size=64, library="cudnn")


@pytest.mark.parametrize(("scaled", "heads", "size"), [("k[0]", 6, 64), ("k[2]", 2, 192)])
def test_attention_has_the_sizes_that_other_changes_leave(scaled: str, heads: int, size: int, tmp_path: Path) -> None:
    path = tmp_path / "step.hlo"
    path.write_text(STEP)
    recording, chip = measured_source(path, "h200")
    state = State(recording, dict(programs_behind(recording, chip, str(path))), chip, calibration_for(chip))
    change(state, ["scale", f"{scaled}=x3", "kernel", "attention=flash"])
    (attention,) = [op.operation for op in state.ops if isinstance(op.operation, Attention)]
    assert (attention.heads, attention.size, attention.queries) == (heads, size, 512)


@every(  # kernels of cuDNN 9 in profiles of training
    ("heads", "tokens", "size", "causal", "measured_us"),
    [(512, 512, 64, False, 335), (96, 1024, 128, True, 232), (96, 2048, 128, True, 704)],
)
def test_backward_attention_takes_what_its_kernels_take(heads: int, tokens: int, size: int, causal: bool, measured_us: float) -> None:
    one = Attention(batch=1, heads=heads, queries=tokens, keys=tokens, size=size, causal=causal, backward=True, library="cudnn")
    flops = 10 * heads * tokens**2 * size / (2 if causal else 1)
    found = predict(one, Cost.of({"matrix/bf16": flops, "hbm": 16 * heads * tokens * size}), H200, calibration_for(H200).for_kernels())
    assert found is not None
    assert found.time_s == pytest.approx(measured_us * 1e-6, rel=0.06)
    assert found.floor_s < found.low_s


def ran(matrix_s: float, other_s: float, idle_s: float = 0.0) -> Recording:
    ops = (
        Op(name="matmul", cost=Cost.of({"matrix/bf16": 1e9}), time_s=matrix_s),
        Op(name="copy", cost=Cost.of({"hbm": 1e9}), time_s=other_s),
    )
    idle = (IdleReason(kind="dispatch", activity="", time_s=idle_s, gaps=1),) if idle_s else ()
    return Recording(format="xspace", workload=Workload(ops), idle=idle)


def test_a_chip_may_be_slower_once_more_of_its_time_is_matmuls() -> None:
    assert slowed(ran(1, 3), ran(1, 3)) == 0
    assert slowed(ran(1, 1), ran(1, 3)) == 0
    assert slowed(ran(1, 3), ran(1, 0)) == pytest.approx(HELD)  # nothing else runs then
    assert slowed(ran(1, 1), ran(3, 1)) == pytest.approx(HELD * 0.5 * 0.75)
    assert slowed(ran(1, 1, idle_s=2), ran(1, 1)) == pytest.approx(HELD * (0.25 / 0.75) * 0.5)
    assert slowed(ran(0, 0), ran(0, 0)) == 0


@pytest.mark.parametrize("form", ["v5e.stablehlo", "tpu-v5e.hlo"])
def test_what_a_loop_over_layers_stores_goes_in_every_form_of_a_program(form: str) -> None:
    report = what_if(Path(__file__).parent / "data" / "rules" / f"scanned_attention.{form}.gz", "kernel attention=flash", "v5e")
    (point, *_) = report.points
    # Of 4 layers the scores, 268 million each, take at least 8 passes of 2 to 4 bytes at 819 GB/s. What is left is matmuls: 1.4 TFLOP, or
    # 0.9 without masked scores, at 197 TFLOP/s.
    assert point.before_s is not None
    assert point.before_s > 4 * 8 * 3 * 268e6 / 819e9
    assert 0.9e12 / 197e12 < point.time_s < 2 * 1.4e12 / 197e12
    # Of 64 heads of 2048 queries and keys, half of them masked, one kernel of two products and one of five, in each layer.
    products = 2 * 64 * 2048**2 * 64 / 2
    assert {2 * products, 5 * products} <= {op.flops / op.count for op in report.ops if op.flops}


def test_a_finding_predicts_what_what_if_does_where_ops_overlap() -> None:
    # Beside the kernels run copies: the times of all ops add up to more than the step, so only their own time can be saved.
    path = Path(__file__).parent / "data" / "rules" / "scanned_attention.tpu-v5e.hlo.gz"
    (predicted,) = filter(None, (finding.predicted for finding in analyze(path, "v5e").findings))
    assert predicted.time_s == pytest.approx(what_if(path, predicted.change, "v5e").points[0].time_s, rel=0.05)
