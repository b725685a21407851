"""Unfinished files and folders: held by a lock while their writer works on them, removed by the next one if it was killed.

Locks end with their process. Windows needs none: what is open cannot be removed there.
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
    """Say that an open file or folder is in use, for as long as it is open. File systems without locks say nothing."""
    if fcntl is not None:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def remove_abandoned(
    folder: str | os.PathLike[str], name: re.Pattern[str], remove: Callable[[str], object] = os.unlink, flags: int = os.O_RDWR
) -> None:
    """Remove files of such a name that no process has locked; ``flags`` open it, which fails for what is of another kind."""
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
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # an error while its writer is at work
                remove(path)
            finally:
                os.close(file)
