"""Budgets: conditions on a report, its baseline, and the report on another chip where a condition asks for one."""

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from ..baselines import Baseline
from ..checking import BudgetCheck, check_conditions
from ..conditions import Condition, parse_conditions
from ..machines import load
from ..report import Report
from ..sources.baseline_json import read_baseline
from ..sources.report_json import as_recording
from . import advice, assemble, finding_kinds, stragglers
from .what_if import timed, what_if


def check(
    report: Report,
    conditions: str | Iterable[str],
    *,
    baseline: Baseline | str | Path | None = None,
    on_chip: Callable[[str], Report] | None = None,
) -> BudgetCheck:
    """Compare a report with conditions: ``check(report, "step < 30 ms and peak memory < 70 GB").holds``.

    All must hold. ``baseline`` is one, or its file. ``on_chip`` gives the report on a chip that a condition names; by default the file that
    the report was made from is analysed for it, else the report's own ops.
    """
    kept = read_baseline(baseline) if isinstance(baseline, str | Path) else baseline
    return check_conditions(report, read_conditions(conditions), kept, cache(on_chip or (lambda chip: on_another_chip(report, chip))))


def read_conditions(conditions: str | Iterable[str]) -> tuple[Condition, ...]:
    """Conditions from text; a kind of finding that does not exist is an error."""
    texts = [conditions] if isinstance(conditions, str) else conditions
    kinds = tuple(sorted({*advice.KINDS, *finding_kinds.KINDS, stragglers.KIND}))
    return tuple(one for text in texts for one in parse_conditions(text, kinds))


def on_another_chip(report: Report, chip: str) -> Report:
    """A report as it is expected on another chip."""
    files = report.input.files
    if len(files) == 1 and Path(files[0]).exists():
        return what_if(report, f"chip {chip}")
    machine = load(chip)
    recording = as_recording(report)
    if any(op.time_s is not None for op in recording.workload):
        return assemble(recording, machine)
    return assemble(timed(recording, machine), machine)
