"""Quantities of several runs and versions of a program: means, the 95% interval of a difference, and trends."""

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, variance

from msgspec import Struct
from msgspec.structs import replace

from ..checking.amounts import amount_of
from ..checking.conditions import Quantity
from ..report import Number, Report
from ..selection import chosen_devices, per_device, per_step
from .values import STEP, Change

# Student's t for 95%, two-sided, by degrees of freedom; 1.96 in the limit
_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09)
_T_LIMIT = 1.96
TIMES = ("step", "run", "time", "minimum time")  # candidates for the headline: the first that all reports have
FIGURES = (*TIMES, "idle", "mfu", "flops", "peak memory", "launches", "findings")  # in addition to the bytes of each memory and link


def amounts_of(reports: Sequence[Report]) -> dict[str, list[Number | None]]:
    """The quantities that reports may have, with the amount of each one's ops; the time of a step only where all have steps."""
    levels = sorted({level for report in reports for op in report.ops for level in op.bytes})
    has_steps = all(any(point.scope == "average" for point in report.points) for report in reports)
    names = [name for name in dict.fromkeys((*FIGURES, *levels)) if has_steps or name != "step"]
    return {name: [amount_of(report, Quantity(name=name), report.ops).value for report in reports] for name in names}


def changes_between(amounts: dict[str, list[Number | None]], before: int) -> list[Change]:
    """The quantities that all runs have, of which the first ``before`` are of the earlier version."""
    known = {name: [amount for amount in row if amount is not None] for name, row in amounts.items()}
    return [
        change_of(name, Quantity(name=name).dimension, row[:before], row[before:])
        for name, row in known.items()
        if len(row) == len(amounts[name]) and any(row)
    ]


def headline_of(reports: Sequence[Report]) -> str:
    """The time that two reports are compared by: of the step, of the run, of the ops or their minimum, the first that both have."""
    amounts = amounts_of(counted(reports)[1])
    return next((name for name in TIMES if all(amounts.get(name, (None,)))), "time")


def counted(reports: Sequence[Report]) -> tuple[str, list[Report]]:
    """Reports whose ops are those of one step on one device, where all have steps (``step``), else of the run on one device (empty)."""
    steps = [per_step(report) for report in reports]
    per = STEP if all(steps) else ""
    ops = steps if per else [per_device(report.ops, chosen_devices(report)) for report in reports]
    return per, [replace(report, ops=tuple(some or ())) for report, some in zip(reports, ops, strict=True)]


def difference(before: Sequence[float], after: Sequence[float]) -> tuple[float, float] | None:
    """The 95% confidence interval of the difference of two means by Welch's t-test; ``None`` if one side has a single run.

    >>> low, high = difference([10, 10.2, 9.8], [11, 11.2, 10.8])
    >>> round(low, 2), round(high, 2)
    (0.55, 1.45)
    """
    if len(before) < 2 or len(after) < 2:
        return None
    parts = [variance(side) / len(side) for side in (before, after)]
    error, change = sqrt(sum(parts)), fmean(after) - fmean(before)
    weights = sum(part**2 / (len(side) - 1) for part, side in zip(parts, (before, after), strict=True))
    freedom = max(int(sum(parts) ** 2 / weights), 1) if weights else 1  # without variance the error is 0
    around = error * (_T[freedom - 1] if freedom <= len(_T) else _T_LIMIT)
    return change - around, change + around


def change_of(name: str, unit: str, before: Sequence[Number], after: Sequence[Number]) -> Change:
    """The change of a quantity from the runs of one version to those of another."""
    return Change(quantity=name, unit=unit, before=_mean(before), after=_mean(after), interval=difference(before, after))


def _mean(amounts: Sequence[Number]) -> Number:
    return amounts[0] if len(set(amounts)) == 1 else fmean(amounts)


class Spread(Struct, frozen=True, kw_only=True):
    """A quantity over the runs of one version: their mean and range."""

    mean: Number
    low: Number
    high: Number


class Trend(Struct, frozen=True, kw_only=True):
    """Successive versions of a program; each quantity has one value per version, ``None`` where a report does not have it."""

    schema: str = "roofline.trend/1"
    versions: tuple[str, ...]
    headline: str
    units: dict[str, str]
    values: dict[str, tuple[Spread | None, ...]]


def trend(versions: Sequence[Sequence[Report]], names: Sequence[str]) -> Trend:
    """Quantities of several versions of a program, with one or several runs each."""
    values: dict[str, tuple[Spread | None, ...]] = {}
    for name, amounts in amounts_of(counted([report for runs in versions for report in runs])[1]).items():
        left = iter(amounts)
        row = tuple(_spread([next(left) for _ in runs]) for runs in versions)
        if any(spread is not None and spread.high for spread in row):
            values[name] = row
    complete = [name for name in values if None not in values[name]]  # times first
    units = {name: Quantity(name=name).dimension for name in values}
    return Trend(versions=tuple(names), headline=complete[0] if complete else "", units=units, values=values)


def _spread(amounts: Sequence[Number | None]) -> Spread | None:
    known = [amount for amount in amounts if amount is not None]
    return Spread(mean=_mean(known), low=min(known), high=max(known)) if known and len(known) == len(amounts) else None
