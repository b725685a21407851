"""Workers: other Python processes that call functions of this package, to use more cores, or because these may crash or fill the memory.

A call is a function and its arguments; the answer is its progress, then its result or its error. Both are pickled and go through pipes. A
worker imports this package and nothing of the program that uses it, so a script needs no ``if __name__ == "__main__"``.
"""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from threading import Lock, Thread
from traceback import format_exc
from types import TracebackType
from typing import IO, Any

from .errors import RooflineError

PROGRESS_S = 0.1  # between two messages about progress
_PROGRAM = "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); from roofline.workers import serve; serve()"
_WAITING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGALRM") if hasattr(signal, name))  # while a process starts
Answer = tuple[str, Any]


class WorkerDied(RooflineError):
    """A worker ended without an answer."""


class Worker:
    """A worker as its caller sees it; ``environment`` is added to that of this process."""

    def __init__(self, **environment: str) -> None:
        process = None
        try:
            _keep_waiting(True)  # an interrupt would lose a process that was just started
            process = self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **environment},
            )
            _keep_waiting(False)
            assert process.stdin is not None
            assert process.stdout is not None
            self._calls, self._answers = process.stdin, process.stdout
            pickle.dump(sys.path, self._calls)
        except BaseException:
            _keep_waiting(False)
            if process is not None:
                _ended(process)
            raise

    def call(self, function: Callable[..., Any], *arguments: Any, progress: Callable[..., None] | None = None) -> Any:
        """What the function returns there; its errors are raised here. With ``progress``, the function gets a callback of that name."""
        try:
            pickle.dump((function, arguments, progress is not None), self._calls)
            self._calls.flush()
            while True:
                answer = pickle.load(self._answers)
                if answer[0] != "progress":
                    return result_of(answer)
                if progress:
                    progress(*answer[1])
        except (EOFError, OSError, pickle.UnpicklingError):
            raise WorkerDied(f"the process {_end(self._process.wait())}") from None

    def kill(self) -> None:
        """Ends the process, whatever it is doing."""
        self._process.kill()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _ended(self._process)


def _keep_waiting(wanted: bool) -> None:
    """Whether signals wait that would interrupt this thread."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK if wanted else signal.SIG_UNBLOCK, _WAITING)


def _ended(process: "subprocess.Popen[bytes]") -> None:
    """Ends a process, whatever it is doing, and closes its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        try:
            if pipe is not None:
                pipe.close()
        except OSError:  # what was not yet sent
            continue


def serve() -> None:
    """The main loop of a worker, until there are no more calls. What else is printed stays out of the pipe."""
    _keep_waiting(False)  # a process begins with what waits where it was started
    calls, answers = sys.stdin.buffer, open(os.dup(1), "wb")  # noqa: SIM115  for as long as the process lives
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        while True:
            function, arguments, wants_progress = pickle.load(calls)
            more = {"progress": _Messages(answers)} if wants_progress else {}
            _send(answers, answer_of(function, *arguments, **more))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


def end_with_caller() -> None:
    """Ends this worker, during its last call, as soon as its caller has ended."""

    def wait() -> None:
        sys.stdin.buffer.read(1)
        os._exit(1)

    Thread(target=wait, daemon=True).start()


def limit(memory: int | None, cpu_s: int | None = None) -> None:
    """Limits the bytes of memory and the CPU time of this worker; lower limits stay."""
    if sys.platform == "linux":  # macOS accepts a limit of memory but ignores it
        import resource

        for kind, most in ((resource.RLIMIT_DATA, memory), (resource.RLIMIT_CPU, cpu_s)):
            if most is not None:
                hard = resource.getrlimit(kind)[1]
                resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def answer_of(function: Callable[..., Any], *arguments: Any, **more: Any) -> Answer:
    """What a function returns or raises, in a form that can be pickled, which not every exception can."""
    try:
        return "result", function(*arguments, **more)
    except RooflineError as error:
        return "refused", (type(error), str(error))
    except MemoryError:
        return "memory", None
    except Exception:
        return "broken", format_exc()


def result_of(answer: Answer) -> Any:
    """The result in an answer; raises the error if it has one."""
    kind, content = answer
    if kind == "result":
        return content
    if kind == "memory":
        raise MemoryError
    if kind == "broken":
        raise RuntimeError(content)
    type, message = content
    error: RooflineError = type.__new__(type)
    Exception.__init__(error, message)
    raise error


class _Messages:
    """The callback that sends progress to the caller, not more often than `PROGRESS_S`. Several threads may call it."""

    def __init__(self, answers: IO[bytes]) -> None:
        self._answers, self._lock, self._last = answers, Lock(), 0.0

    def __call__(self, *progress: Any) -> None:
        with self._lock:
            if time.monotonic() - self._last > PROGRESS_S:
                self._last = time.monotonic()
                _send(self._answers, ("progress", progress))


def _send(answers: IO[bytes], answer: Answer) -> None:
    pickle.dump(answer, answers)
    answers.flush()


def _end(status: int) -> str:
    """How a process ended, in words."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:  # real-time signals have no name
        name = f"signal {-status}"
    return f"was killed by {name}" + (", probably out of memory" if name == "SIGKILL" else "")
