"""Workers: which job gets a process next, and when a job is stopped.

A worker is a command that takes a request on its standard input (one line of JSON, then the reports it is about) and gives the answer, as
JSON, on its standard output. On standard error it says ``progress 0.43`` now and then, ``summary {…}`` once, ``page 1234`` where the last
so many bytes of the answer are what a page has in place of the others, for these are too many, and else what went wrong. Its exit status is
0, 1 for what it said, or ``ENOMEM`` when memory ran out. Its standard input stays open as long as the server lives; a worker that sees it
closed ends too.

Each worker has two places, one for new jobs, the smallest first, and one for slow jobs. A new job that has had its turn, half a second of
processor time, is slow: it goes on in a free place for slow jobs, or where it is until a new job wants the place. Then it is stopped, waits
for a place among the slow, and begins again. So does a slow job when another waits; each time its turn is four times as long. Besides, slow
jobs give way to new ones on the processor.
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
from .memory import memory_of_groups
from .processor_time import processor_time_of_groups

TURN_S = 0.5  # of processor time, before a job may be stopped for another
LONGER = 4.0  # times the turn, after each time that a job was stopped for another
ASLEEP = 20.0  # times the turn: time that ends it, however little of the processor it had; a busy computer may give it a tenth
TICK_S = 0.1  # between two looks at the jobs that are running
CHECK_EVERY_S = 0.25  # between two looks at their memory and files
POSTPONED = "postponed"
LOWEST_PRIORITY = 19
DEATHS = 2  # of its workers, before a job fails; the first may have been an accident
_PROGRESS = re.compile(r"progress (\d(?:\.\d*)?)\s*\Z")
_PAGE = re.compile(r"page (\d+)\s*\Z")
_SUMMARY = re.compile(r"summary (\{.*\})\s*\Z")


class Limits(Struct, frozen=True, kw_only=True):
    """What one job may take: seconds, and bytes of memory of its process (``None``: as much as there is)."""

    time_s: float = 600.0
    memory: int | None = None


class Outcome(Struct, frozen=True, kw_only=True):
    """What a worker came back with: an answer, or in one line why there is none. ``died``: it was killed, by nobody here.

    ``page`` is what a page has in place of the answer, if that is another.
    """

    body: bytes = b""
    page: bytes = b""
    error: str | None = None
    died: bool = False

    @property
    def held(self) -> bytes:
        """The part of the answer that a page shows."""
        return self.page or self.body


class Job(Struct, kw_only=True, eq=False):
    """One piece of work: how far it is, and its outcome when there is one. ``progress`` is ``None`` until a worker has taken it up."""

    key: str
    request: dict[str, Any] = field(default_factory=dict)
    blobs: tuple[bytes, ...] = ()
    size: int = 0
    files: tuple[Path, ...] = ()
    outcome: "Future[Outcome]" = field(default_factory=Future)
    progress: float | None = None
    summary: dict[str, Any] = field(default_factory=dict)
    page_bytes: int = 0
    # How it fares with the workers: whether it has a place among the slow, how often it was stopped for another and lost its worker,
    # since when it runs, and why it is to end.
    slow: bool = False
    turns: int = 0
    deaths: int = 0
    since: float = 0.0
    processor_s: float | None = None
    process: subprocess.Popen[bytes] | None = None
    gives_way: bool = False
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

    def has_had_its_turn(self, now: float) -> bool:
        """Whether it may be stopped for another."""
        return self.has_had(TURN_S * LONGER**self.turns, now)

    def has_had(self, time_s: float, now: float) -> bool:
        """Whether it used this much processor time, where the system reports it: on a busy computer a small job may take seconds."""
        took = now - self.since
        return took >= time_s and (self.processor_s is None or self.processor_s >= time_s or took >= ASLEEP * time_s)


class Workers:
    """The processes that work on jobs, for each of ``count`` workers one or two; ``done`` is called with each job and its outcome."""

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
        """End a job that is waiting or running; ``why`` is its outcome."""
        with self._changed:
            waiting = job in self._waiting
            if waiting:
                self._waiting.remove(job)
            else:
                self._end(job, why)
        if waiting:
            self._done(job, Outcome(error=why))

    def close(self) -> None:
        """End every worker; what they were about has no outcome but that."""
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
                    if not job.slow and job.has_had_its_turn(now):
                        job.slow = len(self._among(slow=True)) < self._count
                for slow in (False, True):
                    while (waiting := [job for job in self._waiting if job.slow == slow]) and self._has_place(slow, now):
                        self._start(min(waiting, key=lambda job: (job.turns, job.size)))
                old = [job for job in self._running if job.has_had(TURN_S, now)]
                if len(old) < len(self._running):
                    for job in old:
                        _give_way(job)
                running = [job for job in self._running if job.process is not None]
                if now < look_at or not running:
                    self._changed.wait(TICK_S if self._running or self._waiting else None)
                    continue
            self._check(running)  # without the lock, for a file on a network may keep the system waiting
            look_at = time.monotonic() + CHECK_EVERY_S

    def _check(self, running: Sequence[Job]) -> None:
        """End the jobs that use too much memory, and those whose file is gone."""
        limit = self._limits.memory
        leaders = {job: process.pid for job in running if (process := job.process) is not None}
        used = memory_of_groups(set(leaders.values())) if limit is not None else {}
        spent = processor_time_of_groups(set(leaders.values()))
        for job in running:
            why = _gone(job)
            job.processor_s = spent.get(leaders.get(job, 0))
            if limit is not None and used.get(leaders.get(job, 0), 0) > limit:
                why = _too_large(limit)
            if why:
                with self._changed:
                    self._end(job, why)

    def _among(self, *, slow: bool) -> list[Job]:
        """The jobs that have a place, among the slow or the new."""
        return [job for job in self._running if job.slow == slow]

    def _has_place(self, slow: bool, now: float) -> bool:
        """Whether a job may start. When there is no place for it, one that has had its turn is stopped."""
        others = self._among(slow=slow)
        if len(others) < self._count:
            return True
        finished = [job for job in others if job.has_had_its_turn(now)]
        if finished and not any(job.ending for job in others):  # such a one has its place until its process has ended
            self._end(min(finished, key=lambda job: job.since), POSTPONED)
        return False

    def _start(self, job: Job) -> None:
        self._waiting.remove(job)
        job.since, job.progress, job.processor_s = time.monotonic(), 0.0, 0.0
        self._running.append(job)
        self._begun()
        Thread(target=self._work, args=(job,), daemon=True).start()

    def _end(self, job: Job, why: str) -> None:
        """Have the process of a job end; the thread that waits for it does the rest."""
        if job.ending in ("", POSTPONED):
            job.ending = why
        if job.process is not None:
            _kill(job.process)

    def _work(self, job: Job) -> None:
        try:
            outcome = self._run(job)
        except OSError as error:  # no process, or no pipes to it, which may come again
            outcome = Outcome(error=f"cannot start the worker: {error}", died=True)
        except Exception as error:  # whatever it is, the others go on
            outcome = Outcome(error=f"the server could not read the worker's answer: {error}")
        with self._changed:
            self._running.remove(job)
            job.process = None
            job.deaths += outcome.died
            again = not self._closed and (outcome.error == POSTPONED or (outcome.died and job.deaths < DEATHS))
            if again:
                postponed = outcome.error == POSTPONED
                job.slow, job.turns = job.slow or postponed, job.turns + postponed
                job.progress, job.ending, job.gives_way = None, "", False
                self._waiting.append(job)
            self._changed.notify_all()
        if not again:
            self._done(job, outcome)

    def _run(self, job: Job) -> Outcome:
        if why := _gone(job):
            return Outcome(error=why)
        # A group of its own, so that the processes it may start end with it. No session: Linux weighs priorities only within one.
        process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with self._changed:
            job.process = process
            if job.ending:  # before there was a process
                _kill(process)
        said: list[str] = []
        listener = Thread(target=_listen, args=(process.stderr, job, said), daemon=True)
        with process.stdout, process.stderr:
            listener.start()
            with suppress(BrokenPipeError):  # it has already said why, or died of it
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
        return Outcome(error=clean((said[-1] if said else f"the worker failed with exit status {status}").removeprefix("roofline: ")))


def _too_large(limit: int) -> str:
    return f"needs more than {show(limit, 'B')} of memory; raise the limit with --job-memory"


def _gone(job: Job) -> str:
    missing = next((file for file in job.files if not file.exists()), None)
    return f"{missing}: no longer exists; reload the list of runs" if missing else ""


def _listen(talk: IO[bytes], job: Job, said: list[str]) -> None:
    """Follow what a worker says while it works."""
    for line in talk:
        text = line.decode("utf-8", "replace").rstrip()
        if match := _PROGRESS.match(text):
            job.progress = min(1.0, float(match[1]))
        elif match := _PAGE.match(text):
            job.page_bytes = int(match[1])
        elif match := _SUMMARY.match(text):
            with suppress(ValueError, RecursionError):  # part of an error that only looks like one
                job.summary = json.loads(match[1])
        elif text:
            del said[:-1]
            said.append(text)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()


def _give_way(job: Job) -> None:
    """Have the process of a job, and those that it started, run only where no other wants to."""
    if job.process is not None and not job.gives_way and hasattr(os, "setpriority"):
        job.gives_way = True
        with suppress(OSError):
            os.setpriority(os.PRIO_PGRP, job.process.pid, LOWEST_PRIORITY)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # the real-time ones have none
        return f"signal {number}"
