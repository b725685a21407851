"""Inputs that can be read only once: standard input and pipes. They are copied to a temporary file, which is then read like any other."""

import os
import stat
import sys
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ..errors import SourceError
from ..files.input_limits import limits, too_much
from ..units import parse

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

STANDARD_INPUT = "-"
SPOOLED_BYTES = int(parse("8 GiB", "B"))  # the largest copy of a pipe, unless --read max-size is larger
_PIECE = int(parse("1 MiB", "B"))


def is_pipe(path: Path | str) -> bool:
    """Whether a path can be read only once."""
    if str(path) == STANDARD_INPUT:
        return True
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def opened_path(path: Path | str) -> Path:
    """A path that can be opened any number of times: a copy of a pipe, else the path itself."""
    return _copy(str(path)) if is_pipe(path) else Path(path)


@cache
def _folder() -> "TemporaryDirectory[str]":
    """The folder for this process's copies, which is removed when the process ends."""
    from tempfile import TemporaryDirectory  # here because it takes 5 ms and few inputs need it

    return TemporaryDirectory(prefix="roofline-")


@cache
def _copy(name: str) -> Path:
    """A copy of all data of a pipe, made once."""
    from tempfile import mkstemp

    number, place = mkstemp(dir=_folder().name)
    with open(number, "wb") as copy:
        if name == STANDARD_INPUT:
            if sys.stdin is None:
                raise SourceError("standard input is closed")
            _spool(sys.stdin.buffer, copy, "standard input")
        else:
            with open(name, "rb") as pipe:
                _spool(pipe, copy, name)
    return Path(place)


def _spool(pipe: IO[bytes], copy: IO[bytes], name: str) -> None:
    mode = os.fstat(pipe.fileno()).st_mode
    if stat.S_ISBLK(mode) or (
        stat.S_ISCHR(mode) and not pipe.isatty() and not os.path.samestat(os.fstat(pipe.fileno()), os.stat(os.devnull))
    ):
        raise SourceError(f"{name}: a device, not a file")
    most, copied = max(SPOOLED_BYTES, limits().size), 0
    while piece := pipe.read(_PIECE):
        copied += len(piece)
        if copied > most:
            raise too_much("size", name)
        copy.write(piece)
