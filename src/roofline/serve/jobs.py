"""Jobs: each run is read and analyzed in a process of its own, a few at a time; the answers are kept up to a total size.

So a large profile never blocks the server, and one that crashes its reader, or takes too much time or memory, affects no other. Everything
here runs in the server's event loop.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec import Struct

from ..errors import RooflineError, clean
from ..units import parse, show
from ..workers import Worker, WorkerDied
from .runs import Run

CACHE_BYTES = int(parse("512 MiB", "B"))  # for finished answers
MOST_JOBS = 1_000
CANCELLED = "cancelled"
CHANGED = "the file changed while it was read; reload this page"


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of one job: seconds, and bytes of memory of its process (``None``: unlimited)."""

    time_s: float = 600.0
    memory: int | None = None


class Answer(Struct, frozen=True, kw_only=True):
    """What a job found: the JSON, for the page a shorter one if it is very long and its words, and a summary for the list of runs."""

    body: bytes
    page: bytes = b""
    words: bytes = b"null"
    summary: dict[str, Any] | None = None

    @property
    def for_page(self) -> bytes:
        return self.page or self.body


# Both run in a worker: what they take is the memory limit, then the run with a callback for the progress, or two names and two reports.
ReadRun = Callable[..., Answer]
CompareReports = Callable[..., Answer]


class Job:
    """The work for one answer; ``progress`` is ``None`` until its process has started. A comparison is made of two ``parts``."""

    def __init__(self, work: "Callable[[Job], Awaitable[Answer]]", parts: "tuple[Job, ...]" = ()) -> None:
        self.parts = parts
        self.answer: Answer | None = None
        self.error: str | None = None
        self._progress: float | None = None
        self._task = asyncio.ensure_future(self._run(work))

    async def _run(self, work: "Callable[[Job], Awaitable[Answer]]") -> None:
        try:
            self.answer = await work(self)
        except asyncio.CancelledError:
            self.error = self.error or CANCELLED
        except Exception as error:
            self.error = clean(str(error))

    @property
    def done(self) -> bool:
        return self._task.done()

    @property
    def state(self) -> str:
        """``waiting``, ``reading``, ``ready`` or ``failed``."""
        if self.error is not None:
            return "failed"
        if self.answer is not None:
            return "ready"
        return "waiting" if self.progress is None else "reading"

    @property
    def progress(self) -> float | None:
        if self.parts and not any(part.progress is None for part in self.parts):
            return sum(part.progress or 0.0 for part in self.parts) / len(self.parts)
        return self._progress

    def set_progress(self, done: int, total: int) -> None:
        self._progress = min(1.0, done / total) if total else 1.0

    async def settled(self, within_s: float | None = None) -> None:
        """Waits for the answer or the error, up to a limit; the job continues after that."""
        await asyncio.wait({self._task}, timeout=within_s)

    def cancel(self, why: str = CANCELLED) -> None:
        if not self.done:
            self.error = why
            self._task.cancel()


class Jobs:
    """Jobs by the version of what they read, least recently used first. ``read_run`` and ``compare_reports`` are called in workers."""

    def __init__(
        self,
        read_run: ReadRun,
        compare_reports: CompareReports,
        *,
        workers: int = 1,
        room: int = CACHE_BYTES,
        limits: Limits | None = None,
    ) -> None:
        self._read_run, self._compare_reports, self._room, self._limits = read_run, compare_reports, room, limits or Limits()
        self._slots, self._threads = asyncio.Semaphore(workers), ThreadPoolExecutor(workers)
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._versions: dict[str, str] = {}
        self._summaries: dict[str, dict[str, Any]] = {}

    def known(self, key: str) -> Job | None:
        """The job for this version, if it was requested and is still kept."""
        return self._jobs.get(key)

    def summary(self, key: str) -> dict[str, Any]:
        """The summary of a report for the list of runs; it is small, so it stays when the report is dropped."""
        return self._summaries.get(key, {})

    def report(self, run: Run) -> Job:
        """The report on the current version of a run. A job that still reads an earlier version is cancelled."""
        earlier = self._jobs.get(self._versions.get(run.id, ""))
        if earlier is not None and self._versions[run.id] != run.version:
            earlier.cancel(CHANGED)
        self._versions[run.id] = run.version

        async def read(job: Job) -> Answer:
            answer = await self._in_worker(job, self._read_run, run)
            self._summaries[run.version] = answer.summary or {}
            return answer

        return self._job(run.version, lambda: Job(read))

    def comparison(self, before: Run, after: Run) -> Job:
        """The comparison of two runs, whose parts are their reports."""
        reports = self.report(before), self.report(after)

        async def compare(job: Job) -> Answer:
            for report in reports:
                await report.settled()
                if report.error is not None:
                    raise RooflineError(report.error)
            bodies = [report.answer.body for report in reports if report.answer is not None]
            return await self._in_worker(job, self._compare_reports, clean(str(before.path)), clean(str(after.path)), *bodies)

        return self._job(comparison_key(before, after), lambda: Job(compare, reports))

    def forget_failure(self, key: str) -> None:
        """Drops a failed job, so that the next request tries it again."""
        job = self._jobs.get(key)
        if job is not None and job.error is not None:
            del self._jobs[key]

    async def close(self) -> None:
        """Ends every worker; their jobs fail."""
        for job in self._jobs.values():
            job.cancel("the server is stopping")
        for job in self._jobs.values():
            await job.settled()
        self._threads.shutdown()

    async def _in_worker(self, job: Job, function: Callable[..., Answer], *arguments: Any) -> Answer:
        """The answer of a function that a new process calls within the limits; when this ends in any way, so does the process."""
        limit = self._limits.memory
        async with self._slots:
            job.set_progress(0, 1)
            with Worker() as worker:
                call = asyncio.get_running_loop().run_in_executor(
                    self._threads, lambda: worker.call(function, limit, *arguments, progress=job.set_progress)
                )
                try:
                    async with asyncio.timeout(self._limits.time_s):
                        return await call  # type: ignore[no-any-return]
                except TimeoutError:
                    raise RooflineError(f"took longer than {self._limits.time_s:g} s; raise the limit with --job-time") from None
                except MemoryError:
                    more = f"needs more than {show(limit, 'B')} of memory; raise the limit with --job-memory" if limit else "out of memory"
                    raise RooflineError(more) from None
                except WorkerDied as error:
                    raise RooflineError(f"{error}; try again") from None

    def _job(self, key: str, begin: Callable[[], Job]) -> Job:
        """The job with this key, begun if it is new."""
        if key not in self._jobs:
            self._make_room()
            self._jobs[key] = begin()
        self._jobs.move_to_end(key)
        return self._jobs[key]

    def _make_room(self) -> None:
        """Drops finished jobs, least recently used first, until the others fit. The last is kept whatever its size."""
        finished = [key for key, job in self._jobs.items() if job.done]
        total = sum(_size(self._jobs[key]) for key in finished)
        for key in finished[:-1]:
            if total <= self._room and len(self._jobs) < MOST_JOBS:
                return
            total -= _size(self._jobs.pop(key))


def comparison_key(before: Run, after: Run) -> str:
    """The key of the comparison of two runs."""
    return f"{before.version}.{after.version}"


def _size(job: Job) -> int:
    """The bytes of an answer."""
    return len(job.answer.body) + len(job.answer.page) if job.answer else 0
