"""Reads a trace in several processes of this machine, each of which reads a section of the file as if it were a trace.

Decoding is most of the work, and a process can use only one core for it. This process reads the first section, workers read the others. If
anything goes wrong (a wrong cut, damage, a worker that fails), one process reads the whole file.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ....errors import RooflineError, SourceError
from ....units import parse
from .chunks import CUT, GZIP, blocks

LEAST_BYTES = int(parse("128 MiB", "B"))  # of a section: starting a worker takes as long as reading a fifth of that
MOST_SECTIONS = 4
BORDER_SEARCH_BYTES = int(parse("1 MiB", "B"))  # searched for the border of two sections
UNPACKING = 0.25  # the time to unpack a byte, as a share of the time to decode it
Read = Callable[["Section"], Any]


class Section:
    """A file-like object: a range of a file's bytes, with the text before and after them that makes them a complete trace."""

    def __init__(self, path: str, begin: int, end: int, before: bytes, after: bytes) -> None:
        self.path, self.begin, self.end, self.before, self.after = path, begin, end, before, after
        self._file: Any = None

    def read(self, size: int) -> bytes:
        if self._file is None:
            self._file = open(self.path, "rb")  # noqa: SIM115  closed at its end
            self._file.seek(self.begin)
            if self.before:
                return self.before
        if self._file.closed:
            return b""
        if data := self._file.read(max(0, min(size, self.end - self._file.tell()))):
            return bytes(data)
        self._file.close()
        return self.after


class PackedSection(Section):
    """A section of a gzipped file, given by offsets in the unpacked data. Everything before it has to be unpacked too.

    Its borders are the first cuts at or after those offsets, so the readers of neighbouring sections find the same border.
    """

    def read(self, size: int) -> bytes:
        if self._file is None:
            self._file = self._pieces()
        return next(self._file, b"")

    def _pieces(self) -> Iterator[bytes]:
        with open(self.path, "rb") as file:
            if self.before:
                yield self.before
            yield from self._between(blocks(file, self.path, False, lambda done: None, []))
        if self.after:
            yield self.after

    def _between(self, texts: Iterator[bytes]) -> Iterator[bytes]:
        """The text from the first border to the second."""
        place, inside, pending = 0, not self.before, b""  # the offset of the text, and text in which no border was found yet
        for text in texts:
            text, pending = pending + text, b""
            if not inside:
                border = self._border(text, self.begin - place)
                if border is None:
                    place, pending = (place, text) if len(text) > self.begin - place else (place + len(text), b"")
                    continue
                place, text, inside = place + border.end(), text[border.end() :], True
                if place > self.end:
                    raise SourceError(f"{self.path}: an event as long as a section")
            if self.after and len(text) > self.end - place:
                border = self._border(text, self.end - place)
                if border is not None:
                    yield text[: border.start()]
                    return
                pending = text
                continue
            yield text
            place += len(text)
        if self.after or not inside:
            raise SourceError(f"{self.path}: ends before the section does")

    def _border(self, text: bytes, begin: int) -> "re.Match[bytes] | None":
        """The first cut at or after an offset; ``None`` if more text is needed."""
        match = CUT.search(text, begin) if len(text) > begin else None
        if match is None and len(text) > begin + BORDER_SEARCH_BYTES:
            raise SourceError(f"{self.path}: no event ends where a section should")
        return match


def sections_of(path: Path, size: int, processors: int) -> list[Section]:
    """The sections of a file; none if it is too small or cannot be cut."""
    with open(path, "rb") as file:
        head = file.read(BORDER_SEARCH_BYTES).lstrip()
        if head.startswith(GZIP):
            return _packed_sections(path, head, size, processors)
        ends = _ends(size, processors, 0.0)
        begins, cuts = [0], []
        for end in ends[:-1]:
            file.seek(end)
            match = CUT.search(file.read(BORDER_SEARCH_BYTES))
            if match is None:
                return []
            cuts.append(end + match.start())  # the comma between two sections is in neither
            begins.append(end + match.end())
    before, after = _enclosing_text(head)
    limits = zip(begins, [*cuts, size], strict=True)
    return [
        Section(str(path), begin, end, before if number else b"", after if number < len(ends) - 1 else b"")
        for number, (begin, end) in enumerate(limits if len(ends) > 1 else ())
    ]


def _packed_sections(path: Path, head: bytes, size: int, processors: int) -> list[Section]:
    """The sections of a gzipped file; later ones are shorter, as more has to be unpacked before them."""
    with open(path, "rb") as file:
        file.seek(max(0, size - 4))
        unpacked = int.from_bytes(file.read(4), "little")  # the unpacked size modulo 4 GiB; the last section has the rest
    ends = _ends(unpacked, processors, UNPACKING)
    before, after = _enclosing_text(next(blocks(head, str(path), True, lambda done: None, []), b"").lstrip())
    return [
        PackedSection(str(path), begin, end, before if begin else b"", after if end < unpacked else b"")
        for begin, end in zip([0, *ends], ends if len(ends) > 1 else (), strict=False)
    ]


def _enclosing_text(head: bytes) -> tuple[bytes, bytes]:
    """The text before and after a list of events that makes it a trace, as in a trace with this head."""
    return (b"[", b"]") if head.startswith(b"[") else (b'{"traceEvents":[', b"]}")


def _ends(size: int, processors: int, unpacking: float) -> list[int]:
    """The ends of sections that take equally long to read; ``unpacking`` is the time to unpack a byte relative to decoding it."""
    count = max(1, min(processors, MOST_SECTIONS, size // LEAST_BYTES))

    def after(time: float) -> list[float]:
        ends = [time / (1 + unpacking)]
        while len(ends) < count:
            ends.append(ends[-1] + (time - unpacking * ends[-1]) / (1 + unpacking))
        return ends

    ends = after(size / after(1)[-1])
    return [*map(int, ends[:-1]), size]


def read_sections(sections: list[Section], read_here: Read, read_there: Read) -> Iterator[Any]:
    """The results for each section, in order; ``None`` if a worker failed. The first section is read in this process."""
    from concurrent.futures import ThreadPoolExecutor  # only for large traces, as the next
    from contextlib import ExitStack

    from ....workers import Worker

    with ThreadPoolExecutor(len(sections)) as threads, ExitStack() as workers:
        others = [threads.submit(workers.enter_context(Worker()).call, read_there, section) for section in sections[1:]]
        yield read_here(sections[0])
        for other in others:
            try:
                yield other.result()
            except (RooflineError, RuntimeError, MemoryError):
                yield None
