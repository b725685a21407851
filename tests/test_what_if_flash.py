"""``kernel attention=flash``: which kernels go, how long the new ones take, and how far a chip at its power limit may be slower."""

from pathlib import Path

import pytest

from roofline.analysis.changes import change
from roofline.analysis.changes.changed_times import HELD, slowed
from roofline.analysis.changes.state import State
from roofline.analysis.what_if import what_if
from roofline.cost import NOTHING, Cost
from roofline.hlo.read import parse
from roofline.machines import load
from roofline.machines.calibrations import calibration_for
from roofline.operation import Attention, Operation, Product, Streamed
from roofline.prediction import predict
from roofline.workload import Avoidable, IdleReason, Op, Recording, Workload

H200 = load("h200")
STEP = """
HloModule step, is_scheduled=true

ENTRY %main (qkv: bf16[2,512,3,64], k: bf16[2,512,64], v: bf16[2,64,512]) -> bf16[2,512,64] {
  %qkv = bf16[2,512,3,64]{3,2,1,0} parameter(0)
  %k = bf16[2,512,64]{2,1,0} parameter(1)
  %v = bf16[2,64,512]{2,1,0} parameter(2)
  %part = bf16[2,512,1,64]{3,2,1,0} slice(%qkv), slice={[0:2], [0:512], [0:1], [0:64]}
  %q = bf16[2,512,64]{2,1,0} bitcast(%part)
  %turned = bf16[2,512,64]{2,1,0} transpose(%v), dimensions={0,2,1}
  %scores = bf16[2,512,512]{2,1,0} dot(%q, %k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}
  %weights = bf16[2,512,512]{2,1,0} exponential(%scores)
  ROOT %out = bf16[2,512,64]{2,1,0} dot(%weights, %turned), lhs_batch_dims={0}, rhs_batch_dims={0},
    lhs_contracting_dims={2}, rhs_contracting_dims={1}
}
"""
STORED = Avoidable(kind="stored-attention", instead=NOTHING, why="")


def product(m: int, k: int, n: int) -> Product:
    return Product(m=m, k=k, n=n, batch=2, left="bf16", right="bf16", out="bf16", compute="bf16")


def op(name: str, operation: Operation, *avoidable: Avoidable) -> Op:
    cost = Cost.of({"matrix/bf16": operation.flops, "hbm": operation.bytes} if isinstance(operation, Product) else {"hbm": 4e5})
    return Op(name=name, module="step", cost=cost, time_s=1e-5, operation=operation, avoidable=avoidable)


def test_copies_into_another_layout_go_and_those_that_cut_out_a_part_stay() -> None:
    ops = (
        op("part", Streamed(kind="copy")),
        op("turned", Streamed(kind="copy")),
        op("scores", product(512, 64, 512), STORED),
        op("weights", Streamed(kind="fusion"), STORED),
        op("out", product(512, 512, 64), STORED),
    )
    state = State(Recording(format="xspace", workload=Workload(ops)), {"step": parse(STEP.encode(), "step")}, H200, calibration_for(H200))
    change(state, ["kernel", "attention=flash"])
    left = [one.name for one in state.ops if one.cost != NOTHING]
    assert left == ["part", "scores"]
    assert isinstance(state.ops[2].operation, Attention)


@pytest.mark.parametrize(  # kernels of cuDNN 9 in profiles of training
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
    (point, *_) = what_if(Path(__file__).parent / "data" / "rules" / f"scanned_attention.{form}.gz", "kernel attention=flash", "v5e").points
    # Of 4 layers the scores, 268 million each, take at least 8 passes of 2 to 4 bytes at 819 GB/s. What is left is matmuls: 1.4 TFLOP, or
    # 0.9 without masked scores, at 197 TFLOP/s.
    assert point.before_s is not None
    assert point.before_s > 4 * 8 * 3 * 268e6 / 819e9
    assert 0.9e12 / 197e12 < point.time_s < 2 * 1.4e12 / 197e12
