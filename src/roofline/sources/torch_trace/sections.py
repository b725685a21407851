"""A large trace read by several processes of this machine, each a section of the file that is a trace by itself.

Decoding is most of the work and has one processor a process. Whatever is odd (a cut that is none, damage, a helper that fails) is left to
one process that reads the whole file.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...units import parse
from .chunks import CUT, GZIP

LEAST_BYTES = int(parse("128 MiB", "B"))  # of a section: a helper takes as long to start as to read a fifth of that
MOST = 4
AROUND_BYTES = int(parse("1 MiB", "B"))  # in which the border of two sections is looked for
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


def sections_of(path: Path, size: int, processors: int) -> list[Section]:
    """The sections of a file; none if it is not worth it, or not to be cut."""
    count = min(processors, MOST, size // LEAST_BYTES)
    if count < 2 or not sys.executable:
        return []
    with open(path, "rb") as file:
        head = file.read(AROUND_BYTES).lstrip()
        if head.startswith(GZIP):
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
