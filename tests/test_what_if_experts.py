"""Tokens in groups by expert: more experts have smaller groups, more tokens larger ones, also where there are as many as experts."""

from fractions import Fraction
from pathlib import Path

import pytest
from msgspec.structs import replace

from roofline.analysis.changes import change
from roofline.analysis.changes.state import State
from roofline.analysis.what_if import measured_source
from roofline.cost import NOTHING
from roofline.hlo.read import parse
from roofline.hlo.scaling.growth import Program
from roofline.hlo.scaling.inputs import inputs_of
from roofline.hlo.scaling.named_dimensions import dimension_named
from roofline.machines import load
from roofline.machines.calibrations import calibration_for
from roofline.sources.embedded import programs_behind
from roofline.workload import Avoidable, Workload

EXPERTS, WIDTH, INSIDE = 8, 16, 32


def grouped(batch: int, length: int, few: int = 2) -> str:
    """Rows sorted by expert, each expert with as many."""
    tokens, rows = batch * length, batch * length * few
    groups = f"{EXPERTS},{rows // EXPERTS}"
    return f"""HloModule step, is_scheduled=true

%less (a: bf16[], b: bf16[]) -> pred[] {{
  %a = bf16[] parameter(0)
  %b = bf16[] parameter(1)
  ROOT %c = pred[] compare(%a, %b), direction=GT
}}

%add (a: bf16[], b: bf16[]) -> bf16[] {{
  %a = bf16[] parameter(0)
  %b = bf16[] parameter(1)
  ROOT %c = bf16[] add(%a, %b)
}}

%cut (all: bf16[{tokens},8]) -> bf16[{tokens},{few}] {{
  %all = bf16[{tokens},8]{{1,0}} parameter(0)
  ROOT %first = bf16[{tokens},{few}]{{1,0}} slice(%all), slice={{[0:{tokens}], [0:{few}]}}
}}

ENTRY %main (x: bf16[{batch},{length},16], router: bf16[16,8], up: bf16[8,16,32], down: bf16[8,32,16]) -> bf16[{batch},{length},16] {{
  %x = bf16[{batch},{length},16]{{2,1,0}} parameter(0), metadata={{op_name="x"}}
  %router = bf16[16,8]{{1,0}} parameter(1), metadata={{op_name="router"}}
  %up = bf16[8,16,32]{{2,1,0}} parameter(2), metadata={{op_name="up"}}
  %down = bf16[8,32,16]{{2,1,0}} parameter(3), metadata={{op_name="down"}}
  %flat = bf16[{tokens},16]{{1,0}} reshape(%x)
  %scores = bf16[{tokens},8]{{1,0}} dot(%flat, %router), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  %sorted = bf16[{tokens},8]{{1,0}} sort(%scores), dimensions={{1}}, to_apply=%less
  %top = bf16[{tokens},{few}]{{1,0}} fusion(%sorted), kind=kLoop, calls=%cut
  %all = bf16[{rows}]{{0}} reshape(%top)
  %order = bf16[{rows}]{{0}} sort(%all), dimensions={{0}}, to_apply=%less
  %places = s32[{rows}]{{0}} convert(%order)
  %taken = bf16[{rows},16]{{1,0}} gather(%flat, %places), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}}, \
index_vector_dim=1, slice_sizes={{1,16}}
  %groups = bf16[{groups},16]{{2,1,0}} reshape(%taken)
  %h = bf16[{groups},32]{{2,1,0}} dot(%groups, %up), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, \
rhs_contracting_dims={{1}}
  %y = bf16[{groups},16]{{2,1,0}} dot(%h, %down), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, \
rhs_contracting_dims={{1}}
  %back = bf16[{rows},16]{{1,0}} reshape(%y)
  %sums = bf16[{tokens},16]{{1,0}} scatter(%flat, %places, %back), update_window_dims={{1}}, inserted_window_dims={{0}}, \
scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=%add
  ROOT %out = bf16[{batch},{length},16]{{2,1,0}} reshape(%sums)
}}
"""


def after(text: str, words: str, file: Path) -> dict[str, tuple[int, ...]]:
    file.write_text(text)
    recording, chip = measured_source(file, "h200")
    state = State(recording, programs_behind(recording, chip, str(file)), load("h200"), calibration_for(chip).for_kernels())
    change(state, words.split())
    (module,) = state.programs.values()
    return {one.name: one.shape.dims for one in module.entry_computation}


@pytest.mark.parametrize(("batch", "length", "few"), [(4, 32, 2), (2, 64, 2), (8, 16, 2), (4, 32, 4), (2, 64, 6)])
def test_more_experts_have_smaller_groups_and_tokens_stay(batch: int, length: int, few: int, tmp_path: Path) -> None:
    tokens, rows = batch * length, batch * length * few
    shapes = after(grouped(batch, length, few), "scale experts=x4", tmp_path / "step.hlo")
    assert shapes["up"] == (32, WIDTH, INSIDE)
    assert shapes["h"] == (32, rows // 32, INSIDE)
    assert shapes["scores"] == (tokens, 32)
    assert shapes["x"][0] * shapes["x"][1] == tokens
    assert shapes["order"] == (rows,)


@pytest.mark.parametrize(("batch", "length"), [(4, 32), (2, 64), (8, 16)])
def test_more_tokens_make_larger_groups_of_the_same_experts(batch: int, length: int, tmp_path: Path) -> None:
    rows = batch * length * 2
    shapes = after(grouped(batch, length), "scale batch=x2", tmp_path / "step.hlo")
    assert shapes["x"] == shapes["out"] == (2 * batch, length, WIDTH)
    assert shapes["h"] == (EXPERTS, 2 * rows // EXPERTS, INSIDE)
    assert (shapes["up"], shapes["order"]) == ((EXPERTS, WIDTH, INSIDE), (2 * rows,))


def test_data_that_have_a_dimension_of_experts_themselves_are_no_groups() -> None:
    gates = """HloModule step, is_scheduled=true

ENTRY %main (x: bf16[8,16], gates: bf16[4,8], up: bf16[4,16,32]) -> bf16[4,8,32] {
  %x = bf16[8,16]{1,0} parameter(0), metadata={op_name="x"}
  %gates = bf16[4,8]{1,0} parameter(1), metadata={op_name="gates"}
  %up = bf16[4,16,32]{2,1,0} parameter(2), metadata={op_name="up"}
  %rows = bf16[4,8,16]{2,1,0} broadcast(%x), dimensions={1,2}
  %h = bf16[4,8,32]{2,1,0} dot(%rows, %up), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
  %wide = bf16[4,8,32]{2,1,0} broadcast(%gates), dimensions={0,1}
  ROOT %y = bf16[4,8,32]{2,1,0} multiply(%h, %wide)
}
"""
    experts = dimension_named(Program(parse(gates.encode(), "step")), "up[0]")
    assert experts is not None
    assert ("gates", 0) in {(one.name, axis) for one, axis in experts.inputs}
    assert experts.grouped == ()


def test_a_result_of_the_shape_of_the_data_does_not_make_weights_of_them() -> None:
    dense = """HloModule step, is_scheduled=true

ENTRY %main (x: bf16[64,16], router: bf16[16,4], up: bf16[4,16,32], down: bf16[4,32,16]) -> bf16[64,16] {
  %x = bf16[64,16]{1,0} parameter(0), metadata={op_name="x"}
  %router = bf16[16,4]{1,0} parameter(1), metadata={op_name="router"}
  %up = bf16[4,16,32]{2,1,0} parameter(2), metadata={op_name="up"}
  %down = bf16[4,32,16]{2,1,0} parameter(3), metadata={op_name="down"}
  %gates = bf16[64,4]{1,0} dot(%x, %router), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %h = bf16[64,4,32]{2,1,0} dot(%x, %up), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  %y = bf16[4,64,16]{2,1,0} dot(%h, %down), lhs_batch_dims={1}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
  ROOT %out = bf16[64,16]{1,0} dot(%gates, %y), lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    program = Program(parse(dense.encode(), "step"))
    assert {one.name for one in inputs_of(program) if not one.is_weight} == {"x"}
    batch = dimension_named(program, "batch")
    assert batch is not None
    assert [(one.name, axis) for one, axis in batch.inputs] == [("x", 0)]


TURNED = """HloModule experts, is_scheduled=true

%add (a: bf16[], b: bf16[]) -> bf16[] {
  %a = bf16[] parameter(0)
  %b = bf16[] parameter(1)
  ROOT %c = bf16[] add(%a, %b)
}

%scaled (a: bf16[512,512], b: bf16[512]) -> bf16[512,512] {
  %a = bf16[512,512]{1,0} parameter(0)
  %b = bf16[512]{0} parameter(1)
  %c = bf16[512,512]{1,0} broadcast(%b), dimensions={1}
  ROOT %d = bf16[512,512]{1,0} multiply(%a, %c)
}

ENTRY %main (x: bf16[512,512], gain: bf16[512], up: bf16[512,512], down: bf16[512,512]) -> bf16[512,64] {
  %x = bf16[512,512]{1,0} parameter(0)
  %gain = bf16[512]{0} parameter(1)
  %up = bf16[512,512]{1,0} parameter(2)
  %down = bf16[512,512]{1,0} parameter(3)
  %zero = bf16[] constant(0)
  %weight = bf16[512,512]{1,0} transpose(%up), dimensions={1,0}
  %before = bf16[512,512]{1,0} fusion(%x, %gain), kind=kLoop, calls=%scaled
  %first = bf16[512,512]{1,0} dot(%before, %weight), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %turned = bf16[512,512]{1,0} transpose(%first), dimensions={1,0}
  %between = bf16[512,512]{1,0} fusion(%turned, %gain), kind=kLoop, calls=%scaled
  %last = bf16[512,512]{1,0} dot(%between, %down), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %back = bf16[512,512]{1,0} transpose(%last), dimensions={1,0}
  %parts = bf16[8,64,512]{2,1,0} bitcast(%back)
  %combined = bf16[64,512]{1,0} reduce(%parts, %zero), dimensions={0}, to_apply=%add
  ROOT %after = bf16[512,64]{1,0} transpose(%combined), dimensions={1,0}
}
"""


def test_grouped_products_need_no_transposes_and_what_is_between_has_fewer_rows(tmp_path: Path) -> None:
    (tmp_path / "experts.hlo").write_text(TURNED)
    recording, chip = measured_source(tmp_path / "experts.hlo", "h200")
    ops = {op.name: replace(op, avoidable=()) for op in recording.workload}
    for name in ("first", "last"):
        dense = Avoidable(kind="dense-experts", instead=ops[name].cost * Fraction(1, 4), why="", factor=4)
        ops[name] = replace(ops[name], avoidable=(dense,))
    for name in ("weight", "turned", "back", "after"):
        ops[name] = replace(ops[name], avoidable=(Avoidable(kind="layout-copies", instead=NOTHING, why=""),))
    recording = replace(recording, workload=Workload(tuple(ops.values())))
    state = State(recording, {}, chip, calibration_for(chip).for_kernels())
    change(state, ["grouped"])
    left = {op.name: float(op.cost.known("hbm")) / float(ops[op.name].cost.known("hbm")) for op in state.ops}
    assert left["weight"] == left["turned"] == left["back"] == 0
    assert left["between"] == 1 / 4
    assert left["before"] == left["combined"] == left["after"] == 1  # of tokens


def test_images_are_data_of_a_program_that_trains_the_weight_they_are_multiplied_with() -> None:
    training = """HloModule step, is_scheduled=true

ENTRY %main (x: bf16[64,48], patch: bf16[48,16], head: bf16[16,10]) -> (bf16[48,16], bf16[16,10]) {
  %x = bf16[64,48]{1,0} parameter(0), metadata={op_name="x"}
  %patch = bf16[48,16]{1,0} parameter(1), metadata={op_name="P['patch']"}
  %head = bf16[16,10]{1,0} parameter(2), metadata={op_name="P['head']"}
  %h = bf16[64,16]{1,0} dot(%x, %patch), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %y = bf16[64,10]{1,0} dot(%h, %head), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %dy = bf16[64,10]{1,0} tanh(%y)
  %dhead = bf16[16,10]{1,0} dot(%h, %dy), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  %dh = bf16[64,16]{1,0} dot(%dy, %head), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  %dpatch = bf16[48,16]{1,0} dot(%x, %dh), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  %new = bf16[48,16]{1,0} subtract(%patch, %dpatch)
  ROOT %out = (bf16[48,16]{1,0}, bf16[16,10]{1,0}) tuple(%new, %dhead)
}
"""
    batch = dimension_named(Program(parse(training.encode(), "step")), "batch")
    assert batch is not None
    assert [(one.name, axis) for one, axis in batch.inputs] == [("x", 0)]
