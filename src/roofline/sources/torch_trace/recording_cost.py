"""The profiler's overhead on the host: each event that it records on a thread takes some of that thread's time.

Between two gaps of a device the host launches the work that runs in between, and the profiler records events. Without the profiler the host
would launch that much earlier, and the second gap would be that much shorter.

The costs per event are those of PyTorch 2.11 with ``record_shapes`` and ``with_stack``; without stacks an event costs about nine tenths of
that. A runtime call costs less than an op, as it has no shapes: steps of two recurrent networks in cuDNN, with 6,009 and 10,760 such calls
and few ops, were longer by 6.8 and 7.8 ms. In 34 launch-bound programs, recording took 14% to 71% of a step, about half of it in those with
very many events; so at most `MOST_SHARE` of the host's time is attributed to the profiler.

A slower host takes longer to record an event, and to launch a kernel: with the lower quartile of its launches as the measure, the overhead
of 30 of these 34 programs, on hosts of H200s, is predicted to within a factor of 1.5, of 26 without it. `AT_ONCE_NS` of a launch do not
depend on the host. Each ``profiler.step()`` takes `STEP_NS`.

While a profiler runs, Inductor launches its Triton kernels in another way, which describes each launch in Python. In two compiled programs
with stacks that took 80 to 100 µs per kernel, in addition to the events; without a profiler the host does nothing of it. Recording took up
to 85% of the host's time there, and 65% in a third, with 200 such kernels in steps of 22 ms: at most 75% is attributed to the profiler.

`roofline capture` also stores how long steps took before it recorded, or after that, which bounds these estimates.

If recording took longer than a gap, the rest shortens the next gaps: the host would be ahead of the device, until it waits for it. If the
host waits for the device when a gap begins, only what is recorded after that makes the gap longer.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from ...units import parse, show
from ..idle import Gap
from .host import Host, Launches
from .read.arrays import Flags, Integers
from .read.columns import OP, PYTHON
from .rows import PS

_NS, _PS = parse("1 ns", "s"), parse("1 ps", "s")
MOST_SHARE, MOST_SHARE_COMPILED = 0.7, 0.75  # of the host's time that is attributed to the profiler, at most
WITHOUT_STACKS = 0.9
OP_NS, OTHER_NS, CALL_NS = (round(parse(duration, "s") / _NS) for duration in ("4 us", "2 us", "1 us"))
TRITON_NS, TRITON_WITHOUT_STACKS_NS = round(parse("80 us", "s") / _NS), round(parse("20 us", "s") / _NS)
AT_ONCE_NS, USUAL_NS = round(parse("2 us", "s") / _NS), round(parse("4.2 us", "s") / _NS)  # of a launch; the rest of it on a usual host
SLOWNESS = (0.4, 2.0)  # of a host, relative to a usual one: recording took 0.43 to 1.9 times as long as usual in these programs
LEAST_LAUNCHES = 16  # for their lower quartile
STEP_NS = round(parse("100 us", "s") / _NS)  # of ``profiler.step()``: 50 to 200 µs
SLOWED = 1.1  # a recorded step over one without the profiler, of which there is a note
LEAST_STEPS = 3  # before the recording: fewer steps may have been slow for other reasons, such as cold caches
_LAUNCH = re.compile(r"cu(?:da)?LaunchKernel(?:Ex|ExC)?")
TRITON = "triton_"  # the prefix of Inductor's kernels, and of the ops that launch them


def mark_recording(
    gaps: Iterable[Gap],
    host: Host,
    launches: Launches,
    names: Sequence[Any],
    captured: Collection[int],
    waits: Collection[int],
    *,
    are_blocking: bool = False,
) -> None:
    """Sets ``recorded`` and ``recording`` of each gap for which the host launched late: the events recorded since the gap before, and the
    time that took.

    ``captured`` are threads of another recording, ``waits`` the names of calls that wait for the device. Launches that ``are_blocking`` do
    not tell how fast the host is.
    """
    late = [gap for gap in sorted(gaps, key=lambda gap: gap.begin) if gap.launched is not None]
    if not late:
        return
    instants = np.array([(gap.launched or 0) // PS for gap in late])
    begins = np.array([gap.begin // PS for gap in late])
    counted = _EventCounts(host, launches, names, captured, are_blocking=are_blocking)
    (events, cost, kernels), (before, cost_before, kernels_before) = counted.until(instants), counted.until(begins)
    waiting = np.isin(launches.name, list(waits))
    waited, _ = _count_before(np.sort(launches.start[waiting]), instants)
    awaited = _during(launches.start[waiting], launches.end[waiting], begins)
    ahead = 0
    for place, gap in enumerate(late):
        since = place - 1 if place else None
        if gap.launched is None or since is None:
            continue
        is_late = gap.launched > gap.begin
        if not is_late and awaited[place]:
            continue
        if awaited[place]:  # recording while the host waits for the device costs nothing
            gap.recorded = max(int(events[place] - before[place]), 0) * gap.count
            span = int(instants[place] - begins[place])
            since_begin = int(cost[place] - cost_before[place]), int(kernels[place] - kernels_before[place])
            took = _recording_ns(*since_begin, span, counted.most) * gap.count
            ahead = took * PS
        else:
            span = int(instants[place] - instants[since])
            took = _recording_ns(int(cost[place] - cost[since]), int(kernels[place] - kernels[since]), span, counted.most)
            ahead = took * PS + (ahead if waited[place] == waited[since] else 0)
            if not is_late:  # the host is ahead, and would be further ahead
                continue
            gap.recorded = max(int(events[place] - events[since]), 0)
        gap.recording = min(ahead, gap.weight)
        ahead -= gap.recording


def mark_recording_between(gaps: Iterable[Gap], host: Host, names: Sequence[Any]) -> None:
    """As `mark_recording`, for ops that run on the host itself: only what is recorded in a gap makes it longer.

    The op that ends a gap counts too, as it is recorded before it begins.
    """
    corrected = list(gaps)
    counted = _EventCounts(host, None, names, ())
    begins, ends = (np.array([getattr(gap, side) // PS for gap in corrected], np.int64) for side in ("begin", "end"))
    (events, cost, _), (before, cost_before, _) = counted.until(ends), counted.until(begins)
    for place, gap in enumerate(corrected):
        gap.recorded = int(events[place] - before[place]) * gap.count
        took = _recording_ns(int(cost[place] - cost_before[place]), 0, int(ends[place] - begins[place]), counted.most)
        gap.recording = min(took * gap.count * PS, gap.weight)


def launching_time(
    host: Host,
    launches: Launches,
    names: Sequence[Any],
    captured: Collection[int],
    begin: int,
    end: int,
    waited: int,
    *,
    are_blocking: bool = False,
) -> int:
    """The nanoseconds between two instants that the host neither waits (``waited``) nor spends on recording."""
    span = np.array([begin, end])
    counted = _EventCounts(host, launches, names, captured, are_blocking=are_blocking)
    _, cost, kernels = (np.diff(counts).item() for counts in counted.until(span))
    free = end - begin - waited
    return free - _recording_ns(cost, kernels, max(free, 0), counted.most)


def fit_recording(gaps: Sequence[Gap], begins: Sequence[int], unrecorded: tuple[float, float, int]) -> None:
    """Corrects the estimated recording time with the duration of steps before the recording.

    ``unrecorded`` has the seconds of such a step on the host alone, the seconds including its work on the device, and the number of steps.
    Recorded steps are longer by at least the difference to the second and, if enough steps were measured, at most the difference to the
    first. ``begins`` is when recorded steps began on the device, in picoseconds as gaps are; the first step is ignored, as it waits for the
    profiler.
    """
    least_s, most_s, count = unrecorded
    later = list(begins[1:] if len(begins) > 2 else begins)
    if len(later) < 2:
        return
    first, last = later[0], later[-1]
    late = [gap for gap in gaps if gap.launched is not None and gap.launched > gap.begin]
    of_step = [gap for gap in late if first <= gap.begin < last]
    estimated, free = sum(gap.recording for gap in of_step), sum(gap.weight - gap.recording for gap in of_step)
    longer, longest = (last - first - (len(later) - 1) * seconds / _PS for seconds in (most_s, least_s))
    if estimated < longer and free:
        share = min((longer - estimated) / free, 1.0)
        for gap in late:
            gap.recording += int(share * (gap.weight - gap.recording))
    elif estimated > max(longest, 0) and count >= LEAST_STEPS:
        for gap in late:
            gap.recording = int(gap.recording * max(longest, 0) / estimated)


def slowed_note(begins_ns: Integers, unrecorded: tuple[float, float, int] | None) -> list[str]:
    """A note on how long a step takes without the profiler, if that is known and steps that began at these times were slower."""
    if unrecorded is None or len(begins_ns) < 2:
        return []
    _, step_s, count = unrecorded
    recorded_s = float(begins_ns[-1] - begins_ns[0]) / (len(begins_ns) - 1) * _NS
    if count < LEAST_STEPS or recorded_s < SLOWED * step_s:
        return []
    return [f"the profiler slows the host: without it a step took {show(step_s, 's', 3)} ({count} steps that were not recorded)"]


def _recording_ns(cost: int, kernels: int, span: int, most: float) -> int:
    """The time that recording took in a span of the host's time, to record events and to describe kernels: at most ``most`` of it."""
    return min(max(cost, 0) + max(kernels, 0), int(most * span))


class _EventCounts:
    """Counts the host's events up to given instants, with the time to record them."""

    def __init__(
        self, host: Host, launches: Launches | None, names: Sequence[Any], captured: Collection[int], *, are_blocking: bool = False
    ) -> None:
        self._host, self._launches = host, launches
        self._described = host.kind == OP
        self._described &= np.isin(host.name, [number for number, name in enumerate(names) if str(name).startswith(TRITON)])
        self._steps = np.isin(host.name, [number for number, name in enumerate(names) if str(name).startswith("ProfilerStep")])
        self.most = MOST_SHARE_COMPILED if self._described.any() else MOST_SHARE
        self._threads = [number for number in range(len(host.bounds)) if number not in captured]
        self._has_stacks = bool((host.kind == PYTHON).any())
        self._slowness = _slowness(launches, names) if launches is not None and not are_blocking else 1.0

    def until(self, instants: Integers) -> tuple[Integers, Integers, Integers]:
        """The number of events up to each instant, the nanoseconds to record them, and those to describe Inductor's kernels."""
        events, cost, kernels = (np.zeros(len(instants), np.int64) for _ in range(3))
        share, per_launch = (1.0, TRITON_NS) if self._has_stacks else (WITHOUT_STACKS, TRITON_WITHOUT_STACKS_NS)
        for number in self._threads:
            first, last = self._host.bounds[number]
            recorded, ops = _count_before(self._host.start[first:last], instants, self._host.kind[first:last] == OP)
            cost += OP_NS * ops + OTHER_NS * (recorded - ops)
            if self._launches is not None:
                calls, _ = _count_before(self._launches.start[self._launches.thread == number], instants)
                cost += CALL_NS * calls
                recorded = recorded + calls
            events += recorded
            kernels += per_launch * _count_before(self._host.start[first:last], instants, self._described[first:last])[1]
            kernels += STEP_NS * _count_before(self._host.start[first:last], instants, self._steps[first:last])[1]
        return events, (cost * share * self._slowness).astype(np.int64), (kernels * self._slowness).astype(np.int64)


def _slowness(launches: Launches, names: Sequence[Any]) -> float:
    """How long a host takes for what a usual one does in a unit of time, from the time that it takes to launch kernels; 1 if unknown."""
    launching = np.isin(launches.name, [number for number, name in enumerate(names) if _LAUNCH.fullmatch(str(name))])
    took = np.sort(launches.end[launching] - launches.start[launching])
    if len(took) < LEAST_LAUNCHES:
        return 1.0
    lower_quartile = int(took[len(took) // 4])
    return min(max((lower_quartile - AT_ONCE_NS) / USUAL_NS, SLOWNESS[0]), SLOWNESS[1])


def _during(starts: Integers, ends: Integers, instants: Integers) -> Flags:
    """Whether the last call that began before each instant still runs then."""
    if not len(starts):
        return np.zeros(len(instants), bool)
    order = np.argsort(starts, kind="stable")
    places = np.searchsorted(starts[order], instants, side="right") - 1
    return (places >= 0) & (ends[order][places] > instants)


def _count_before(starts: Integers, instants: Integers, chosen: Flags | None = None) -> tuple[Integers, Integers]:
    """How many events of a thread began before each instant, and how many of the chosen ones."""
    places = np.searchsorted(starts, instants, side="right")
    if chosen is None or not len(starts):
        return places, np.zeros(len(instants), np.int64)
    total = np.concatenate([[0], np.cumsum(chosen, dtype=np.int64)])
    return places, total[places]
