"""Jobs: runs are read and analyzed in separate processes (`workers`); reports are cached up to a total size.

So a large profile never blocks the server, and a profile that crashes its reader affects nothing else.
"""

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Any

from ..sources.runs import Run
from ..units import parse
from .workers import Job, Limits, Outcome, Workers

CACHE_BYTES = int(parse("512 MiB", "B"))  # for cached answers
MOST_JOBS = 1_000
MOST_SUMMARIES = 20_000
CANCELLED = "cancelled"
CHANGED = "the file changed while it was read; reload this page"


class Jobs:
    """Jobs by the version of their input, least recently used first.

    ``changes`` is incremented whenever the state of a job changes, so that a view of all jobs can detect that it is outdated.
    """

    def __init__(self, worker: Sequence[str], *, workers: int = 1, room: int = CACHE_BYTES, limits: Limits | None = None) -> None:
        self._room = room
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._versions: dict[str, str] = {}
        self._summaries: dict[str, dict[str, Any]] = {}
        self._lock = Lock()
        self._workers = Workers(worker, workers, limits or Limits(), begun=self._begun, done=self._finish)
        self.changes = 0

    def known(self, key: str) -> Job | None:
        """The job for this version, if it was requested and is still cached."""
        return self._jobs.get(key)

    def summary(self, key: str) -> dict[str, Any]:
        """The summary of a report for the list of runs; it is small, so it stays when the report is evicted."""
        return self._summaries.get(key, {})

    def report(self, run: Run) -> Job:
        """The report on the current version of a run. A job that still reads an earlier version is cancelled."""
        with self._lock:
            earlier = self._jobs.get(self._versions.get(run.id, ""))
            self._versions[run.id] = run.version
        if earlier is not None and earlier.key != run.version and not earlier.outcome.done():
            self._workers.cancel(earlier, CHANGED)
        request = {"verb": "analyze", "path": str(run.path), "kind": run.kind, "files": [str(file) for file in run.files]}
        return self._job(Job(key=run.version, request=request, size=run.bytes, files=run.files))

    def comparison(self, key: str, names: tuple[str, str], before: bytes, after: bytes) -> Job:
        """The comparison of two reports."""
        request = {"verb": "compare", "names": names, "lengths": [len(before), len(after)]}
        return self._job(Job(key=key, request=request, size=len(before) + len(after), blobs=(before, after)))

    def cancel(self, key: str) -> None:
        """Cancel a job, whether it has begun or not."""
        job = self._jobs.get(key)
        if job is not None and not job.outcome.done():
            self._workers.cancel(job, CANCELLED)

    def forget_failure(self, key: str) -> None:
        """Clear a failure, so that the next request tries the job again."""
        with self._lock:
            job = self._jobs.get(key)
            if job is not None and job.error is not None:
                del self._jobs[key]
                self.changes += 1

    def close(self) -> None:
        """End every worker; their jobs fail."""
        self._workers.close()

    def _job(self, wanted: Job) -> Job:
        with self._lock:
            job = self._jobs.get(wanted.key)
            new = job is None
            if job is None:
                job = self._jobs[wanted.key] = wanted
                self.changes += 1
                self._evict()
            self._jobs.move_to_end(wanted.key)
        if new:
            self._workers.add(job)
        return job

    def _evict(self) -> None:
        """Evict finished jobs, least recently used first, until the others fit."""
        finished = [job for job in self._jobs.values() if job.outcome.done()]
        total = sum(map(_size, finished))
        # The last one is about to be shown, so it is kept regardless of its size.
        for job in finished[:-1]:
            if total <= self._room and len(self._jobs) <= MOST_JOBS:
                break
            total -= _size(job)
            del self._jobs[job.key]
            self.changes += 1

    def _begun(self) -> None:
        self.changes += 1

    def _finish(self, job: Job, outcome: Outcome) -> None:
        job.blobs = ()  # the compared reports are cached by their own jobs
        with self._lock:
            if job.summary:
                self._summaries[job.key] = job.summary
                if len(self._summaries) > MOST_SUMMARIES:
                    del self._summaries[next(iter(self._summaries))]
            # Set last: threads that wait for the outcome read the other fields as soon as it is set.
            self.changes += 1
            job.outcome.set_result(outcome)
            self.changes += 1  # a list of runs made in between still has the job as running
            self._evict()


def _size(job: Job) -> int:
    """The bytes of a cached answer."""
    outcome = job.outcome.result()
    return len(outcome.body) + len(outcome.page)
