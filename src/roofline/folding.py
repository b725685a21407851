"""Folding: ops that do the same work in every layer, or many times in one place, as one row.

Two ops fold when their labels differ only in the numbers of their scope (``layer0/mlp``, ``layer1/mlp``) or, where a label ends in the
compiler's name, in its numbering (``fusion.12``); when they are of one program, category, phase, number format and bound; and when one
execution of each does the same work. Times and amounts are summed.
"""

import re
from collections.abc import Hashable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from .report import Amounts, CounterInfo, FoldInfo, OpInfo, Report
from .selection import Words, chosen_devices, narrow, per_device, per_step, stem
from .workload import feeds as is_feed

_NUMBER = re.compile(r"\d+")
_DIGITS = "%.6g"  # significant digits to which amounts per execution must agree


class Fold(Struct, frozen=True):
    """Ops that were folded, by their ids, and the row that stands for them."""

    op: OpInfo
    ops: tuple[int, ...]


def fold(ops: Iterable[OpInfo]) -> tuple[Fold, ...]:
    """Ops with those that do the same work as one, longest first."""
    return _longest_first([Fold(_sum(alike), tuple([op.id for op in alike])) for alike in _alike(ops)])


def fold_infos(ops: Sequence[OpInfo]) -> tuple[FoldInfo, ...]:
    """The folds of several ops, as a report has them: ``layer*/mlp  dot 8192×2048×8192 bf16  ×4 layers``."""
    folded = {tuple([op.id for op in alike]): alike for alike in _alike(ops) if len(alike) > 1}
    return tuple(
        FoldInfo(label=f"{one.op.label}  {_times(len(one.ops), len({op.scope for op in folded[one.ops]}))}", ops=one.ops)
        for one in _longest_first([Fold(_sum(alike), ids) for ids, alike in folded.items()])
    )


def _longest_first(folds: list[Fold]) -> tuple[Fold, ...]:
    return tuple(sorted(folds, key=lambda one: (-one.op.weight_s, one.op.rank)))


def _alike(ops: Iterable[OpInfo]) -> Iterable[list[OpInfo]]:
    """Ops that do the same work, together."""
    found: dict[Hashable, list[OpInfo]] = {}
    places: dict[str, str] = {}
    for op in ops:
        found.setdefault(_key(op, places), []).append(op)
    return found.values()


def _folded_rows(report: Report) -> list[OpInfo]:
    """All ops of a report as its folds have them, longest first; a report without folds, or with those of other ops, is folded anew."""
    by_id = {op.id: op for op in report.ops}
    if not report.folds or not all(id in by_id for one in report.folds for id in one.ops):
        return [one.op for one in fold(report.ops)]
    rows = [_sum([by_id.pop(id) for id in one.ops]) for one in report.folds]
    return sorted([*rows, *by_id.values()], key=lambda op: (-op.weight_s, op.rank))


def _times(ops: int, places: int) -> str:
    if places == 1:
        return f"×{ops:,}"
    return f"×{ops:,} layers" if ops == places else f"×{ops:,} in {places:,} layers"


def _key(op: OpInfo, places: dict[str, str]) -> Hashable:
    """What ops that fold have in common; ``places`` keeps the scopes that were starred before."""
    amounts = {**op.work, **op.bytes, **op.hops} if op.hops else {**op.work, **op.bytes}
    names, count = sorted(amounts), op.count or 1
    each = [None if (amount := amounts[name]) is None else _DIGITS % (amount / count) for name in names]
    return (op.module, _starred(op, places), op.category, op.phase, op.dtype, op.bound, *names, *each)


def _starred(op: OpInfo, places: dict[str, str]) -> str:
    """The label without what tells the copies of one op apart: numbers in its scope, and the compiler's numbering."""
    place, gap, what = op.label.rpartition("  ")
    if place and place == op.scope:
        if place not in places:
            places[place] = _NUMBER.sub("*", place)
        place = places[place]
    return f"{place}{gap}{stem(what) if what == op.name else what}"


def _sum(ops: Sequence[OpInfo]) -> OpInfo:
    """One row for ops that do the same work."""
    if len(ops) == 1:
        return ops[0]
    first = max(ops, key=lambda op: op.weight_s)
    time_s, floor_s = _total([op.time_s for op in ops]), _total([op.floor_s for op in ops])
    flops, moved = _total([op.flops for op in ops]), _sums([op.bytes for op in ops])
    times = {unit: sum(op.times.get(unit, 0.0) for op in ops) for unit in first.times}
    same_place = len({op.scope for op in ops}) == 1
    return replace(
        first,
        name=f"{first.name} and {len(ops) - 1:,} more",
        label=first.label if len({op.label for op in ops}) == 1 else _starred(first, {}),
        scope=first.scope if same_place else _NUMBER.sub("*", first.scope),
        rank=min(op.rank for op in ops),
        count=sum(op.count for op in ops),
        kernels=_total([op.kernels for op in ops]),
        time_s=time_s,
        self_time_s=_total([op.self_time_s for op in ops]),
        work=_sums([op.work for op in ops]),
        flops=flops,
        bytes=moved,
        hops=_sums([op.hops for op in ops]),
        known={name: sum(op.known.get(name, 0) for op in ops) for name in first.known},
        rate=flops / time_s if flops is not None and time_s else None,
        bandwidth={level: amount / time_s for level, amount in moved.items() if amount is not None} if time_s else {},
        floor_s=floor_s,
        serial_s=_total([op.serial_s for op in ops]),
        expected_s=_total([op.expected_s for op in ops]),
        efficiency=floor_s / time_s if first.efficiency is not None and floor_s is not None and time_s else None,
        times=times,
        utilization={unit: seconds / time_s for unit, seconds in times.items()} if time_s else {},
        counters=_counters([op.counters for op in ops], time_s),
        needed=_sums([op.work if op.needed is None else op.needed for op in ops]) if any(op.needed for op in ops) else None,
        unneeded={kind: sum(op.unneeded.get(kind, 0) for op in ops) for kind in dict.fromkeys(k for op in ops for k in op.unneeded)},
        lost_s=_total([op.lost_s for op in ops]),
        ledger=(),
        notes=tuple(dict.fromkeys(note for op in ops for note in op.notes)),
    )


def _counters(found: Sequence[CounterInfo | None], time_s: float | None) -> CounterInfo | None:
    """What was counted of all of them; nothing where one was not counted."""
    counted = [one for one in found if one is not None]
    if len(counted) < len(found):
        return None
    flops, moved = _total([one.flops for one in counted]), _sums([one.bytes for one in counted])
    launches, of = [one.launches for one in counted], [one.of for one in counted]
    return CounterInfo(
        work=_sums([one.work for one in counted]),
        bytes=moved,
        time_s=_total([one.time_s for one in counted]),
        flops=flops,
        launches=None if None in launches else sum(number or 0 for number in launches),
        of=None if None in of else sum(number or 0 for number in of),
        rate=flops / time_s if flops is not None and time_s else None,
        bandwidth={level: amount / time_s for level, amount in moved.items() if amount is not None} if time_s else {},
        intensities={level: flops / amount for level, amount in moved.items() if amount} if flops else {},
    )


def _total(amounts: Sequence[float | None]) -> float | None:
    """A sum, unknown where a part of it is."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


def _sums(amounts: Sequence[Amounts]) -> Amounts:
    return {name: _total([one.get(name, 0) for one in amounts]) for name in dict.fromkeys(key for one in amounts for key in one)}


class TableRows(Struct, frozen=True, kw_only=True):
    """The rows of a table of ops: ``per`` is ``step`` where times and amounts are those of one step; shares are of ``whole_s``.

    Where there are several ``devices`` everything is the mean over them.
    """

    rows: tuple[OpInfo, ...]
    per: str = ""
    whole_s: float = 0.0
    devices: int = 1


def table_rows(
    report: Report,
    chosen: Sequence[OpInfo] | None = None,
    *,
    folded: bool = True,
    feeds: bool = True,
    step: Sequence[str | int] | None = None,
    device: Sequence[int] | None = None,
    host: Words = None,
) -> TableRows:
    """The rows that a table shows of a report, or of the ops ``chosen`` from it: of one step on one device, equal work folded."""
    part = narrow(report, step=step, device=device, host=host)
    wanted = {op.id for op in (part if chosen is None else chosen)}
    devices = chosen_devices(report, device, host)
    each, per = per_step(report, step=step, device=device, host=host), "step"
    if each is None or not any(op.id in wanted for op in each):
        each, per = per_device(part, devices), ""
    rows = tuple([op for op in each if op.id in wanted])
    left_out = set() if feeds else {category for category in {op.category for op in each} if is_feed(category)}
    if folded:
        rows = tuple(_folded_rows(report) if each is report.ops and len(rows) == len(each) else [one.op for one in fold(rows)])
    return TableRows(
        rows=rows,
        per=per,
        whole_s=sum([op.weight_s for op in each if op.category not in left_out]),
        devices=devices,
    )
