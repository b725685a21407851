"""Functions measured on the device at hand, here a CPU that stands in for an accelerator."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from roofline.integrations.measuring import NO_DEVICE, measured_report
from roofline.integrations.pytest_budgets import BudgetedReport
from roofline.report import Report

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.jax


def append(cache: object, row: object) -> object:
    return cache.at[0].set(row), row * 2  # type: ignore[attr-defined]


SHAPES = (jax.ShapeDtypeStruct((64, 64), "float32"), jax.ShapeDtypeStruct((64,), "float32"))


def test_without_an_accelerator_nothing_runs() -> None:
    assert measured_report(lambda x: 1 / 0, "h100", {}, SHAPES[:1], {}) == NO_DEVICE


@pytest.mark.parametrize("options", [{}, {"donate_argnums": 0}])
def test_some_steps_run_with_arguments_that_may_be_donated(options: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    other = measured_report(append, "h100", options, SHAPES, {})
    assert isinstance(other, str)
    match = re.fullmatch("the device here is (.*), not h100-sxm", other)
    assert match
    monkeypatch.setattr("roofline.integrations.measuring.load", lambda chip: SimpleNamespace(name=match[1]))
    report = measured_report(append, "h100", options, SHAPES, {})
    assert isinstance(report, Report)
    assert len(report.steps) == 3
    assert all(op.time_s is not None for op in report.ops)


def test_what_was_measured_stays_in_the_baseline_without_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "baseline.json"

    def budget(update: bool) -> BudgetedReport:
        return BudgetedReport(append, "h100", {}, SHAPES, {}, file, tmp_path, update)

    timed = budget(True)
    ops = tuple(replace(op, time_s=1.0) for op in timed.report.ops)
    monkeypatch.setattr("roofline.integrations.pytest_budgets.measured_report", lambda *_: replace(timed.report, ops=ops))
    timed.check("time <= baseline", "flops == baseline")
    monkeypatch.undo()
    with pytest.raises(pytest.skip.Exception, match="need an accelerator"):
        budget(True).check("time <= baseline")
    assert f'"time": {len(ops)}' in file.read_text()
