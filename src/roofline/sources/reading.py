"""One file of a run, wherever it is and whether or not it is cached; and several, read one after the other in this process."""

import mmap
import os
import sys
from collections.abc import Callable, Sequence
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

if TYPE_CHECKING:
    from .cache import Cache

UNKNOWN_BYTES = 100  # counted for a file whose size is not known, so that progress in it is told in hundredths
Buffer = bytes | mmap.mmap
Known = dict[Any, Any]  # programs that were priced, for the next host that runs them


class Reading(Struct, frozen=True, kw_only=True):
    """How the files of a run are read: by which module, for which machine, up to any damage, as one of several hosts, with what cache.

    ``timeline`` is whether devices are read once more for what they did when; ``limits`` are those of the process that asks.
    """

    module: str
    target: Machine | None = None
    salvage: bool = False
    shared: bool = False
    timeline: bool = False
    cache: "Cache | None" = None
    limits: Limits = DEFAULT


def read_here(files: Sequence[str], how: Reading, progress: Progress | None = None) -> list[Part]:
    """What each file says, read one after the other in this process."""
    if len(files) == 1:
        return [read_file(files[0], how, progress=progress)]
    overall = OverallProgress(files, progress)
    known: Known = {}
    return [read_file(file, how, known=known, progress=overall.of(number)) for number, file in enumerate(files)]


def read_file(file: str, how: Reading, *, data: bytes | None = None, known: Known | None = None, progress: Progress | None = None) -> Part:
    """What one file says, or its ``data`` where those were sent along.

    ``known`` gathers the programs of hosts that are read one after the other. ``progress`` is told bytes done and to do, copying first.
    """

    def read(data: Buffer | None) -> Part:
        source = import_module(f"{__package__}.{how.module}")
        part: Part = source.read_part(
            file, how.target, data=data, salvage=how.salvage, shared=how.shared, timeline=how.timeline, known=known, progress=progress
        )
        return part

    if data is not None or not is_remote(file):
        return _looked_up(file, how, data, read)
    with local_copy(file, progress) as copy:
        return _looked_up(file, how, _mapped(copy), read)


def _looked_up(file: str, how: Reading, data: Buffer | None, read: Callable[[Buffer | None], Part]) -> Part:
    """What the cache has of a file, or else what ``read`` makes of its bytes."""
    if how.cache is None or calls_of_users() or not _is_worth_caching(file, data, how.cache):
        return read(data)
    from .cache import key_of

    if data is None:
        # The bytes that are hashed have to be those that are read: a file that is mapped could change in between.
        try:
            data = opened_path(file).read_bytes()
        except OSError:
            return read(None)  # which says what is wrong
    source = import_module(f"{__package__}.{how.module}")
    others = source.beside(file) if hasattr(source, "beside") else ()
    key = key_of(data, file, how.target, how.salvage, how.shared, how.timeline, others)
    part = how.cache.get(key)
    if part is None:
        part = read(data)
        how.cache.put(key, part)
    return part


def _mapped(copy: Path) -> Buffer:
    """A file's bytes, mapped; the reader of the profile closes the map."""
    with copy.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if copy.stat().st_size else b""


def _is_worth_caching(file: str, data: Buffer | None, cache: "Cache") -> bool:
    """Whether the cache gives a file's part sooner than reading it. The reader reports a file that cannot be opened."""
    if cache.largest_bytes is None or file.endswith(".gz"):
        return True
    try:
        return (os.stat(file).st_size if data is None else len(data)) <= cache.largest_bytes
    except OSError:
        return False


def only_here(files: Sequence[str]) -> bool:
    """Whether no other process can read the files: they are in this one's memory, or prices of custom calls are registered in it."""
    return not sys.executable or calls_of_users() or any(map(is_private, files))


def calls_of_users() -> bool:
    """Whether prices of custom calls are registered in this process: neither other processes nor the cache know them."""
    pricing = sys.modules.get("roofline.hlo.price.calls.pricing")
    return bool(pricing and pricing.user_targets())


class OverallProgress:
    """Progress over several files as one figure. Safe to update from several threads."""

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
    """The bytes of each file, or the same for all where one is not known at once."""
    try:
        return [os.stat(file).st_size for file in files]
    except OSError:
        return [UNKNOWN_BYTES] * len(files)
