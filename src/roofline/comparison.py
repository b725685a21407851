"""Comparison: two reports side by side, op by op, and where the change of time comes from.

An op's time here is its self time where the report has one, so that changes of nested ops are counted once and the changes sum to the
total.

Any two reports can be compared, by the quantities that both have: measured times, or else minimum times, FLOP, bytes, launches and peak
memory. A program that was not run is one step on one device, so a profile is compared with it by its average step on one device. So are
two runs with different numbers of steps, or with different parts of their time outside of steps.

Ops are matched by module, name and label (scope, operation, shape, format), then by label, because compilers renumber their ops, by module
and name, because shapes change, and by name alone. The ops of a category that remain unmatched are compared as one row. Any other op is new
or has vanished.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from .cost import sum_of_known
from .errors import expect
from .op_parts import part
from .quantities import NOTABLE, ROUNDING, known_flops, launches, run_s
from .report import MachineInfo, Number, OpInfo, Report
from .resource import main_bound
from .selection import averaged_steps, per_step
from .units import percent, show
from .workload import NO_COVERAGE

SCHEMA = "roofline.comparison/1"
TIME, MINIMUM = "time", "minimum time"  # the quantity whose changes are reported
STEP = "step"
_AMOUNTS = {STEP: "times and amounts of ops are per step and device", "": "times and amounts of ops are those of whole runs"}
PROGRAMS = ("hlo", "jax")  # formats of programs that were not run

Key = Callable[[OpInfo], Hashable]
_PASSES: tuple[tuple[str, Key], ...] = (
    ("module and name", lambda op: (op.module, op.name, op.label)),
    ("label", lambda op: op.label or (op.module, op.name)),
    ("module and name", lambda op: (op.module, op.name)),
    ("name", lambda op: op.name),
)


class Side(Struct, frozen=True, kw_only=True):
    """Totals of some ops of one report: their time, their minimum time, and the bound that holds for most of it.

    ``time_s`` is ``None`` when one of them was not timed, ``floor_s`` when no op has a minimum time. Without ops the time is 0. FLOP and
    bytes (by memory level and link) sum the known amounts; ``launches`` counts kernels, or executions where kernels are not known.
    """

    ops: tuple[int, ...]
    names: tuple[str, ...]
    count: float
    time_s: float | None
    floor_s: float | None
    efficiency: float | None
    bound: str | None
    flops: Number = 0
    bytes: dict[str, Number] = field(default_factory=dict)
    launches: Number = 0


class Delta(Struct, frozen=True, kw_only=True):
    """One op, or the ops of one category, before and after, and the change in seconds.

    ``matched`` is how they were paired: ``module and name``, ``label``, ``name``, ``category``, ``new`` or ``vanished``. ``floor_change_s``
    is the change of the minimum time. ``share`` is this row's fraction of the total change of the time or, where nothing was timed on both
    sides, of the minimum time; it is negative when the row changes in the opposite direction. ``label`` is a name that a person recognises.
    """

    name: str
    module: str
    category: str
    matched: str
    before: Side
    after: Side
    change_s: float | None
    share: float | None = None
    floor_change_s: float | None = None
    label: str = ""


class Totals(Struct, frozen=True, kw_only=True):
    """Totals of a report: the ops' summed times, their summed minimum times, and the efficiency, which is the ratio of the two.

    ``wall_s`` is the wall clock of the run, ``step_s`` the mean time of a step, ``peak_bytes`` the peak memory; ``None`` where a report has
    none. FLOP and bytes sum the known amounts; ``unknown`` is the number of ops with an unknown one. ``throughput`` is in tokens (samples,
    requests) per second.
    """

    time_s: float | None
    floor_s: float | None
    efficiency: float | None
    wall_s: float | None
    ops: int
    step_s: float | None = None
    flops: Number = 0
    bytes: dict[str, Number] = field(default_factory=dict)
    launches: Number = 0
    peak_bytes: Number | None = None
    unknown: int = 0
    throughput: dict[str, Number] = field(default_factory=dict)


class Figure(Struct, frozen=True, kw_only=True):
    """One quantity of both reports. ``unit`` is ``s``, ``FLOP``, ``B``, or empty for a plain number; ``ratio`` is before over after."""

    quantity: str
    unit: str
    before: Number
    after: Number
    change: Number
    ratio: float | None


class Comparison(Struct, frozen=True, kw_only=True):
    """Two reports compared: totals, every op's change with the largest first, and differences between the machines.

    ``basis`` is the quantity whose changes are reported: ``time``, or ``minimum time`` where nothing was timed on both sides. ``figures``
    are the quantities that both reports have. ``speedup`` is time before over time after (above 1 is faster): of a step where both have
    steps, else of the run's wall clock, else of the ops. ``speedup_of`` names which of the three it is. ``per`` is ``step`` where times and
    amounts of ops are those of one step on one device, because the two runs have different numbers of steps.
    """

    schema: str = SCHEMA
    files: tuple[str, str]
    before: Totals
    after: Totals
    change_s: float | None
    speedup: float | None
    deltas: tuple[Delta, ...]
    notes: tuple[str, ...] = ()
    basis: str = TIME
    floor_change_s: float | None = None
    speedup_of: str | None = None
    figures: tuple[Figure, ...] = ()
    per: str = ""


def compare(before: Report, after: Report, files: tuple[str, str] = ("before", "after")) -> Comparison:
    """Match the ops of two reports and return each one's contribution to the total change; ``files`` are the names of the two reports."""
    for report in (before, after):
        expect(report, Report, "rl.analyze(path)")
    notes = _machine_notes(before.machine, after.machine)
    if _is_run(before) != _is_run(after) and _is_program(before) | _is_program(after):
        before, after = (_one_step(report) if _is_run(report) else report for report in (before, after))
        notes.append("a measured run is compared with a program: amounts are per step and device, and times are minimum times")
    per, differs = "", _different_lengths(before, after)
    if differs and (steps := (per_step(before), per_step(after))) and steps[0] and steps[1]:
        per, before, after = STEP, replace(before, ops=tuple(steps[0])), replace(after, ops=tuple(steps[1]))
    rows = [_delta(*pair) for pair in _matched_ops(before.ops, after.ops)]
    basis = TIME if all(_is_run(report) or not report.ops for report in (before, after)) else MINIMUM
    change = sum_of_known(row.change_s for row in rows) if basis == TIME else None
    floors = sum_of_known(row.floor_change_s for row in rows)
    whole = change if basis == TIME else floors
    deltas = [replace(row, share=changed / whole) if whole and (changed := _change(row, basis)) is not None else row for row in rows]
    untimed = sum(row.change_s is None for row in rows)
    if untimed and change is not None:
        notes.append(f"{untimed:,} of {len(rows):,} rows have no measured time on both sides and are not in the total change")
    mine, theirs = _totals(before), _totals(after)
    notes += [f"{one.unknown:,} ops {when} have FLOP or bytes that are not known" for one, when in _sides(mine, theirs) if one.unknown]
    notes += [f"{differs}: {_AMOUNTS[per]}"] if differs else []
    speedup, speedup_of = _speedup(mine, theirs)
    return Comparison(
        files=files,
        before=mine,
        after=theirs,
        change_s=change,
        speedup=speedup,
        deltas=tuple(sorted(deltas, key=_by_change)),
        notes=tuple(notes),
        basis=basis,
        floor_change_s=floors,
        speedup_of=speedup_of,
        figures=_figures(mine, theirs),
        per=per,
    )


def _different_lengths(before: Report, after: Report) -> str:
    """How two runs differ in their number of steps, or in how much was recorded outside of them; empty if they do not."""
    counts = [sum(step.complete for step in report.steps) for report in (before, after)]
    if not all(counts):
        return ""
    if counts[0] != counts[1]:
        return f"{counts[0]:,} steps before, {counts[1]:,} after"
    outside = []
    for report in (before, after):
        total = sum(op.time_s or 0.0 for op in report.ops)
        outside.append(1 - sum(share.time_s for share in report.by_step) / total if total and report.by_step else 0.0)
    if abs(outside[0] - outside[1]) < NOTABLE:
        return ""
    return f"{percent(outside[0])} of op time is outside of steps before, {percent(outside[1])} after"


def _is_program(report: Report) -> bool:
    return report.input.format in PROGRAMS


def _is_run(report: Report) -> bool:
    """Whether it has measured times."""
    return any(op.time_s is not None for op in report.ops)


def _one_step(report: Report) -> Report:
    """A run as one step on one device, without times: the mean over its complete, followed steps; without steps, the whole run."""
    averaged = {step.step for step in averaged_steps(report)}
    counts: dict[int, float] = {}
    for share in report.by_step:
        if share.step in averaged:
            counts[share.op] = counts.get(share.op, 0.0) + share.count / len(averaged)
    devices = max(len(report.input.devices), 1)
    ops = [part(op, (counts.get(op.id, 0.0) if averaged else op.count) / devices, None) for op in report.ops]
    return replace(report, ops=tuple(op for op in ops if op.count), points=(), coverage=NO_COVERAGE)


def _sides(before: Totals, after: Totals) -> tuple[tuple[Totals, str], tuple[Totals, str]]:
    return (before, "before"), (after, "after")


def _speedup(before: Totals, after: Totals) -> tuple[float | None, str | None]:
    for of, mine, theirs in (
        ("step", before.step_s, after.step_s),
        ("run", before.wall_s, after.wall_s),
        ("ops", before.time_s, after.time_s),
    ):
        if mine is not None and theirs:
            return mine / theirs, of
    return None, None


def _figures(before: Totals, after: Totals) -> tuple[Figure, ...]:
    """The quantities that both reports have."""
    levels = [level for level in {**before.bytes, **after.bytes} if before.bytes.get(level) or after.bytes.get(level)]
    rows: list[tuple[str, str, Number | None, Number | None]] = [
        ("step time", "s", before.step_s, after.step_s),
        *((f"{word}/s", "", before.throughput[word], after.throughput[word]) for word in before.throughput if word in after.throughput),
        ("run time", "s", before.wall_s, after.wall_s),
        ("op time", "s", before.time_s, after.time_s),
        ("minimum time", "s", before.floor_s, after.floor_s),
        ("work", "FLOP", before.flops, after.flops),
        *((f"{level} bytes", "B", before.bytes.get(level, 0), after.bytes.get(level, 0)) for level in levels),
        ("launches", "", before.launches, after.launches),
        ("peak memory", "B", before.peak_bytes, after.peak_bytes),
        ("ops", "", before.ops, after.ops),
    ]
    return tuple(
        Figure(
            quantity=name,
            unit=unit,
            before=mine,
            after=theirs,
            change=_difference(mine, theirs),
            ratio=mine / theirs if theirs else None,
        )
        for name, unit, mine, theirs in rows
        if mine is not None and theirs is not None
    )


def _change(row: Delta, basis: str) -> float | None:
    return row.change_s if basis == TIME else row.floor_change_s


def _side(ops: Sequence[OpInfo]) -> Side:
    times = [op.own_s for op in ops]
    return Side(
        ops=tuple(op.id for op in ops),
        names=tuple(op.name for op in ops),
        count=sum(op.count for op in ops),
        time_s=None if None in times else sum((time for time in times if time is not None), 0.0),
        floor_s=_floors(ops),
        efficiency=ops[0].efficiency if len(ops) == 1 else _efficiency(ops),
        bound=main_bound((op.bound, op.own_s or op.floor_s or 0.0) for op in ops),
        flops=sum(known_flops(op) for op in ops),
        bytes=_bytes(ops),
        launches=sum(map(launches, ops)),
    )


def _bytes(ops: Iterable[OpInfo]) -> dict[str, Number]:
    """The known bytes over each memory level and link."""
    total: dict[str, Number] = {}
    for op in ops:
        for level, amount in op.bytes.items():
            total[level] = total.get(level, 0) + (op.known.get(level, 0) if amount is None else amount)
    return total


def _floors(ops: Sequence[OpInfo]) -> float | None:
    return sum_of_known(op.floor_s for op in ops)


def _efficiency(ops: Sequence[OpInfo]) -> float | None:
    """Summed minimum times over summed times of the timed ops; ops of unknown cost count with a minimum of 0."""
    timed = [op for op in ops if op.time_s]
    time, floor = sum(op.time_s or 0.0 for op in timed), _floors(timed)
    return floor / time if time and floor else None


def _delta(how: str, before: Sequence[OpInfo], after: Sequence[OpInfo]) -> Delta:
    mine, theirs = _side(before), _side(after)
    shown = (*after, *before)[0]
    return Delta(
        name=shown.category if how == "category" else shown.name,
        label=shown.category if how == "category" else _label(before, after),
        module="" if how == "category" else shown.module,
        category=shown.category,
        matched=how,
        before=mine,
        after=theirs,
        change_s=None if mine.time_s is None or theirs.time_s is None else theirs.time_s - mine.time_s,
        floor_change_s=_floor_change(before, mine.floor_s, after, theirs.floor_s),
    )


def _label(before: Sequence[OpInfo], after: Sequence[OpInfo]) -> str:
    """The label of a pair of ops: that of the op after, and what it was before where operation, shape or format changed."""
    shown = (*after, *before)[0].label
    if not before or not after:
        return shown
    was, now = (ops[0].label.rpartition("  ")[2] for ops in (before, after))
    return shown if was == now or not was else f"{shown} (before: {was})"


def _floor_change(before: Sequence[OpInfo], floor_s: float | None, after: Sequence[OpInfo], then_s: float | None) -> float | None:
    """The change of a minimum time: without ops it is 0; ``None`` if the minimum of either side's ops is unknown."""
    if (before and floor_s is None) or (after and then_s is None):
        return None
    return _difference(floor_s or 0.0, then_s or 0.0)


def _difference(before: Number, after: Number) -> Number:
    """After minus before; 0 where the two differ only by rounding."""
    return 0.0 if abs(after - before) <= ROUNDING * max(abs(before), abs(after)) else after - before


def _by_change(delta: Delta) -> tuple[float, str, str, tuple[int, ...], tuple[int, ...]]:
    """Sort key, largest change first: of the time, or of the minimum time where nothing was timed."""
    change = (delta.floor_change_s or 0.0) if delta.change_s is None else delta.change_s
    return -abs(change), delta.module, delta.name, delta.before.ops, delta.after.ops


def _totals(report: Report) -> Totals:
    time = sum_of_known(op.own_s for op in report.ops)
    floor = _floors(report.ops)
    wall_s = run_s(report)  # device-seconds only where there is one device
    return Totals(
        time_s=time,
        floor_s=floor,
        efficiency=floor / time if floor and time else None,
        wall_s=report.coverage.wall_s if wall_s is None and len(report.input.devices) < 2 else wall_s,
        ops=len(report.ops),
        step_s=next((point.time_s for point in report.points if point.scope == "average" and point.infeed_outfeed), None),
        flops=sum(known_flops(op) for op in report.ops),
        bytes=_bytes(report.ops),
        launches=sum(map(launches, report.ops)),
        peak_bytes=report.memory.peak_bytes if report.memory else None,
        throughput={word: found.per_s for word, found in report.main_point.throughput.items()} if report.main_point else {},
        unknown=sum(None in (*op.work.values(), *op.bytes.values()) for op in report.ops),
    )


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


def _matched_ops(before: Sequence[OpInfo], after: Sequence[OpInfo]) -> list[tuple[str, list[OpInfo], list[OpInfo]]]:
    """Pairs of op lists with how they were matched, the most reliable way first."""
    found: list[tuple[str, list[OpInfo], list[OpInfo]]] = []
    for how, key in _PASSES:
        pairs = _paired(before, after, key)
        found += [(how, [mine], [theirs]) for mine, theirs in pairs]
        before = _without(before, (mine for mine, _ in pairs))
        after = _without(after, (theirs for _, theirs in pairs))
    for category in sorted({op.category for op in before if op.category} & {op.category for op in after}):
        mine, theirs = ([op for op in ops if op.category == category] for ops in (before, after))
        found.append(("category", mine, theirs))
        before, after = _without(before, mine), _without(after, theirs)
    return [*found, *(("vanished", [op], []) for op in before), *(("new", [], [op]) for op in after)]


def _paired(before: Iterable[OpInfo], after: Iterable[OpInfo], key: Key) -> list[tuple[OpInfo, OpInfo]]:
    """Ops with equal keys, one to one, in order of rank where several share a key."""
    candidates: dict[Hashable, list[OpInfo]] = {}
    for op in sorted(after, key=_rank, reverse=True):
        candidates.setdefault(key(op), []).append(op)
    return [(op, partners.pop()) for op in sorted(before, key=_rank) if (partners := candidates.get(key(op)))]


def _rank(op: OpInfo) -> tuple[int, int]:
    return op.rank, op.id


def _without(ops: Sequence[OpInfo], gone: Iterable[OpInfo]) -> list[OpInfo]:
    used = {op.id for op in gone}
    return [op for op in ops if op.id not in used]
