"""Captures: a JAX program under JAX's own profiler, and the report on what it recorded.

    with roofline.capture("run") as captured:
        train()
    captured.report

`roofline capture` does the same to a program as it is (`profile`). Either way the profile lands where TensorBoard looks for it,
``run/plugins/profile/<name>/<host>.xplane.pb``, one file a process, and annotations of steps (`jax.profiler.StepTraceAnnotation`) are kept.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from msgspec import Struct

from ..analysis import analyze
from ..errors import RooflineError, UsageError
from ..machine import Machine
from ..report import Report
from ..sources import read
from .hook import roofline_hook as hook

HOOK = Path(hook.__file__).parent
PROFILES = Path("plugins") / "profile"  # where TensorBoard looks for runs
_FORWARDED = ("SIGTERM", "SIGHUP")


class Window(Struct, frozen=True, kw_only=True):
    """The part of a program to record: from the first step after one that ran without compiling, or ``from_start`` from the first program,
    or from ``delay_s`` after its first compilation, or after ``skip`` annotated steps; for ``duration_s``, or ``steps`` annotated steps,
    or to the end. With ``python`` calls of Python functions are recorded too."""

    delay_s: float = 0.0
    duration_s: float | None = None
    skip: int = 0
    steps: int | None = None
    from_start: bool = False
    python: bool = False

    def __post_init__(self) -> None:
        if self.delay_s and (self.skip or self.steps):
            raise UsageError("--delay and --skip exclude each other; leave one out")
        if self.from_start and (self.delay_s or self.skip):
            raise UsageError("--from-start excludes --delay and --skip; leave one out")
        if self.skip < 0 or (self.steps is not None and self.steps < 1):
            raise UsageError("steps to skip must be 0 or more, steps to record 1 or more")


class Profiled(Struct, frozen=True, kw_only=True):
    """What running a program gave: its exit status, the folder with its profiles, and what there is to tell."""

    status: int
    folder: Path
    files: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    missing: str = ""


class Capture:
    """A profile of what runs inside a ``with``; afterwards its ``report``.

    Entering and leaving wait for the devices, so that the profile holds what the block asked for and nothing else. An error in the
    block passes through, and what was recorded until then is kept.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, chip: str | Machine | None = None, name: str | None = None) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="roofline-") if folder is None else folder)
        if folder is None:
            weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
        self._chip, self._name = chip, name
        self._jax: Any = None
        self._staging: Path | None = None
        self._report: Report | None = None
        self.folder: Path | None = None
        self.files: tuple[Path, ...] = ()

    def __enter__(self) -> "Capture":
        if self._jax is not None:
            raise UsageError("a capture can be used once; create another: roofline.capture(folder)")
        from ..jax import require_jax

        jax = require_jax()
        staging = _staging(self._root)
        hook.settle(jax)
        try:
            hook.start(jax, str(staging))
        except RuntimeError as error:
            shutil.rmtree(staging, ignore_errors=True)
            raise UsageError(f"cannot start JAX's profiler (it records one profile at a time): {error}") from None
        self._jax, self._staging = jax, staging
        return self

    def __exit__(self, *error: object) -> None:
        assert self._staging is not None
        try:
            hook.settle(self._jax)
            self._jax.profiler.stop_trace()
            self.folder, self.files = collect(self._staging, self._root, self._name)
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)

    @property
    def report(self) -> Report:
        """The report on the profile, made when first asked for."""
        if self.folder is None:
            raise UsageError("no profile yet; the report is available after the with block")
        if self._report is None:
            self._report = held(self.folder, self._chip)
        return self._report


def held(folder: Path, chip: str | Machine | None = None) -> Report:
    """The report on the profiles in a run folder, against a chip or the device that they are of."""
    recording = read(folder)
    if chip is None and not recording.devices:
        raise RooflineError(f"{folder}: no device activity was recorded; record longer, or start later")
    return analyze(recording, chip)


def profile(
    command: Sequence[str], folder: Path, *, window: Window | None = None, name: str | None = None, stdout: IO[Any] | int | None = None
) -> Profiled:
    """Run a program, unchanged, with the profiler of its JAX on, and wait for its end.

    Every Python that the command starts finds a hook on its path (`hook`), so processes of a process are recorded too. Standard
    streams, exit status and signals are the program's own.
    """
    staging = _staging(folder)
    asked = window or Window()
    settings = {
        "folder": str(staging.resolve()),
        "delay_s": asked.delay_s,
        "duration_s": asked.duration_s,
        "skip": asked.skip,
        "steps": asked.steps,
        "from_start": asked.from_start,
        "python": asked.python,
    }
    try:
        status = _run(runnable(command), environment(os.environ, settings), stdout)
        said = [json.loads(file.read_text("utf-8")) for file in sorted(staging.glob("*/status.json"))]
        run, files = collect(staging, folder, name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    notes = tuple(dict.fromkeys(note for one in said for note in one["notes"]))
    return Profiled(
        status=status, folder=run, files=files, notes=notes, missing="" if files else _why_nothing(command, status, said, asked)
    )


def runnable(command: Sequence[str]) -> list[str]:
    """The command as the system runs it: a Python file that is not a program itself is run by this Python."""
    if not command:
        raise UsageError("no program given; example: roofline capture -o run -- python train.py")
    first = command[0]
    if first.endswith(".py") and Path(first).is_file() and not os.access(first, os.X_OK):
        return [sys.executable, *command]
    if shutil.which(first) is None:
        raise UsageError(f"{first!r} not found; give the command as you would run it: roofline capture -o run -- python train.py")
    return list(command)


def environment(outer: Mapping[str, str], settings: Mapping[str, object]) -> dict[str, str]:
    """The program's environment: the outer one, the hook first on Python's path, and what the hook shall do."""
    path = os.pathsep.join(filter(None, (str(HOOK), outer.get("PYTHONPATH"))))
    return {**outer, "PYTHONPATH": path, hook.SETTINGS: json.dumps(settings)}


def collect(staging: Path, folder: Path, name: str | None = None) -> tuple[Path, tuple[Path, ...]]:
    """Move the profiles of all processes into one run folder, none over another; the folder and its new files."""
    run = folder / PROFILES / (name or _unused_time(folder / PROFILES))
    files = []
    for file in sorted(staging.rglob("*.xplane.pb")):
        run.mkdir(parents=True, exist_ok=True)
        files.append(_moved(file, run))
    return run, tuple(files)


def _moved(file: Path, run: Path) -> Path:
    """The file in its run folder; processes of one host are numbered, also when several captures share the folder."""
    host = file.name.removesuffix(".xplane.pb")
    number = 1
    while True:
        target = run / (f"{host}.xplane.pb" if number == 1 else f"{host}.{number}.xplane.pb")
        try:
            target.touch(exist_ok=False)  # the name is taken from here on
        except FileExistsError:
            number += 1
            continue
        return file.replace(target)


def _unused_time(runs: Path) -> str:
    """The time as JAX names runs after it, with a number behind it when that name is taken."""
    now = datetime.now().strftime("%Y_%m_%d_%H_%M_%S")
    number, name = 1, now
    while (runs / name).exists():
        number += 1
        name = f"{now}_{number}"
    return name


def _staging(folder: Path) -> Path:
    """A folder for profiles that are not complete, on the file system that they will stay on."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=".capture-", dir=folder))
    except OSError as error:
        raise UsageError(f"{folder}: cannot write the profile: {error.strerror}") from None


def _run(command: Sequence[str], variables: Mapping[str, str], stdout: IO[Any] | int | None) -> int:
    with _passed_on() as started:
        try:
            process = subprocess.Popen(command, env=dict(variables), stdout=stdout)
        except OSError as error:
            raise UsageError(f"{command[0]}: cannot run: {error.strerror}") from None
        started(process)
        status = process.wait()
    return status if status >= 0 else 128 - status  # as shells say "killed by signal n"


@contextmanager
def _passed_on() -> Iterator[Callable[["subprocess.Popen[bytes]"], None]]:
    """While the program runs: an interrupt from the keyboard is for it alone (it has it too), and orders to stop are passed on to it.

    Call what this yields with the program once it runs: what came before that is passed on then.
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
    except ValueError:  # not in the main thread, which alone has signals
        before = {}
    try:
        yield started
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _why_nothing(command: Sequence[str], status: int, said: Sequence[Mapping[str, Any]], asked: Window) -> str:
    """Why a program left no profile, and what to do about it."""
    program = " ".join(command)
    ended = f"was killed by signal {status - 128}" if status > 128 else f"ended with exit status {status}" if status else "ended"
    if not said:
        blind = " (Python's options -I, -E and -S disable the profiler hook)" if {"-I", "-E", "-S"} & set(command) else ""
        return f"{program}: {ended} without importing JAX, so nothing was recorded{blind}"
    if any(one["state"] == "recording" for one in said):
        return f"{program}: {ended} before its profile was written; use --duration to write it while the program runs"
    if failures := [note for one in said if one["state"] == "failed" for note in one["notes"]]:
        return f"{program}: {failures[0]}"
    if not any(one["compiled"] for one in said):
        return f"{program}: {ended} without running anything on a device with JAX"
    if asked.delay_s:
        return f"{program}: {ended} before the delay was over; use a shorter --delay"
    seen = max(one["steps"] for one in said)
    if not asked.skip:
        return f"{program}: {ended} before a step ran without compiling; use --from-start to record everything"
    return f"{program}: {ended} after {seen} annotated steps; use a smaller --skip, or mark steps with jax.profiler.StepTraceAnnotation"


def checked(profiled: Profiled) -> Profiled:
    """The same, or an error that says why there is no profile."""
    if profiled.missing:
        raise RooflineError(profiled.missing)
    return profiled
