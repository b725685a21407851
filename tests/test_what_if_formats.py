"""Programs in other number formats: weights that a loop cuts out of the arrays of all layers."""

from pathlib import Path

import pytest

from roofline.analysis.what_if import what_if
from roofline.report import Report

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
