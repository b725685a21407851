"""Tokens in groups by expert: more experts have smaller groups, more tokens larger ones, also where there are as many as experts."""

from fractions import Fraction
from pathlib import Path

import pytest
from msgspec.structs import replace

from program_texts import program_text
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
    return program_text("what_if_experts/grouped.hlo", tokens=tokens, few=few, batch=batch, length=length, rows=rows, groups=groups)


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
    gates = program_text("what_if_experts/data_that_have_a_dimension_of_experts_themselves_are_no_groups.hlo")
    experts = dimension_named(Program(parse(gates.encode(), "step")), "up[0]")
    assert experts is not None
    assert ("gates", 0) in {(one.name, axis) for one, axis in experts.inputs}
    assert experts.grouped == ()


def test_a_result_of_the_shape_of_the_data_does_not_make_weights_of_them() -> None:
    dense = program_text("what_if_experts/a_result_of_the_shape_of_the_data_does_not_make_weights_of_them.hlo")
    program = Program(parse(dense.encode(), "step"))
    assert {one.name for one in inputs_of(program) if not one.is_weight} == {"x"}
    batch = dimension_named(program, "batch")
    assert batch is not None
    assert [(one.name, axis) for one, axis in batch.inputs] == [("x", 0)]


TURNED = program_text("what_if_experts/turned.hlo")


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
    training = program_text("what_if_experts/images_are_data_of_a_program_that_trains_the_weight_they_are_multiplied_with.hlo")
    batch = dimension_named(Program(parse(training.encode(), "step")), "batch")
    assert batch is not None
    assert [(one.name, axis) for one, axis in batch.inputs] == [("x", 0)]
