"""The timeline of a program that was played: the ops of the core in a thousand buckets, the trips of loops spread out; and its memory."""

from collections.abc import Iterator, Sequence

from ...peak_memory import LiveMoment
from ...schedule import Schedule
from ...timeline import Played, Repeat, Stretch
from ...workload import Lane

BUCKETS = 1_000
MOST_OPS = 8  # listed in each bucket
MOMENTS = 100  # of the course of memory
FINE = 4  # trips in a bucket from which on they are spread evenly


def lane_of(played: Sequence[Played], step: int) -> tuple[Lane, ...]:
    """The core's time in buckets, of programs one after the other."""
    total = sum(one.time_s for one in played)
    if not total:
        return ()
    buckets = _Buckets(total)
    begin = 0.0
    for one in played:
        buckets.add(one.stretches, begin)
        begin += one.time_s
    return (buckets.lane(step),)


def memory_over_step(schedules: Sequence[Schedule], played: Sequence[Played]) -> tuple[LiveMoment, ...]:
    """The most main memory that is in use in each of a hundred equal parts of the step."""
    total = sum(run.time_s for run in played)
    if not total or not all(schedule.live for schedule in schedules):
        return ()
    most: list[tuple[int, int]] = [(0, 0)] * MOMENTS
    begin = 0.0
    for schedule, run in zip(schedules, played, strict=True):
        for op, begin_s, end_s in _whole(run.stretches):
            first, last = (min(int(MOMENTS * (begin + at) / total), MOMENTS - 1) for at in (begin_s, end_s))
            for part in range(first, last + 1):
                most[part] = max(most[part], (schedule.live.get(op, 0), op))
        begin += run.time_s
    return tuple(LiveMoment(begin_s=part * total / MOMENTS, bytes=size, op=op) for part, (size, op) in enumerate(most))


def _whole(stretches: Sequence[Stretch | Repeat]) -> Iterator[tuple[int, float, float]]:
    """Each op with the begin and end of its stretch; one in a loop with those of all its trips, which use the same memory."""
    for stretch in stretches:
        if isinstance(stretch, Stretch):
            yield stretch.op, stretch.begin_s, stretch.begin_s + stretch.time_s
        else:
            end_s = stretch.begin_s + stretch.trips * stretch.trip_s
            yield from ((op, stretch.begin_s, end_s) for op, *_ in _whole(stretch.stretches))


class _Buckets:
    """The seconds of each op in each bucket."""

    def __init__(self, total_s: float) -> None:
        self.total_s, self.width_s = total_s, total_s / BUCKETS
        self.spent: list[dict[int, float]] = [{} for _ in range(BUCKETS)]

    def add(self, stretches: Sequence[Stretch | Repeat], begin_s: float) -> None:
        for stretch in stretches:
            if isinstance(stretch, Stretch):
                self._spread(stretch.op, begin_s + stretch.begin_s, stretch.time_s, stretch.time_s)
            elif self.width_s > FINE * stretch.trip_s:
                for op, seconds in _sums(stretch.stretches, 1).items():
                    self._spread(op, begin_s + stretch.begin_s, stretch.trips * stretch.trip_s, stretch.trips * seconds)
            else:
                for trip in range(stretch.trips):
                    self.add(stretch.stretches, begin_s + stretch.begin_s + trip * stretch.trip_s)

    def _spread(self, op: int, begin_s: float, length_s: float, seconds: float) -> None:
        """Adds seconds of an op evenly over a length of time."""
        first, end_s = min(int(begin_s / self.width_s), BUCKETS - 1), begin_s + length_s
        last = min(max(int(end_s / self.width_s), first), BUCKETS - 1)
        for bucket in range(first, last + 1):
            until = end_s if bucket == last else (bucket + 1) * self.width_s
            since = begin_s if bucket == first else bucket * self.width_s
            part = seconds * (until - since) / length_s if length_s else 0.0
            if part > 0:
                self.spent[bucket][op] = self.spent[bucket].get(op, 0.0) + part

    def lane(self, step: int) -> Lane:
        listed = [sorted(spent.items(), key=lambda item: (-item[1], item[0])) for spent in self.spent]
        rest: dict[int, float] = {}
        for ops in listed:
            for op, seconds in ops[MOST_OPS:]:
                rest[op] = rest.get(op, 0.0) + seconds
        return Lane(
            device=0,
            step=step,
            start_s=0.0,
            time_s=self.total_s,
            bucket_s=self.width_s,
            busy_s=tuple(min(sum(spent.values()), self.width_s) for spent in self.spent),
            ops=tuple(tuple(op for op, _ in ops[:MOST_OPS]) for ops in listed),
            ops_s=tuple(tuple(seconds for _, seconds in ops[:MOST_OPS]) for ops in listed),
            rest_s=tuple(sorted(rest.items())),
        )


def _sums(stretches: Sequence[Stretch | Repeat], times: int) -> dict[int, float]:
    """The seconds of each op in some stretches, loops unrolled."""
    found: dict[int, float] = {}
    for stretch in stretches:
        parts = {stretch.op: stretch.time_s} if isinstance(stretch, Stretch) else _sums(stretch.stretches, stretch.trips)
        for op, seconds in parts.items():
            found[op] = found.get(op, 0.0) + times * seconds
    return found
