"""Reads one file of a run, local or remote, through the cache; and several files one after the other in this process."""

import mmap
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..files.input_limits import DEFAULT, Limits
from ..machine import Machine
from .parts import Part
from .pipes import opened_path
from .remote import Progress, is_private, is_remote, local_copy
from .target import Target

if TYPE_CHECKING:
    from .cache import Cache

UNKNOWN_BYTES = 100  # assumed if the size of a file is unknown, so that its progress counts in percent
Buffer = bytes | mmap.mmap
Known = dict[Any, Any]  # programs that were priced, to be reused for the next host that runs them


class Reading(Struct, frozen=True, kw_only=True):
    """How the files of a run are read: the module, the target machine or how to find it, and the cache.

    ``salvage`` reads a damaged file up to the damage; ``shared`` is true if the run has several files; ``timeline`` reads devices a second
    time to fill the timeline; ``limits`` are those of the calling process.
    """

    module: str
    target: Target | None = None
    salvage: bool = False
    shared: bool = False
    timeline: bool = False
    cache: "Cache | None" = None
    limits: Limits = DEFAULT


def read_here(files: Sequence[str], how: Reading, progress: Progress | None = None) -> list[Part]:
    """Reads each file into a part, one after the other, in this process."""
    overall = OverallProgress(files, progress)
    known: Known = {}
    return [read_file(file, how, known=known, progress=overall.of(number)) for number, file in enumerate(files)]


def read_file(file: str, how: Reading, *, data: bytes | None = None, known: Known | None = None, progress: Progress | None = None) -> Part:
    """Reads one file, or its ``data`` if they are given, into a part.

    ``known`` collects priced programs, for files that are read one after the other. ``progress`` is called with the bytes done and the
    bytes in all; for a remote file first while it is copied.
    """
    source = import_module(f"{__package__}.{how.module}")

    def read(content: Buffer | None) -> Part:
        part: Part = source.read_part(
            file, how.target, data=content, salvage=how.salvage, shared=how.shared, timeline=how.timeline, known=known, progress=progress
        )
        return part

    def read_cached(content: Buffer | None) -> Part:
        """The part from the cache, or else from ``read``, which is then cached."""
        if how.cache is None or has_user_prices() or not _is_worth_caching(file, content, how.cache):
            return read(content)
        from .cache import key_of

        if content is None:
            try:
                content = opened_path(file).read_bytes()  # once, to hash and parse the same bytes: a file could change in between
            except OSError:
                return read(None)  # which raises the error
        others = source.companion_files(file) if hasattr(source, "companion_files") else ()
        named = how.target if isinstance(how.target, Machine) else None  # otherwise the content decides
        key = key_of(content, file, named, how.salvage, how.shared, how.timeline, others)
        part = how.cache.get(key)
        if part is None:
            part = read(content)
            how.cache.put(key, part)
        return part

    if data is not None or not is_remote(file):
        return read_cached(data)
    with local_copy(file, progress) as copy:
        return read_cached(_mapped(copy))


def _mapped(copy: Path) -> Buffer:
    """The memory-mapped bytes of a file; the reader closes the mapping."""
    with copy.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if copy.stat().st_size else b""


def _is_worth_caching(file: str, data: Buffer | None, cache: "Cache") -> bool:
    """Whether a part comes faster from the cache than from reading the file. False for a file that cannot be opened: reading reports it."""
    if cache.largest_bytes is None or file.endswith(".gz"):
        return True
    try:
        return (os.stat(file).st_size if data is None else len(data)) <= cache.largest_bytes
    except OSError:
        return False


def needs_this_process(files: Sequence[str]) -> bool:
    """Whether no other process can read the files: they are in this one's memory, or prices of custom calls are registered in it."""
    return not sys.executable or has_user_prices() or any(map(is_private, files))


def has_user_prices() -> bool:
    """Whether prices of custom calls are registered in this process, which other processes and the cache do not have."""
    pricing = sys.modules.get("roofline.hlo.price.calls.pricing")
    return bool(pricing and pricing.user_targets())


class OverallProgress:
    """Progress over several files as one number. Safe to update from several threads."""

    def __init__(self, files: Sequence[str], progress: Progress | None) -> None:
        self._lock, self._progress = Lock(), progress
        self._sizes, self._fractions = _sizes(files), [0.0] * len(files)

    def of(self, number: int) -> Progress | None:
        """The progress callback for one file."""
        return partial(self.update, number) if self._progress else None

    def update(self, number: int, done: int, total: int) -> None:
        if self._progress is None:
            return
        with self._lock:
            self._fractions[number] = done / total if total else 1.0
            done_of_all = sum(fraction * size for fraction, size in zip(self._fractions, self._sizes, strict=True))
            self._progress(int(done_of_all), sum(self._sizes))


def _sizes(files: Sequence[str]) -> list[int]:
    """The size of each file, or the same number for all if one is remote."""
    try:
        return [os.stat(file).st_size for file in files]
    except OSError:
        return [UNKNOWN_BYTES] * len(files)
