"""Folding: merge ops that do the same work, in every layer or many times in one scope, into one row.

Two ops fold when their labels differ only in the numbers of their scope (``layer0/mlp``, ``layer1/mlp``) or, where a label ends in the
compiler's name, in its numbering (``fusion.12``); when they are of one program, category, phase, number format and bound; and when one
execution of each does the same work. Times and amounts are summed.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import chain, compress, count
from math import fsum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .columns.lazy_rows import ABSENT, LazyRows, by_key, column, entries, take, unsorted
from .columns.op_columns import MANY
from .cost import sum_or_unknown
from .report import Amounts, CounterInfo, Expected, FoldInfo, OpInfo, Report
from .selection import Words, chosen_devices, narrow, per_device, per_step, stem

_NUMBER = re.compile(r"\d+")
_EQUAL_FIELDS = ("module", "category", "phase", "dtype", "bound")  # fields in which ops that fold are equal
_DIGITS = "%.6g"  # significant digits to which amounts per execution must agree


class Fold(Struct, frozen=True):
    """One row for several ops, and the ids of those ops."""

    op: OpInfo
    ops: tuple[int, ...]


def fold(ops: Sequence[OpInfo]) -> tuple[Fold, ...]:
    """The ops, longest first, with those that do the same work merged into one row."""
    ids, groups = column(ops, "id"), _same_work_groups(ops)
    leaders, members = _longest_first(ops, groups, _ungrouped(groups, len(ops)))
    each = [members.get(leader, [leader]) for leader in leaders]
    return tuple([Fold(_sum(take(ops, alike)), tuple([ids[place] for place in alike])) for alike in each])


def fold_infos(ops: Sequence[OpInfo]) -> tuple[FoldInfo, ...]:
    """The folds of several ops, as a report has them: ``layer*/mlp  dot 8192×2048×8192 bf16  ×4 layers``."""
    ops = unsorted(ops)
    leaders, members = _longest_first(ops, _same_work_groups(ops))
    ids, scopes = column(ops, "id"), column(ops, "scope")
    labels = _labels(ops, [members[leader] for leader in leaders])
    return tuple(
        [
            FoldInfo(
                label=f"{label}  {_multiplicity(len(members[leader]), len({scopes[place] for place in members[leader]}))}",
                ops=tuple([ids[place] for place in members[leader]]),
            )
            for leader, label in zip(leaders, labels, strict=True)
        ]
    )


def _labels(ops: Sequence[OpInfo], groups: Sequence[list[int]]) -> list[str]:
    """The label of each group of ops that fold: their common label, or one with ``*`` for the numbers that differ."""
    first, last = (take(ops, [alike[place] for alike in groups]) for place in (0, -1))
    labels = column(first, "label")
    alike = zip(labels, column(last, "label"), _starred(first), groups, strict=True)
    return [
        label if label == other and len({*column(take(ops, group), "label")}) == 1 else starred for label, other, starred, group in alike
    ]


def _longest_first(ops: Sequence[OpInfo], groups: Iterable[list[int]], alone: Iterable[int] = ()) -> tuple[list[int], dict[int, list[int]]]:
    """Sort groups of ops, and the single ops in ``alone``, by time and then by rank.

    Returns the index of each group's first op, or of the single op, in that order; and the members of each group by that index.
    """
    ranks: list[int]
    ranks, weights, *kinds = (column(ops, name) for name in ("rank", "weight_s", "self_time_s", "time_s", "floor_s"))
    members = {alike[0]: alike for alike in [sorted(group, key=ranks.__getitem__) for group in groups]}
    longest: list[float] = weights.copy()
    for leader, alike in members.items():
        totals = (sum_or_unknown([seconds[place] for place in alike]) for seconds in kinds)
        longest[leader] = next((total for total in totals if total is not None), 0.0)
    leaders = [*members, *alone]
    leaders.sort(key=ranks.__getitem__)
    return sorted(leaders, key=longest.__getitem__, reverse=True), members


def _ungrouped(groups: Iterable[Iterable[int]], count: int) -> list[int]:
    """The indices below ``count`` that are in none of the groups."""
    alone = [True] * count
    for place in chain.from_iterable(groups):
        alone[place] = False
    return list(compress(range(count), alone))


def _same_work_groups(ops: Sequence[OpInfo]) -> list[list[int]]:
    """Groups of indices of ops that do the same work."""
    places, work = _same_work(ops)
    found = _group_by_key(zip(work, _starred(take(ops, places)), strict=True), len(places))
    return [[places[one] for one in group] for group in found]


def _same_work(ops: Sequence[OpInfo]) -> tuple[list[int], list[int]]:
    """The indices of ops that share their kind and amounts with another op, ordered by kind, and for each the number of its kind."""
    words, amounts, counts = [column(ops, name) for name in _EQUAL_FIELDS], entries(ops, "amounts").values(), column(ops, "count")
    if len(ops) > MANY:
        from .columns.many_rows import same_rows  # numpy, which only very many ops need

        return same_rows(words, amounts, counts)
    keys = [*words, *(_rounded(each, counts) for each in amounts)]
    like = _group_by_key(zip(*[key for key in keys if len({*key}) > 1], strict=True), len(ops))
    return [place for group in like for place in group], [number for number, group in enumerate(like) for _ in group]


def _rounded(amounts: Sequence[float | None], counts: Sequence[float]) -> list[str | None]:
    """Amounts per execution, rounded to a few digits; unknown and absent ones unchanged."""
    each = [amount if amount is None or amount is ABSENT else amount / (count or 1) for amount, count in zip(amounts, counts, strict=True)]
    known = tuple({*each} - {None, ABSENT})
    words: dict[Any, Any] = dict(zip(known, (f"{_DIGITS} " * len(known) % known).split(), strict=True))
    return [words.get(amount, amount) for amount in each]


def _group_by_key(keys: Iterable[Hashable], count: int) -> list[list[int]]:
    """Groups of two or more indices with equal keys; without keys, all ``count`` indices are one group."""
    found: dict[Hashable, list[int]] = {}
    for place, key in enumerate(keys):
        found.setdefault(key, []).append(place)
    return [group for group in found.values() or [[*range(count)]] if len(group) > 1]


def _folded_rows(report: Report) -> Sequence[OpInfo]:
    """All ops of a report with its folds applied, longest first; a report without folds, or with folds of other ops, is folded again."""
    ops = unsorted(report.ops)
    places = dict(zip(column(ops, "id"), count(), strict=False))
    if not report.folds or not all(id in places for one in report.folds for id in one.ops):
        groups = _same_work_groups(ops)
    else:
        groups = [[places[id] for id in one.ops] for one in report.folds]
    leaders, members = _longest_first(ops, groups, _ungrouped(groups, len(ops)))
    if not isinstance(ops, LazyRows):
        return tuple([_sum(take(ops, members.get(leader, [leader]))) for leader in leaders])

    def columns(name: str, of: Sequence[int]) -> list[Any] | None:
        if name not in _WORDS:
            return None
        each = column(ops, name)
        if name in ("notes", "phase") and len({*each}) == 1:
            return [each[0]] * len(of)
        return [_WORDS[name](take(ops, members[leader])) if leader in members else each[leader] for leader in of]

    return LazyRows(leaders, lambda leader: _sum(take(ops, members.get(leader, [leader]))), columns)


def _multiplicity(ops: int, places: int) -> str:
    if places == 1:
        return f"×{ops:,}"
    return f"×{ops:,} layers" if ops == places else f"×{ops:,} in {places:,} layers"


def _starred(ops: Sequence[OpInfo]) -> list[str]:
    """The labels with ``*`` for numbers in the scope and without the compiler's numbering, so that copies of one op have equal labels."""
    scopes = column(ops, "scope")
    starred = {scope: _NUMBER.sub("*", scope) for scope in {*scopes}}
    found = []
    for label, scope, name in zip(column(ops, "label"), scopes, column(ops, "name"), strict=True):
        place, gap, what = label.rpartition("  ")
        if place and place == scope:
            place = starred[scope]
        found.append(f"{place}{gap}{stem(what) if what == name else what}")
    return found


def _longest(ops: Sequence[OpInfo]) -> int:
    """The index of the longest of these ops."""
    return max(range(len(ops)), key=column(ops, "weight_s").__getitem__)


def _label(ops: Sequence[OpInfo]) -> str:
    """The label of ops that fold: their common label, or that of the longest with ``*`` for the numbers that differ."""
    labels: list[str] = column(ops, "label")
    return labels[0] if len({*labels}) == 1 else _starred(take(ops, [_longest(ops)]))[0]


def _name(ops: Sequence[OpInfo]) -> str:
    return f"{column(ops, 'name')[_longest(ops)]} and {len(ops) - 1:,} more"


def _notes(ops: Sequence[OpInfo]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([note for notes in column(ops, "notes") for note in notes]))


def _phase(ops: Sequence[OpInfo]) -> str:
    phase: str = column(ops, "phase")[0]
    return phase


_WORDS: dict[str, Callable[[Sequence[OpInfo]], Any]] = {"label": _label, "name": _name, "notes": _notes, "phase": _phase}


def _sum(ops: Sequence[OpInfo]) -> OpInfo:
    """One row for ops that do the same work."""
    if len(ops) == 1:
        return ops[0]
    first = ops[_longest(ops)]
    time_s, floor_s, flops = (sum_or_unknown(column(ops, name)) for name in ("time_s", "floor_s", "flops"))
    moved, work = _sums(entries(ops, "bytes")), _sums(entries(ops, "work"))
    times = {unit: seconds or 0.0 for unit, seconds in _sums(entries(ops, "times")).items() if unit in first.times}
    needs = column(ops, "needed")
    needed = [mine if least is None else least for mine, least in zip(column(ops, "work"), needs, strict=True)] if any(needs) else []
    return replace(
        first,
        name=_name(ops),
        label=_label(ops),
        scope=first.scope if len({*column(ops, "scope")}) == 1 else _NUMBER.sub("*", first.scope),
        rank=min(column(ops, "rank")),
        count=sum(column(ops, "count")),
        kernels=sum_or_unknown(column(ops, "kernels")),
        time_s=time_s,
        self_time_s=sum_or_unknown(column(ops, "self_time_s")),
        dma_stall_s=sum_or_unknown(column(ops, "dma_stall_s")),
        work=work,
        flops=flops,
        bytes=moved,
        hops=_sums(entries(ops, "hops")),
        known={name: amount or 0 for name, amount in _sums(entries(ops, "known")).items() if name in first.known},
        rate=flops / time_s if flops is not None and time_s else None,
        bandwidth={level: amount / time_s for level, amount in moved.items() if amount is not None} if time_s else {},
        floor_s=floor_s,
        serial_s=sum_or_unknown(column(ops, "serial_s")),
        expected_s=sum_or_unknown(column(ops, "expected_s")),
        expected=_expected(column(ops, "expected")),
        inherent_s=sum_or_unknown(column(ops, "inherent_s")),
        excess_s=sum_or_unknown(column(ops, "excess_s")),
        efficiency=floor_s / time_s if first.efficiency is not None and floor_s is not None and time_s else None,
        times=times,
        utilization={unit: seconds / time_s for unit, seconds in times.items()} if time_s else {},
        counters=_counters(column(ops, "counters"), time_s),
        needed=_sums(by_key(needed)) if any(needs) else None,
        unneeded={kind: amount or 0 for kind, amount in _sums(entries(ops, "unneeded")).items()},
        lost_s=sum_or_unknown(column(ops, "lost_s")),
        ledger=(),
        notes=_notes(ops),
    )


def _expected(each: Sequence[Expected | None]) -> Expected | None:
    """The prediction of all executions of some ops; ``None`` where one of them has none."""
    known = [expected for expected in each if expected is not None]
    if len(known) < len(each):
        return None
    names = dict.fromkeys(name for expected in known for name in expected.terms)
    return replace(
        known[0],
        time_s=sum(expected.time_s for expected in known),
        low_s=sum(expected.low_s for expected in known),
        high_s=sum(expected.high_s for expected in known),
        terms={name: sum(expected.terms.get(name, 0.0) for expected in known) for name in names},
    )


def _counters(found: Sequence[CounterInfo | None], time_s: float | None) -> CounterInfo | None:
    """The sum of the ops' hardware counters; ``None`` if one of them was not counted."""
    counted = [one for one in found if one is not None]
    if len(counted) < len(found):
        return None
    flops, moved = sum_or_unknown([one.flops for one in counted]), _sums(entries(counted, "bytes"))
    return CounterInfo(
        work=_sums(entries(counted, "work")),
        bytes=moved,
        time_s=sum_or_unknown([one.time_s for one in counted]),
        flops=flops,
        launches=sum_or_unknown([one.launches for one in counted]),
        of=sum_or_unknown([one.of for one in counted]),
        rate=flops / time_s if flops is not None and time_s else None,
        bandwidth={level: amount / time_s for level, amount in moved.items() if amount is not None} if time_s else {},
        intensities={level: flops / amount for level, amount in moved.items() if amount} if flops else {},
    )


def _sums(amounts: Mapping[str, Sequence[float | None]]) -> Amounts:
    """The sum of each entry over the rows; a missing entry counts as 0, an entry that every row lacks is left out."""
    return {
        name: sum_or_unknown([0 if amount is ABSENT else amount for amount in each])
        for name, each in amounts.items()
        if any(amount is not ABSENT for amount in each)
    }


class TableRows(Struct, frozen=True, kw_only=True):
    """The rows of a table of ops: ``per`` is ``step`` where times and amounts are those of one step; percentages are of ``whole_s``.

    Where there are several ``devices`` everything is the mean over them.
    """

    rows: Sequence[OpInfo]
    per: str = ""
    whole_s: float = 0.0
    devices: int = 1


def table_rows(
    report: Report,
    chosen: Sequence[OpInfo] | None = None,
    *,
    folded: bool = True,
    step: Sequence[str | int] | None = None,
    device: Sequence[int] | None = None,
    host: Words = None,
) -> TableRows:
    """The rows of a table of a report's ops, or of the ``chosen`` ones: per step and device, with ops that do the same work folded."""
    part = narrow(report, step=step, device=device, host=host)
    wanted = None if chosen is None or chosen is part else {*column(chosen, "id")}
    devices = chosen_devices(report, device, host)
    each, per = per_step(report, step=step, device=device, host=host), "step"
    if not each or (wanted is not None and wanted.isdisjoint(column(each, "id"))):
        each, per = per_device(part, devices), ""
    rows = each if wanted is None else tuple([op for op in each if op.id in wanted])
    if folded:
        rows = _folded_rows(report) if each is report.ops and len(rows) == len(each) else tuple([one.op for one in fold(rows)])
    return TableRows(
        rows=rows,
        per=per,
        whole_s=fsum(column(unsorted(each), "weight_s")),  # the same in any order of the ops
        devices=devices,
    )
