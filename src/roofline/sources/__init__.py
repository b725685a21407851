"""Sources: one module a kind of input, each turning a file into a `Recording`. Only sources read files.

A source has ``sniff(head, path)``, which says from the first bytes whether the file is its kind, and ``read(path)``. The right
one is found by content and imported when chosen.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from ..errors import SourceError
from ..machine import Machine
from ..units import parse
from ..workload import Recording

# In order: the first that recognises the head of a file reads it.
SOURCES = ("xspace.recording", "report_json", "programs", "ncu", "table")
HEAD_BYTES = int(parse("64 KiB", "B"))
GZIP_MAGIC = b"\x1f\x8b"
PROFILE_SOURCE, FOLDER_SOURCE = ".recording", ".profile_folder"  # how the names of the modules that read profiles end
PROFILES = (".xplane.pb", ".xplane.pb.gz")  # how the names of profiles end
SCHEME = "://"  # in a path, it makes an address that fsspec opens
SAMPLE = "sample:"  # before the name of an input that comes with the package

Progress = Callable[[int, int], None]  # how much is done, and how much there is


class Source(Protocol):
    """What a source module provides; those of profiles take ``salvage`` and ``progress`` too."""

    __name__: str

    def sniff(self, head: bytes, path: Path | str) -> bool: ...
    def read(self, path: Path | str, target: Machine | None = None, **how: Any) -> Recording: ...


def head_of(path: Path | str) -> bytes:
    """The first bytes of a file, decompressed if it is gzipped."""
    try:
        with open(path, "rb") as file:
            head = file.read(HEAD_BYTES)
    except FileNotFoundError:
        raise SourceError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise SourceError(f"{path}: is a folder; name a file in it") from None
    except OSError as error:
        raise SourceError(f"{path}: cannot read: {error}") from None
    return _unpacked_head(path) if head.startswith(GZIP_MAGIC) else head


def _unpacked_head(path: Path | str) -> bytes:
    import gzip
    import zlib

    try:
        with gzip.open(path, "rb") as unzipped:
            return unzipped.read(HEAD_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{path}: cannot read: {error}") from None


def all_of(path: Path) -> bytes:
    """A whole file, decompressed if it is gzipped."""
    import gzip
    import zlib

    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data.startswith(GZIP_MAGIC) else data
    except FileNotFoundError:
        raise SourceError(f"{path}: no such file") from None
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{path}: cannot read: {error}") from None


def profiles_in(folder: Path) -> list[Path]:
    """The profiles in a run folder or in a log folder above it, in order of name."""
    return sorted(file for ending in PROFILES for file in folder.rglob(f"*{ending}") if file.is_file())


def _source(name: str) -> Source:
    module: Any = __import__(f"{__name__}.{name}", fromlist=("read",))
    source: Source = module
    return source


def find(path: Path | str) -> Source:
    """The source that reads this file."""
    if os.path.isdir(path):
        from pathlib import Path

        return _source("profile_folder" if profiles_in(Path(path)) else "programs")
    head = head_of(path)
    if not head:
        raise SourceError(f"{path}: the file is empty")
    for name in SOURCES:
        source = _source(name)
        if source.sniff(head, path):
            return source
    raise SourceError(f"{path}: unknown format; roofline reads profiles, HLO programs, Nsight Compute CSVs, op tables and its own reports")


def read(
    path: Path | str, target: Machine | Callable[[], Machine] | None = None, *, salvage: bool = False, progress: Progress | None = None
) -> Recording:
    """Whatever the file is, as a recording.

    ``target`` is the machine it will be analysed for, or what loads it: only a program that was not compiled has to know. ``salvage`` reads
    a damaged profile as far as it goes; ``progress`` is told the bytes of a profile that were read, and all of them.
    """

    def known(source: Source) -> Machine | None:
        return (target() if source.__name__.endswith(".programs") else None) if callable(target) else target

    if SCHEME in str(path):
        from .hosts import read_remote

        return read_remote(str(path), known, salvage=salvage, progress=progress)
    if str(path).startswith(SAMPLE):
        from msgspec.structs import replace

        from .samples import sample

        return replace(read(sample(str(path)), target, salvage=salvage, progress=progress), files=(str(path),))
    source = find(path)
    if source.__name__.endswith(PROFILE_SOURCE):
        return source.read(path, known(source), salvage=salvage, progress=progress)
    from pathlib import Path

    if source.__name__.endswith(FOLDER_SOURCE):
        return source.read(Path(path), known(source), salvage=salvage, progress=progress)
    return source.read(Path(path), known(source))
