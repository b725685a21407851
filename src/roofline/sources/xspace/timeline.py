"""Timelines from the scanner's tables: a second pass over a profile, as where its steps lie is only known after the first."""

from collections import Counter
from collections.abc import Sequence

from ..parts import Lane
from ..timeline import Span, busy_in, lane, shared
from .scan import Totals, union


def lanes(shown: Sequence[Span], tables: Sequence[Totals], owners: Sequence[Sequence[int]]) -> tuple[Lane, ...]:
    """What a device did in each span, from the tables of its lines and the operation that each of their keys belongs to."""
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
            found.append(lane(span, list(map(shared, mine, ran)), ran))
    return tuple(found)


def shared_lane(changes: Sequence[tuple[int, bool, int, int]], span: Span) -> Lane:
    """A lane from when thunks open and close, whether each runs others, and its operation.

    Within a bucket, those that run at the same time share it; what runs others has what is left when nothing else runs.
    """
    buckets = span.buckets
    spent = [dict[int, float]() for _ in range(buckets.count)]
    busy = [0] * buckets.count
    active: tuple[Counter[int], Counter[int]] = Counter(), Counter()  # thunks that work, thunks around them
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
