"""A trace file into columns: read a few megabytes at a time, each event decoded once."""

import os
from collections.abc import Callable
from mmap import mmap
from pathlib import Path

from msgspec import Struct

from ...errors import SourceError
from ...input_limits import check_limit
from ..pipes import opened_path
from .chunks import Chunks, blocks
from .columns import Columns
from .events import Head

Progress = Callable[[int, int], None]


class Trace(Struct):
    """A trace that was read: what it says of itself, its events in columns, and what is to be said about the reading."""

    name: str
    head: Head
    columns: Columns
    notes: list[str]


def read_trace(path: Path | str, data: bytes | mmap | None = None, *, salvage: bool = False, progress: Progress | None = None) -> Trace:
    """A trace from its file, or from its bytes where those are in memory."""
    if data is not None:
        return _read(str(path), data, len(data), salvage, progress)
    try:
        with open(opened_path(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            return _read(str(path), file, size, salvage, progress)
    except OSError as error:
        raise SourceError(f"{path}: cannot read: {error.strerror or error}") from None


def _read(name: str, source: object, size: int, salvage: bool, progress: Progress | None) -> Trace:
    notes: list[str] = []
    told = (lambda done: progress(done, size)) if progress else (lambda done: None)
    chunks = Chunks(blocks(source, name, salvage, told, notes), name, salvage=salvage, notes=notes)  # type: ignore[arg-type]
    columns = Columns()
    count = 0
    for events in chunks:
        count += len(events)
        check_limit("values", count, name)
        columns.add(events)
    return Trace(name, chunks.head, columns, notes)
