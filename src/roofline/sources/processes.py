"""Reads the files of a run in several processes on this machine.

The calling process reads files itself. If that lasts long, it starts helpers (starting one costs as much as reading a small profile):
other Python interpreters, connected by pipes. A task is a file and how to read it; an answer is progress, a part, or an error. Helpers
import this package and nothing of the program that uses it, so a script needs no ``if __name__ == "__main__"``.
"""

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from threading import Event, Lock, Thread
from traceback import format_exc
from types import TracebackType
from typing import IO, Any

from ..errors import RooflineError, SourceError
from ..files.input_limits import set_limits
from .cores import cores
from .parts import Part
from .reading import Known, OverallProgress, Reading, read_file
from .remote import Progress

PATIENCE_S = 1.0  # of reading before helpers are started: starting one takes a quarter of that, and each prices the programs again
PROGRESS_S = 0.1  # between two progress messages of a helper
_PROGRAM = (
    "import pickle, sys; tasks = sys.stdin.buffer; sys.path[:] = pickle.load(tasks); "
    "from roofline.sources.processes import serve; serve(tasks)"
)
Answer = tuple[str, Any]


def read_in_processes(files: Sequence[str], how: Reading, progress: Progress | None = None, *, jobs: int | None = None) -> list[Part]:
    """Reads each file into a part, in the order of the files. If several cannot be read, the error of the first is raised.

    ``jobs`` processes read from the start; by default one process, and one per CPU after `PATIENCE_S`.
    """
    helpers = min(cores() if jobs is None else jobs, len(files)) - 1
    return _Run(files, how, progress).read(helpers, PATIENCE_S if jobs is None else 0)


class _Run:
    """The files of one call: the next to read, the parts and errors so far, and the overall progress."""

    def __init__(self, files: Sequence[str], how: Reading, progress: Progress | None) -> None:
        self._files, self._how, self._progress = files, how, OverallProgress(files, progress)
        self._lock, self._all_taken = Lock(), Event()
        self._next = 0
        self._parts: dict[int, Part] = {}
        self._failures: dict[int, Exception] = {}
        self._helpers: list[_Helper] = []

    def read(self, helpers: int, patience_s: float) -> list[Part]:
        threads = [Thread(target=self._help, args=(patience_s, place), daemon=True) for place in range(1, helpers + 1)]
        for thread in threads:
            thread.start()
        try:
            known: Known = {}
            self._work(lambda file, progress: read_file(file, self._how, known=known, progress=progress))
            for thread in threads:
                thread.join()
        finally:
            self._all_taken.set()
            for helper in self._helpers:
                helper.kill()
        if self._failures:
            raise self._failures[min(self._failures)]
        return [self._parts[number] for number in range(len(self._files))]

    def _help(self, patience_s: float, place: int) -> None:
        """Runs a helper, unless by then all files are taken, or the helpers before it will take the rest."""
        if self._all_taken.wait(patience_s) or len(self._files) - self._next < place:
            return
        try:
            helper = _Helper()
        except OSError:  # the system cannot start another process: read with fewer
            return
        with helper:
            self._helpers.append(helper)
            self._work(lambda file, progress: helper.read(file, self._how, progress))

    def _work(self, read: Callable[[str, Progress | None], Part]) -> None:
        while (number := self._take()) is not None:
            try:
                part = read(self._files[number], self._progress.of(number))
            except Exception as error:
                with self._lock:
                    self._failures[number] = error
                self._all_taken.set()  # earlier files are being read already, and later ones no longer matter
            else:
                with self._lock:
                    self._parts[number] = part

    def _take(self) -> int | None:
        with self._lock:
            if self._all_taken.is_set():
                return None
            number, self._next = self._next, self._next + 1
            if self._next >= len(self._files):
                self._all_taken.set()
            return number if number < len(self._files) else None


class _Helper:
    """A helper process, as seen by the calling process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._started = False

    def read(self, file: str, how: Reading, progress: Progress | None) -> Part:
        """Has the helper read a file."""
        tasks, answers = self._process.stdin, self._process.stdout
        assert tasks is not None
        assert answers is not None
        try:
            for message in [(file, how)] if self._started else [sys.path, (file, how)]:
                pickle.dump(message, tasks)
            self._started = True
            tasks.flush()
            while True:
                answer = pickle.load(answers)
                if answer[0] != "progress":
                    return part_of(answer)
                if progress:
                    progress(*answer[1])
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            raise SourceError(f"{file}: {self._exit_reason()}") from None

    def _exit_reason(self) -> str:
        status = self._process.wait()
        if status == -9:
            return "the process reading it was killed, probably out of memory; try --jobs 1 or a computer with more memory"
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        return f"the process reading it ended {how}; try --jobs 1"

    def kill(self) -> None:
        """Ends the process, whatever it is doing."""
        if self._process.poll() is None:
            self._process.kill()

    def __enter__(self) -> "_Helper":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()  # at the end of its input the helper exits by itself
                except BrokenPipeError:
                    continue
        self._process.wait()


def serve(tasks: IO[bytes]) -> None:
    """The main loop of a helper: reads the files it is sent until there are no more. Other output is kept out of the pipe of answers."""
    answers = open(os.dup(1), "wb")  # noqa: SIM115  for as long as the process lives
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    known: Known = {}
    try:
        while True:
            file, how = pickle.load(tasks)
            _send(answers, answer_of(file, how, known=known, progress=_throttled(answers)))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


def _send(answers: IO[bytes], answer: Answer) -> None:
    pickle.dump(answer, answers)
    answers.flush()


def _throttled(answers: IO[bytes]) -> Progress:
    lock, last = Lock(), time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last
        with lock:  # the scanner calls this from several threads
            if time.monotonic() - last > PROGRESS_S:
                last = time.monotonic()
                _send(answers, ("progress", (done, total)))

    return report


def answer_of(
    file: str, how: Reading, *, data: bytes | None = None, known: Known | None = None, progress: Progress | None = None
) -> Answer:
    """Reads a file; the answer is a part or an error, in a form that can be pickled, which not every exception can."""
    set_limits(how.limits)
    try:
        return "part", read_file(file, how, data=data, known=known, progress=progress)
    except RooflineError as error:
        return "refused", (type(error), str(error))
    except MemoryError:
        return "refused", (SourceError, f"{file}: out of memory while reading it; try --jobs 1 or a computer with more memory")
    except Exception:
        return "broken", f"{file}: {format_exc()}"


def part_of(answer: Answer) -> Part:
    """The part in an answer; raises the error if it has one."""
    kind, content = answer
    if kind == "part":
        part: Part = content
        return part
    if kind == "broken":
        raise RuntimeError(content)
    made, message = content
    error: RooflineError = made.__new__(made)
    Exception.__init__(error, message)
    raise error
