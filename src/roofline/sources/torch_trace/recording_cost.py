"""The profiler's overhead on the host: each event that it records on a thread takes some of that thread's time.

From one gap of a device to the next the host launches what ran in between, and records events as it goes. Without them it would be that
much earlier, and the gap that much shorter.

The costs are those of PyTorch 2.11 with ``record_shapes`` and ``with_stack``: in eight programs that wait for their launches, steps took as
much longer under the profiler, within a third, as this makes their events cost. In ten others recording took a third to two thirds of the
host's time, and about half where there are so many events that they would cost more: no more than that is called the profiler's. Without
stacks each event costs about two thirds of that, by two programs.

Inductor launches its Triton kernels in another way while a profiler runs, which describes each launch in Python: in two compiled programs
that took 80 to 100 µs a kernel with stacks, beside the events, and nothing of it is the host's own. The calls around it are short ones
without the profiler: recording took up to 85% of the host's time.

`roofline capture` also stores how long steps took before it recorded, which bounds all of this.

What is more than a gap shortens the next ones: the host would be ahead of the device, until it waits for it. Where it waits when the gap
begins, only what it records after that makes the gap longer.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from ...units import parse
from ..idle import Gap
from .arrays import Flags, Integers
from .columns import OP, PYTHON
from .host import Host, Launches

_NS, _PS = parse("1 ns", "s"), parse("1 ps", "s")
MOST, MOST_COMPILED = 0.55, 0.85  # of the host's time
WITHOUT_STACKS = 2 / 3
OP_NS, OTHER_NS = round(parse("4 us", "s") / _NS), round(parse("2 us", "s") / _NS)
TRITON_NS, TRITON_WITHOUT_STACKS_NS = round(parse("80 us", "s") / _NS), round(parse("20 us", "s") / _NS)
ENOUGH = 3  # steps before the recording: fewer may have been slow for other reasons, such as a cache that fills
TRITON = "triton_"  # how Inductor calls its kernels, and the ops that launch them


def mark_recording(
    gaps: Iterable[Gap],
    host: Host,
    launches: Launches,
    names: Sequence[Any],
    captured: Collection[int],
    unit: int,
    waits: Collection[int],
) -> None:
    """Marks each gap for which the host was late with how many events it recorded since the one before, and what that took.

    ``unit`` is a nanosecond in the unit of gaps; ``captured`` are threads of another recording, ``waits`` the names of calls that wait for
    the device.
    """
    late = [gap for gap in sorted(gaps, key=lambda gap: gap.begin) if gap.launched is not None]
    if not late:
        return
    instants = np.array([(gap.launched or 0) // unit for gap in late])
    begins = np.array([gap.begin // unit for gap in late])
    counted = _Counted(host, launches, names, captured)
    (events, cost, kernels), (before, cost_before, kernels_before) = counted.until(instants), counted.until(begins)
    waiting = np.isin(launches.name, list(waits))
    waited, _ = _before(np.sort(launches.start[waiting]), instants)
    awaited = _during(launches.start[waiting], launches.end[waiting], begins)
    ahead = 0
    for place, gap in enumerate(late):
        since = place - 1 if place else None
        if gap.launched is None or gap.launched <= gap.begin or since is None:
            continue
        if awaited[place]:  # what was recorded while the host would have waited anyway costs nothing
            gap.recorded = max(int(events[place] - before[place]), 0) * gap.count
            span = int(instants[place] - begins[place])
            took = _took(int(cost[place] - cost_before[place]), int(kernels[place] - kernels_before[place]), span, counted.most) * gap.count
            ahead = took * unit
        else:
            gap.recorded = max(int(events[place] - events[since]), 0)
            span = int(instants[place] - instants[since])
            took = _took(int(cost[place] - cost[since]), int(kernels[place] - kernels[since]), span, counted.most)
            ahead = took * unit + (ahead if waited[place] == waited[since] else 0)
        gap.recording = min(ahead, gap.weight)
        ahead -= gap.recording


def mark_recording_between(gaps: Iterable[Gap], host: Host, names: Sequence[Any], unit: int) -> None:
    """The same of ops that run on the host itself, where nothing runs ahead: what is recorded in a gap makes that gap longer, and no other.

    The op that ends a gap is recorded before it begins, so it counts.
    """
    found = list(gaps)
    counted = _Counted(host, None, names, ())
    begins, ends = (np.array([getattr(gap, side) // unit for gap in found], np.int64) for side in ("begin", "end"))
    (events, cost, _), (before, cost_before, _) = counted.until(ends), counted.until(begins)
    for place, gap in enumerate(found):
        gap.recorded = int(events[place] - before[place]) * gap.count
        took = _took(int(cost[place] - cost_before[place]), 0, int(ends[place] - begins[place]), counted.most)
        gap.recording = min(took * gap.count * unit, gap.weight)


def launching_time(
    host: Host, launches: Launches, names: Sequence[Any], captured: Collection[int], begin: int, end: int, waited: int
) -> int:
    """The nanoseconds that the host takes between two instants for all but waiting and recording."""
    span = np.array([begin, end])
    counted = _Counted(host, launches, names, captured)
    _, cost, kernels = (np.diff(one).item() for one in counted.until(span))
    free = end - begin - waited
    return free - _took(cost, kernels, max(free, 0), counted.most)


def fit_recording(gaps: Sequence[Gap], begins: Sequence[int], unrecorded: tuple[float, float, int]) -> None:
    """Corrects what recording took by how long steps took before it: seconds of the host, seconds with its work, and of how many steps.

    Steps were longer under the profiler by no less than the second tells, and, if steps enough were measured, by no more than the first.
    ``begins`` is when recorded steps began on the device, in picoseconds as gaps are; the first of them waits for the profiler.
    """
    least_s, most_s, count = unrecorded
    later = list(begins[1:] if len(begins) > 2 else begins)
    if len(later) < 2:
        return
    first, last = later[0], later[-1]
    late = [gap for gap in gaps if gap.launched is not None and gap.launched > gap.begin]
    mine = [gap for gap in late if first <= gap.begin < last]
    told, free = sum(gap.recording for gap in mine), sum(gap.weight - gap.recording for gap in mine)
    longer, longest = (last - first - (len(later) - 1) * seconds / _PS for seconds in (most_s, least_s))
    if told < longer and free:
        share = min((longer - told) / free, 1.0)
        for gap in late:
            gap.recording += int(share * (gap.weight - gap.recording))
    elif told > max(longest, 0) and count >= ENOUGH:
        for gap in late:
            gap.recording = int(gap.recording * max(longest, 0) / told)


def _took(cost: int, kernels: int, span: int, most: float) -> int:
    """What the profiler took of a span of the host's time: of that for describing kernels all, of the rest no more than it usually does."""
    described = min(max(kernels, 0), span)
    return described + min(max(cost, 0), int(most * (span - described)))


class _Counted:
    """The events of the host, to be counted until some instants, with what it takes to record them."""

    def __init__(self, host: Host, launches: Launches | None, names: Sequence[Any], captured: Collection[int]) -> None:
        self._host, self._launches = host, launches
        self._described = host.kind == OP
        self._described &= np.isin(host.name, [number for number, name in enumerate(names) if str(name).startswith(TRITON)])
        self.most = MOST_COMPILED if self._described.any() else MOST
        self._threads = [number for number in range(len(host.bounds)) if number not in captured]
        self._share = 1.0 if (host.kind == PYTHON).any() else WITHOUT_STACKS

    def until(self, instants: Integers) -> tuple[Integers, Integers, Integers]:
        """How many there are until each instant, their cost in nanoseconds, and that of describing Inductor's kernels."""
        events, cost, kernels = (np.zeros(len(instants), np.int64) for _ in range(3))
        each = TRITON_NS if self._share == 1.0 else TRITON_WITHOUT_STACKS_NS
        for number in self._threads:
            first, last = self._host.bounds[number]
            found, ops = _before(self._host.start[first:last], instants, self._host.kind[first:last] == OP)
            if self._launches is not None:
                found = found + _before(self._launches.start[self._launches.thread == number], instants)[0]
            events += found
            cost += OP_NS * ops + OTHER_NS * (found - ops)
            kernels += each * _before(self._host.start[first:last], instants, self._described[first:last])[1]
        return events, (cost * self._share).astype(np.int64), kernels


def _during(starts: Integers, ends: Integers, instants: Integers) -> Flags:
    """Whether each instant lies in one of some calls, the last that began before it."""
    if not len(starts):
        return np.zeros(len(instants), bool)
    order = np.argsort(starts, kind="stable")
    places = np.searchsorted(starts[order], instants, side="right") - 1
    return (places >= 0) & (ends[order][places] > instants)


def _before(starts: Integers, instants: Integers, chosen: Integers | None = None) -> tuple[Integers, Integers]:
    """How many events of a thread began before each instant, and how many of the chosen ones."""
    places = np.searchsorted(starts, instants, side="right")
    if chosen is None or not len(starts):
        return places, np.zeros(len(instants), np.int64)
    total = np.concatenate([[0], np.cumsum(chosen, dtype=np.int64)])
    return places, total[places]
