"""One profile of this process, taken without the program's help: when it begins and ends, whatever the framework.

A recorder is armed when its framework is imported, then waits, records, and is done. It ends with the process, however that ends. What
happened is left in a file for the process that started this one, for nothing may be printed here.
"""

import atexit
import json
import os
import signal
import threading
import time
from typing import Any

PATIENCE = 8  # steps that compile, after which recording begins all the same
RESTARTS = 8  # how often what was recorded may turn out to be preparation

OWN_PROFILE = "the program started its own profile, which ended this recording"  # frameworks take one at a time

_ARMED: "list[Recorder]" = []  # of this process: a program may import several frameworks


class Recorder:
    """What all frameworks have in common; a subclass starts and stops the framework's own profiler and finds the steps."""

    framework, module = "", ""

    def __init__(
        self,
        folder: str,
        delay_s: float = 0.0,
        duration_s: "float | None" = None,
        skip: int = 0,
        steps: "int | None" = None,
        from_start: bool = False,
        python: "bool | None" = None,
    ) -> None:
        self.folder = folder
        self.delay_s, self.duration_s, self.skip, self.steps = delay_s, duration_s, skip, steps
        self.from_start, self.python = from_start, python
        self.warming = not (from_start or skip or delay_s)  # whether to wait for a step that does not compile
        self.state = "waiting"
        self.notes: list[str] = []
        self.seen, self.recorded = 0, 0  # steps
        self.ran = False  # whether the program did anything with the framework
        self.own_profile, self.own_profiles = False, 0  # whether the program takes a profile itself, and how often it did
        self.began_s, self.restarts = 0.0, 0
        self.lock = threading.RLock()
        self.process = 0

    def prepare(self) -> None:
        """Before the framework is imported."""

    def arm(self, framework: Any) -> None:
        """The framework is imported: wait for steps and for every way a process ends."""
        self.process = os.getpid()  # not before: a process that imports it may be a fork of one that did not
        self.folder = os.path.join(self.folder, f"{self.process}-{self.module}")
        self.tell()
        self.watch(framework)
        _watch_exits(self)

    def watch(self, framework: Any) -> None:
        """See what the program does with the framework."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the profiler."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the profiler and write what it recorded into the folder."""
        raise NotImplementedError

    def wait_for_devices(self) -> None:
        """Wait until the devices have done what they were asked."""
        raise NotImplementedError

    def discard(self) -> None:
        """Stop the profiler if it runs, and throw away what was recorded."""
        raise NotImplementedError

    def strength(self) -> int:
        """How sure it is that the program works with this framework: the surer of two records."""
        return 0

    def remark(self) -> str:
        """What is to be said about the profile when it is complete."""
        return ""

    def begin(self, settled: bool = False) -> None:
        """Start the profiler, once; ``settled`` has the devices end first what they are at, so that it is not in the profile."""
        if os.getpid() != self.process:
            return
        with self.lock:
            if self.state != "waiting" or self.own_profile or not self._has_turn():
                return
            self.state = "starting"
            try:
                if settled:
                    self.wait_for_devices()
                self.start()
            except Exception as error:  # a profile of the program's own is under way, or there is no profiler
                self.finish("failed", f"the profiler did not start: {error}")
                return
            self.state, self.began_s, self.recorded = "recording", time.monotonic(), 0
            self.tell()
        if self.duration_s is not None:
            began = self.began_s
            later(self.duration_s, lambda: self.time_is_up() if self.began_s == began else None)

    def time_is_up(self) -> None:
        """The profile has lasted as long as it was asked to; called on a thread of its own."""
        self.end(settled=False)

    def begin_warm(self, why: str) -> None:
        """Start the profiler now that the program has warmed up, and say why now."""
        if self.state != "waiting":
            return
        self.begin(settled=True)
        if self.state == "recording":
            self.notes = [note for note in self.notes if not note.startswith("recording began")]
            self.notes.append(f"{why}; --from-start records everything")
            self.tell()

    def end(self, note: str = "", settled: bool = True) -> None:
        """Stop the profiler, once; ``settled`` waits until all that the devices were asked for is in the profile.

        At a time of the clock there is nothing to wait for: the program goes on.
        """
        if os.getpid() != self.process:  # a fork of it
            return
        with self.lock:
            if self.state == "waiting":
                self.tell()
            if self.state != "recording":
                return
            self.state = "stopping"
            try:
                if settled:
                    self.wait_for_devices()
                self.stop()
            except Exception as error:
                self.finish("failed", f"the profiler did not stop: {error}")
            else:
                self.finish("done", note or self.remark())

    def restart(self, even_if_done: bool = False) -> bool:
        """Throw away what was recorded, and wait again; whether that could be."""
        with self.lock:
            if not (self.state == "recording" or (even_if_done and self.state == "done")) or self.restarts >= RESTARTS:
                return False
            self.restarts += 1
            try:
                self.discard()
            except Exception as error:
                self.finish("failed", f"the profiler did not stop: {error}")
                return False
            self.state, self.notes = "waiting", []
            self.tell()
            return True

    def _has_turn(self) -> bool:
        """Whether no other framework is surer to be the one that the program works with."""
        others = [one for one in _ARMED if one is not self and one.process == self.process and one.state in ("recording", "done")]
        if any(one.strength() >= self.strength() for one in others):
            return False
        for one in others:
            one.restart(even_if_done=True)
        return True

    def finish(self, state: str, note: str) -> None:
        """Report how the recording ended; nothing more is recorded."""
        self.state = state
        if note:
            self.notes.append(note)
        self.tell()

    def said(self) -> "dict[str, Any]":
        """The message for the parent process."""
        return {
            "framework": self.framework,
            "state": self.state,
            "ran": self.ran,
            "steps": self.seen,
            "recorded": self.recorded,
            "own_profiles": self.own_profiles,
            "notes": self.notes,
        }

    def tell(self) -> None:
        """Write a message for the parent process, whole or not at all."""
        os.makedirs(self.folder, exist_ok=True)
        draft = os.path.join(self.folder, "draft")
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(self.said(), file)
        os.replace(draft, os.path.join(self.folder, "status.json"))


def later(seconds: float, act: Any) -> None:
    timer = threading.Timer(seconds, act)
    timer.daemon = True  # the program does not wait for it
    timer.start()


def _watch_exits(recorder: Recorder) -> None:
    """Be asked when the process ends: by itself, without its exit handlers, or told to stop."""
    _ARMED.append(recorder)
    atexit.register(recorder.end)
    if len(_ARMED) > 1:
        return
    leave = os._exit

    def exit_at_once(status: int) -> Any:
        _end_all()
        leave(status)

    def terminate(number: int, frame: object) -> None:
        _end_all()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    os._exit = exit_at_once
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, terminate)


def _end_all() -> None:
    for recorder in _ARMED:
        recorder.end()
