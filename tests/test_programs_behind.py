"""The compiled programs behind a recording, told apart where several have one name."""

from pathlib import Path

import pytest

from roofline.analysis.what_if import measured_source, what_if
from roofline.sources.embedded import programs_behind

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
