"""Comparison: two reports side by side, op by op, and where the change of time comes from.

Ops are matched by module and name, then by name alone, and what is left by category: compilers renumber their fusions, so the
remaining ones of a category are compared as one. What still has no partner is new or has vanished. An op's time here is its
self time where the report has one, so that changes of nested ops are counted once and the changes sum to the total.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from .report import MachineInfo, OpInfo, Report
from .units import show

SCHEMA = "roofline.comparison/1"


class Side(Struct, frozen=True, kw_only=True):
    """Some ops of one report, summed: their time, the least it could be, and what binds for the largest part of it.

    ``time_s`` is ``None`` when one of them was not timed, ``floor_s`` when none could be priced. No ops at all take no time.
    """

    ops: tuple[int, ...]
    names: tuple[str, ...]
    count: float
    time_s: float | None
    floor_s: float | None
    efficiency: float | None
    bound: str | None


class Delta(Struct, frozen=True, kw_only=True):
    """What became of one op, or of the ops of one category: both sides, and the seconds between them.

    ``matched`` is how they were paired: ``module and name``, ``name``, ``category``, ``new`` or ``vanished``. ``share`` is the
    part of the whole change that is theirs, negative when it runs against the rest.
    """

    name: str
    module: str
    category: str
    matched: str
    before: Side
    after: Side
    change_s: float | None
    share: float | None = None


class Totals(Struct, frozen=True, kw_only=True):
    """A whole report: the ops' summed time and floors, efficiency as their ratio, and the program's own wall time if there is one."""

    time_s: float | None
    floor_s: float | None
    efficiency: float | None
    wall_s: float | None
    ops: int


class Comparison(Struct, frozen=True, kw_only=True):
    """Two reports compared: totals, every op's change with the largest first, and what differs about the machines.

    ``speedup`` is time before over time after: above 1 is faster.
    """

    schema: str = SCHEMA
    files: tuple[str, str]
    before: Totals
    after: Totals
    change_s: float | None
    speedup: float | None
    deltas: tuple[Delta, ...]
    notes: tuple[str, ...] = ()

    @property
    def new(self) -> tuple[Delta, ...]:
        return tuple(delta for delta in self.deltas if delta.matched == "new")

    @property
    def vanished(self) -> tuple[Delta, ...]:
        return tuple(delta for delta in self.deltas if delta.matched == "vanished")


Key = Callable[[OpInfo], Hashable]


def compare(before: Report, after: Report, files: tuple[str, str] = ("before", "after")) -> Comparison:
    """Match the ops of two reports and say what each one's change adds to the whole; ``files`` is what to call the two."""
    rows = [_delta(*pair) for pair in _matched(before.ops, after.ops)]
    known = [row.change_s for row in rows if row.change_s is not None]
    total = sum(known) if known else None
    deltas = [replace(row, share=row.change_s / total) if total and row.change_s is not None else row for row in rows]
    half = len(rows) - len(known)
    notes = [f"{half} of {len(rows)} rows have no measured time on both sides and are not in the total change"] if half and known else []
    mine, theirs = _totals(before), _totals(after)
    return Comparison(
        files=files,
        before=mine,
        after=theirs,
        change_s=total,
        speedup=mine.time_s / theirs.time_s if mine.time_s is not None and theirs.time_s else None,
        deltas=tuple(sorted(deltas, key=_weight)),
        notes=(*_machine_notes(before.machine, after.machine), *notes),
    )


def _matched(before: Sequence[OpInfo], after: Sequence[OpInfo]) -> list[tuple[str, list[OpInfo], list[OpInfo]]]:
    """Pairs of op lists with how they were matched, the surest way first."""
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


_PASSES: tuple[tuple[str, Key], ...] = (
    ("module and name", lambda op: (op.module, op.name)),
    ("name", lambda op: op.name),
)


def _paired(before: Iterable[OpInfo], after: Iterable[OpInfo], key: Key) -> list[tuple[OpInfo, OpInfo]]:
    """Ops with equal keys, one to one, in order of rank where several share a key."""
    waiting: dict[Hashable, list[OpInfo]] = {}
    for op in sorted(after, key=_rank, reverse=True):
        waiting.setdefault(key(op), []).append(op)
    return [(op, partners.pop()) for op in sorted(before, key=_rank) if (partners := waiting.get(key(op)))]


def _rank(op: OpInfo) -> tuple[int, int]:
    return op.rank, op.id


def _without(ops: Sequence[OpInfo], gone: Iterable[OpInfo]) -> list[OpInfo]:
    used = {op.id for op in gone}
    return [op for op in ops if op.id not in used]


def _seconds(op: OpInfo) -> float | None:
    return op.time_s if op.self_time_s is None else op.self_time_s


def _side(ops: Sequence[OpInfo]) -> Side:
    times = [_seconds(op) for op in ops]
    held: dict[str, float] = {}
    for op in ops:
        if op.bound is not None:
            held[op.bound] = held.get(op.bound, 0.0) + (_seconds(op) or 0.0)
    return Side(
        ops=tuple(op.id for op in ops),
        names=tuple(op.name for op in ops),
        count=sum(op.count for op in ops),
        time_s=None if None in times else sum((time for time in times if time is not None), 0.0),
        floor_s=_floors(ops),
        efficiency=ops[0].efficiency if len(ops) == 1 else _efficiency(ops),
        bound=max(sorted(held), key=lambda unit: held[unit], default=None),
    )


def _floors(ops: Sequence[OpInfo]) -> float | None:
    floors = [op.floor_s for op in ops if op.floor_s is not None]
    return sum(floors) if floors else None


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
        module="" if how == "category" else shown.module,
        category=shown.category,
        matched=how,
        before=mine,
        after=theirs,
        change_s=None if mine.time_s is None or theirs.time_s is None else theirs.time_s - mine.time_s,
    )


def _weight(delta: Delta) -> tuple[float, str, str, tuple[int, ...], tuple[int, ...]]:
    """The largest change first: of the time, or of the floor where nothing was timed."""
    floors = (delta.after.floor_s or 0.0) - (delta.before.floor_s or 0.0)
    change = floors if delta.change_s is None else delta.change_s
    return -abs(change), delta.module, delta.name, delta.before.ops, delta.after.ops


def _totals(report: Report) -> Totals:
    times = [seconds for op in report.ops if (seconds := _seconds(op)) is not None]
    wall = next((point.time_s for point in report.points if point.scope == "total" and point.infeed_outfeed), None)
    time = sum(times) if times else None
    floor = _floors(report.ops)
    return Totals(
        time_s=time,
        floor_s=floor,
        efficiency=floor / time if floor and time else None,
        wall_s=report.coverage.wall_s if report.coverage.wall_s is not None else wall,
        ops=len(report.ops),
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
