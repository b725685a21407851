"""Timelines from the scanner's tables. They need a second pass over a profile, as the times of its steps are known only after the first."""

from collections import Counter
from collections.abc import Sequence

from ..parts import Lane
from ..timeline import Span, busy_in, lane, scaled_down
from .scan import Totals, union


def lanes(shown: Sequence[Span], tables: Sequence[Totals], owners: Sequence[Sequence[int]]) -> tuple[Lane, ...]:
    """The lanes of a device, from the tables of its lines and the operation of each key in them."""
    spent = [dict[int, int]() for span in shown for _ in range(span.buckets.count)]
    for totals, places in zip(tables, owners, strict=True):
        for key, bucket, self_ps in zip(totals.spread.key, totals.spread.bucket, totals.spread.self_ps, strict=True):
            if self_ps > 0:
                spent[bucket][places[key]] = spent[bucket].get(places[key], 0) + self_ps
    busy = union(totals.intervals for totals in tables)[0] if len(tables) > 1 else None
    found, first = [], 0
    for span in shown:
        mine = spent[first : first + span.buckets.count]
        first += span.buckets.count
        if busy is None:
            found.append(lane(span, mine, [sum(one.values()) for one in mine]))
        else:
            ran = busy_in(span.buckets, busy)
            found.append(lane(span, list(map(scaled_down, mine, ran)), ran))
    return tuple(found)


def shared_lane(changes: Sequence[tuple[int, bool, int, int]], span: Span) -> Lane:
    """A lane, from the begins and ends of thunks: time, whether it is a begin, whether the thunk only runs others, and its operation.

    Thunks that run at the same time share it; a thunk that only runs others gets time only while none of those runs.
    """
    buckets = span.buckets
    spent = [dict[int, float]() for _ in range(buckets.count)]
    busy = [0] * buckets.count
    active: tuple[Counter[int], Counter[int]] = Counter(), Counter()  # running thunks: those that do work, and those that only run others
    before = buckets.begin_ps
    for at, opens, outer, op in changes:
        running = active[0] or active[1]
        while running and before < min(at, buckets.end_ps):
            bucket = (before - buckets.begin_ps) // buckets.width_ps
            until = min(at, buckets.end_ps, buckets.begin_ps + (bucket + 1) * buckets.width_ps)
            busy[bucket] += until - before
            each, mine = (until - before) / running.total(), spent[bucket]
            for one, count in running.items():
                mine[one] = mine.get(one, 0.0) + count * each
            before = until
        before = max(before, at)
        active[outer][op] += 1 if opens else -1
        if not active[outer][op]:
            del active[outer][op]
    return lane(span, [{op: round(time_ps) for op, time_ps in mine.items()} for mine in spent], busy)
