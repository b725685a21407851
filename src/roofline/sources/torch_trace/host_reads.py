"""Values that the host reads back: which gaps of a device they are the reason of, beside the one in which the host waits.

A host that reads again and again, or one that is faster than its device but waits for it once in a step, launches late after each read.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from ..idle import Gap
from ..parts import DevicePart
from .host import Host, Launches
from .linking import Work, used_launches
from .recording_cost import launching_time
from .rows import PS

OFTEN, CLOSE = 4, 32  # waits for the device in a row, and launches from one to the next: the host never gets ahead there
HELD_UP = 4  # launches that a read delays
LEAD = 0.9  # of the device's time: a host that takes less gets ahead, unless it waits


def mark_reads(gaps: Iterable[Gap], work: Work, launches: Launches, waits: Collection[int]) -> None:
    """Marks each gap that ends among waits for the device which follow each other closely with when the next of them ends."""
    places = np.flatnonzero(np.isin(launches.name, list(waits)))
    places = places[np.argsort(launches.start[places], kind="stable")]
    if len(places) < OFTEN:
        return
    starts = launches.start[places]
    launched = np.searchsorted(np.sort(launches.start[used_launches(work.launch, launches)]), starts)  # before each wait
    often = _often(np.diff(launched).tolist())
    for gap in gaps:
        after = int(np.searchsorted(starts, (gap.launched or 0) // PS))
        if gap.launched is not None and after < len(places) and often[after]:
            gap.read = int(launches.end[places[after]] - 1) * PS


def mark_lost_leads(
    gaps: Iterable[Gap],
    part: DevicePart,
    host: Host,
    launches: Launches,
    names: Sequence[Any],
    captured: Collection[int],
    waits: Collection[int],
) -> None:
    """Tells of gaps that follow a wait for the device in their step when that was, if only waits keep the host from being ahead.

    It is one that takes less time than the device does, but for waiting and for the profiler.
    """
    steps = sorted(part.steps.values(), key=lambda step: step.begin_ps)
    places = np.flatnonzero(np.isin(launches.name, list(waits)) & ~np.isin(launches.thread, list(captured)))
    if len(steps) < 2 or not len(places):
        return
    begin, end = steps[0].begin_ps // PS, steps[-1].begin_ps // PS
    places = places[np.argsort(launches.end[places], kind="stable")]
    starts, ends = launches.start[places], launches.end[places]
    waited = int(np.clip(np.minimum(ends, end) - np.maximum(starts, begin), 0, None).sum())
    busy = sum(step.busy_ps for step in steps[:-1]) // PS
    if launching_time(host, launches, names, captured, begin, end, waited) > LEAD * busy:
        return
    step = (end - begin) / (len(steps) - 1)
    for gap in gaps:
        if gap.launched is None or gap.read is not None:
            continue
        before = int(np.searchsorted(ends, gap.launched // PS, side="right")) - 1
        if before >= 0 and gap.launched // PS - int(ends[before]) < step:
            gap.read = (int(ends[before]) - 1) * PS


def _often(between: Sequence[int]) -> list[bool]:
    """Of waits with so many launches between them, whether each belongs to many in a row.

    Many in a row hold up a few launches more until the next, those of the next step.

    >>> _often([2, 2, 2, 12, 2, 2, 2, 90])
    [False, True, True, True, True, True, True, True, False]
    """
    runs: list[list[int]] = [[0]]
    for place, launched in enumerate(between, start=1):
        if launched <= CLOSE:
            runs[-1].append(place)
        else:
            runs.append([place])
    found = [False] * (len(between) + 1)
    for run, after in zip(runs, [*runs[1:], []], strict=True):
        if len(run) >= OFTEN:
            for place in run[1:]:
                found[place] = True
            if after and between[after[0] - 1] <= HELD_UP * len(run):
                found[after[0]] = True
    return found
