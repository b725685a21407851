"""Timelines: the operations of each device in a thousand buckets of one typical step, and of the whole run.

Each bucket keeps the operations with the most time in it; the time of the others is summed per operation over all buckets. So memory grows
with the number of buckets, not of events.
"""

from array import array
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, pairwise
from operator import sub
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ..workload import Lane as LaneInSeconds
from .parts import PICOSECOND, DevicePart, IdleKey, Instance, Lane, Mark, Part, Pause, Subject

BUCKETS = 1_000
MOST_OPS = 8  # operations kept in each bucket
MOST_LANES = 64  # devices whose timelines are kept
T = TypeVar("T")
Spent = Mapping[int, int]  # picoseconds by operation, given as its index in the rows of its device


class Buckets(Struct, frozen=True):
    """A span of time divided into buckets of equal width; the last may be shorter."""

    begin_ps: int
    end_ps: int
    width_ps: int

    @classmethod
    def of(cls, begin_ps: int, end_ps: int, count: int) -> "Buckets":
        """A span divided into ``count`` buckets, or fewer if it is shorter than ``count`` picoseconds.

        >>> Buckets.of(0, 999, 4).count, Buckets.of(0, 3, 100).count
        (4, 3)
        """
        return cls(begin_ps, end_ps, max(1, -(-(end_ps - begin_ps) // count)))

    @property
    def count(self) -> int:
        return -(-(self.end_ps - self.begin_ps) // self.width_ps)

    def length_ps(self, bucket: int) -> int:
        """The length of a bucket."""
        return min(self.width_ps, self.end_ps - self.begin_ps - bucket * self.width_ps)


class Span(Struct, frozen=True):
    """The span that a timeline shows: a step, given by its mark, or the whole run (``None``), and its buckets."""

    mark: Mark | None
    buckets: Buckets


def spans(parts: Sequence[DevicePart], warm: Collection[Mark] = ()) -> tuple[Span, ...]:
    """The spans to show: a typical step, if there are steps, and the run, from the first to the last work on any device of the host.

    ``warm`` are the steps of the warm-up.
    """
    worked = [part for part in parts if part.wall_ps]
    if not worked:
        return ()
    found = list[tuple[Mark | None, int, int]]()
    mark = typical(worked, warm)
    if mark is not None:
        mine = [(part.steps[mark].begin_ps, part.step_times()[mark][0]) for part in worked if mark in part.steps]
        found.append((mark, min(begin for begin, _ in mine), max(begin + time_ps for begin, time_ps in mine)))
    found.append((None, min(part.begin_ps for part in worked), max(part.end_ps for part in worked)))
    return tuple(Span(mark, Buckets.of(begin, end, BUCKETS)) for mark, begin, end in found if begin < end)


def typical(parts: Sequence[DevicePart], warm: Collection[Mark] = ()) -> Mark | None:
    """The step of median time. If possible, of steps after the warm-up that are complete and followed by another step."""
    times: dict[Mark, list[int]] = {}
    usual: set[Mark] = set()
    cut: set[Mark] = set()
    for part in parts:
        for mark, (time_ps, followed) in part.step_times().items():
            times.setdefault(mark, []).append(time_ps)
            (usual if followed and part.steps[mark].complete else cut).add(mark)
    means = {mark: sum(mine) // len(mine) for mark, mine in times.items()}
    whole, steady = usual - cut, means.keys() - set(warm)
    kept = {mark: means[mark] for mark in whole & steady or steady or whole or means}
    ordered = sorted(kept, key=lambda mark: (kept[mark], mark))
    return ordered[(len(ordered) - 1) // 2] if ordered else None


def lane(span: Span, spent: Sequence[Spent], busy_ps: Sequence[int]) -> Lane:
    """A lane, from the time of each operation in each bucket and the busy time of each bucket."""
    buckets = span.buckets
    lengths = [buckets.width_ps] * (buckets.count - 1) + [buckets.length_ps(buckets.count - 1)]
    spent = list(map(scaled_down, spent, lengths))  # only after a rewind of the clock is the sum more than the bucket's length
    kept = [sorted(one.items(), key=lambda op: (-op[1], op[0]))[:MOST_OPS] for one in spent]
    rest: dict[int, int] = {}
    for one, longest in zip(spent, kept, strict=True):
        if len(one) > len(longest):
            for op in one.keys() - dict(longest).keys():
                rest[op] = rest.get(op, 0) + one[op]
    return Lane(
        mark=span.mark,
        begin_ps=buckets.begin_ps,
        end_ps=buckets.end_ps,
        width_ps=buckets.width_ps,
        busy_ps=tuple(map(min, busy_ps, lengths)),
        ops=tuple(tuple(op for op, _ in longest) for longest in kept),
        ops_ps=tuple(tuple(time_ps for _, time_ps in longest) for longest in kept),
        rest=tuple(sorted(rest.items())),
    )


def scaled_down(spent: Spent, busy_ps: int) -> Spent:
    """Times of operations on several lines, scaled down to ``busy_ps`` if their sum exceeds it because they overlap."""
    total = sum(spent.values())
    return spent if total <= busy_ps else {op: time_ps * busy_ps // total for op, time_ps in spent.items()}


def with_timeline(devices: Sequence[T]) -> Sequence[T]:
    """The devices of a host whose timelines are kept."""
    return devices[:MOST_LANES]


def with_lanes(parts: Sequence[DevicePart], lanes: Sequence[tuple[Lane, ...]]) -> list[DevicePart]:
    """The devices of a host; the first ones get these lanes."""
    return [*(replace(part, lanes=mine) for part, mine in zip(parts, lanes, strict=False)), *parts[len(lanes) :]]


def with_host(lanes: Sequence[Lane], pauses: Sequence[Pause]) -> tuple[Lane, ...]:
    """Lanes with the reason for idle time in each bucket."""
    reasons = tuple(dict.fromkeys(pause.reason for pause in pauses))
    places = {reason: place for place, reason in enumerate(reasons)}
    return tuple(replace(lane, reasons=reasons, host=_host(lane, pauses, places)) for lane in lanes)


def _host(lane: Lane, pauses: Sequence[Pause], places: Mapping[IdleKey, int]) -> tuple[int | None, ...]:
    """The main reason for idle time in each bucket. The idle time of a pause, which may be many short gaps, is spread evenly over it."""
    idle = [dict[int, float]() for _ in lane.busy_ps]
    for pause in pauses:
        begin, end = max(pause.begin_ps, lane.begin_ps), min(pause.end_ps, lane.end_ps)
        place, share = places[pause.reason], pause.idle_ps / max(pause.end_ps - pause.begin_ps, 1)
        while begin < end:
            bucket = (begin - lane.begin_ps) // lane.width_ps
            until = min(end, lane.begin_ps + (bucket + 1) * lane.width_ps)
            idle[bucket][place] = idle[bucket].get(place, 0.0) + share * (until - begin)
            begin = until
    lengths = [min(lane.width_ps, lane.end_ps - lane.begin_ps - bucket * lane.width_ps) for bucket in range(len(lane.busy_ps))]
    return tuple(
        [
            max(mine, key=lambda one: (mine[one], -one)) if mine and busy < length else None
            for mine, busy, length in zip(idle, lane.busy_ps, lengths, strict=True)
        ]
    )


def busy_in(buckets: Buckets, intervals: Sequence[int]) -> list[int]:
    """The time in each bucket that is covered by sorted, disjoint intervals (begin, end, begin, end, …).

    >>> busy_in(Buckets(0, 25, 10), [3, 4, 8, 12, 24, 99])
    [3, 2, 1]
    """
    begins, ends = array("q", intervals[0::2]), array("q", intervals[1::2])
    before = array("q", accumulate(map(sub, ends, begins), initial=0))

    def covered(instant: int) -> int:
        place = bisect_right(begins, instant)
        return before[place] - max(0, ends[place - 1] - instant) if place else 0

    bounds = [min(buckets.begin_ps + bucket * buckets.width_ps, buckets.end_ps) for bucket in range(buckets.count + 1)]
    sums = [covered(bound) for bound in bounds]
    return [after - first for first, after in pairwise(sums)]


def in_seconds(
    parts: Sequence[Part],
    numbers: Sequence[int],
    keys: Mapping[Instance, int],
    places: Mapping[Subject, int],
    reasons: Mapping[IdleKey, int],
) -> tuple[LaneInSeconds, ...]:
    """The lanes of the first devices, in seconds since the first work on any device of their host.

    Steps, operations and reasons for idle time are given by their numbers in the run.
    """
    found = []
    devices = [(part, device) for part in parts for device in part.devices]
    for number, (part, device) in list(zip(numbers, devices, strict=True))[:MOST_LANES]:
        begun = min(one.begin_ps for one in part.devices)
        ops = [places[subject] for subject in device.rows] if device.lanes else []
        for lane in device.lanes:
            found.append(
                LaneInSeconds(
                    device=number,
                    step=None if lane.mark is None else keys[part.instances[lane.mark]],
                    start_s=(lane.begin_ps - begun) * PICOSECOND,
                    time_s=(lane.end_ps - lane.begin_ps) * PICOSECOND,
                    bucket_s=lane.width_ps * PICOSECOND,
                    busy_s=tuple([time_ps * PICOSECOND for time_ps in lane.busy_ps]),
                    ops=tuple([tuple([ops[op] for op in bucket]) for bucket in lane.ops]),
                    ops_s=tuple([tuple([time_ps * PICOSECOND for time_ps in bucket]) for bucket in lane.ops_ps]),
                    rest_s=tuple([(ops[op], time_ps * PICOSECOND) for op, time_ps in lane.rest]),
                    host=tuple([None if place is None else reasons[lane.reasons[place]] for place in lane.host]),
                )
            )
    return tuple(found)


def omission_notes(parts: Sequence[Part]) -> list[str]:
    """A note if the timelines of some devices are not kept."""
    shown = [any(one.lanes for one in part.devices) for part in parts for _ in part.devices]
    left = sum(shown[MOST_LANES:])
    return [f"the timeline shows the first {MOST_LANES} devices; {left} more are left out"] if left else []
