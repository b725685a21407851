"""Comparison: what changed between two reports, or between the runs of two versions, op by op and by kind of op.

An op's time here is its self time where the report has one, so that changes of nested ops are counted once and the changes sum to the
total. Times and amounts are those of one step on one device where both reports have steps, else of the run on one device.

Any two reports can be compared, by the quantities that both have: measured times, or else minimum times, FLOP, bytes, launches and peak
memory. A program that was not run is one step on one device, so a profile is compared with it by its average step on one device.

Ops are matched once (`matching`). The rows are of the runs with the median time; `ReportChanges` sums them by kind of op over all runs, so
that a change has its 95% confidence interval; one that contains 0 is noise.
"""

from collections.abc import Hashable, Iterable, Sequence

from msgspec.structs import replace

from ..checking.amounts import part_of_op
from ..checking.baselines import kind_of
from ..cost import sum_of_known
from ..errors import expect
from ..op_parts import part
from ..quantities import NOTABLE, known_flops, launches
from ..report import MachineInfo, Number, OpInfo, Report
from ..resource import HBM
from ..units import percent, plain, show, signed_percent
from ..workload import NO_COVERAGE
from .matching import CATEGORY, Match, matched_ops, without_format
from .promises import more_work, promises_kept
from .runs import FIGURES, TIMES, amounts_of, change_of, changes_between, counted
from .values import (
    MINIMUM,
    STEP,
    TIME,
    Change,
    Comparison,
    Delta,
    Figure,
    OpChange,
    ReportChanges,
    Side,
    Totals,
    change,
    efficiency_of,
    label_of_change,
    summed,
)

PROGRAMS = ("hlo", "jax")  # formats of programs that were not run
_AMOUNTS = {STEP: "times and amounts of ops are per step and device", "": "times and amounts of ops are those of whole runs"}

Version = Report | list[Report] | tuple[Report, ...]


def compare(before: Version, after: Version, files: tuple[str, str] = ("before", "after")) -> Comparison:
    """Match the ops of two reports and return each one's contribution to the total change; ``files`` are the names of the two reports.

    Either may be several runs of one version.
    """
    sides = [list(side) if isinstance(side, list | tuple) else [side] for side in (before, after)]
    for side in sides:
        for report in side:
            expect(report, Report, "rl.analyze(path)")
    places = [median_run(side) for side in sides]
    was, now = (side[place] for side, place in zip(sides, places, strict=True))
    promises = promises_kept(was, now, files)
    notes = _machine_notes(was.machine, now.machine)
    if times := more_work(was, now):
        notes.append(f"a step after has {times:.3g} times the FLOP of one before: they are not the same steps, so no promise is compared")
    steps = [sum(step.complete for step in report.steps) for report in (was, now)]
    if _is_run(was) != _is_run(now) and _is_program(was) | _is_program(now):
        sides = [[_untimed(report) if _is_run(report) else report for report in side] for side in sides]
        notes.append("a measured run is compared with a program: amounts are per step and device, and times are minimum times")
    per, reports = counted([report for side in sides for report in side])
    runs = [reports[: len(sides[0])], reports[len(sides[0]) :]]
    was, now = (run[place] for run, place in zip(runs, places, strict=True))
    matches = matched_ops(was.ops, now.ops)
    rows = [_delta(match) for match in matches]
    basis = TIME if all(_is_run(report) or not report.ops for report in (was, now)) else MINIMUM
    timed_change = sum_of_known(row.change_s for row in rows) if basis == TIME else None
    floor_change = sum_of_known(row.floor_change_s for row in rows)
    whole = timed_change if basis == TIME else floor_change
    deltas = [replace(row, share=seconds / whole) if whole and (seconds := _change(row, basis)) is not None else row for row in rows]
    untimed = sum(row.change_s is None for row in rows)
    if untimed and timed_change is not None:
        notes.append(f"{untimed:,} of {len(rows):,} rows have no measured time on both sides and are not in the total change")
    amounts = amounts_of(reports)
    old, new = (
        _totals(report, {name: row[place] for name, row in amounts.items()})
        for report, place in ((was, places[0]), (now, len(sides[0]) + places[1]))
    )
    unknown = ((old.unknown, "before"), (new.unknown, "after"))
    notes += [f"{count:,} ops {when} have FLOP or bytes that are not known" for count, when in unknown if count]
    if all(steps) and steps[0] != steps[1]:
        notes.append(f"{steps[0]:,} steps before, {steps[1]:,} after: {_AMOUNTS[per]}")
    speedup, speedup_of = _speedup(old, new)
    named = changes_between(amounts, len(runs[0]))
    return Comparison(
        files=files,
        before=old,
        after=new,
        change_s=timed_change,
        speedup=speedup,
        deltas=tuple(sorted(deltas, key=_by_change)),
        notes=tuple(notes),
        basis=basis,
        floor_change_s=floor_change,
        speedup_of=speedup_of,
        figures=_figures(old, new),
        per=per,
        promises=promises,
        changes=ReportChanges(
            files=files,
            runs=(len(runs[0]), len(runs[1])),
            headline=next((figure for name in TIMES for figure in named if figure.quantity == name), None),
            figures=tuple(named),
            ops=_op_changes(matches, runs, basis),
        ),
    )


def median_run(runs: Sequence[Report]) -> int:
    """The place of the run with the median time."""
    times = [(point.time_s or 0.0) if (point := report.main_point) else 0.0 for report in runs]
    return sorted(range(len(runs)), key=times.__getitem__)[len(runs) // 2]


def _is_program(report: Report) -> bool:
    return report.input.format in PROGRAMS


def _is_run(report: Report) -> bool:
    """Whether it has measured times."""
    return any(op.time_s is not None for op in report.ops)


def _untimed(report: Report) -> Report:
    """A run as one step on one device, without times; without steps, the whole run."""
    _, (step,) = counted([report])
    ops = tuple(part(op, op.count, None) for op in step.ops)
    return replace(report, ops=ops, steps=(), by_step=(), by_device=(), by_step_and_device=(), points=(), coverage=NO_COVERAGE)


def _speedup(before: Totals, after: Totals) -> tuple[float | None, str | None]:
    for of, old, new in (
        ("step", before.step_s, after.step_s),
        ("run", before.wall_s, after.wall_s),
        ("ops", before.time_s, after.time_s),
    ):
        if old is not None and new:
            return old / new, of
    return None, None


def _figures(before: Totals, after: Totals) -> tuple[Figure, ...]:
    """The quantities that both reports have."""
    levels = [level for level in before.bytes if before.bytes[level] or after.bytes[level]]
    rows: list[tuple[str, str, Number | None, Number | None]] = [
        ("step time", "s", before.step_s, after.step_s),
        *((f"{word}/s", "", before.throughput[word], after.throughput[word]) for word in before.throughput if word in after.throughput),
        ("run time", "s", before.wall_s, after.wall_s),
        ("op time", "s", before.time_s, after.time_s),
        ("minimum time", "s", before.floor_s, after.floor_s),
        ("work", "FLOP", before.flops, after.flops),
        *((f"{level} bytes", "B", before.bytes[level], after.bytes[level]) for level in levels),
        ("launches", "", before.launches, after.launches),
        ("peak memory", "B", before.peak_bytes, after.peak_bytes),
        ("ops", "", before.ops, after.ops),
    ]
    return tuple(
        Figure(quantity=name, unit=unit, before=old, after=new, change=change(old, new), ratio=old / new if new else None)
        for name, unit, old, new in rows
        if old is not None and new is not None
    )


def _totals(report: Report, amounts: dict[str, Number | None]) -> Totals:
    """The totals of a report from its amounts."""
    time_s, floor_s = (amounts[name] if report.ops else None for name in (TIME, MINIMUM))
    return Totals(
        time_s=time_s,
        floor_s=floor_s,
        efficiency=efficiency_of(floor_s, time_s),
        wall_s=amounts["run"],
        ops=len(report.ops),
        step_s=next((point.time_s for point in report.points if point.scope == "average" and point.infeed_outfeed), None),
        flops=amounts["flops"] or 0,
        bytes={level: amount or 0 for level, amount in amounts.items() if level not in FIGURES},
        launches=amounts["launches"] or 0,
        peak_bytes=amounts["peak memory"],
        throughput={word: found.per_s for word, found in report.main_point.throughput.items()} if report.main_point else {},
        unknown=sum(None in (*op.work.values(), *op.bytes.values()) for op in report.ops),
    )


def _change(row: Delta, basis: str) -> float | None:
    return row.change_s if basis == TIME else row.floor_change_s


def _side(op: OpInfo) -> Side:
    return Side(
        ops=(op.id,),
        names=(op.name,),
        count=op.count,
        time_s=op.own_s,
        floor_s=op.floor_s,
        efficiency=op.efficiency,
        bound=op.bound,
        flops=known_flops(op),
        bytes={level: part_of_op(op, level) or 0 for level in op.bytes},
        launches=launches(op),
    )


def _delta(match: Match) -> Delta:
    before, after = (summed(map(_side, ops)) for ops in (match.before, match.after))
    shown, is_category = (*match.after, *match.before)[0], match.how == CATEGORY
    where, what = ("", shown.category) if is_category else (shown.where, shown.what)
    was = match.before[0].what if match.before and match.after and not is_category else ""
    was = was if was != what else ""
    return Delta(
        name=shown.category if is_category else shown.name,
        label=label_of_change(where, what, was),
        scope="" if is_category else shown.scope,
        where=where,
        what=what,
        was=was,
        module="" if is_category else shown.module,
        category=shown.category,
        matched=match.how,
        before=before,
        after=after,
        change_s=None if before.time_s is None or after.time_s is None else after.time_s - before.time_s,
        floor_change_s=_floor_change(match.before, before.floor_s, match.after, after.floor_s),
    )


def _floor_change(before: Sequence[OpInfo], floor_s: float | None, after: Sequence[OpInfo], then_s: float | None) -> float | None:
    """The change of a minimum time: without ops it is 0; ``None`` if the minimum of either side's ops is unknown."""
    if (before and floor_s is None) or (after and then_s is None):
        return None
    return change(floor_s or 0.0, then_s or 0.0)


def _by_change(delta: Delta) -> tuple[float, str, str, tuple[int, ...], tuple[int, ...]]:
    """Sort key, largest change first: of the time, or of the minimum time where nothing was timed."""
    change = (delta.floor_change_s or 0.0) if delta.change_s is None else delta.change_s
    return -abs(change), delta.module, delta.name, delta.before.ops, delta.after.ops


def _op_changes(matches: Iterable[Match], runs: Sequence[Sequence[Report]], basis: str) -> tuple[OpChange, ...]:
    """The matched ops summed by their kind after the change, over all runs of both versions."""
    became: dict[Hashable, str] = {}  # the kind after, of an op before, and of its kind for the ops that only another run has
    for match in matches:
        for op in match.before:
            kind = kind_of(match.after[0]) if match.after and match.how != CATEGORY else kind_of(op)
            became[_identity(op)] = kind
            became.setdefault(kind_of(op), kind)
    sides: list[list[dict[str, list[OpInfo]]]] = [[], []]
    for side, reports in zip(sides, runs, strict=True):
        for report in reports:
            ops: dict[str, list[OpInfo]] = {}
            for op in report.ops:
                kind = kind_of(op)
                ops.setdefault(became.get(_identity(op), became.get(kind, kind)) if side is sides[0] else kind, []).append(op)
            side.append(ops)
    kinds = dict.fromkeys(kind for side in sides for run in side for kind in run)
    old, new = sides
    changes = [_op_change(kind, [run.get(kind, []) for run in old], [run.get(kind, []) for run in new], basis) for kind in kinds]
    return tuple(sorted((row for row in changes if row), key=lambda row: (-abs(row.seconds.change), row.op)))


def _identity(op: OpInfo) -> tuple[str, str, str]:
    return op.module, op.name, op.label


def _op_change(kind: str, before: Sequence[Sequence[OpInfo]], after: Sequence[Sequence[OpInfo]], basis: str) -> OpChange | None:
    """The change of the ops of one kind; ``None`` where the time of one of them is not known."""
    old, new = ([summed(map(_side, ops)) for ops in runs] for runs in (before, after))
    if basis == TIME and any(side.time_s is None for side in (*old, *new)):
        return None
    seconds = change_of(basis, "s", *([(side.time_s if basis == TIME else side.floor_s) or 0.0 for side in sides] for sides in (old, new)))
    starts = change_of("launches", "", *([side.launches for side in sides] for sides in (old, new)))
    matched = "new" if not any(before) else "both" if any(after) else "gone"
    was = {kind_of(op): op for ops in before for op in ops}
    now = next((op for ops in after for op in ops), None)
    reasons = [_other_kind(name, was[name], now) for name in sorted(was)] if matched == "both" and kind not in was and now else []
    if matched == "both" and seconds.change:
        reasons += _reasons(old, new, starts, basis)
    return OpChange(op=kind, seconds=seconds, launches=starts, matched=matched, reasons=tuple(reasons))


def _other_kind(name: str, before: OpInfo, after: OpInfo) -> str:
    is_same = before.format and after.format and without_format(before) == without_format(after)
    return f"number format {before.format} → {after.format}" if is_same else f"before: {name}"


def _reasons(before: Sequence[Side], after: Sequence[Side], starts: Change, basis: str) -> list[str]:
    """What changed about ops of one kind: work, bytes, launches and efficiency."""
    levels = sorted({level for side in (*before, *after) for level in side.bytes})
    amounts = [("less", "work", [[side.flops for side in sides] for sides in (before, after)])]
    for level in levels:
        what = "bytes" if level == HBM.name else f"bytes of {level}"
        amounts.append(("fewer", what, [[side.bytes.get(level, 0) for side in sides] for sides in (before, after)]))
    reasons = []
    for less, what, sides in amounts:
        growth = change_of(what, "", *sides).ratio
        if growth is not None and abs(growth) > NOTABLE:
            reasons.append(f"{'more' if growth > 0 else less} {what} ({signed_percent(growth)})")
    if starts.change:
        reasons.append(f"{'more' if starts.change > 0 else 'fewer'} launches ({plain(starts.before)} → {plain(starts.after)})")
    was, now = (_mean_efficiency(sides) for sides in (before, after))
    if basis == TIME and was and now and abs(now - was) > NOTABLE:
        reasons.append(f"{'higher' if now > was else 'lower'} efficiency ({percent(was)} → {percent(now)})")
    return reasons


def _mean_efficiency(sides: Sequence[Side]) -> float | None:
    return efficiency_of(sum_of_known(side.floor_s for side in sides), sum_of_known(side.time_s for side in sides))


def _machine_notes(before: MachineInfo, after: MachineInfo) -> list[str]:
    """How the machines of the two reports differ."""
    notes = [f"the machine changed from {before.name} to {after.name}"] if before.name != after.name else []
    mine, theirs = ({ceiling.resource: ceiling for ceiling in machine.ceilings} for machine in (before, after))
    for resource in sorted(mine.keys() | theirs.keys()):
        old, new = mine.get(resource), theirs.get(resource)
        if old and new and old.rate != new.rate:
            notes.append(f"{resource}: {show(old.rate, old.per)} before, {show(new.rate, new.per)} after")
        elif old and not new:
            notes.append(f"{resource}: {show(old.rate, old.per)} before, unknown after")
        elif new and not old:
            notes.append(f"{resource}: unknown before, {show(new.rate, new.per)} after")
    return notes
