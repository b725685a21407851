"""The changes between two versions of a program, with one or several runs each, for reviewing a change.

Amounts are of one step on one device (`quantities`). Ops are matched by scope, operation, shape and number format, so that the compiler's
numbering does not matter. With several runs, amounts are means, and a change has its 95% confidence interval by Welch's t-test; one that
contains 0 is noise.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from math import sqrt
from statistics import fmean, variance

from msgspec import Struct

from ..dtypes import DTYPES
from ..quantities import NOTABLE, ROUNDING
from ..report import Number, OpInfo, Report
from ..units import percent, plain
from .amounts import amount_of, counted_ops
from .baselines import BaselineOp, summed_ops
from .conditions import Quantity

SCHEMA = "roofline.changes/1"
_FORMATS = re.compile(rf"(?<![\w×])(?:{'|'.join(sorted(DTYPES, key=len, reverse=True))})(?![\w×])")
# Student's t for 95%, two-sided, by degrees of freedom; 1.96 in the limit
_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09)
_T_LIMIT = 1.96
TIMES = ("step", "run", "time", "minimum time")  # candidates for the headline: the first that all reports have
FIGURES = (*TIMES, "idle", "mfu", "flops", "peak memory", "launches", "findings")  # in addition to the bytes of each memory and link


NO_OPS = BaselineOp(op="")
Amount = Callable[[BaselineOp], Number]


class Change(Struct, frozen=True, kw_only=True):
    """One quantity before and after, in its unit; ``interval`` is that of the difference, if both sides have several runs."""

    quantity: str
    unit: str
    before: Number
    after: Number
    interval: tuple[float, float] | None = None

    @property
    def change(self) -> Number:
        same = abs(self.after - self.before) <= ROUNDING * max(abs(self.before), abs(self.after))
        return 0 if same else self.after - self.before

    @property
    def ratio(self) -> float | None:
        """The change relative to the value before."""
        return self.change / self.before if self.before else None

    @property
    def is_noise(self) -> bool:
        """Whether the change is within the variation between runs."""
        return self.interval is not None and self.interval[0] <= 0 <= self.interval[1]


class OpChange(Struct, frozen=True, kw_only=True):
    """Ops of one kind before and after: their time, or minimum time where nothing was measured; ``reasons`` are what changed about them."""

    op: str
    seconds: Change
    launches: Change
    reasons: tuple[str, ...] = ()
    matched: str = "both"  # or new, gone


class ReportChanges(Struct, frozen=True, kw_only=True):
    """Two versions of a program: the time in ``headline``, every other quantity in ``figures``, and the ops, the largest change first."""

    schema: str = SCHEMA
    files: tuple[str, str]
    runs: tuple[int, int]
    headline: Change | None
    figures: tuple[Change, ...]
    ops: tuple[OpChange, ...]

    @property
    def slower(self) -> tuple[OpChange, ...]:
        return tuple(one for one in self.ops if one.matched == "both" and one.seconds.change > 0 and not one.seconds.is_noise)

    @property
    def faster(self) -> tuple[OpChange, ...]:
        return tuple(one for one in self.ops if one.matched == "both" and one.seconds.change < 0 and not one.seconds.is_noise)

    def unmatched(self, matched: str) -> tuple[OpChange, ...]:
        return tuple(one for one in self.ops if one.matched == matched)


def report_changes(before: Sequence[Report], after: Sequence[Report], files: tuple[str, str] = ("before", "after")) -> ReportChanges:
    """The changes from the runs of one version to those of another."""
    ops = [[counted_ops(report) for report in side] for side in (before, after)]
    figures = []
    for name in _names([*before, *after], [rows for side in ops for rows in side]):
        quantity = Quantity(name=name)
        mine, theirs = (
            [amount_of(report, quantity, rows).value for report, rows in zip(side, of, strict=True)]
            for side, of in zip((before, after), ops, strict=True)
        )
        known = [one for one in (*mine, *theirs) if one is not None]
        if len(known) == len(mine) + len(theirs) and any(known):
            figures.append(_change(name, quantity.dimension, known[: len(mine)], known[len(mine) :]))
    of = {one.quantity: one for one in figures}
    measured = "time" in of
    return ReportChanges(
        files=files,
        runs=(len(before), len(after)),
        headline=next((of[name] for name in TIMES if name in of), None),
        figures=tuple(figures),
        ops=_op_changes(ops[0], ops[1], "time" if measured else "minimum time"),
    )


def headline_of(reports: Sequence[Report]) -> str:
    """The time that two reports are compared by: of the step, of the run, of the ops or their minimum, the first that both have."""
    names = [name for name in _names(reports, ()) if name in TIMES]
    known = (name for name in names if all(amount_of(report, Quantity(name=name)).value for report in reports))
    return next(known, "time")


def _names(reports: Iterable[Report], ops: Iterable[Sequence[OpInfo]]) -> list[str]:
    """The quantities that reports may have; the time of a step only where all have steps."""
    levels = sorted({level for rows in ops for op in rows for level in op.bytes})
    has_steps = all(any(point.scope == "average" for point in report.points) for report in reports)
    return [name for name in dict.fromkeys((*FIGURES, *levels)) if has_steps or name != "step"]


def difference(before: Sequence[float], after: Sequence[float]) -> tuple[float, float] | None:
    """The 95% confidence interval of the difference of two means; ``None`` if one side has a single run.

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


def _change(name: str, unit: str, before: Sequence[Number], after: Sequence[Number]) -> Change:
    return Change(quantity=name, unit=unit, before=_mean(before), after=_mean(after), interval=difference(before, after))


def _mean(amounts: Sequence[Number]) -> Number:
    return amounts[0] if len(set(amounts)) == 1 else fmean(amounts)


def _op_changes(before: Sequence[Sequence[OpInfo]], after: Sequence[Sequence[OpInfo]], basis: str) -> tuple[OpChange, ...]:
    sides = [[summed_ops(ops, timed=True) for ops in side] for side in (before, after)]
    kinds = [list(dict.fromkeys(kind for run in side for kind in run)) for side in sides]
    earlier = _in_other_formats(*kinds)
    time: Amount = (lambda row: row.time_s) if basis == "time" else (lambda row: row.minimum_s)
    found = []
    for kind in dict.fromkeys(kind for side in kinds for kind in side if kind not in earlier.values()):
        was = earlier.get(kind, kind)
        mine, theirs = ([run.get(name, NO_OPS) for run in side] for name, side in zip((was, kind), sides, strict=True))
        seconds, launches = _row_change(basis, "s", time, mine, theirs), _row_change("launches", "", _launches, mine, theirs)
        matched = "new" if was not in kinds[0] else "gone" if kind not in kinds[1] else "both"
        reasons = _reasons(mine, theirs, launches, basis) if matched == "both" and seconds.change else ()
        if kind != was:
            reasons = (f"number format {' '.join(_formats(was))} → {' '.join(_formats(kind))}", *reasons)
        found.append(OpChange(op=kind, seconds=seconds, launches=launches, matched=matched, reasons=reasons))
    return tuple(sorted(found, key=lambda one: (-abs(one.seconds.change), one.op)))


def _launches(row: BaselineOp) -> Number:
    return row.launches


def _row_change(name: str, unit: str, amount: Amount, before: Sequence[BaselineOp], after: Sequence[BaselineOp]) -> Change:
    return _change(name, unit, [amount(row) for row in before], [amount(row) for row in after])


def _in_other_formats(before: Sequence[str], after: Sequence[str]) -> dict[str, str]:
    """New kinds of ops mapped to the same op in another number format before; only where the match is unique."""
    gone, new = ([kind for kind in mine if kind not in set(other)] for mine, other in ((before, after), (after, before)))
    sides = []
    for kinds in (gone, new):
        plain: dict[str, list[str]] = {}
        for kind in kinds:
            if _formats(kind):
                plain.setdefault(_FORMATS.sub("", kind), []).append(kind)
        sides.append({text: only[0] for text, only in plain.items() if len(only) == 1})
    return {kind: sides[0][text] for text, kind in sides[1].items() if text in sides[0]}


def _formats(kind: str) -> list[str]:
    return list(dict.fromkeys(_FORMATS.findall(kind)))


def _reasons(before: Sequence[BaselineOp], after: Sequence[BaselineOp], launches: Change, basis: str) -> tuple[str, ...]:
    """What changed about ops of one kind: work, bytes, launches and efficiency."""
    reasons = []
    amounts: dict[str, Amount] = {"flops": lambda row: row.flops}
    amounts |= {level: _bytes_over(level) for level in sorted({level for row in (*before, *after) for level in row.bytes})}
    for name, amount in amounts.items():
        found = _row_change(name, "", amount, before, after)
        if found.ratio is not None and abs(found.ratio) > NOTABLE:
            what = "work" if name == "flops" else "bytes"
            less = "less" if name == "flops" else "fewer"
            of = f" of {name}" if name not in ("flops", "hbm") else ""
            reasons.append(f"{'more' if found.change > 0 else less} {what}{of} ({signed_percent(found.ratio)})")
    if launches.change:
        reasons.append(f"{'more' if launches.change > 0 else 'fewer'} launches ({plain(launches.before)} → {plain(launches.after)})")
    was, now = _efficiency(before), _efficiency(after)
    if basis == "time" and was and now and abs(now - was) > NOTABLE:
        reasons.append(f"{'higher' if now > was else 'lower'} efficiency ({percent(was)} → {percent(now)})")
    return tuple(reasons)


def _bytes_over(level: str) -> Amount:
    return lambda row: row.bytes.get(level, 0)


def _efficiency(rows: Sequence[BaselineOp]) -> float | None:
    time = sum(row.time_s for row in rows)
    return sum(row.minimum_s for row in rows) / time if time else None


def signed_percent(part: float) -> str:
    """A percentage with its sign.

    >>> signed_percent(-0.05)
    '−5%'
    """
    return f"{'−' if part < 0 else '+'}{percent(abs(part))}"


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
    ops = {id(report): counted_ops(report) for runs in versions for report in runs}
    values, units = {}, {}
    for name in _names([report for runs in versions for report in runs], ops.values()):
        quantity = Quantity(name=name)
        row = [_spread([amount_of(report, quantity, ops[id(report)]).value for report in runs]) for runs in versions]
        if any(one is not None and one.high for one in row):
            values[name], units[name] = tuple(row), quantity.dimension
    complete = [name for name in values if None not in values[name]]  # times first
    return Trend(versions=tuple(names), headline=complete[0] if complete else "", units=units, values=values)


def _spread(amounts: Sequence[Number | None]) -> Spread | None:
    known = [amount for amount in amounts if amount is not None]
    return Spread(mean=_mean(known), low=min(known), high=max(known)) if known and len(known) == len(amounts) else None
