"""Jobs: runs are read and analysed in processes of their own, a few at a time; reports are kept while there is room.

A worker is a command that takes a request on its standard input (one line of JSON, then the reports it is about) and gives the answer,
as JSON, on its standard output. On standard error it says ``progress 0.43`` now and then, ``summary {…}`` once, and else what went wrong.
So a large profile never holds up the server, and one that kills its reader spoils nothing else.
"""

import json
import re
import subprocess
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from signal import Signals
from threading import Lock, Thread
from typing import IO, Any

from msgspec import Struct, field

from ..sources.runs import Run
from ..units import parse

ROOM = int(parse("512 MiB", "B"))  # for the answers kept
MOST_JOBS = 1_000
MOST_SUMMARIES = 20_000
_PROGRESS = re.compile(r"progress (\d(?:\.\d*)?)\s*\Z")
_SUMMARY = re.compile(r"summary (\{.*\})\s*\Z")


class Outcome(Struct, frozen=True, kw_only=True):
    """What a worker came back with: an answer, or in one line why there is none."""

    body: bytes = b""
    error: str | None = None


class Job(Struct, kw_only=True):
    """One piece of work: how far it is, and its outcome when there is one. ``progress`` is ``None`` until a worker has taken it up."""

    key: str
    outcome: "Future[Outcome]" = field(default_factory=Future)
    progress: float | None = None
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """``waiting``, ``reading``, ``ready`` or ``failed``."""
        if not self.outcome.done():
            return "waiting" if self.progress is None else "reading"
        return "ready" if self.outcome.result().error is None else "failed"

    @property
    def error(self) -> str | None:
        return self.outcome.result().error if self.outcome.done() else None


class Jobs:
    """Jobs by the version of what they are about; those asked for last are kept longest.

    ``changes`` counts up whenever the state of a job does, so that a view of all of them knows when it is out of date.
    """

    def __init__(self, worker: Sequence[str], *, workers: int = 1, room: int = ROOM) -> None:
        self._worker, self._room = tuple(worker), room
        self._threads = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="roofline-jobs")
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._summaries: dict[str, dict[str, Any]] = {}
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock, self._closed = Lock(), False
        self.changes = 0

    def known(self, key: str) -> Job | None:
        """The job about this version, if it has been asked for and is still kept."""
        return self._jobs.get(key)

    def summary(self, key: str) -> dict[str, Any]:
        """What a list shows of a report: small, so it stays when the report itself had to make room."""
        return self._summaries.get(key, {})

    def report(self, run: Run) -> Job:
        """The report on a run as it stands."""
        request = {"verb": "analyze", "path": str(run.path), "kind": run.kind, "files": [str(file) for file in run.files]}
        return self._job(run.version, request)

    def comparison(self, key: str, names: tuple[str, str], before: bytes, after: bytes) -> Job:
        """The comparison of two reports."""
        request = {"verb": "compare", "names": names, "lengths": [len(before), len(after)]}
        return self._job(key, request, before, after)

    def close(self) -> None:
        """End every worker; what they were about has no outcome but that."""
        with self._lock:
            self._closed = True
            for process in self._running:
                process.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _job(self, key: str, request: dict[str, Any], *blobs: bytes) -> Job:
        with self._lock:
            job = self._jobs.get(key)
            if job is None:
                job = self._jobs[key] = Job(key=key)
                self.changes += 1
                self._make_room()
                self._threads.submit(self._work, job, request, blobs)
            self._jobs.move_to_end(key)
            return job

    def _make_room(self) -> None:
        """Forget finished jobs, those asked for longest ago first, until the others fit."""
        finished = [job for job in self._jobs.values() if job.outcome.done()]
        held = sum(len(job.outcome.result().body) for job in finished)
        # The last of them is what somebody is about to be shown, however large it is.
        for job in finished[:-1]:
            if held <= self._room and len(self._jobs) <= MOST_JOBS:
                break
            held -= len(job.outcome.result().body)
            del self._jobs[job.key]
            self.changes += 1

    def _work(self, job: Job, request: dict[str, Any], blobs: Sequence[bytes]) -> None:
        try:
            outcome = self._run(job, request, blobs)
        except OSError as error:
            outcome = Outcome(error=f"cannot start the worker: {error}")
        with self._lock:
            if job.summary:
                self._summaries[job.key] = job.summary
                if len(self._summaries) > MOST_SUMMARIES:
                    del self._summaries[next(iter(self._summaries))]
            # Last, for whoever waits for the outcome goes on at once and reads the rest.
            self.changes += 1
            job.outcome.set_result(outcome)
            self._make_room()

    def _run(self, job: Job, request: dict[str, Any], blobs: Sequence[bytes]) -> Outcome:
        with self._lock:
            if self._closed:
                return Outcome(error="the server is stopping")
            process = subprocess.Popen(self._worker, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self._running.add(process)
            job.progress = 0.0
            self.changes += 1
        assert process.stdin is not None
        assert process.stdout is not None
        said: list[str] = []
        listener = Thread(target=_listen, args=(process.stderr, job, said), daemon=True)
        with process:
            listener.start()
            try:
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.writelines(blobs)
                process.stdin.close()
            except BrokenPipeError:
                pass  # it has already said why, or died of it
            body = process.stdout.read()
            listener.join()
        with self._lock:
            self._running.discard(process)
        if process.returncode == 0:
            return Outcome(body=body)
        if process.returncode < 0:
            return Outcome(error=f"the worker was killed by {Signals(-process.returncode).name}, possibly out of memory")
        return Outcome(error=(said[-1] if said else f"the worker failed with exit status {process.returncode}").removeprefix("roofline: "))


def _listen(talk: IO[bytes], job: Job, said: list[str]) -> None:
    """Follow what a worker says while it works."""
    for line in talk:
        text = line.decode("utf-8", "replace").rstrip()
        if match := _PROGRESS.match(text):
            job.progress = min(1.0, float(match[1]))
        elif match := _SUMMARY.match(text):
            job.summary = json.loads(match[1])
        elif text:
            said.append(text)
