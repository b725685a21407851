"""Workers: which job gets a process next, and when a job is stopped.

A worker is a command that reads a request from standard input (one line of JSON, then the reports it needs) and writes the answer, as JSON,
to standard output. On standard error it writes ``progress 0.43`` from time to time, ``summary {…}`` once, ``page 1234`` if the last 1234
bytes of the answer are a shorter version for the page, and otherwise an error message. Its exit status is 0, 1 for an error, or ``ENOMEM``
when memory ran out. Its standard input stays open while the server lives; when it is closed, the worker ends.

Each worker has two slots, one for new jobs, the smallest first, and one for slow jobs. A new job becomes slow after its time slice, half a
second of processor time: it moves to a free slow slot, or stays until a new job needs its slot. Then it is stopped, waits for a slow slot,
and starts from the beginning. The same happens to a slow job when another one waits; each time its time slice is four times as long. Slow
jobs also run at lower priority than new ones.
"""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from errno import ENOMEM
from pathlib import Path
from threading import Condition, Thread
from typing import IO, Any

from msgspec import Struct, field

from ..errors import clean
from ..units import show
from .process_groups import memory_of_groups, processor_time_of_groups

SLICE_S = 0.5  # time slice: processor time before a job may be stopped for another
LONGER = 4.0  # factor on the time slice, each time that a job was stopped for another
ASLEEP = 20.0  # wall time over the time slice that also ends it; on a busy computer a job may get a tenth of a processor
TICK_S = 0.1  # between two checks of the running jobs
CHECK_EVERY_S = 0.25  # between two checks of their memory and files
POSTPONED = "postponed"
LOWEST_PRIORITY = 19
DEATHS = 2  # worker deaths after which a job fails; the first may be accidental
_PROGRESS = re.compile(r"progress (\d(?:\.\d*)?)\s*\Z")
_PAGE = re.compile(r"page (\d+)\s*\Z")
_SUMMARY = re.compile(r"summary (\{.*\})\s*\Z")


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of one job: seconds, and bytes of memory of its process (``None``: unlimited)."""

    time_s: float = 600.0
    memory: int | None = None


class Outcome(Struct, frozen=True, kw_only=True):
    """The result of a worker: an answer, or an error in one line.

    ``died`` is whether it was killed, but not by the server. ``page`` is the answer for the page, if that differs.
    """

    body: bytes = b""
    page: bytes = b""
    error: str | None = None
    died: bool = False

    @property
    def for_page(self) -> bytes:
        """The part of the answer that a page shows."""
        return self.page or self.body


class Job(Struct, kw_only=True, eq=False):
    """One job: its progress, and its outcome when there is one. ``progress`` is ``None`` until a worker has started it."""

    key: str
    request: dict[str, Any] = field(default_factory=dict)
    blobs: tuple[bytes, ...] = ()
    size: int = 0
    files: tuple[Path, ...] = ()
    outcome: "Future[Outcome]" = field(default_factory=Future)
    progress: float | None = None
    summary: dict[str, Any] = field(default_factory=dict)
    page_bytes: int = 0
    # State of scheduling: whether it has a slow slot, how often it was stopped for another and lost its worker, since when it runs, and why
    # it must end.
    slow: bool = False
    times_stopped: int = 0
    deaths: int = 0
    since: float = 0.0
    processor_s: float | None = None
    process: subprocess.Popen[bytes] | None = None
    low_priority: bool = False
    ending: str = ""

    @property
    def state(self) -> str:
        """``waiting``, ``reading``, ``ready`` or ``failed``."""
        if not self.outcome.done():
            return "waiting" if self.progress is None else "reading"
        return "ready" if self.outcome.result().error is None else "failed"

    @property
    def error(self) -> str | None:
        return self.outcome.result().error if self.outcome.done() else None

    def has_used_its_slice(self, now: float) -> bool:
        """Whether it may be stopped for another."""
        return self.has_used(SLICE_S * LONGER**self.times_stopped, now)

    def has_used(self, time_s: float, now: float) -> bool:
        """Whether it used this much processor time (or `ASLEEP` times as much wall time); without processor times, this much wall time."""
        took = now - self.since
        return took >= time_s and (self.processor_s is None or self.processor_s >= time_s or took >= ASLEEP * time_s)


class Workers:
    """The processes that run jobs, one or two for each of ``count`` workers; ``done`` is called with each job and its outcome."""

    def __init__(
        self, command: Sequence[str], count: int, limits: Limits, *, begun: Callable[[], None], done: Callable[[Job, Outcome], None]
    ) -> None:
        self._command, self._count, self._limits = tuple(command), count, limits
        self._begun, self._done = begun, done
        self._waiting: list[Job] = []
        self._running: list[Job] = []
        self._changed, self._closed = Condition(), False
        self._thread = Thread(target=self._schedule, name="roofline-jobs", daemon=True)
        self._thread.start()

    def add(self, job: Job) -> None:
        with self._changed:
            self._waiting.append(job)
            self._changed.notify()

    def cancel(self, job: Job, why: str) -> None:
        """End a waiting or running job with the error ``why``."""
        with self._changed:
            waiting = job in self._waiting
            if waiting:
                self._waiting.remove(job)
            else:
                self._end(job, why)
        if waiting:
            self._done(job, Outcome(error=why))

    def close(self) -> None:
        """End every worker; their jobs fail."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            for job in self._running:
                self._end(job, "the server is stopping")
            self._changed.notify()
            self._changed.wait_for(lambda: not self._running)
        self._thread.join()

    def _schedule(self) -> None:
        look_at = 0.0
        while True:
            with self._changed:
                if self._closed:
                    return
                now = time.monotonic()
                for job in self._running:
                    if now - job.since > self._limits.time_s:
                        self._end(job, f"took longer than {self._limits.time_s:g} s; raise the limit with --job-time")
                    if not job.slow and job.has_used_its_slice(now):
                        job.slow = len(self._among(slow=True)) < self._count
                for slow in (False, True):
                    while (waiting := [job for job in self._waiting if job.slow == slow]) and self._has_slot(slow, now):
                        self._start(min(waiting, key=lambda job: (job.times_stopped, job.size)))
                old = [job for job in self._running if job.has_used(SLICE_S, now)]
                if len(old) < len(self._running):
                    for job in old:
                        _lower_priority(job)
                running = [job for job in self._running if job.process is not None]
                if now < look_at or not running:
                    self._changed.wait(TICK_S if self._running or self._waiting else None)
                    continue
            self._check(running)  # without the lock, because a network file system may block
            look_at = time.monotonic() + CHECK_EVERY_S

    def _check(self, running: Sequence[Job]) -> None:
        """End the jobs that use too much memory, and those whose file no longer exists."""
        limit = self._limits.memory
        leaders = {job: process.pid for job in running if (process := job.process) is not None}
        used = memory_of_groups(set(leaders.values())) if limit is not None else {}
        spent = processor_time_of_groups(set(leaders.values()))
        for job in running:
            why = _missing_file(job)
            job.processor_s = spent.get(leaders.get(job, 0))
            if limit is not None and used.get(leaders.get(job, 0), 0) > limit:
                why = _too_large(limit)
            if why:
                with self._changed:
                    self._end(job, why)

    def _among(self, *, slow: bool) -> list[Job]:
        """The running jobs in slow slots, or in those for new jobs."""
        return [job for job in self._running if job.slow == slow]

    def _has_slot(self, slow: bool, now: float) -> bool:
        """Whether a job may start. If there is no free slot, a job that has used its time slice is stopped."""
        others = self._among(slow=slow)
        if len(others) < self._count:
            return True
        finished = [job for job in others if job.has_used_its_slice(now)]
        if finished and not any(job.ending for job in others):  # an ending job keeps its slot until its process has ended
            self._end(min(finished, key=lambda job: job.since), POSTPONED)
        return False

    def _start(self, job: Job) -> None:
        self._waiting.remove(job)
        job.since, job.progress, job.processor_s = time.monotonic(), 0.0, 0.0
        self._running.append(job)
        self._begun()
        Thread(target=self._work, args=(job,), daemon=True).start()

    def _end(self, job: Job, why: str) -> None:
        """Kill the process of a job; the thread that waits for it does the rest."""
        if job.ending in ("", POSTPONED):
            job.ending = why
        if job.process is not None:
            _kill(job.process)

    def _work(self, job: Job) -> None:
        try:
            outcome = self._run(job)
        except OSError as error:  # no process or no pipes, which may be temporary
            outcome = Outcome(error=f"cannot start the worker: {error}", died=True)
        except Exception as error:  # other jobs must continue
            outcome = Outcome(error=f"the server could not read the worker's answer: {error}")
        with self._changed:
            self._running.remove(job)
            job.process = None
            job.deaths += outcome.died
            again = not self._closed and (outcome.error == POSTPONED or (outcome.died and job.deaths < DEATHS))
            if again:
                postponed = outcome.error == POSTPONED
                job.slow, job.times_stopped = job.slow or postponed, job.times_stopped + postponed
                job.progress, job.ending, job.low_priority = None, "", False
                self._waiting.append(job)
            self._changed.notify_all()
        if not again:
            self._done(job, outcome)

    def _run(self, job: Job) -> Outcome:
        if why := _missing_file(job):
            return Outcome(error=why)
        # A separate process group, so that child processes end with it. Not a session: Linux applies priorities only within one.
        process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with self._changed:
            job.process = process
            if job.ending:  # cancelled before the process started
                _kill(process)
        lines: list[str] = []
        listener = Thread(target=_listen, args=(process.stderr, job, lines), daemon=True)
        with process.stdout, process.stderr:
            listener.start()
            with suppress(BrokenPipeError):  # the worker has already failed
                process.stdin.write(json.dumps({**job.request, "memory": self._limits.memory}).encode() + b"\n")
                process.stdin.writelines(job.blobs)
                process.stdin.flush()
            body = process.stdout.read()
            listener.join()
        status = process.wait()
        with suppress(OSError):
            process.stdin.close()
        if status == 0:
            end = len(body) - job.page_bytes
            return Outcome(body=body[:end], page=body[end:])
        if job.ending:
            return Outcome(error=job.ending)
        if status == ENOMEM:
            return Outcome(error=_too_large(self._limits.memory) if self._limits.memory else "out of memory")
        if status < 0:
            return Outcome(error=f"the worker was killed by {_name(-status)}, possibly out of memory", died=True)
        return Outcome(error=clean((lines[-1] if lines else f"the worker failed with exit status {status}").removeprefix("roofline: ")))


def _too_large(limit: int) -> str:
    return f"needs more than {show(limit, 'B')} of memory; raise the limit with --job-memory"


def _missing_file(job: Job) -> str:
    missing = next((file for file in job.files if not file.exists()), None)
    return f"{missing}: no longer exists; reload the list of runs" if missing else ""


def _listen(stream: IO[bytes], job: Job, lines: list[str]) -> None:
    """Read the messages of a worker while it runs."""
    for line in stream:
        text = line.decode("utf-8", "replace").rstrip()
        if match := _PROGRESS.match(text):
            job.progress = min(1.0, float(match[1]))
        elif match := _PAGE.match(text):
            job.page_bytes = int(match[1])
        elif match := _SUMMARY.match(text):
            with suppress(ValueError, RecursionError):  # part of an error message that only looks like a summary
                job.summary = json.loads(match[1])
        elif text:
            del lines[:-1]
            lines.append(text)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its children."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()


def _lower_priority(job: Job) -> None:
    """Give the process of a job and its children the lowest priority."""
    if job.process is not None and not job.low_priority and hasattr(os, "setpriority"):
        job.low_priority = True
        with suppress(OSError):
            os.setpriority(os.PRIO_PGRP, job.process.pid, LOWEST_PRIORITY)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no name
        return f"signal {number}"
