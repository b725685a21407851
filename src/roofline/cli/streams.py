"""Standard output and error, which a process may be started without, and their width."""

import os
import sys
from typing import TextIO


def is_closed(stream: TextIO) -> bool:
    """Whether the process was started without this stream, so that `opened_streams` replaced it."""
    return getattr(stream, "name", "") == os.devnull


def opened_streams() -> None:
    """Replace missing standard output and error by streams that can be written to."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  for as long as the process lives
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def discard_output() -> None:
    """Discard the rest of standard output after its reader has closed the pipe, as `head` does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def width_of(stream: TextIO) -> int:
    """The columns of a terminal, 80 if unknown."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def text_width() -> int:
    """The columns of text on standard output: ``$COLUMNS``, else those of the terminal."""
    given = os.environ.get("COLUMNS", "")
    return (int(given) if given.isdecimal() else 0) or width_of(sys.stdout)
