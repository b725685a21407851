"""Budgets: conditions on a report, its baseline, and the report on another chip where a condition names one."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path

from msgspec.structs import replace

from ..checking import BudgetCheck, Check, check_conditions
from ..checking.amounts import amount_of
from ..checking.baselines import Baseline, baseline_of
from ..checking.conditions import Condition, Quantity, parse_conditions
from ..comparison.runs import difference, headline_of
from ..errors import expect
from ..machines import load
from ..report import Report
from ..rules.words import kinds
from ..sources.baseline_json import read_baseline
from ..sources.report_json import as_recording, stored_report
from ..sources.samples import is_sample
from . import assemble
from .what_if import timed, what_if


def check(
    report: Report,
    conditions: str | Iterable[str | Condition],
    *,
    baseline: Baseline | Report | str | Path | None = None,
    on_chip: Callable[[str], Report] | None = None,
) -> BudgetCheck:
    """Compare a report with conditions: ``check(report, "step < 30 ms and peak memory < 70 GB").holds``.

    All must hold. ``baseline`` is one, an earlier report, or the file of either. ``on_chip`` gives the report on a chip that a condition
    names; by default the file that the report was made from is analyzed for it, else the report's own ops.
    """
    expect(report, Report, "rl.analyze(path)")
    earlier = stored_report(baseline) if isinstance(baseline, str | Path) else baseline
    read = read_conditions(conditions, headline_of([earlier, report]) if isinstance(earlier, Report) else "time")
    if isinstance(earlier, Report):
        earlier = replace(baseline_of(earlier, read), file="" if isinstance(baseline, Report) else str(baseline))
    kept = read_baseline(baseline) if earlier is None and isinstance(baseline, str | Path) else earlier
    return check_conditions(report, read, kept, cache(on_chip or partial(on_another_chip, report)))


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


def read_conditions(conditions: str | Iterable[str | Condition], time: str = "time") -> tuple[Condition, ...]:
    """Conditions from text; a kind of finding that does not exist is an error. ``time`` is what the word refers to in ``time +5%``."""
    texts = [conditions] if isinstance(conditions, str) else conditions
    return tuple(one for text in texts for one in ([text] if isinstance(text, Condition) else parse_conditions(text, kinds(), time)))


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
