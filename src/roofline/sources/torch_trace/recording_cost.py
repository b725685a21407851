"""The profiler's overhead on the host: each event that it records on a thread takes some of that thread's time.

From one gap of a device to the next the host launches what ran in between, and records events as it goes. Without them it would be that
much earlier, and the gap that much shorter.

The costs are those of PyTorch 2.11 with ``record_shapes`` and ``with_stack``: in eight programs that wait for their launches, steps took as
much longer under the profiler, within a third, as this makes their events cost. In ten others recording took a third to two thirds of the
host's time, and about half where there are so many events that they would cost more: no more than that is called the profiler's. Without
stacks each event costs about two thirds of that, by two programs.

What is more than a gap shortens the next ones: the host would be ahead of the device, until it waits for it. Where it waits when the gap
begins, only what it records after that makes the gap longer.
"""

from collections.abc import Collection, Iterable

import numpy as np

from ...units import parse
from ..idle import Gap
from .arrays import Flags, Integers
from .columns import OP, PYTHON
from .host import Host, Launches

_NS = parse("1 ns", "s")
MOST = 0.55  # of the host's time
WITHOUT_STACKS = 2 / 3
OP_NS, OTHER_NS = round(parse("4 us", "s") / _NS), round(parse("2 us", "s") / _NS)


def tell_recording(
    gaps: Iterable[Gap], host: Host, launches: Launches, captured: Collection[int], unit: int, waits: Collection[int]
) -> None:
    """Tells of each gap for which the host was late how many events it recorded since the one before, and what that took.

    ``unit`` is a nanosecond in the unit of gaps; ``captured`` are threads of another recording, ``waits`` the names of calls that wait for
    the device.
    """
    late = [gap for gap in sorted(gaps, key=lambda gap: gap.begin) if gap.launched is not None]
    if not late:
        return
    instants = np.array([(gap.launched or 0) // unit for gap in late])
    begins = np.array([gap.begin // unit for gap in late])
    counted = _Counted(host, launches, captured)
    (events, cost), (before, cost_before) = counted.until(instants), counted.until(begins)
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
            took = min(max(int(cost[place] - cost_before[place]), 0), int(MOST * (instants[place] - begins[place]))) * gap.count
            ahead = took * unit
        else:
            gap.recorded = max(int(events[place] - events[since]), 0)
            took = min(max(int(cost[place] - cost[since]), 0), int(MOST * (instants[place] - instants[since])))
            ahead = took * unit + (ahead if waited[place] == waited[since] else 0)
        gap.recording = min(ahead, gap.weight)
        ahead -= gap.recording


class _Counted:
    """The events of the host, to be counted until some instants, with what it takes to record them."""

    def __init__(self, host: Host, launches: Launches, captured: Collection[int]) -> None:
        self._host, self._launches = host, launches
        self._threads = [number for number in range(len(host.bounds)) if number not in captured]
        self._share = 1.0 if (host.kind == PYTHON).any() else WITHOUT_STACKS

    def until(self, instants: Integers) -> tuple[Integers, Integers]:
        """How many there are until each instant, and their cost in nanoseconds."""
        events, cost = np.zeros(len(instants), np.int64), np.zeros(len(instants), np.int64)
        for number in self._threads:
            first, last = self._host.bounds[number]
            found, ops = _before(self._host.start[first:last], instants, self._host.kind[first:last] == OP)
            called, _ = _before(self._launches.start[self._launches.thread == number], instants)
            events += found + called
            cost += OP_NS * ops + OTHER_NS * (found - ops + called)
        return events, (cost * self._share).astype(np.int64)


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
