"""A trace file into columns: read a few megabytes at a time, each event decoded once."""

import os
from collections.abc import Callable
from mmap import mmap
from pathlib import Path

from msgspec import Struct

from ...errors import SourceError
from ...files.input_limits import check_limit
from ..cores import cores
from ..pipes import opened_path
from .chunks import Chunks, blocks
from .columns import Columns
from .events import Head
from .sections import Section, read_sections, sections_of, send

Progress = Callable[[int, int], None]


class Trace(Struct):
    """A trace that was read: what it says of itself, its events in columns, and what is to be said about the reading."""

    name: str
    head: Head
    columns: Columns
    notes: list[str]


def read_trace(
    path: Path | str,
    data: bytes | mmap | None = None,
    *,
    salvage: bool = False,
    progress: Progress | None = None,
    alone: bool = True,
    meanwhile: Callable[[], object] = lambda: None,
) -> Trace:
    """A trace from its file, or from its bytes where those are in memory; a large one by several processes, unless ``alone``.

    ``meanwhile`` is called while other processes may still be reading.
    """
    if data is not None:
        return _read(str(path), data, len(data), salvage, progress)
    try:
        place = opened_path(path)
        with open(place, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            sections = [] if alone else sections_of(place, size, cores())
            if sections and (found := _together(str(path), sections, size, progress, meanwhile)) is not None:
                return found
            return _read(str(path), file, size, salvage, progress)
    except OSError as error:
        raise SourceError(f"{path}: cannot read: {error.strerror or error}") from None


def _together(
    name: str, sections: list[Section], size: int, progress: Progress | None, meanwhile: Callable[[], object] = lambda: None
) -> Trace | None:
    """A trace of several sections, or ``None`` if they do not make up one."""
    first: Trace | None = None
    here = (lambda done, of: progress(done * size // of // len(sections), size)) if progress else None
    for number, section in enumerate(read_sections(sections, lambda one: whole(one, here), meanwhile), start=1):
        if section is None:
            return None
        if progress:
            progress(number * size // len(sections), size)
        if first is None:
            first = section
            continue
        from .joining import append  # numpy, whose threads would have kept this process from being copied

        append(first.columns, section.columns)
        for field in Head.__struct_fields__:
            if (said := getattr(section.head, field)) is not None:
                setattr(first.head, field, said)
    assert first is not None
    first.name = name
    check_limit("values", len(first.columns), name)
    return first


def whole(section: Section, progress: Progress | None = None) -> Trace | None:
    """What a section says, if nothing is wrong with it."""
    try:
        found = _read(section.path, section, section.end - section.begin, False, progress)
    except SourceError:
        return None
    return None if found.notes else found


def answer_section(section: Section) -> None:
    """What a helper does: read its section. Nothing else may write where it answers."""
    with open(os.dup(1), "wb") as answers:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        send(whole(section), answers)


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
        events.clear()  # before the next ones are made, which then have their place in the processor's cache
    return Trace(name, chunks.head, columns, notes)
