"""Selection: filter the ops of a report and sum them by what they have in common.

Filters and groups are pure functions on rows of a report; rows keep their order, groups come longest first.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from .dtypes import dtype as number_format
from .errors import UsageError, did_you_mean
from .report import Amounts, OpInfo

Words = str | Iterable[str] | None

_NUMBERING = re.compile(r"(?:[._](?:\d+|clone|remat\d*))+$")  # what compilers append to tell copies of one op apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Ops with one key, summed.

    ``work``, ``flops`` and ``bytes`` hold the known parts; ``unknown`` names the resources of which some op's amount is not known.
    ``efficiency`` is the summed floors over the summed time of the ops that were timed: what nobody could price counts with no
    floor, and ``priced_s`` says how much of the time has one.
    """

    key: str
    ops: tuple[int, ...]
    count: float
    time_s: float | None
    self_time_s: float | None
    priced_s: float
    flops: float
    work: dict[str, float]
    bytes: dict[str, float]
    unknown: tuple[str, ...]
    floor_s: float | None
    serial_s: float | None
    efficiency: float | None
    bound: str | None


def stem(name: str) -> str:
    """A name without the numbering that tells copies of one op apart.

    >>> stem("fusion.12"), stem("loop_add_fusion.3.clone.1"), stem("conv2d")
    ('fusion', 'loop_add_fusion', 'conv2d')
    """
    return _NUMBERING.sub("", name) or name


def select(
    ops: Iterable[OpInfo],
    *,
    category: Words = None,
    bound: Words = None,
    dtype: Words = None,
    unit: Words = None,
    module: Words = None,
    name: str | None = None,
    min_time_s: float | None = None,
) -> tuple[OpInfo, ...]:
    """The ops that pass every filter given, in their order.

    Each of the words may be one or several, and upper or lower case; ``name`` is a regular expression found anywhere in the name.
    """
    formats = None if dtype is None else [number_format(word).rate for word in _several(dtype)]
    wanted: list[tuple[str, Words]] = [("category", category), ("bound", bound), ("dtype", formats), ("unit", unit), ("module", module)]
    tests: list[Callable[[OpInfo], bool]] = [partial(_is_one_of, field, _folded(words)) for field, words in wanted if words is not None]
    if name is not None:
        pattern = _pattern(name)
        tests.append(lambda op: pattern.search(op.name) is not None)
    if min_time_s is not None:
        least = min_time_s
        tests.append(lambda op: op.time_s is not None and op.time_s >= least)
    return tuple(op for op in ops if all(test(op) for test in tests))


def group(ops: Iterable[OpInfo], by: str, *, depth: int | None = None) -> tuple[Group, ...]:
    """The ops summed by one of `KEYS`, longest first; ``depth`` keeps so many levels of a scope."""
    if by not in KEYS:
        raise UsageError(f"cannot group by {by!r}{did_you_mean(by, KEYS) or '; choose ' + ', '.join(KEYS)}")
    if depth is not None and (by != "scope" or depth < 1):
        raise UsageError(f"a depth of {depth} for {by} makes no sense; scopes have depths, from 1")
    key = KEYS[by]
    members: dict[str, list[OpInfo]] = {}
    for op in ops:
        found = key(op)
        members.setdefault("/".join(found.split("/")[:depth]) if depth else found, []).append(op)
    groups = [_sum(name, mine) for name, mine in members.items()]
    return tuple(sorted(groups, key=lambda one: (-(one.time_s or 0.0), -(one.floor_s or 0.0), one.key)))


KEYS: Mapping[str, Callable[[OpInfo], str]] = {
    "category": lambda op: op.category,
    "scope": lambda op: op.scope,
    "location": lambda op: op.location,
    "phase": lambda op: op.phase,
    "dtype": lambda op: op.dtype or "",
    "name": lambda op: stem(op.name),
    "module": lambda op: op.module,
    "unit": lambda op: op.unit or "",
    "bound": lambda op: op.bound or "",
}


def _several(words: str | Iterable[str]) -> tuple[str, ...]:
    return (words,) if isinstance(words, str) else tuple(words)


def _folded(words: Words) -> frozenset[str]:
    return frozenset(word.casefold() for word in _several(words or ()))


def _is_one_of(field: str, words: frozenset[str], op: OpInfo) -> bool:
    return (getattr(op, field) or "").casefold() in words


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"{text!r} is not a regular expression: {error}; write special characters with a backslash") from None


def _sum(key: str, ops: list[OpInfo]) -> Group:
    work, missing_work = _added(op.work for op in ops)
    moved, missing_bytes = _added(op.bytes for op in ops)
    times = [op.time_s for op in ops if op.time_s is not None]
    selves = [op.time_s if op.self_time_s is None else op.self_time_s for op in ops]
    floors = [op.floor_s for op in ops if op.floor_s is not None]
    serials = [op.serial_s for op in ops if op.serial_s is not None]
    timed_floor = sum(op.floor_s or 0.0 for op in ops if op.time_s)
    time = sum(times) if times else None
    held: dict[str, float] = {}
    for op in ops:
        if op.bound is not None:
            held[op.bound] = held.get(op.bound, 0.0) + (op.time_s or op.floor_s or 0.0)
    return Group(
        key=key,
        ops=tuple(op.id for op in ops),
        count=sum(op.count for op in ops),
        time_s=time,
        self_time_s=sum(seconds for seconds in selves if seconds is not None) if times else None,
        priced_s=sum(op.time_s or 0.0 for op in ops if op.efficiency is not None),
        flops=sum(op.flops or 0.0 for op in ops),
        work=work,
        bytes=moved,
        unknown=tuple(sorted(missing_work | missing_bytes)),
        floor_s=sum(floors) if floors else None,
        serial_s=sum(serials) if serials else None,
        efficiency=timed_floor / time if time and timed_floor else None,
        bound=max(sorted(held), key=lambda unit: held[unit], default=None),
    )


def _added(amounts: Iterable[Amounts]) -> tuple[dict[str, float], set[str]]:
    """The known parts by resource, and the resources with an unknown part."""
    total: dict[str, float] = {}
    unknown = set()
    for one in amounts:
        for resource, amount in one.items():
            if amount is None:
                unknown.add(resource)
            else:
                total[resource] = total.get(resource, 0) + amount
    return total, unknown
