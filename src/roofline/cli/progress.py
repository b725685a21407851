"""A progress line in the terminal for long work.

    with progress("reading host.xplane.pb") as tell:
        read(path, progress=tell)  # tell(done, total), at any rate and from any thread

Nothing is shown in the first two seconds, on a pipe, or on a terminal that cannot redraw a line; the line is erased when the work is done.
Without calls of ``tell`` only the elapsed time is shown.
"""

import os
import sys
import time
from collections.abc import Callable
from threading import Event, Thread
from typing import TextIO

from .streams import width_of

QUIET_S = 2.0
REDRAW_S = 0.2
BAR_WIDTH = 24
NARROWEST = 20  # columns: on a narrower terminal the line would wrap
Tell = Callable[[int, int], None]


def progress(what: str, stream: TextIO | None = None, quiet_s: float = QUIET_S) -> "_Line | _Nothing":
    """A context manager that shows the progress of its block on standard error."""
    where = sys.stderr if stream is None else stream
    return _Line("".join(character for character in what if character.isprintable()), where, quiet_s) if _can_redraw(where) else _Nothing()


def bar(what: str, done: int, total: int, elapsed_s: float, width: int) -> str:
    """One line of at most ``width`` columns: what, the amount done, the elapsed time, and the estimated remaining time.

    >>> bar("reading host.pb", 25, 100, 3.0, 80)
    'reading host.pb  [######------------------]  25%  3 s, 9 s left'
    >>> bar("reading host.pb", 0, 0, 3.0, 80)
    'reading host.pb  3 s'
    """
    if total <= 0:
        return _fitted(what, f"  {_time(elapsed_s)}", width)
    share = min(1.0, max(0.0, done / total))
    full = int(share * BAR_WIDTH)
    left = f", {_time(elapsed_s / share - elapsed_s)} left" if share else ""
    return _fitted(what, f"  [{'#' * full}{'-' * (BAR_WIDTH - full)}] {share:4.0%}  {_time(elapsed_s)}{left}", width)


def _fitted(what: str, rest: str, width: int) -> str:
    """The line, with ``what`` shortened in the middle if it is too long."""
    room = max(0, width - len(rest))
    if len(what) > room:
        half = max(0, room - 1) // 2
        what = what[:half] + "…" * (room > 0) + what[len(what) - half :] if half else ""
    return (what + rest)[:width]


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class _Nothing:
    """A progress line that shows nothing."""

    def __enter__(self) -> Tell:
        return lambda done, total: None

    def __exit__(self, *_: object) -> None:
        pass


class _Line:
    """A line that is redrawn by its own thread, so that reporting is cheap and work without reports is shown too."""

    def __init__(self, what: str, stream: TextIO, quiet_s: float) -> None:
        self._what, self._stream, self._quiet_s = what, stream, quiet_s
        self._began, self._told, self._shown = time.monotonic(), (0, 0), 0
        self._over = Event()
        self._thread = Thread(target=self._draw, daemon=True)

    def __enter__(self) -> Tell:
        self._thread.start()
        return self._tell

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._shown:
            self._write(f"\r{' ' * self._shown}\r")

    def _tell(self, done: int, total: int) -> None:
        self._told = (done, total)

    def _draw(self) -> None:
        pause = self._quiet_s
        while not self._over.wait(pause):
            text = bar(self._what, *self._told, time.monotonic() - self._began, width_of(self._stream) - 1)
            self._write("\r" + text.ljust(self._shown))
            self._shown = max(self._shown, len(text))
            pause = REDRAW_S

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the terminal is closed
            self._over.set()


def _can_redraw(stream: TextIO) -> bool:
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb" and width_of(stream) >= NARROWEST
    except ValueError:  # closed
        return False
