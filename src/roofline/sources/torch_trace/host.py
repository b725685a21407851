"""The host's events of a trace, nested: the op, annotation or Python function around each moment on a thread, and the launches."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from .read.arrays import Integers
from .read.columns import ANNOTATION, NONE, OP, PYTHON, Columns

ROUNDING_NS = 1_000  # an event may end this much later than the one around it, by rounding


class Host(Struct):
    """Events of the host's threads, thread by thread in order of time, outer ones first; ``parent`` is the event around each, or `NONE`."""

    thread: Integers
    start: Integers
    end: Integers
    name: Integers
    kind: Integers
    arguments: Integers
    sequence: Integers
    extra: Integers
    external: Integers
    parent: Integers
    bounds: Sequence[tuple[int, int]]  # the range of each thread's events, by its number

    def enclosing(self, thread: Integers, instant: Integers) -> Integers:
        """The innermost event around each instant on a thread, or `NONE`."""
        calls = np.full(len(instant), NONE)
        for number, (first, last) in enumerate(self.bounds):
            instants = np.flatnonzero(thread == number)
            if first == last or not len(instants):
                continue
            at = instant[instants]
            place = first + np.searchsorted(self.start[first:last], at, side="right") - 1
            place[place < first] = NONE
            while True:
                ended = (place != NONE) & (self.end[place] < at)
                if not ended.any():
                    break
                place[ended] = self.parent[place[ended]]
            calls[instants] = place
        return calls

    def nearest(self, place: Integers, kind: int) -> Integers:
        """The nearest event of a kind for each event: itself, or the innermost around it; `NONE` if there is none."""
        outer = place.copy()
        while len(self.kind):
            other = (outer != NONE) & (self.kind[outer] != kind)
            if not other.any():
                break
            outer[other] = self.parent[outer[other]]
        return outer

    def around(self, place: int) -> Iterator[int]:
        """An event and those around it, the innermost first."""
        parent = self.parent.data  # a memoryview: fast for single items
        while place != NONE:
            yield place
            place = parent[place]

    def within(self, place: int) -> int:
        """The end of the range of an event and the events inside it, which begins with the event itself."""
        last = self.bounds[self.thread[place]][1]
        return place + 1 + int(np.searchsorted(self.start[place + 1 : last], self.end[place], side="left"))


class Launches(Struct):
    """Calls of the runtime and the driver, thread by thread in order of time."""

    thread: Integers
    start: Integers
    end: Integers
    name: Integers
    correlation: Integers
    extra: Integers


def host_of(columns: Columns, origin: int) -> Host:
    """The host's events of a trace, nested."""
    table = columns.host
    thread, start = table.take("thread"), table.take("start") - origin
    length = table.take("length")
    order = _outer_first(thread, start, length)
    thread, start = thread[order], start[order]
    end = start + length[order]
    bounds = [tuple(map(int, np.searchsorted(thread, (number, number + 1)))) for number in range(len(columns.threads))]
    rest = {name: _narrow(table.take(name))[order] for name in ("name", "kind", "arguments", "sequence", "extra", "external")}
    parent = np.full(len(order), NONE, np.int32)
    for first, last in bounds:
        events = slice(first, last)
        parent[events] = _parents(start[events], end[events], rest["kind"][events], first)
        while len(late := _ending_late(parent, end, rest["kind"], first, last)):
            end[late] = end[parent[late]]
            parent[events] = _parents(start[events], end[events], rest["kind"][events], first)
    _move_out(parent, end, np.flatnonzero(rest["kind"] == ANNOTATION))
    return Host(thread=thread, start=start, end=end, parent=parent, bounds=bounds, **rest)  # type: ignore[arg-type]


def _outer_first(thread: Integers, start: Integers, length: Integers) -> Integers:
    """The order of events by thread and begin; events that begin at the same time are ordered by length, the longest first.

    Traces are nearly sorted by time, so that sorting by time is fast; only the few events with equal begins are sorted by length.
    """
    order = np.lexsort((start, thread))
    same = (np.diff(start[order]) == 0) & (np.diff(thread[order]) == 0)
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    among = order[tied]
    order[tied] = among[np.lexsort((-length[among], start[among], thread[among]))]
    return order


def _narrow(column: Integers) -> Integers:
    """A column in 32 bits if its numbers fit, to save memory: traces have millions of events."""
    fits = column.itemsize > 4 and len(column) and np.abs(column).max() < 2**31
    return column.astype(np.int32) if fits else column


def _parents(start: Integers, end: Integers, kind: Integers, first: int) -> Integers:
    """The event around each event of a thread: the nearest before it that ends after it begins.

    By rounding, an inner event may end a little later than the one around it. But annotations begin in one Python function (``__enter__``)
    and end in another, so of an annotation and a function the outer one must end last. Each event starts with the event before it as a
    candidate; a candidate that is not around it is replaced by the candidate's own, as nothing in between can be around it either.
    """
    parents = np.arange(-1, len(start) - 1)
    unresolved = np.arange(len(start))
    crosses = bool((kind == ANNOTATION).any() and (kind == PYTHON).any())
    while len(unresolved):
        unresolved = unresolved[parents[unresolved] != NONE]
        outer = parents[unresolved]
        not_around = end[outer] <= start[unresolved]
        if crosses:
            crossing = (kind[unresolved] != kind[outer]) & (kind[unresolved] != OP) & (kind[outer] != OP)
            not_around |= crossing & (end[outer] < end[unresolved])
        unresolved = unresolved[not_around]
        parents[unresolved] = parents[parents[unresolved]]
    return np.where(parents == NONE, NONE, parents + first)


def _ending_late(parent: np.ndarray[Any, np.dtype[np.int32]], end: Integers, kind: Integers, first: int, last: int) -> Integers:
    """The Python functions of a thread that end after their caller: the profiler missed their return, and has them last until its end."""
    inside = first + np.flatnonzero((kind[first:last] == PYTHON) & (parent[first:last] != NONE))
    outer = parent[inside]
    late: Integers = inside[(kind[outer] == PYTHON) & (end[inside] > end[outer] + ROUNDING_NS)]
    return late


def _move_out(parent: np.ndarray[Any, np.dtype[np.int32]], end: Integers, annotations: Integers) -> None:
    """Moves annotations out of events that end before them: a hook may open one in a call of a module and close it in the next call."""
    unresolved = annotations
    while len(unresolved):
        unresolved = unresolved[parent[unresolved] != NONE]
        unresolved = unresolved[end[parent[unresolved]] + ROUNDING_NS < end[unresolved]]
        parent[unresolved] = parent[parent[unresolved]]


def launches_of(columns: Columns, origin: int) -> Launches:
    """The launches of a trace."""
    table = columns.launches
    thread, start = table.take("thread"), table.take("start") - origin
    order = np.lexsort((start, thread))
    rest = {name: table.take(name)[order] for name in ("name", "correlation", "extra")}
    return Launches(thread=thread[order], start=start[order], end=start[order] + table.take("length")[order], **rest)
