"""Reads a trace file into columns, a chunk at a time; each event is decoded once."""

import os
from collections.abc import Callable
from mmap import mmap
from pathlib import Path
from typing import Any

from msgspec import Struct

from ....errors import SourceError
from ....files.input_limits import check_limit
from ...cores import cores
from ...pipes import opened_path
from .chunks import Chunks, blocks
from .columns import Columns
from .events import Head
from .sections import Section, read_sections, sections_of

Progress = Callable[[int, int], None]


class Trace(Struct):
    """A trace: its head, its events in columns, and notes; and the execution trace that was recorded with it."""

    name: str
    head: Head
    columns: Columns
    notes: list[str]
    observed: Any = None  # an `ExecutionTrace`


def read_trace(
    path: Path | str,
    data: bytes | mmap | None = None,
    *,
    salvage: bool = False,
    progress: Progress | None = None,
    alone: bool = True,
) -> Trace:
    """Reads a trace from its file, or from its ``data`` if they are in memory; a large file in several processes, unless ``alone``."""
    if data is not None:
        return _read(str(path), data, len(data), salvage, progress)
    try:
        place = opened_path(path)
        with open(place, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            sections = [] if alone else sections_of(place, size, cores())
            if sections and (trace := _read_sections(str(path), sections, size, progress)) is not None:
                return trace
            return _read(str(path), file, size, salvage, progress)
    except OSError as error:
        raise SourceError(f"{path}: cannot read: {error.strerror or error}") from None


def _read_sections(name: str, sections: list[Section], size: int, progress: Progress | None) -> Trace | None:
    """Reads the sections of a trace; ``None`` if one of them cannot be read."""
    first: Trace | None = None
    here = (lambda done, of: progress(done * size // of // len(sections), size)) if progress else None
    for number, section in enumerate(read_sections(sections, lambda first: read_section(first, here), read_section), start=1):
        if section is None:
            return None
        if progress:
            progress(number * size // len(sections), size)
        if first is None:
            first = section
            continue
        from .joining import append  # imports numpy

        append(first.columns, section.columns)
        for field in Head.__struct_fields__:
            if (value := getattr(section.head, field)) is not None:
                setattr(first.head, field, value)
    assert first is not None
    first.name = name
    check_limit("values", len(first.columns), name)
    return first


def read_section(section: Section, progress: Progress | None = None) -> Trace | None:
    """Reads a section; ``None`` if anything is wrong with it."""
    try:
        columns = _read(section.path, section, section.end - section.begin, False, progress)
    except SourceError:
        return None
    return None if columns.notes else columns


def _read(name: str, source: object, size: int, salvage: bool, progress: Progress | None) -> Trace:
    notes: list[str] = []
    report = (lambda done: progress(done, size)) if progress else (lambda done: None)
    chunks = Chunks(blocks(source, name, salvage, report, notes), name, salvage=salvage, notes=notes)  # type: ignore[arg-type]
    columns = Columns()
    count = 0
    for events in chunks:
        count += len(events)
        check_limit("values", count, name)
        columns.add(events)
        events.clear()  # now, so that the next events reuse memory that is in the CPU's cache
    return Trace(name, chunks.head, columns, notes)
