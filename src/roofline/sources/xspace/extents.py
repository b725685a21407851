"""The extent of each step on one device: first start, last end, and the busy time of its own work."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence, Set

from msgspec import Struct

from ..parts import Extent, Mark
from .scan import Totals, union
from .steps import NO_MARK


class _OnLine(Struct):
    """The work of a step on one stream or core: self time, first start, last end, and the line's busy intervals (of all steps)."""

    intervals: memoryview
    self_ps: int = 0
    begin_ps: int = 2**63 - 1
    end_ps: int = -(2**63)

    def add(self, self_ps: int, first_ps: int, last_ps: int) -> None:
        self.self_ps += self_ps
        if first_ps < self.begin_ps:
            self.begin_ps = first_ps
        if last_ps > self.end_ps:
            self.end_ps = last_ps


def extents(tables: Sequence[Totals], mark_of: Callable[[int], Mark], complete: Collection[Mark]) -> dict[Mark, Extent]:
    """The extent of each step from the tables of a device's lines. ``mark_of`` gives the step of a label.

    If there are several tables, they must have intervals.
    """
    mine: dict[Mark, list[_OnLine]] = {}
    lines: list[dict[Mark, _OnLine]] = []
    for totals in tables:
        cells, found = totals.cells, dict[Mark, _OnLine]()
        for label, self_ps, first_ps, last_ps in zip(cells.label, cells.self_ps, cells.first_ps, cells.last_ps, strict=True):
            if first_ps <= last_ps:  # pre-aggregated events have no start
                found.setdefault(mark_of(label), _OnLine(totals.intervals)).add(self_ps, first_ps, last_ps)
        for mark, part in found.items():
            mine.setdefault(mark, []).append(part)
        lines.append(found)
    main = _main_line(lines, mine.keys() - {NO_MARK})
    return {mark: _extent(parts, main.get(mark), mark in complete) for mark, parts in sorted(mine.items())}


def _main_line(lines: Sequence[dict[Mark, _OnLine]], steps: Set[Mark]) -> dict[Mark, _OnLine]:
    """The line on which steps begin: the busiest of those with work in every step; empty if there is no such line.

    Work on other lines, such as a copy of the next batch, runs when the host launches it, long before the rest of its step.
    """
    common = [line for line in lines if steps <= line.keys()]
    return max(common, key=lambda line: sum(part.self_ps for part in line.values()), default={})


def _extent(parts: Sequence[_OnLine], main: _OnLine | None, complete: bool) -> Extent:
    """The extent of a step, from its first work on the main line to its last on any line.

    A line runs launches in order, so all its busy time between the first and the last event of a step belongs to that step. If another
    step's work (launched by another thread) comes between them, the sum of the step's self times is less, and counts instead.
    """
    first, end = min(part.begin_ps for part in parts), max(part.end_ps for part in parts)
    busy = end - first
    if len(parts) > 1:
        busy = union(_within(part.intervals, part.begin_ps, part.end_ps) for part in parts)[1]
    return Extent(main.begin_ps if main else first, end, min(busy, sum(part.self_ps for part in parts)), complete)


def _within(intervals: memoryview, begin: int, end: int) -> memoryview:
    """The parts of sorted, disjoint intervals (begin, end, begin, end, …) that lie in a span.

    >>> list(_within(memoryview(array("q", [0, 10, 20, 30, 40, 50])), 5, 45))
    [5, 10, 20, 30, 40, 45]
    """
    first, last = bisect_right(intervals[1::2], begin), bisect_left(intervals[0::2], end)
    found = array("q", intervals[2 * first : 2 * last])
    if found:
        found[0], found[-1] = max(found[0], begin), min(found[-1], end)
    return memoryview(found)
