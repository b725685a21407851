"""The framework-independent part of recording a profile of this process: when it begins and ends.

A recorder is armed when its framework is imported; then it waits, records, and finishes. It also ends in every way that the process can
end. Its result is written to a file for the parent process, because nothing may be printed here.
"""

import atexit
import json
import os
import signal
import threading
import time
from typing import Any

PATIENCE = 8  # steps that compile after which recording begins anyway
RESTARTS = 8  # how often a recording may be discarded as preparation

OWN_PROFILE = "the program started its own profile, which ended this recording"  # frameworks allow one profile at a time

_ARMED: "list[Recorder]" = []  # several if the program imports several frameworks


class Recorder:
    """The base of all recorders; a subclass starts and stops its framework's profiler and detects steps."""

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
        self.warming = not (from_start or skip or delay_s)  # whether to wait for a step without compilation
        self.state = "waiting"
        self.notes: list[str] = []
        self.seen, self.recorded = 0, 0  # steps
        self.unprofiled_s = 0.0  # what a step like the recorded ones takes without the profiler; 0 if not known
        self.ran = False  # whether the program used the framework
        self.own_profile, self.own_profiles = False, 0  # whether the program is taking its own profile, and how often it did
        self.began_s, self.restarts = 0.0, 0
        self.notes_aside: list[str] = []  # of the last recording that was discarded
        self.lock = threading.RLock()
        self.process = 0

    def prepare(self) -> None:
        """Called before the framework is imported."""

    def arm(self, framework: Any) -> None:
        """Called after the framework is imported: watch for steps and for the end of the process."""
        self.process = os.getpid()  # only now, because the importing process may be a fork of another
        self.folder = os.path.join(self.folder, f"{self.process}-{self.module}")
        self.write_message()
        self.watch(framework)
        _watch_exits(self)

    def watch(self, framework: Any) -> None:
        """Watch what the program does with the framework."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the profiler."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the profiler and write the profile to the folder."""
        raise NotImplementedError

    def wait_for_devices(self) -> None:
        """Wait until the devices are idle."""
        raise NotImplementedError

    def discard(self) -> None:
        """Stop the profiler if it runs, and discard the recording."""
        raise NotImplementedError

    def recover(self) -> bool:
        """Bring back the last recording that was discarded, where that was a guess. Returns whether there is one."""
        return False

    def certainty(self) -> int:
        """How certain it is that the program uses this framework; of two recorders, the more certain one records."""
        return 0

    def final_note(self) -> str:
        """A note about the complete profile."""
        return ""

    def begin(self, settled: bool = False) -> None:
        """Start the profiler, once; with ``settled``, first wait for the devices, so that earlier work is not in the profile."""
        if os.getpid() != self.process:
            return
        with self.lock:
            if self.state != "waiting" or self.own_profile or not self._is_main_framework():
                return
            self.state = "starting"
            try:
                if settled:
                    self.wait_for_devices()
                self.start()
            except Exception as error:  # the program is taking its own profile, or there is no profiler
                self.finish("failed", f"the profiler did not start: {error}")
                return
            self.state, self.began_s, self.recorded = "recording", time.monotonic(), 0
            self.write_message()
        if self.duration_s is not None:
            began = self.began_s
            later(self.duration_s, lambda: self.time_is_up() if self.began_s == began else None)

    def time_is_up(self) -> None:
        """Called by a timer thread when the requested duration is over."""
        self.end(settled=False)

    def begin_warm(self, why: str) -> None:
        """Start the profiler after the warm-up, with a note on why now."""
        if self.state != "waiting":
            return
        self.begin(settled=True)
        if self.state == "recording":
            self.notes = [note for note in self.notes if not note.startswith("recording began")]
            self.notes.append(f"{why}; --from-start records everything")
            self.write_message()

    def end(self, note: str = "", settled: bool = True) -> None:
        """Stop the profiler, once; with ``settled``, first wait for the devices, so that all launched work is in the profile.

        When a time limit ends the profile there is no wait, because the program continues.
        """
        if os.getpid() != self.process:  # in a forked child
            return
        with self.lock:
            if self.state == "waiting" and self.recover():
                self.notes = self.notes_aside
                self.finish("done", note)
            if self.state == "waiting":
                self.write_message()
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
                self.finish("done", note or self.final_note())

    def restart(self, even_if_done: bool = False) -> bool:
        """Discard the recording and wait again. Returns whether that was possible."""
        with self.lock:
            if not (self.state == "recording" or (even_if_done and self.state == "done")) or self.restarts >= RESTARTS:
                return False
            self.restarts += 1
            try:
                self.discard()
            except Exception as error:
                self.finish("failed", f"the profiler did not stop: {error}")
                return False
            self.state, self.notes, self.notes_aside = "waiting", [], self.notes
            self.write_message()
            return True

    def _is_main_framework(self) -> bool:
        """Whether no other armed recorder is more certain that its framework is the one in use."""
        others = [one for one in _ARMED if one is not self and one.process == self.process and one.state in ("recording", "done")]
        if any(one.certainty() >= self.certainty() for one in others):
            return False
        for one in others:
            one.restart(even_if_done=True)
        return True

    def finish(self, state: str, note: str) -> None:
        """Report the result of the recording; nothing more is recorded."""
        self.state = state
        if note:
            self.notes.append(note)
        self.write_message()

    def message(self) -> "dict[str, Any]":
        """The message for the parent process."""
        return {
            "framework": self.framework,
            "state": self.state,
            "ran": self.ran,
            "steps": self.seen,
            "recorded": self.recorded,
            "unprofiled_s": self.unprofiled_s,
            "own_profiles": self.own_profiles,
            "notes": self.notes,
        }

    def write_message(self) -> None:
        """Write a message for the parent process, atomically."""
        os.makedirs(self.folder, exist_ok=True)
        draft = os.path.join(self.folder, "draft")
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(self.message(), file)
        os.replace(draft, os.path.join(self.folder, "status.json"))


def later(seconds: float, act: Any) -> None:
    timer = threading.Timer(seconds, act)
    timer.daemon = True  # so that the program can exit
    timer.start()


def _watch_exits(recorder: Recorder) -> None:
    """Call the recorder when the process ends: normally, without exit handlers (os._exit), or by a signal."""
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
