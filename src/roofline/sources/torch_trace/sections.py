"""A large trace read by several processes of this machine, each a section of the file that is a trace by itself.

Decoding is most of the work and has one processor a process. Whatever is odd (a cut that is none, damage, a helper that fails) is left to
one process that reads the whole file.
"""

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import SourceError
from ...units import parse
from .chunks import CUT, GZIP, blocks

LEAST_BYTES = int(parse("128 MiB", "B"))  # of a section: a helper takes as long to start as to read a fifth of that
MOST = 4
AROUND_BYTES = int(parse("1 MiB", "B"))  # in which the border of two sections is looked for
UNPACKING = 0.25  # the time that it takes to unpack bytes, of that to decode them
_PROGRAM = (
    "import pickle, sys; sys.path[:], section = pickle.load(sys.stdin.buffer); "
    "from roofline.sources.torch_trace.reading import answer_section; answer_section(section)"
)


class Section:
    """Bytes of a file, with what makes them a whole trace before and after them; read as a file is."""

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
    """A section of a gzipped file, by places in what it unpacks to, all of which before it has to be unpacked as well.

    Its borders are the first cuts from those places on: who reads the section beside it finds the same one.
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
        place, inside, held = 0, not self.before, b""  # where the text begins, and what of it had no border yet
        for text in texts:
            text, held = held + text, b""
            if not inside:
                found = self._border(text, self.begin - place)
                if found is None:
                    place, held = (place, text) if len(text) > self.begin - place else (place + len(text), b"")
                    continue
                place, text, inside = place + found.end(), text[found.end() :], True
                if place > self.end:
                    raise SourceError(f"{self.path}: an event as long as a section")
            if self.after and len(text) > self.end - place:
                found = self._border(text, self.end - place)
                if found is not None:
                    yield text[: found.start()]
                    return
                held = text
                continue
            yield text
            place += len(text)
        if self.after or not inside:
            raise SourceError(f"{self.path}: ends before the section does")

    def _border(self, text: bytes, begin: int) -> "re.Match[bytes] | None":
        """The first cut from a place on; ``None`` if more text is needed."""
        found = CUT.search(text, begin) if len(text) > begin else None
        if found is None and len(text) > begin + AROUND_BYTES:
            raise SourceError(f"{self.path}: no event ends where a section should")
        return found


def sections_of(path: Path, size: int, processors: int) -> list[Section]:
    """The sections of a file; none if it is not worth it, or not to be cut."""
    count = min(processors, MOST, size // LEAST_BYTES)
    with open(path, "rb") as file:
        head = file.read(AROUND_BYTES).lstrip()
        if head.startswith(GZIP):
            return _packed_sections(path, head, size, processors)
        if count < 2 or not sys.executable:
            return []
        begins, ends = [0], []
        for number in range(1, count):
            begin = number * size // count
            file.seek(begin)
            found = CUT.search(file.read(AROUND_BYTES))
            if found is None:
                return []
            ends.append(begin + found.start())  # the comma between is in neither
            begins.append(begin + found.end())
    bare = head.startswith(b"[")
    before, after = (b"[", b"]") if bare else (b'{"traceEvents":[', b"]}")
    limits = zip(begins, [*ends, size], strict=True)
    return [
        Section(str(path), begin, end, before if number else b"", after if number < count - 1 else b"")
        for number, (begin, end) in enumerate(limits)
    ]


def _packed_sections(path: Path, head: bytes, size: int, processors: int) -> list[Section]:
    """The sections of a gzipped file, later ones shorter, as more has to be unpacked before them."""
    with open(path, "rb") as file:
        file.seek(max(0, size - 4))
        unpacked = int.from_bytes(file.read(4), "little")  # its size, modulo 4 GiB: the last section has the rest
    count = min(processors, MOST, unpacked // LEAST_BYTES)
    if count < 2 or not sys.executable:
        return []
    parts = [(1 + UNPACKING) ** -number for number in range(1, count + 1)]
    borders = [0, *(int(unpacked * sum(parts[:number]) / sum(parts)) for number in range(1, count)), unpacked]
    bare = next(blocks(head, str(path), True, lambda done: None, []), b"").lstrip().startswith(b"[")
    before, after = (b"[", b"]") if bare else (b'{"traceEvents":[', b"]}")
    return [
        PackedSection(str(path), borders[number], borders[number + 1], before if number else b"", after if number < count - 1 else b"")
        for number in range(count)
    ]


class Helper:
    """Another process that reads a section; what it read is pickled to here."""

    def __init__(self, section: Section) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdin is not None
        pickle.dump((sys.path, section), self._process.stdin)
        self._process.stdin.close()

    def answer(self) -> Any:
        """What it read, or ``None`` if it could not."""
        assert self._process.stdout is not None
        try:
            return pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError):
            return None

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def read_sections(sections: list[Section]) -> Iterator[Any]:
    """What helpers make of the sections, in their order; ``None`` for one that could not be read.

    This process reads none of them: the memory that decoding takes would stay with it.
    """
    helpers: list[Helper] = []
    try:
        helpers += [Helper(section) for section in sections]
        yield from (helper.answer() for helper in helpers)
    except OSError:  # no room for another process
        yield None
    finally:
        for helper in helpers:
            helper.end()


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
