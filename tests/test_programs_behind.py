"""The compiled programs behind a recording, told apart where several have one name."""

from pathlib import Path

import pytest

from roofline.analysis.what_if import measured_source, what_if
from roofline.cost import Cost
from roofline.hlo.read import parse
from roofline.machines import load
from roofline.sources.embedded import programs_behind
from roofline.workload import Op, Recording, Workload

FUSION = Path(__file__).parent / "data" / "h200" / "jax_fusion.xplane.pb"


def test_programs_of_one_name_are_told_apart_by_their_numbers() -> None:
    recording, chip = measured_source(str(FUSION))
    modules = {op.module for op in recording.workload}
    assert any(name.endswith(")") for name in modules)  # or this profile shows nothing
    found = programs_behind(recording, chip, str(FUSION))
    assert set(found) == modules
    assert all(module.name == name for name, module in found.items())
    for op in recording.workload:
        assert found[op.module].place(op.name) is not None


def test_a_batch_grows_in_all_programs_of_a_step() -> None:
    report = what_if(str(FUSION), "scale batch=x2")
    grown = [op for op in report.ops if op.before_s and op.time_s != op.before_s]
    assert len({op.module for op in grown}) > 1
    assert any("other program" in note for note in report.input.notes)
    before = sum(op.before_s or 0.0 for op in report.ops)
    assert sum(op.time_s or 0.0 for op in report.ops) == pytest.approx(2 * before, rel=0.1)


def test_of_programs_with_one_name_the_one_that_ran_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process has compiled others of this name before, with the same instructions."""
    text = (
        "HloModule jit_f\n\nENTRY %main (x: f32[SIZE]) -> f32[SIZE] {\n  %x = f32[SIZE] parameter(0)\n  ROOT %y = f32[SIZE] negate(%x)\n}\n"
    )
    compiled = tuple((str(size), parse(text.replace("SIZE", str(size)).encode(), "f")) for size in (8, 16, 32))
    monkeypatch.setattr("roofline.sources.embedded.programs_of", lambda *_: compiled)
    op = Op(name="y", module="jit_f", cost=Cost.of({"hbm": 128}), time_s=1e-6)
    recording = Recording(format="xspace", workload=Workload((op,)), programs={"jit_f": "16"})
    assert programs_behind(recording, load("h200"), "run")["jit_f"].entry_computation.root_instruction.shape.dims == (16,)
