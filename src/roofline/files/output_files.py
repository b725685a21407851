"""Writing files atomically: into a temporary folder next to the target, which the complete file then replaces.

A full disk, an interrupt or a kill leaves the old file unchanged. Only a kill leaves the temporary folder (``.roofline-…``) behind.
"""

import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from ..errors import OutputError

STAGING = ".roofline-"


def staging_folder(folder: str | Path) -> TemporaryDirectory[str]:
    """A temporary folder inside another, for files that are moved to their place when they are complete."""
    return TemporaryDirectory(prefix=STAGING, dir=folder)


def write_file(path: str | Path, data: bytes) -> None:
    """Write bytes to a file, replacing it; it keeps its permissions. A pipe or a device is written to directly."""
    try:
        target = Path(os.path.realpath(path))  # the target of a symbolic link is replaced, not the link
        if target.exists() and not target.is_file():
            with target.open("wb") as stream:
                stream.write(data)
        else:
            _replace(target, data)
    except (OSError, ValueError) as error:  # ValueError for invalid file names
        raise OutputError(f"{path}: cannot write: {getattr(error, 'strerror', None) or error}") from None


def _replace(target: Path, data: bytes) -> None:
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(None, "Permission denied")
    with staging_folder(target.parent) as folder:
        draft = Path(folder, target.name)
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, draft)
        os.replace(draft, target)
