"""Folders of profiles: a run folder, whose files are the hosts of one run, or a TensorBoard log folder with one run in it."""

from pathlib import Path

from ..errors import SourceError
from ..machine import Machine
from ..workload import Recording
from . import profiles_in
from .xspace.recording import read_many


def sniff(head: bytes, path: Path) -> bool:
    """Whether the folder holds a profile."""
    return path.is_dir() and bool(profiles_in(path))


def read(path: Path, target: Machine | None = None) -> Recording:
    """The one run in a folder, all its hosts together; of several runs the user has to choose."""
    files = profiles_in(path)
    runs = sorted({file.parent for file in files})
    if len(runs) > 1:
        names = ", ".join(str(run.relative_to(path)) for run in runs[:4])
        more = f" and {len(runs) - 4} more" if len(runs) > 4 else ""
        raise SourceError(
            f"{path}: {len(runs)} runs in this folder ({names}{more}); name one, or hold two against each other with: roofline compare"
        )
    return read_many(files, target)
