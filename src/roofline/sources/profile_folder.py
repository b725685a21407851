"""Folders of profiles: a run folder, whose files are the hosts of one run, or a TensorBoard log folder with one run in it."""

from collections.abc import Sequence
from pathlib import Path

from ..errors import SourceError
from ..machine import Machine
from ..workload import Recording
from . import Progress, profiles_in
from .xspace.recording import read_many


def sniff(head: bytes, path: Path) -> bool:
    """Whether the folder holds a profile."""
    return path.is_dir() and bool(profiles_in(path))


def read(path: Path, target: Machine | None = None, *, salvage: bool = False, progress: Progress | None = None) -> Recording:
    """The one run in a folder, all its hosts together."""
    return read_many(one_run([file.as_posix() for file in profiles_in(path)], path.as_posix()), target, salvage=salvage, progress=progress)


def one_run(files: Sequence[str], folder: str) -> list[str]:
    """The profiles below a folder, if they are those of one run: of several the user has to choose.

    A file that lies there gzipped too is one host, not two.
    """
    if not files:
        raise SourceError(f"{folder}: no .xplane.pb file in this folder; name a folder written by jax.profiler or roofline capture")
    runs = sorted({file.rpartition("/")[0] for file in files})
    if len(runs) > 1:
        root = f"{folder.rstrip('/')}/"
        names = ", ".join(run.removeprefix(root) for run in runs[:4])
        more = f" and {len(runs) - 4} more" if len(runs) > 4 else ""
        raise SourceError(f"{folder}: {len(runs)} runs in this folder ({names}{more}); name one, or compare two with: roofline compare")
    return [file for file in files if not (file.endswith(".gz") and file.removesuffix(".gz") in files)]
