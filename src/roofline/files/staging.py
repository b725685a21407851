"""Temporary folders for incomplete profiles, next to their destination."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import UsageError
from .abandoned_files import HAS_LOCKS, mark_in_use, remove_abandoned

_START = ".roofline-staging-"


@contextmanager
def staging_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder inside another, removed at the end; first removes those of killed processes."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if HAS_LOCKS:
            remove_abandoned(folder, re.compile(rf"{re.escape(_START)}\w+"), shutil.rmtree, os.O_RDONLY | os.O_DIRECTORY)
        made, descriptor = _held_folder(folder)
    except OSError as error:
        raise UsageError(f"{folder}: cannot write the profile: {error.strerror}") from None
    try:
        yield made
    finally:
        if descriptor is not None:
            os.close(descriptor)
        shutil.rmtree(made, ignore_errors=True)


def _held_folder(folder: Path) -> tuple[Path, int | None]:
    """A new, locked folder and its descriptor; retries if another process removed it as abandoned before it was locked."""
    while True:
        made = Path(tempfile.mkdtemp(prefix=_START, dir=folder))
        if not HAS_LOCKS:
            return made, None
        with suppress(FileNotFoundError):
            descriptor = os.open(made, os.O_RDONLY)
            mark_in_use(descriptor)
            if made.exists():
                return made, descriptor
            os.close(descriptor)
