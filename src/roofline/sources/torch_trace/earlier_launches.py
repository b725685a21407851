"""Work that was launched before the recording began: matched to the ops at the same place in a recorded step.

The host runs ahead of the device, so traces begin with device events whose launches were not recorded. On each queue these come before the
first event with a launch, and are the end of a step (or several steps). Aligned with the end of a recorded step, each of them has a twin,
whose op it gets.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from .host import Host
from .linking import Work
from .read.arrays import Integers, distinct
from .read.columns import NONE

LEAST_MATCHED = 0.9  # the share of events that must equal their twins in an alignment
MOST_PLACES = 2_000  # ends of a step that are tried if no steps were annotated
Key = int


def recorded_twins(work: Work, marks: Integers, host: Host) -> Integers:
    """For each event without a launch, its twin: the event with a launch that it repeats, or `NONE`. ``marks`` are the steps of events."""
    twins = np.full(len(work), NONE)
    alike = _Alike(work)
    for queue in _queues(work):
        linked = np.flatnonzero(work.launch[queue] != NONE)
        if not len(linked) or not linked[0]:
            continue
        lost, rest = queue[: linked[0]], queue[linked]
        aligned = _aligned(_keys(work, lost), lost, _references(work, rest, marks), alike)
        if aligned is None:
            aligned = _aligned(_keys(work, lost), lost, _ends(work, lost, rest, alike), alike)
        alone = _unique(work, rest, host) if aligned is None or len(aligned) < len(lost) else {}
        for place, key in zip(lost.tolist(), _keys(work, lost), strict=True):
            twin = (aligned or {}).get(place, NONE)
            twins[place] = twin if twin != NONE else alone.get(key, NONE)
    return twins


def _queues(work: Work) -> Iterator[Integers]:
    """The events of each queue of each device."""
    for device in distinct(work.device).tolist():
        events = np.flatnonzero(work.device == device)
        for queue in distinct(work.queue[events]).tolist():
            yield events[work.queue[events] == queue]


def _keys(work: Work, places: Integers) -> list[Key]:
    """The numbers of the events' kernels, by which events are compared."""
    keys: list[Key] = work.kernel[places].tolist()
    return keys


class _Alike:
    """Whether two events have the same name and kind, and the same grid and bytes if the first has them (on AMD it has not)."""

    def __init__(self, work: Work) -> None:
        self._kernels = [tuple(row) for row in work.kernels.tolist()]

    def __call__(self, lost: Key, other: Key) -> bool:
        if lost == other:
            return True
        ours, theirs = self._kernels[lost], self._kernels[other]
        return ours[:2] == theirs[:2] and all(first in (NONE, two) for first, two in zip(ours[2:], theirs[2:], strict=True))


def _references(work: Work, rest: Integers, marks: Integers) -> list[tuple[Integers, list[Key]]]:
    """The events of each step except the last; of the last if it is the only one."""
    steps = distinct(marks[rest][marks[rest] != NONE]).tolist()
    references = [rest[marks[rest] == mark] for mark in (steps[:-1] or steps)[:8]]
    return [(places, _keys(work, places)) for places in references]


def _ends(work: Work, lost: Integers, rest: Integers, alike: "_Alike") -> list[tuple[Integers, list[Key]]]:
    """If there are no steps: the events up to the place where the longest repetition of the lost events ends."""
    keys, last = _keys(work, rest), _keys(work, lost)
    places = [place for place, key in enumerate(keys) if alike(last[-1], key)][:MOST_PLACES]

    def repeated(place: int) -> int:
        length = 0
        while length < min(len(last), place + 1) and alike(last[-1 - length], keys[place - length]):
            length += 1
        return length

    best = max(places, key=repeated, default=None)
    return [] if best is None else [(rest[: best + 1], keys[: best + 1])]


def _aligned(
    keys: Sequence[Key], lost: Integers, references: Sequence[tuple[Integers, list[Key]]], alike: "_Alike"
) -> dict[int, int] | None:
    """The twins of lost events in the reference that fits best; ``None`` if none fits."""
    best: dict[int, int] = {}
    for places, theirs in references:
        pairs = ((len(keys) - 1 - back, len(theirs) - 1 - back % len(theirs)) for back in range(len(keys)))
        twins = {int(lost[ours]): int(places[twin]) for ours, twin in pairs if alike(keys[ours], theirs[twin])}
        best = max(best, twins, key=len)
        if len(best) == len(keys):
            break
    return best if len(best) >= LEAST_MATCHED * len(keys) else None


def _unique(work: Work, rest: Integers, host: Host) -> dict[Key, int]:
    """Events, by kernel, of kernels that only one op with one set of arguments launches: a lost event of that kernel is of that op."""
    counts: dict[Key, int] = {}
    ops: dict[Key, set[tuple[int, int]]] = {}
    for place, key in zip(rest.tolist(), _keys(work, rest), strict=True):
        op = int(work.op[place])
        counts.setdefault(key, place)
        ops.setdefault(key, set()).add((int(host.name[op]), int(host.arguments[op])) if op != NONE else (NONE, NONE))
    return {key: place for key, place in counts.items() if len(ops[key]) == 1}
