"""Programs in other number formats: weights that a loop cuts out of the arrays of all layers, and products of uneven sizes."""

from pathlib import Path

import pytest

from roofline.analysis.changes import change
from roofline.analysis.changes.state import State
from roofline.analysis.what_if import what_if
from roofline.cost import Cost
from roofline.machines import load
from roofline.machines.calibrations import calibration_for
from roofline.operation import Product
from roofline.prediction import predict
from roofline.report import Report
from roofline.workload import Op, Recording, Workload

# A scan over 4 layers: each trip copies its weights out of the array of all, and multiplies with them.
SCAN = """
HloModule jit_step, is_scheduled=true

%sliced (p0: bf16[4,4096,8192], p1: s32[]) -> bf16[4096,8192] {
  %p0 = bf16[4,4096,8192]{2,1,0} parameter(0)
  %p1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  %cut = bf16[1,4096,8192]{2,1,0} dynamic-slice(%p0, %p1, %zero, %zero), dynamic_slice_sizes={1,4096,8192}
  ROOT %layer = bf16[4096,8192]{1,0} bitcast(%cut)
}

%halved (p0: bf16[8,8192]) -> bf16[8,4096] {
  %p0 = bf16[8,8192]{1,0} parameter(0)
  %cut = bf16[8,4096]{1,0} slice(%p0), slice={[0:8], [0:4096]}
  ROOT %out = bf16[8,4096]{1,0} negate(%cut)
}

%body (state: (s32[], bf16[8,4096], bf16[4,4096,8192])) -> (s32[], bf16[8,4096], bf16[4,4096,8192]) {
  %state = (s32[], bf16[8,4096]{1,0}, bf16[4,4096,8192]{2,1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %x = bf16[8,4096]{1,0} get-tuple-element(%state), index=1
  %ws = bf16[4,4096,8192]{2,1,0} get-tuple-element(%state), index=2
  %w = bf16[4096,8192]{1,0} fusion(%ws, %i), kind=kLoop, calls=%sliced
  %y = bf16[8,8192]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %next = bf16[8,4096]{1,0} fusion(%y), kind=kLoop, calls=%halved
  %one = s32[] constant(1)
  %j = s32[] add(%i, %one)
  ROOT %out = (s32[], bf16[8,4096]{1,0}, bf16[4,4096,8192]{2,1,0}) tuple(%j, %next, %ws)
}

%condition (state: (s32[], bf16[8,4096], bf16[4,4096,8192])) -> pred[] {
  %state = (s32[], bf16[8,4096]{1,0}, bf16[4,4096,8192]{2,1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %n = s32[] constant(4)
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (x: bf16[8,4096], ws: bf16[4,4096,8192]) -> bf16[8,4096] {
  %x = bf16[8,4096]{1,0} parameter(0), metadata={op_name="x"}
  %ws = bf16[4,4096,8192]{2,1,0} parameter(1), metadata={op_name="ws"}
  %zero = s32[] constant(0)
  %state = (s32[], bf16[8,4096]{1,0}, bf16[4,4096,8192]{2,1,0}) tuple(%zero, %x, %ws)
  %loop = (s32[], bf16[8,4096]{1,0}, bf16[4,4096,8192]{2,1,0}) while(%state), condition=%condition, body=%body, \
backend_config={"known_trip_count":{"n":"4"}}
  ROOT %y = bf16[8,4096]{1,0} get-tuple-element(%loop), index=1
}
"""
LAYERS, LAYER, ROWS = 4, 4096 * 8192, 8 * (4096 + 8192)


def bytes_of(report: Report, name: str) -> float:
    return float(next(op.bytes["hbm"] for op in report.ops if op.name == name))


@pytest.mark.parametrize(("words", "element"), [("dtype int8-weights", 1), ("dtype fp8", 1), ("dtype bf16", 2)])
def test_weights_that_a_loop_cuts_out_of_an_array_take_the_new_format(tmp_path: Path, words: str, element: int) -> None:
    """The kernel that copies a layer's weights reads and writes the new format, and the product reads it."""
    program = tmp_path / "scan.hlo"
    program.write_text(SCAN)
    after = what_if(str(program), words, machine="h200")
    assert bytes_of(after, "w") == pytest.approx(LAYERS * 2 * LAYER * element, rel=1e-4)
    assert bytes_of(after, "y") == pytest.approx(LAYERS * LAYER * element, rel=0.01)


def test_a_product_of_uneven_sizes_keeps_its_difference_in_another_format() -> None:
    """A vocabulary of 50,257 is no multiple of 16 bytes in either format: libraries take slower kernels for both."""
    machine = load("h200")
    calibration = calibration_for(machine).for_kernels()

    def times(vocabulary: int, slower: float) -> float:
        logits = Product(m=4096, k=1280, n=vocabulary, left="fp32", right="fp32", out="fp32", compute="tf32")
        cost = Cost.of({"matrix/tf32": logits.flops, "hbm": logits.bytes})
        expected = predict(logits, cost, machine, calibration)
        assert expected is not None
        op = Op(name="y", cost=cost, operation=logits, time_s=slower * expected.time_s)
        state = State(Recording(format="xspace", workload=Workload((op,))), {}, machine, calibration)
        change(state, ["dtype", "bf16"])
        return state.changed()[0].time_s

    assert times(50257, 2.5) / times(50257, 1.0) == pytest.approx(2.5**0.85, rel=0.05)
    assert times(50304, 2.5) / times(50304, 1.0) == pytest.approx(2.5 ** (0.4 * 0.85), rel=0.05)
