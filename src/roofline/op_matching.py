"""Which ops of two reports are the same.

Ops are matched by module, name and label (scope, operation, shape, format), then by label, because compilers renumber their ops, by
module and name, because shapes change, by name alone, and what is left by category: the remaining ones of a category are compared as
one. What still has no partner is new or has vanished.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence

from .report import OpInfo

Key = Callable[[OpInfo], Hashable]
_PASSES: tuple[tuple[str, Key], ...] = (
    ("module and name", lambda op: (op.module, op.name, op.label)),
    ("label", lambda op: op.label or (op.module, op.name)),
    ("module and name", lambda op: (op.module, op.name)),
    ("name", lambda op: op.name),
)


def matched_ops(before: Sequence[OpInfo], after: Sequence[OpInfo]) -> list[tuple[str, list[OpInfo], list[OpInfo]]]:
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
