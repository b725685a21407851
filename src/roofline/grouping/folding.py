"""Folding: merge ops that do the same work, in every layer or many times in one scope, into one row.

Two ops fold when their labels differ only in the numbers of their scope (``layer0/mlp``, ``layer1/mlp``) or, where a label ends in the
compiler's name, in its numbering (``fusion.12``); when they are of one program, category, phase, number format and bound; and when one
execution of each does the same work. Times and amounts are summed.
"""

import re
from collections.abc import Hashable, Iterable, Sequence
from math import fsum

from msgspec import Struct
from msgspec.structs import replace

from ..op_parts import summed
from ..operation import Label
from ..report import FoldInfo, OpInfo, Report
from ..selection import Words, chosen_devices, narrow, per_device, per_step, stem

_NUMBER = re.compile(r"\d+")
_DIGITS = "%.6g"  # significant digits to which amounts per execution must agree


class Fold(Struct, frozen=True):
    """One row for several ops, and the ids of those ops."""

    op: OpInfo
    ops: tuple[int, ...]


def fold(ops: Sequence[OpInfo]) -> tuple[Fold, ...]:
    """The ops, longest first, with those that do the same work merged into one row."""
    return tuple([Fold(_sum(alike), tuple([op.id for op in alike])) for alike in _longest_first(_same_work(ops))])


def fold_infos(ops: Sequence[OpInfo]) -> tuple[FoldInfo, ...]:
    """The folds of several ops, as a report has them: ``layer*/mlp  dot 8192×2048×8192 bf16  ×4 layers``."""
    groups = _longest_first([alike for alike in _same_work(ops) if len(alike) > 1])
    return tuple([FoldInfo(label=f"{_label(alike)}  {_multiplicity(alike)}", ops=tuple([op.id for op in alike])) for alike in groups])


def _same_work(ops: Iterable[OpInfo]) -> list[list[OpInfo]]:
    """The ops in groups that do the same work, each in the order of their ranks."""
    kinds: dict[Hashable, list[OpInfo]] = {}
    for op in ops:
        kinds.setdefault((op.module, op.category, op.phase, op.dtype, op.bound), []).append(op)
    starred: dict[str, str] = {}
    groups: list[list[OpInfo]] = []
    for alike in kinds.values():
        if len(alike) == 1:
            groups.append(alike)
            continue
        same: dict[Hashable, list[OpInfo]] = {}
        for op in alike:
            same.setdefault((_starred(op, starred), _amounts_of_one(op)), []).append(op)
        groups += same.values()
    for group in groups:
        group.sort(key=_rank)
    return groups


def _amounts_of_one(op: OpInfo) -> str:
    """The amounts of one execution, rounded to a few digits."""
    count = op.count or 1
    return " ".join([f"{name} {'?' if amount is None else _DIGITS % (amount / count)}" for name, amount in op.amounts.items()])


def _longest_first(groups: Iterable[list[OpInfo]]) -> list[list[OpInfo]]:
    """Groups of ops by their time, and then by rank."""
    weighed = [(-_weight(alike), alike[0].rank, number, alike) for number, alike in enumerate(groups)]
    return [alike for *_, alike in sorted(weighed)]


def _weight(ops: Sequence[OpInfo]) -> float:
    return sum([op.weight_s for op in ops])


def _op_weight(op: OpInfo) -> float:
    return op.weight_s


def _rank(op: OpInfo) -> int:
    return op.rank


def _folded_rows(report: Report) -> tuple[OpInfo, ...]:
    """All ops of a report with its folds applied, longest first; a report with folds of ops that it does not have is folded again."""
    ops = {op.id: op for op in report.ops}
    if any(id not in ops for fold in report.folds for id in fold.ops):
        return tuple([row.op for row in fold(report.ops)])
    groups = [[ops.pop(id) for id in fold.ops] for fold in report.folds]
    return tuple([_sum(alike) for alike in _longest_first([*groups, *([op] for op in ops.values())])])


def _multiplicity(ops: Sequence[OpInfo]) -> str:
    """How many ops there are, in how many layers."""
    scopes = len({op.scope for op in ops})
    if scopes == 1:
        return f"×{len(ops):,}"
    return f"×{len(ops):,} layers" if len(ops) == scopes else f"×{len(ops):,} in {scopes:,} layers"


def _starred(op: OpInfo, scopes: dict[str, str]) -> Label:
    """The label with ``*`` for numbers in the scope and without the compiler's numbering, so that copies of one op have equal labels.

    ``scopes`` keeps the scopes that were seen.
    """
    where = op.where
    if where and where == op.scope:
        if where not in scopes:
            scopes[where] = _NUMBER.sub("*", where)
        where = scopes[where]
    label = op.label_in_parts
    return replace(label, where=where, does=stem(op.does) if label.what == op.name else op.does)


def _label(ops: Sequence[OpInfo]) -> Label:
    """The label of ops that fold: their common label, or one with ``*`` for the numbers that differ."""
    labels = {op.label_in_parts for op in ops}
    return labels.pop() if len(labels) == 1 else _starred(ops[0], {})


def _sum(ops: Sequence[OpInfo]) -> OpInfo:
    """One row for ops that do the same work."""
    if len(ops) == 1:
        return ops[0]
    longest = max(ops, key=_op_weight)
    scope = longest.scope if len({op.scope for op in ops}) == 1 else _NUMBER.sub("*", longest.scope)
    return summed(ops, name=f"{longest.name} and {len(ops) - 1:,} more", label=_label(ops), scope=scope)


class TableRows(Struct, frozen=True, kw_only=True):
    """The rows of a table of ops: ``per`` is ``step`` where times and amounts are those of one step; percentages are of ``whole_s``.

    Where there are several ``devices`` everything is the mean over them. ``order`` is by what they are sorted, if not by their time.
    """

    rows: Sequence[OpInfo]
    per: str = ""
    whole_s: float = 0.0
    devices: int = 1
    order: str = ""


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
    narrowed = narrow(report, step=step, device=device, host=host)
    wanted = None if chosen is None or chosen is narrowed else {op.id for op in chosen}
    devices = chosen_devices(report, device, host)
    ops, per = per_step(report, step=step, device=device, host=host), "step"
    if not ops or (wanted is not None and wanted.isdisjoint([op.id for op in ops])):
        ops, per = per_device(narrowed, devices), ""
    rows = ops if wanted is None else tuple([op for op in ops if op.id in wanted])
    if folded:
        rows = _folded_rows(report) if ops is report.ops and len(rows) == len(ops) else tuple([row.op for row in fold(rows)])
    return TableRows(
        rows=rows,
        per=per,
        whole_s=fsum([op.weight_s for op in ops]),  # the same in any order of the ops
        devices=devices,
    )


def by_loss(table: TableRows) -> TableRows:
    """The rows by the time that they lose, the most first: of an op without a known minimum all of its time. Of a program without times
    the rows as they are.
    """
    if not any(op.lost_s for op in table.rows):
        return table
    return replace(table, rows=tuple(sorted(table.rows, key=_lost, reverse=True)), order="time lost")


def _lost(op: OpInfo) -> float:
    return op.weight_s if op.lost_s is None else op.lost_s
