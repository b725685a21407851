"""Run an unmodified program under the profiler of its framework: `roofline capture`.

Every Python process that the command starts has a hook on its path (`hook`), which records after the warm-up.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from msgspec import Struct
from msgspec.structs import asdict

from ..errors import RooflineError, UsageError
from .hook import roofline_hook as hook
from .missing_profile import why_no_profile
from .run_folder import collect, staging_in

HOOK = Path(hook.__file__).parent
_FORWARDED = ("SIGTERM", "SIGHUP")


class Window(Struct, frozen=True, kw_only=True):
    """The part of a program to record.

    It begins after the first step that ran without compiling, or with ``from_start`` at the first program, or ``delay_s`` after it, or
    after ``skip`` steps. It lasts ``duration_s``, or ``steps`` steps, or by default to the end (JAX) or ten steps (PyTorch). ``python``
    is whether Python calls are recorded too: by default for PyTorch, where they identify modules.
    """

    delay_s: float = 0.0
    duration_s: float | None = None
    skip: int = 0
    steps: int | None = None
    from_start: bool = False
    python: bool | None = None

    def __post_init__(self) -> None:
        if self.delay_s and (self.skip or self.steps):
            raise UsageError("--delay and --skip cannot be combined; leave one out")
        if self.from_start and (self.delay_s or self.skip):
            raise UsageError("--from-start cannot be combined with --delay or --skip; leave one out")
        if self.skip < 0 or (self.steps is not None and self.steps < 1):
            raise UsageError("steps to skip must be 0 or more, steps to record 1 or more")


class Profiled(Struct, frozen=True, kw_only=True):
    """The result of a profiled program: its exit status, the folder with its profiles, and notes.

    ``unprofiled_s`` is what one of its steps took without the profiler, of several processes the slowest; 0 if not known.
    """

    status: int
    folder: Path
    files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    missing: str = ""
    unprofiled_s: float = 0.0


def run_program(command: Sequence[str], variables: Mapping[str, str], stdout: IO[Any] | int | None) -> int:
    """Run a program to its end, and forward signals to it. Returns its exit status."""
    with _forwarded_signals() as started:
        try:
            process = subprocess.Popen(command, env=dict(variables), stdout=stdout)
        except OSError as error:
            raise UsageError(f"{command[0]}: cannot run: {error.strerror}") from None
        started(process)
        status = process.wait()
    return status if status >= 0 else 128 - status  # the convention of shells for "killed by signal n"


def profile(
    command: Sequence[str], folder: Path, *, window: Window | None = None, name: str | None = None, stdout: IO[Any] | int | None = None
) -> Profiled:
    """Run an unmodified program with the profiler of its framework, and wait for its end.

    Child processes are recorded too. Standard streams, exit status and signals are the program's own.
    """
    asked = window or Window()
    with staging_in(folder) as staging:
        status = run_program(runnable(command), environment(os.environ, {"folder": str(staging.resolve()), **asdict(asked)}), stdout)
        messages = [json.loads(file.read_text("utf-8")) for file in sorted(staging.glob("*/status.json"))]
        run, files = collect(staging, folder, name)
    notes = tuple(dict.fromkeys(note for one in messages for note in one["notes"]))
    missing = "" if files else why_no_profile(command, status, messages, delayed=bool(asked.delay_s), skipping=bool(asked.skip))
    done = [one for one in messages if one["state"] == "done"]
    unprofiled_s = max((one.get("unprofiled_s") or one.get("before_s", 0.0) for one in done), default=0.0)
    return Profiled(status=status, folder=run, files=files, notes=notes, missing=missing, unprofiled_s=unprofiled_s)


def runnable(command: Sequence[str]) -> list[str]:
    """The command to execute: a Python file that is not executable is run by this Python."""
    if not command:
        raise UsageError("no program given; example: roofline capture -o run -- python train.py")
    first = command[0]
    if first.endswith(".py") and Path(first).is_file() and not os.access(first, os.X_OK):
        return [sys.executable, *command]
    if shutil.which(first) is None:
        raise UsageError(f"{first!r} not found; give the command as you would run it: roofline capture -o run -- python train.py")
    return list(command)


def environment(outer: Mapping[str, str], settings: Mapping[str, object]) -> dict[str, str]:
    """The program's environment: the current one, with the hook first on Python's path, and the hook's settings."""
    path = os.pathsep.join(filter(None, (str(HOOK), outer.get("PYTHONPATH"))))
    return {**outer, "PYTHONPATH": path, hook.SETTINGS: json.dumps(settings)}


@contextmanager
def _forwarded_signals() -> Iterator[Callable[["subprocess.Popen[bytes]"], None]]:
    """While the program runs, ignore keyboard interrupts, which the program receives itself, and forward termination signals to it.

    Call the yielded function with the process once it runs: signals that came before are forwarded then.
    """
    running: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def forward(number: int, frame: object) -> None:
        if not running:
            early.append(number)
        elif number != signal.SIGINT:
            running[0].send_signal(number)

    def started(process: "subprocess.Popen[bytes]") -> None:
        running.append(process)
        for number in early:
            process.send_signal(number)

    numbers = [getattr(signal, name) for name in ("SIGINT", *_FORWARDED) if hasattr(signal, name)]
    try:
        before = {number: signal.signal(number, forward) for number in numbers}
    except ValueError:  # signals can be handled in the main thread only
        before = {}
    try:
        yield started
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def checked(profiled: Profiled) -> Profiled:
    """The argument unchanged; an error with the reason if there is no profile."""
    if profiled.missing:
        raise RooflineError(profiled.missing)
    return profiled
