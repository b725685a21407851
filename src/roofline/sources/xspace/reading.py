"""Reads lines of a profile with the native scanner on all cores.

A line is one task; a long line is several: its parts are read in parallel, each as if it were the start of the line, and then joined in
order. Where a part begins is a guess, which is right if the part before ends exactly there. If the guess was wrong, or an event of the part
before reaches into the part, the part is dropped and the part before reads on instead: the result is the same, only later.
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

CHUNK_BYTES = int(parse("4 MiB", "B"))  # read between two reports of progress, checks for signals and releases of memory
NEIGHBOUR_BYTES = int(parse("2 MiB", "B"))  # a page that is read is loaded with its neighbours, up to the size of a huge page
THREAD_BYTES = int(parse("4 MiB", "B"))  # for fewer bytes, another thread costs more than it saves
BESIDE_BYTES = int(parse("8 MiB", "B"))  # the chunk while other Python code runs, which releases the GIL only every few milliseconds
PART_BYTES = int(parse("8 MiB", "B"))  # the fewest bytes of a part of a line
PARTS_A_CORE = 2  # more than one, so that other cores can take over the parts of a slow one
SETTLED_HOPS = 64  # messages to skip for a guess: more than an event has stats, which look like events

Progress = Callable[[int, int], None]


Request = TypeVar("Request", RowsOf, TotalsOf)
Table = TypeVar("Table")


class Job(Protocol):
    """A job of the scanner, which reads a line; only totals can be read in parts."""

    position: int

    def run(self, budget: int, /) -> bool: ...
    def take(self) -> Mapping[str, Any]: ...
    def close(self) -> None: ...


class Part:
    """The part of a line that one task reads: the bytes from ``begin`` to ``end``, its job, once it has started, and any damage."""

    def __init__(self, line: Line, begin: int, end: int) -> None:
        self.line, self.begin, self.end = line, begin, end
        self.job: Any = None
        self.damage: Exception | None = None

    def close(self) -> None:
        if self.job:
            self.job.close()


def whole(line: Line) -> list[Part]:
    """A line as a single part."""
    return [Part(line, line.offset, line.offset + line.length)]


def in_parts(space: Space, line: Line, count: int) -> list[Part]:
    """A line in about ``count`` parts of about equal length."""
    end = line.offset + line.length
    guesses = {space.index.rest_near(line.row, line.offset + line.length * part // count, SETTLED_HOPS) for part in range(1, count)}
    places = [line.offset, *sorted(place for place in guesses if line.offset < place < end), end]
    return [Part(line, *ends) for ends in pairwise(places)]


def part_counts(lines: Sequence[Line], threads: int) -> list[int]:
    """The number of parts for each line: more than one for long lines, if there are fewer long lines than threads."""
    long = sum(line.length >= 2 * PART_BYTES for line in lines)
    most = PARTS_A_CORE * threads // long if 0 < long < threads else 1
    return [max(1, min(most, line.length // PART_BYTES)) for line in lines]


class _Reader:
    """Runs jobs in chunks, releases the pages they have read, reports progress, and stops all jobs when one is interrupted."""

    def __init__(self, space: Space, total: int, progress: Progress | None) -> None:
        self._space, self._total, self._progress, self.piece = space, total, progress, CHUNK_BYTES
        self._lock, self._done, self.stopped = Lock(), 0, False

    def read(self, part: Part) -> None:
        """Reads a part, up to any damage, which `join` reports."""
        try:
            self._read_on(part.job, part, self._advance)
        except _scan.Damage as damage:
            part.damage = damage

    def join(self, parts: Sequence[Part]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Joins the parts of a line, which have been read; returns its results, up to any damage, and notes."""
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
        """Reads to the end of a part, or one event past it; raises damage found now or before."""
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
    """The parts that several threads read, of the longest lines first: those still to read, the finished tables, and failures."""

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
        """The main loop of every thread: reads parts until none is left."""
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
        """Reads a part; the thread that finishes the last part of a line joins its parts into the table."""
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
        """The table of each request, in order; raises the error of the first request that failed."""
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
    """The table of each request, in order.

    ``lines`` are the parts of each request's line. ``start`` creates the job of a part, ``table`` the requested table from the results.
    ``meanwhile`` is called while helpers read, if there is enough to read.
    """
    length = sum(request.line.length for request in requests)
    reader = _Reader(space, length, progress)
    tasks = _Tasks(reader, requests, lines, start, table)
    for request in requests:
        space.plane_of(request.line).stat_ids  # noqa: B018  decoded here once, not in each thread
    beside = meanwhile is not None and threads > 1 and length >= THREAD_BYTES
    if beside:
        reader.piece = BESIDE_BYTES
    readers = min(threads, len(tasks.waiting), 1 + length // THREAD_BYTES)
    helpers = list[Thread]()
    try:
        for _ in range(readers if beside else readers - 1):
            helpers.append(_helper(tasks.work))
        if beside and meanwhile:
            meanwhile()  # this thread reads nothing afterwards: a line that it began then would be the last to end
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
    """Starts a thread that does not keep an interrupted process from ending."""
    helper = Thread(target=work, daemon=True)
    helper.start()
    return helper


def _wait(helpers: Iterable[Thread]) -> None:
    """Waits until all helpers are done; after an interrupt it can be called again."""
    for helper in helpers:
        helper.join()
