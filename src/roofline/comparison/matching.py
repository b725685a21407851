"""Which ops of two reports are the same, the most reliable way first.

By module, name and label (scope, operation, shape, format); by label, because compilers renumber their ops; by kind, because source lines
move; by kind in another number format; by module and name, or name alone, where the operation is the same in another scope, or the scope is
the same with another shape. The ops of a category that remain unmatched are one row. Any other op is new or has vanished.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ..checking.baselines import kind_of, operation_of
from ..operation import Label
from ..report import OpInfo

CATEGORY, NEW, VANISHED = "category", "new", "vanished"

Key = Callable[[OpInfo], Hashable]


class Match(Struct, frozen=True):
    """Ops of two reports that are the same, and how that is known."""

    how: str
    before: Sequence[OpInfo]
    after: Sequence[OpInfo]


def matched_ops(before: Sequence[OpInfo], after: Sequence[OpInfo]) -> list[Match]:
    """Every op of both reports in exactly one match."""
    reformatted = _in_other_formats(before, after)
    passes: tuple[tuple[str, Key], ...] = (
        ("module and name", lambda op: (op.module, op.name, op.label)),
        ("label", lambda op: op.label or (op.module, op.name)),
        ("kind", lambda op: kind_of(op) if op.label else None),
        ("number format", lambda op: reformatted.get(kind_of(op))),
        ("module and name", lambda op: (op.module, op.name, operation_of(op))),
        ("module and name", lambda op: (op.module, op.name, op.scope)),
        ("name", lambda op: (op.name, op.scope)),
    )
    matches: list[Match] = []
    for how, key in passes:
        pairs = _paired(before, after, key)
        matches += [Match(how, [old], [new]) for old, new in pairs]
        before = _without(before, (old for old, _ in pairs))
        after = _without(after, (new for _, new in pairs))
    for category in sorted({op.category for op in before if op.category} & {op.category for op in after}):
        match = Match(CATEGORY, *([op for op in ops if op.category == category] for ops in (before, after)))
        matches.append(match)
        before, after = _without(before, match.before), _without(after, match.after)
    return [*matches, *(Match(VANISHED, [op], []) for op in before), *(Match(NEW, [], [op]) for op in after)]


def without_format(op: OpInfo) -> Label:
    """What an op does and where, whatever its number format."""
    return replace(op.label_in_parts, where=op.scope, format="")


def _in_other_formats(before: Sequence[OpInfo], after: Sequence[OpInfo]) -> dict[str, Label]:
    """Kinds of ops that only one report has, and that the other has in another number format; only where the match is unique."""
    was, now = ({kind_of(op): without_format(op) for op in ops if op.format} for ops in (before, after))
    gone, new = ([label for kind, label in mine.items() if kind not in others] for mine, others in ((was, now), (now, was)))
    unique = {label for label in gone if gone.count(label) == new.count(label) == 1}
    return {kind: label for kind, label in {**was, **now}.items() if label in unique and not (kind in was and kind in now)}


def _paired(before: Iterable[OpInfo], after: Iterable[OpInfo], key: Key) -> list[tuple[OpInfo, OpInfo]]:
    """Ops with equal keys, one to one, in order of rank where several share a key."""
    candidates: dict[Hashable, list[OpInfo]] = {}
    for op in sorted(after, key=_rank, reverse=True):
        candidates.setdefault(key(op), []).append(op)
    candidates.pop(None, None)
    return [(op, partners.pop()) for op in sorted(before, key=_rank) if (partners := candidates.get(key(op)))]


def _rank(op: OpInfo) -> tuple[int, int]:
    return op.rank, op.id


def _without(ops: Sequence[OpInfo], gone: Iterable[OpInfo]) -> list[OpInfo]:
    used = {op.id for op in gone}
    return [op for op in ops if op.id not in used]
