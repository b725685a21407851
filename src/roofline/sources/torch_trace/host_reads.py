"""Values that the host reads back: the gaps of a device that they cause, in addition to the gap in which the host waits.

After each read, a host that reads often, or that is faster than its device but waits once in a step, launches late for some time. A host
that is slower than its device launches late anyway: without reads a step would be shorter only by the time that it waits in them. But a
loop that reads in every iteration launches for its reads alone: read together, what they read is computed together.

Copies to the device from memory that is not pinned wait for the device too.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from ..idle import Gap
from ..parts import DevicePart
from .host import Host, Launches
from .linking import Work, used_launches
from .read.arrays import Integers
from .read.columns import KERNEL, MEMCPY, NONE
from .recording_cost import launching_time
from .rows import PS

_TO_DEVICE, _TO_HOST = re.compile("HtoD|HostToDevice"), re.compile("DtoH|DeviceToHost")
LEAST_IN_ROW, CLOSE = 4, 32  # LEAST_IN_ROW waits, each at most CLOSE launches after the last, keep the host from getting ahead
LOOP = 32  # waits in a row, each at most CLOSE launches after the last: those of a loop (a choice; a model has fewer layers that read)
DELAYED_LAUNCHES = 4  # launches that each read delays
LONG_NS, LEAST_LONG, NEARLY_ALL = 20_000, 8, 0.95  # kernels far longer than a launch, how many there must be, and the share awaited


def mark_reads(gaps: Iterable[Gap], work: Work, launches: Launches, waits: Collection[int]) -> None:
    """Sets ``read`` of gaps among frequent waits for the device: when the next wait ends."""
    places = np.flatnonzero(np.isin(launches.name, list(waits)))
    places = places[np.argsort(launches.start[places], kind="stable")]
    if len(places) < LEAST_IN_ROW:
        return
    starts = launches.start[places]
    launched = np.searchsorted(np.sort(launches.start[used_launches(work.launch, launches)]), starts)  # before each wait
    often, in_loop = (_in_long_runs(np.diff(launched).tolist(), least) for least in (LEAST_IN_ROW, LOOP))
    for gap in gaps:
        after = int(np.searchsorted(starts, (gap.launched or 0) // PS))
        if gap.launched is not None and after < len(places) and often[after]:
            gap.read = int(launches.end[places[after]] - 1) * PS
            gap.in_loop = in_loop[after]


def blocking_launches(work: Work, launches: Launches) -> Integers:
    """The places of calls that wait for the kernel that they launch, if nearly all do: those of kernels that take longer than a launch."""
    linked = (work.kind == KERNEL) & (work.launch != NONE)
    long = linked & (work.end - work.start >= LONG_NS)
    awaited = launches.end[work.launch[long]] >= work.end[long]
    if len(awaited) < LEAST_LONG or awaited.mean() < NEARLY_ALL:
        return np.empty(0, np.int64)
    return np.unique(work.launch[linked])


class Pace(Struct, frozen=True):
    """The pace of a device's steps, without the last, in nanoseconds: the mean length of a ``step``, and of all of them the time in which
    the device was ``busy``, in which the host ``waited`` for it to read values back, and in which it neither waited nor recorded.
    """

    step: float
    busy: int
    waited: int
    launching: int


def pace_of(
    part: DevicePart,
    host: Host,
    launches: Launches,
    names: Sequence[Any],
    captured: Collection[int],
    reads: Integers,
    sends: Integers,
    *,
    are_blocking: bool = False,
) -> Pace | None:
    """The pace of a device's steps and of the host; ``None`` without steps. ``reads`` and ``sends`` are the places of calls that wait."""
    steps = sorted(part.steps.values(), key=lambda step: step.begin_ps)
    if len(steps) < 2:
        return None
    begin, end = steps[0].begin_ps // PS, steps[-1].begin_ps // PS
    waited, sent = (
        int(np.clip(np.minimum(launches.end[places], end) - np.maximum(launches.start[places], begin), 0, None).sum())
        for places in (reads, sends)
    )
    return Pace(
        step=(end - begin) / (len(steps) - 1),
        busy=sum(step.busy_ps for step in steps[:-1]) // PS,
        waited=waited,
        launching=launching_time(host, launches, names, captured, begin, end, waited + sent, are_blocking=are_blocking),
    )


def waiting_calls(
    work: Work, launches: Launches, names: Sequence[Any], captured: Collection[int], waits: Collection[int]
) -> tuple[Integers, Integers]:
    """The places of calls in which the host waits: to read values back, and to send data, which follow directly on a copy to the device."""
    outside = ~np.isin(launches.thread, list(captured))
    copied = (work.kind == MEMCPY) & (work.launch != NONE)
    to_device, to_host = (
        work.launch[copied & np.isin(work.name, [number for number, name in enumerate(names) if way.search(str(name))])]
        for way in (_TO_DEVICE, _TO_HOST)
    )
    waiting = np.isin(launches.name, list(waits))
    after = to_device[to_device + 1 < len(waiting)] + 1
    sends = after[waiting[after] & (launches.thread[after] == launches.thread[after - 1])]
    is_read = waiting.copy()
    is_read[to_host] = True
    is_read[sends] = False
    return np.flatnonzero(is_read & outside), np.sort(sends[outside[sends]])


def mark_lost_leads(gaps: Iterable[Gap], pace: Pace, launches: Launches, waits: Collection[int], captured: Collection[int]) -> None:
    """Sets ``read`` of gaps that follow a wait for the device in the same step, if only waits keep the host from getting ahead.

    That is, if the host's time, without waiting and recording, is less than the device's. It need not be much less: training with twelve
    reads per step, which the host launches in 0.91 of the device's time, takes 8.73 ms on an H200, 7.02 ms without them (predicted: 1.4 ms
    saved).
    """
    places = np.flatnonzero(np.isin(launches.name, list(waits)) & ~np.isin(launches.thread, list(captured)))
    if not len(places) or pace.launching > pace.busy:
        return
    ends = np.sort(launches.end[places])
    for gap in gaps:
        if gap.launched is None or gap.read is not None:
            continue
        before = int(np.searchsorted(ends, gap.launched // PS, side="right")) - 1
        if before >= 0 and gap.launched // PS - int(ends[before]) < pace.step:
            gap.read = (int(ends[before]) - 1) * PS


def mark_late_hosts(gaps: Iterable[Gap], pace: Pace) -> None:
    """Sets ``by_reads`` of gaps, if the host is slower than the device without reads too: they take only the time that the host waits.

    Gaps in a loop that reads in each iteration are left out.
    """
    late = pace.launching - pace.busy
    if late > 0:
        for gap in gaps:
            if not gap.in_loop:
                gap.by_reads = pace.waited / (pace.waited + late)


def _in_long_runs(between: Sequence[int], least: int = LEAST_IN_ROW) -> list[bool]:
    """For waits with these numbers of launches between them, whether each follows another in a run of at least so many.

    A run also delays a few launches after it, so the next wait counts too if there are only few before it.

    >>> _in_long_runs([2, 2, 2, 12, 2, 2, 2, 90])
    [False, True, True, True, True, True, True, True, False]
    """
    runs: list[list[int]] = [[0]]
    for place, launched in enumerate(between, start=1):
        if launched <= CLOSE:
            runs[-1].append(place)
        else:
            runs.append([place])
    flags = [False] * (len(between) + 1)
    for run, after in zip(runs, [*runs[1:], []], strict=True):
        if len(run) >= least:
            for place in run[1:]:
                flags[place] = True
            if after and between[after[0] - 1] <= DELAYED_LAUNCHES * len(run):
                flags[after[0]] = True
    return flags
