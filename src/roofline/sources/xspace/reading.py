"""Lines of a profile, read by the native scanner on all cores.

Each line is a task, a long one several: its parts are read at the same time, each as if nothing came before it, and then joined from the
first on. Where a part begins is a guess: it is right if the part before ends exactly there. A part that was guessed wrong, or into which
an event of the part before reaches, is thrown away, and the part before goes on in its place: always right, only slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from threading import Lock, Thread
from typing import Any, Generic, Protocol, TypeVar

from ...errors import SourceError
from ...units import parse
from .space import NOT_BUILT, Line, Space
from .tables import RowsOf, TotalsOf

if NOT_BUILT is None:
    from . import _scan

CHUNK_BYTES = int(parse("4 MiB", "B"))  # read between two looks at the clock, the keyboard and the memory
NEIGHBOUR_BYTES = int(parse("2 MiB", "B"))  # of a page that is touched, the system brings back its neighbours up to a huge page
THREAD_BYTES = int(parse("4 MiB", "B"))  # for less, a thread costs more than it saves
BESIDE_BYTES = int(parse("8 MiB", "B"))  # read at once while other Python code runs, which yields to a thread only every few milliseconds
PART_BYTES = int(parse("8 MiB", "B"))  # the least bytes of a part, where a line is read in parts
PARTS_A_CORE = 2  # cores are not equally free, and a core that was late leaves the other parts to the rest
SETTLED_HOPS = 64  # more than the stats of an event, which look like events: after this many of either, an event begins

Progress = Callable[[int, int], None]


Request = TypeVar("Request", RowsOf, TotalsOf)
Table = TypeVar("Table")


class Job(Protocol):
    """A line being read by the scanner; only sums can be read in parts."""

    position: int

    def run(self, budget: int, /) -> bool: ...
    def take(self) -> Mapping[str, Any]: ...
    def close(self) -> None: ...


class Part:
    """What one task reads of a line: the bytes from ``begin`` to ``end``, its job, once it has started, and what was damaged in them."""

    def __init__(self, line: Line, begin: int, end: int) -> None:
        self.line, self.begin, self.end = line, begin, end
        self.job: Any = None
        self.damage: Exception | None = None

    def close(self) -> None:
        if self.job:
            self.job.close()


def whole(line: Line) -> list[Part]:
    """All of a line as one part."""
    return [Part(line, line.offset, line.offset + line.length)]


def in_parts(space: Space, line: Line, count: int) -> list[Part]:
    """A line in about ``count`` parts of about equal length."""
    end = line.offset + line.length
    guesses = {space.index.rest_near(line.row, line.offset + line.length * part // count, SETTLED_HOPS) for part in range(1, count)}
    places = [line.offset, *sorted(place for place in guesses if line.offset < place < end), end]
    return [Part(line, *ends) for ends in pairwise(places)]


def part_counts(lines: Sequence[Line], threads: int) -> list[int]:
    """Into how many parts each line is to be read: more than one for long lines, where there are fewer of them than threads."""
    long = sum(line.length >= 2 * PART_BYTES for line in lines)
    most = PARTS_A_CORE * threads // long if 0 < long < threads else 1
    return [max(1, min(most, line.length // PART_BYTES)) for line in lines]


class _Reader:
    """Runs jobs in pieces, releases the pages they have read, reports progress, and stops them all when one is interrupted."""

    def __init__(self, space: Space, total: int, progress: Progress | None) -> None:
        self._space, self._total, self._progress, self.piece = space, total, progress, CHUNK_BYTES
        self._lock, self._done, self.stopped = Lock(), 0, False

    def read(self, part: Part) -> None:
        """All of a part, or what comes before the damage in it, which `join` reports."""
        try:
            self._read_on(part.job, part, self._advance)
        except _scan.Damage as damage:
            part.damage = damage

    def join(self, parts: Sequence[Part]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """All of a line whose parts have been read, or what comes before the damage in it, and notes."""
        first, line, notes = parts[0].job, parts[0].line, []
        try:
            if parts[0].damage:
                raise parts[0].damage
            for part in parts[1:]:
                if not first.absorb(part.job):
                    self._read_on(first, part, None)
        except _scan.Damage as damage:
            notes.append(self._complaint(line, *damage.args))
        found = first.take()
        if found["unknown"]:
            notes.append(f"{self._space.name}: line {line.name!r}: {found['unknown']:,} unknown fields skipped")
        return found, tuple(notes)

    def _read_on(self, job: Job, part: Part, tell: Callable[[int], None] | None) -> None:
        """Reads to the end of a part, or an event further; raises the damage of what has been read, now or before."""
        more = True
        while more and not self.stopped:
            begin = job.position
            try:
                more = job.run(min(self.piece, max(0, part.end - begin))) and job.position < part.end
            finally:
                self._space.forget(max(part.line.offset, begin - NEIGHBOUR_BYTES), job.position)
                if tell:
                    tell(min(job.position, part.end) - begin)

    def _complaint(self, line: Line, what: str, offset: int, short: bool) -> str:
        truncated = short and not line.whole and line.offset + line.length == self._space.size
        complaint = self._space.complaint(what, offset, truncated=truncated, plane=self._space.plane_of(line), line=line)
        if not self._space.salvage:
            raise SourceError(complaint) from None
        return complaint

    def _advance(self, read: int) -> None:
        if self._progress:
            with self._lock:
                self._done += read
                self._progress(self._done, self._total)


class _Tasks(Generic[Table]):
    """The parts of lines that several threads read, the longest lines first: those that wait, the tables that are done, and failures."""

    def __init__(
        self,
        reader: _Reader,
        requests: Sequence[Any],
        lines: Sequence[list[Part]],
        start: Callable[[Any], Job],
        table: Callable[[Any, Mapping[str, Any], tuple[str, ...]], Table],
    ) -> None:
        self._reader, self._requests, self._lines, self._start, self._table = reader, requests, lines, start, table
        tasks = [(number, part) for number, parts in enumerate(lines) for part in parts]
        self.waiting = sorted(tasks, key=lambda task: (task[1].line.length, -task[1].begin))
        self._unread = [len(parts) for parts in lines]
        self._counting = Lock()
        self._tables: dict[int, Table] = {}
        self._failures: dict[int, BaseException] = {}

    def work(self) -> None:
        """Read until no part waits; every thread does."""
        while self.waiting and not self._reader.stopped:
            try:
                number, part = self.waiting.pop()
            except IndexError:
                return
            try:
                self._read(number, part)
            except BaseException as error:
                self._failures[number] = error
                self._reader.stopped = True

    def _read(self, number: int, part: Part) -> None:
        """Read a part; the thread that reads the last part of a line joins them into its table."""
        request, parts = self._requests[number], self._lines[number]
        part.job = self._start(request)
        if part is not parts[0]:
            part.job.seek(part.begin)
        self._reader.read(part)
        with self._counting:
            self._unread[number] -= 1
            last = not self._unread[number]
        if last:
            self._tables[number] = self._table(request, *self._reader.join(parts))
            while parts:
                parts.pop().close()

    def tables(self) -> list[Table]:
        """Every request's table, in their order; the first request that failed is the one that is raised."""
        if self._failures:
            raise self._failures[min(self._failures)]
        return [self._tables[number] for number in range(len(self._requests))]


def read_all(
    space: Space,
    requests: Sequence[Request],
    lines: Sequence[list[Part]],
    start: Callable[[Request], Job],
    table: Callable[[Request, Mapping[str, Any], tuple[str, ...]], Table],
    threads: int,
    progress: Progress | None,
    meanwhile: Callable[[], None] | None = None,
) -> list[Table]:
    """Every request's table, in their order.

    ``lines`` are the parts of each request's line. ``start`` makes a job, one for each part, and ``table`` makes the requested table of
    its results.
    """
    length = sum(request.line.length for request in requests)
    reader = _Reader(space, length, progress)
    tasks = _Tasks(reader, requests, lines, start, table)
    for request in requests:
        space.plane_of(request.line).stat_ids  # noqa: B018  decoded here, where no two threads do it twice
    beside = meanwhile is not None and threads > 1 and length >= THREAD_BYTES
    if beside:
        reader.piece = BESIDE_BYTES
    readers = min(threads, len(tasks.waiting), 1 + length // THREAD_BYTES)
    helpers = list[Thread]()
    try:
        for _ in range(readers if beside else readers - 1):
            helpers.append(_helper(tasks.work))
        if beside and meanwhile:
            meanwhile()  # and read nothing then: a line that this thread began last would be the last to end
        else:
            tasks.work()
        _wait(helpers)
    except BaseException:
        reader.stopped = True
        raise
    finally:
        _wait(helpers)
        for parts in lines:
            for part in parts:
                part.close()
    return tasks.tables()


def _helper(work: Callable[[], None]) -> Thread:
    """A thread at work, which does not keep an interrupted process from ending."""
    helper = Thread(target=work, daemon=True)
    helper.start()
    return helper


def _wait(helpers: Iterable[Thread]) -> None:
    """Waits until all helpers are done; an interrupt ends the waiting, which can be begun again."""
    for helper in helpers:
        helper.join()
