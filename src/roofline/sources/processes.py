"""The files of a run read by several processes of this machine.

The process that asks reads files itself. Helpers are other interpreters that it starts when the work has lasted a while (starting one
costs as much as reading a small profile) and talks to over pipes: a task is a file and how to read it, an answer is progress, a part, or
what went wrong. They import this package and nothing of the program that uses it, so a script needs no ``if __name__ == "__main__"``.
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

PATIENCE_S = 1.0  # of work before helpers are called: starting one takes a quarter of that, and a program is priced again in each
PROGRESS_S = 0.1  # between two progress messages of a helper
_PROGRAM = (
    "import pickle, sys; tasks = sys.stdin.buffer; sys.path[:] = pickle.load(tasks); "
    "from roofline.sources.processes import serve; serve(tasks)"
)
Answer = tuple[str, Any]


def read_in_processes(files: Sequence[str], how: Reading, progress: Progress | None = None, *, jobs: int | None = None) -> list[Part]:
    """What each file says, in their order. Of several that cannot be read, the first is the one that is raised.

    ``jobs`` processes read from the start; by default one, and one per CPU when it takes longer than a moment.
    """
    helpers = min(cores() if jobs is None else jobs, len(files)) - 1
    return _Run(files, how, progress).read(helpers, PATIENCE_S if jobs is None else 0)


class _Run:
    """Files being read: which is next, what came of the others, and how far all of it is."""

    def __init__(self, files: Sequence[str], how: Reading, progress: Progress | None) -> None:
        self._files, self._how, self._progress = files, how, OverallProgress(files, progress)
        self._lock, self._handed_out = Lock(), Event()
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
            self._work(lambda file, tell: read_file(file, self._how, known=known, progress=tell))
            for thread in threads:
                thread.join()
        finally:
            self._handed_out.set()
            for helper in self._helpers:
                helper.kill()
        if self._failures:
            raise self._failures[min(self._failures)]
        return [self._parts[number] for number in range(len(self._files))]

    def _help(self, patience_s: float, place: int) -> None:
        """Another process takes part, unless the work is handed out before it would begin, or will be to the helpers before it."""
        if self._handed_out.wait(patience_s) or len(self._files) - self._next < place:
            return
        try:
            helper = _Helper()
        except OSError:  # the system has no room for another process; the others do its work
            return
        with helper:
            self._helpers.append(helper)
            self._work(lambda file, tell: helper.read(file, self._how, tell))

    def _work(self, read: Callable[[str, Progress | None], Part]) -> None:
        while (number := self._take()) is not None:
            try:
                part = read(self._files[number], self._progress.of(number))
            except Exception as error:
                with self._lock:
                    self._failures[number] = error
                self._handed_out.set()  # those before it are being read already, and none after it matters
            else:
                with self._lock:
                    self._parts[number] = part

    def _take(self) -> int | None:
        with self._lock:
            if self._handed_out.is_set():
                return None
            number, self._next = self._next, self._next + 1
            if self._next >= len(self._files):
                self._handed_out.set()
            return number if number < len(self._files) else None


class _Helper:
    """Another process, seen from the one that asks."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._greeted = False

    def read(self, file: str, how: Reading, progress: Progress | None) -> Part:
        """What a file says, read over there."""
        tasks, answers = self._process.stdin, self._process.stdout
        assert tasks is not None
        assert answers is not None
        try:
            for message in [(file, how)] if self._greeted else [sys.path, (file, how)]:
                pickle.dump(message, tasks)
            self._greeted = True
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
        """End it, whatever it is doing."""
        if self._process.poll() is None:
            self._process.kill()

    def __enter__(self) -> "_Helper":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()  # the end of the tasks, after which it ends by itself
                except BrokenPipeError:
                    continue
        self._process.wait()


def serve(tasks: IO[bytes]) -> None:
    """What a helper does: read the files it is sent, until there are no more. Nothing else may write where it answers."""
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

    def tell(done: int, total: int) -> None:
        nonlocal last
        with lock:  # the scanner tells from several threads
            if time.monotonic() - last > PROGRESS_S:
                last = time.monotonic()
                _send(answers, ("progress", (done, total)))

    return tell


def answer_of(
    file: str, how: Reading, *, data: bytes | None = None, known: Known | None = None, progress: Progress | None = None
) -> Answer:
    """A part, or what went wrong, in a form that travels: exceptions whose arguments are not their message do not."""
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
    """The part in an answer; what went wrong is raised here."""
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
