"""A trace read by several processes of this machine, each a section of the file that is a trace by itself.

Decoding is most of the work and has one processor a process. This process reads the first section; helpers, which are copies of it where
the system can copy it or else other interpreters, read the others. Whatever is odd (a cut that is none, damage, a helper that fails) is
left to one process that reads the whole file.
"""

import os
import pickle
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ...errors import SourceError
from ...units import parse
from .chunks import CUT, GZIP, blocks

LEAST_BYTES = int(parse("128 MiB", "B"))  # of a section: another interpreter takes as long to start as to read a fifth of that
LEAST_COPIED_BYTES = int(parse("6 MiB", "B"))  # the same where a helper is a copy of this process
AHEAD_BYTES = int(parse("15 MiB", "B"))  # that a helper reads while this process imports what it needs next
MOST = 4
AROUND_BYTES = int(parse("1 MiB", "B"))  # in which the border of two sections is looked for
UNPACKING = 0.25  # the time that it takes to unpack bytes, of that to decode them
_PROGRAM = (
    "import pickle, sys; sys.path[:], section = pickle.load(sys.stdin.buffer); "
    "from roofline.sources.torch_trace.reading import answer_section; answer_section(section)"
)


Read = Callable[["Section"], Any]


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
    with open(path, "rb") as file:
        head = file.read(AROUND_BYTES).lstrip()
        if head.startswith(GZIP):
            return _packed_sections(path, head, size, processors)
        ends = _ends(size, processors, 0.0)
        begins, cuts = [0], []
        for end in ends[:-1]:
            file.seek(end)
            found = CUT.search(file.read(AROUND_BYTES))
            if found is None:
                return []
            cuts.append(end + found.start())  # the comma between is in neither
            begins.append(end + found.end())
    before, after = _around(head)
    limits = zip(begins, [*cuts, size], strict=True)
    return [
        Section(str(path), begin, end, before if number else b"", after if number < len(ends) - 1 else b"")
        for number, (begin, end) in enumerate(limits if len(ends) > 1 else ())
    ]


def _packed_sections(path: Path, head: bytes, size: int, processors: int) -> list[Section]:
    """The sections of a gzipped file, later ones shorter, as more has to be unpacked before them."""
    with open(path, "rb") as file:
        file.seek(max(0, size - 4))
        unpacked = int.from_bytes(file.read(4), "little")  # its size, modulo 4 GiB: the last section has the rest
    ends = _ends(unpacked, processors, UNPACKING)
    before, after = _around(next(blocks(head, str(path), True, lambda done: None, []), b"").lstrip())
    return [
        PackedSection(str(path), begin, end, before if begin else b"", after if end < unpacked else b"")
        for begin, end in zip([0, *ends], ends if len(ends) > 1 else (), strict=False)
    ]


def _around(head: bytes) -> tuple[bytes, bytes]:
    """What makes events of a trace that begins so a trace."""
    return (b"[", b"]") if head.startswith(b"[") else (b'{"traceEvents":[', b"]}")


def _ends(size: int, processors: int, unpacking: float) -> list[int]:
    """Where sections end that take equally long to read, if to unpack a byte takes ``unpacking`` of the time that decoding it does."""
    least = LEAST_COPIED_BYTES if may_copy() else LEAST_BYTES
    count = max(1, min(processors, MOST, size // least))
    ahead = min(AHEAD_BYTES, size // (count + 1))  # so that the first section is never empty

    def after(time: float) -> list[float]:
        ends = [(time - ahead) / (1 + unpacking)]
        while len(ends) < count:
            ends.append(ends[-1] + (time - unpacking * ends[-1]) / (1 + unpacking))
        return ends

    none, one = after(0)[-1], after(1)[-1]
    ends = after((size - none) / (one - none))
    return [*map(int, ends[:-1]), size]


def may_copy() -> bool:
    """Whether this process can be copied without harm: on Linux, as long as it has one thread, and no JAX, which warns of any copy."""
    try:
        return len(os.listdir("/proc/self/task")) == 1 and "jax" not in sys.modules
    except OSError:
        return False


class Helper:
    """Another process that reads a section; what it read is pickled to here."""

    def __init__(self, section: Section) -> None:
        import subprocess  # 4 ms that copies do not need

        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump((sys.path, section), self._process.stdin)
        self._process.stdin.close()
        self._answers = self._process.stdout

    def answer(self) -> Any:
        """What it read, or ``None`` if it could not."""
        try:
            return pickle.load(self._answers)
        except (EOFError, pickle.UnpicklingError):
            return None

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._answers.close()


class Copy(Helper):
    """A helper that is a copy of this process."""

    def __init__(self, section: Section, read: Read) -> None:
        ours, theirs = os.pipe()
        self._number = os.fork()
        if not self._number:
            try:
                os.close(ours)
                with open(theirs, "wb") as answers:
                    send(read(section), answers)
            finally:
                os._exit(0)  # whatever happened: nothing else of this process is to be done twice
        os.close(theirs)
        self._answers = open(ours, "rb")  # noqa: SIM115  closed at its end

    def end(self) -> None:
        self._answers.close()
        try:
            if os.waitpid(self._number, os.WNOHANG) == (0, 0):
                os.kill(self._number, signal.SIGKILL)
                os.waitpid(self._number, 0)
        except ChildProcessError:  # the program that uses this package waits for all of its children itself
            pass


def send(found: Any, answers: Any) -> None:
    """Pickles what a helper read."""
    pickler = pickle.Pickler(answers, pickle.HIGHEST_PROTOCOL)
    pickler.fast = True  # else both sides remember the bytes of every column until the last: 50 MB more each for a trace of 1 GB
    pickler.dump(found)


def read_sections(sections: list[Section], read: Read, meanwhile: Callable[[], object]) -> Iterator[Any]:
    """What is read of the sections, in their order, the first here; ``None`` for one that could not be read.

    ``meanwhile`` is called while helpers may still be reading.
    """
    helpers: list[Helper] = []
    copied = may_copy()
    try:
        helpers += [Copy(section, read) if copied else Helper(section) for section in sections[1:]]
        yield read(sections[0])
        meanwhile()
        yield from (helper.answer() for helper in helpers)
    except OSError:  # no room for another process
        yield None
    finally:
        for helper in helpers:
            helper.end()
