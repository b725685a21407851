"""Unfinished files and folders: locked while they are written, and removed by the next writer if theirs was killed.

Locks end with their process. Windows needs none, because open files cannot be removed there.
"""

import os
import re
from collections.abc import Callable
from contextlib import suppress

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

HAS_LOCKS = fcntl is not None


def mark_in_use(file: int) -> None:
    """Lock an open file or folder for as long as it is open; does nothing on file systems without locks."""
    if fcntl is not None:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def remove_abandoned(
    folder: str | os.PathLike[str], name: re.Pattern[str], remove: Callable[[str], object] = os.unlink, flags: int = os.O_RDWR
) -> None:
    """Remove the files that match ``name`` and that no process has locked. Opening with ``flags`` fails for entries of another kind."""
    try:
        found = [each for each in os.listdir(folder) if name.fullmatch(each)]
    except OSError:
        return
    for each in found:
        path = os.path.join(folder, each)
        with suppress(OSError):
            if fcntl is None:
                remove(path)
                continue
            file = os.open(path, flags | os.O_NOFOLLOW)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises an error while the writer holds it
                remove(path)
            finally:
                os.close(file)
