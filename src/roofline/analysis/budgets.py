"""Budgets: conditions on a report, its baseline, and the report on another chip where a condition names one."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from ..checking import BudgetCheck, Check, check_conditions
from ..checking.amounts import amount_of
from ..checking.baselines import Baseline, baseline_of
from ..checking.conditions import Condition, Quantity, parse_conditions, parse_limits
from ..checking.report_changes import difference
from ..errors import expect
from ..machines import load
from ..report import Report
from ..rules.words import kinds
from ..sources.baseline_json import read_baseline
from ..sources.report_json import as_recording
from ..sources.samples import is_sample
from . import assemble
from .what_if import timed, what_if


def check(
    report: Report,
    conditions: str | Iterable[str | Condition],
    *,
    baseline: Baseline | str | Path | None = None,
    on_chip: Callable[[str], Report] | None = None,
) -> BudgetCheck:
    """Compare a report with conditions: ``check(report, "step < 30 ms and peak memory < 70 GB").holds``.

    All must hold. ``baseline`` is one, or its file. ``on_chip`` gives the report on a chip that a condition names; by default the file that
    the report was made from is analyzed for it, else the report's own ops.
    """
    expect(report, Report, "rl.analyze(path)")
    kept = read_baseline(baseline) if isinstance(baseline, str | Path) else baseline
    return check_conditions(report, read_conditions(conditions), kept, cache(on_chip or (lambda chip: on_another_chip(report, chip))))


def check_change(before: Sequence[Report], after: Sequence[Report], limits: Sequence[Condition], file: str = "before") -> BudgetCheck:
    """Compare runs of a later version with those of an earlier one, which is the baseline; the run with the median amount represents each
    version. A limit counts as kept if the difference is within the noise of several runs.
    """
    return BudgetCheck(checks=tuple(_of_runs(before, after, one, file) for one in limits))


def _of_runs(before: Sequence[Report], after: Sequence[Report], limit: Condition, file: str) -> Check:
    mine, theirs = (_by_amount(side, limit.quantity) for side in (before, after))
    one, other = (side[len(side) // 2][1] for side in (mine, theirs))
    (found,) = check(other, [limit], baseline=replace(baseline_of(one, [limit]), file=file)).checks
    amounts = [[amount for amount, _ in side if amount is not None] for side in (mine, theirs)]
    between = difference(*amounts) if limit.of_baseline else None
    if found.holds is False and between and between[0] <= 0 <= between[1]:
        return replace(found, holds=True, why=f"within the noise of {len(before)} and {len(after)} runs")
    return found


def _by_amount(reports: Sequence[Report], quantity: Quantity | None) -> list[tuple[float | None, Report]]:
    """Reports in the order of a quantity."""
    amounts = [amount_of(report, quantity).value if quantity and not quantity.on else None for report in reports]
    return sorted(zip(amounts, reports, strict=True), key=lambda one: one[0] or 0.0)


def read_conditions(conditions: str | Iterable[str | Condition]) -> tuple[Condition, ...]:
    """Conditions from text; a kind of finding that does not exist is an error."""
    texts = [conditions] if isinstance(conditions, str) else conditions
    return tuple(one for text in texts for one in ([text] if isinstance(text, Condition) else parse_conditions(text, finding_names())))


def read_limits(text: str, time: str) -> tuple[Condition, ...]:
    """Limits of changes, such as ``time +5%``, from text."""
    return parse_limits(text, time, finding_names())


def finding_names() -> tuple[str, ...]:
    """The kinds of findings that there are."""
    return kinds()


def on_another_chip(report: Report, chip: str) -> Report:
    """A report as it is expected on another chip."""
    files = report.input.files
    if len(files) == 1 and (is_sample(files[0]) or Path(files[0]).exists()):
        return what_if(report, f"chip {chip}")
    machine = load(chip)
    recording = as_recording(report)
    if any(op.time_s is not None for op in recording.workload):
        return assemble(recording, machine)
    return assemble(timed(recording, machine), machine)
