"""An opened profile: its planes, lines and metadata, found by skipping over the events.

The file is memory-mapped; metadata is decoded on first use, and values of bytes (an embedded HloProto) are given as a `Slice` of the file.
Integers are as written: a TPU's ``program_id`` is unsigned and may be above 2⁶³, a metadata key is signed.

A damaged file is a `SourceError` that names the byte, the plane and the line. With ``salvage=True`` every message with a valid length is
read, and ``notes`` says what was lost. As metadata follows the events in a plane, a truncated plane may have events without names.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from msgspec import Struct

from ...errors import SourceError
from ...files.input_limits import DEFAULT, limits, too_much
from ...units import parse
from ..pipes import opened_path

try:
    from . import _scan
except ImportError as error:
    NOT_BUILT: str | None = f"the native scanner is not built ({error}); run: pip install -e .   (needs a C compiler)"
else:
    NOT_BUILT = None

GZIP_MAGIC = b"\x1f\x8b"
GZIP_WINDOW = 31  # for zlib: a gzip header and the largest window
PIECE_BYTES = int(parse("64 KiB", "B"))
# Profiles shrink about tenfold, but DEFLATE can reach a thousandfold. A file beyond these limits is rejected as a decompression bomb.
UNPACKED_BYTES = int(parse("8 GiB", "B"))
UNPACKED_SMALL_BYTES = int(parse("256 MiB", "B"))
UNPACKED_RATIO = 100

# XLA's profilers write the plane LAST_PLANE and the host's name last. Versions that write NEWER_PLANE (2025) always write LAST_PLANE.
LAST_PLANE, NEWER_PLANE, PROGRAMS_PLANE, DEVICE_PLANES = "Task Environment", "/host:__ScopeRange", "/host:metadata", "/device:"

DOUBLE, UINT64, INT64, STRING, BLOB, REF = range(1, 7)  # how a stat's value was written; 0 is absent

T = TypeVar("T")
_Metadata = tuple[str, str, tuple[int, int], list[tuple[int, int, Any]], list[int]]


class Slice(Struct, frozen=True):
    """A range of the (unpacked) file's bytes."""

    offset: int
    length: int


Value = int | float | str | Slice | None
Stats = Mapping[str, Value]  # by name; if a name occurs twice, the first


class Line(Struct, frozen=True, kw_only=True):
    """A timeline of a plane. ``row`` is its number in the file; times of its events are already absolute."""

    row: int
    plane: int
    id: int
    name: str
    offset: int
    length: int
    whole: bool


class EventMetadata(Struct, frozen=True, kw_only=True):
    """The metadata that events of one metadata id share: the op or kernel, and stats that apply to each event."""

    id: int
    name: str
    display_name: str
    metadata: Slice
    stats: Stats
    children: tuple[int, ...]

    def stat(self, name: str) -> Value:
        """The value of a stat; ``None`` when it is absent."""
        return self.stats.get(name)


class Plane:
    """A device, the host, or a table of metadata."""

    def __init__(self, space: Space, *, row: int, id: int, name: str, lines: tuple[Line, ...], whole: bool) -> None:
        self._space = space
        self.row, self.id, self.name, self.lines, self.whole = row, id, name, lines, whole

    def __repr__(self) -> str:
        return f"Plane({self.name!r}, {len(self.lines)} lines)"

    @cached_property
    def stats(self) -> Stats:
        """The plane's own stats: peaks, versions, device names."""
        return self._by_name(self._space.decode(self, self._space.index.stats, self.row, []))

    def stat(self, name: str) -> Value:
        """The value of a plane's stat; ``None`` when it is absent."""
        return self.stats.get(name)

    @cached_property
    def stat_names(self) -> Mapping[int, str]:
        """Names of stats, and the strings that references refer to."""
        return self._space.decode(self, self._space.index.stat_names, self.row, {})

    @cached_property
    def stat_ids(self) -> Mapping[str, tuple[int, ...]]:
        """The ids of each name: usually one, more in merged profiles."""
        ids: dict[str, list[int]] = {}
        for id, name in self.stat_names.items():
            ids.setdefault(name, []).append(id)
        return {name: tuple(same) for name, same in ids.items()}

    @cached_property
    def event_names(self) -> Mapping[int, str]:
        """The names of all event metadata, by id."""
        return self._space.decode(self, self._space.index.event_names, self.row, {})

    @cached_property
    def event_rows(self) -> Mapping[int, int]:
        """The row of each event metadata in the index, by id."""
        return self._space.index.event_rows(self.row)

    def event(self, id: int) -> EventMetadata | None:
        """The metadata of an event; ``None`` when the plane does not have it."""
        row = self.event_rows.get(id)
        if row is None:
            return None
        nothing: _Metadata = ("", "", (0, 0), [], [])
        name, display_name, place, stats, children = self._space.decode(self, self._space.index.event, row, nothing)
        return EventMetadata(
            id=id, name=name, display_name=display_name, metadata=Slice(*place), stats=self._by_name(stats), children=tuple(children)
        )

    def _by_name(self, stats: list[tuple[int, int, Any]]) -> Stats:
        names = self.stat_names
        return {
            names.get(id, ""): Slice(*value) if kind == BLOB else names.get(value, "") if kind == REF else value
            for id, kind, value in reversed(stats)
        }


class Space:
    """An opened profile: use it in a ``with`` statement, or close it."""

    def __init__(self, data: bytes | bytearray | mmap.mmap, name: str, *, salvage: bool = False, unpacked: bool = False) -> None:
        if NOT_BUILT:
            raise SourceError(f"{name}: {NOT_BUILT}")
        if not len(data):
            raise SourceError(f"{name}: the file is empty")
        self.name, self.salvage, self.size = name, salvage, len(data)
        self._data, self._unpacked = data, unpacked
        try:
            self.index = _scan.Index(data, mapped=isinstance(data, mmap.mmap), most=limits().messages)
        except OverflowError:
            raise too_much("messages", name) from None
        try:
            self.planes = self._planes()
            self.errors, self.warnings, self.hostnames = (tuple(texts) for texts in self.index.texts())
            self.notes: tuple[str, ...] = self._check()
        except BaseException:
            self.close()
            raise

    def _planes(self) -> tuple[Plane, ...]:
        rows, planes = self.index.lines(), []
        for number, (id, name, first, count, whole) in enumerate(self.index.planes()):
            lines = tuple(
                Line(row=row, plane=number, id=id, name=name, offset=offset, length=length, whole=whole)
                for row, (id, name, _, offset, length, whole) in enumerate(rows[first : first + count], start=first)
            )
            planes.append(Plane(self, row=number, id=id, name=name, lines=lines, whole=whole))
        return tuple(planes)

    def _check(self) -> tuple[str, ...]:
        """The faults that the index found, as notes when salvaging; else the first is raised."""
        damages = self.index.damages()
        if not any(plane.name or plane.lines for plane in self.planes):
            what = f" (byte {damages[0][1]:,}: {damages[0][0]})" if damages else ""
            raise SourceError(f"{self.name}: not an XSpace profile{what}; expected a .xplane.pb file written by jax.profiler")
        notes = []
        for what, offset, truncated, plane, line in damages:
            found = self.planes[plane] if plane >= 0 else None
            on = next((known for known in found.lines if known.row == line), None) if found else None
            notes.append(self.complaint(what, offset, truncated=truncated, plane=found, line=on))
            if not self.salvage:
                raise SourceError(notes[0])
        if not (notes or self.hostnames or any(plane.name == LAST_PLANE for plane in self.planes)):
            notes += self._check_end()
        if unknown := self.index.unknown():
            notes.append(f"{self.name}: {unknown:,} unknown fields skipped")
        return tuple(notes)

    def _check_end(self) -> list[str]:
        """Raises or notes that a file without the last plane may have been cut off between two planes."""
        names = {plane.name for plane in self.planes}
        if any(name.startswith(NEWER_PLANE) for name in names):
            note = (
                f"{self.name}: ends after the plane {self.planes[-1].name!r}, without what the profiler writes last; the copy is incomplete"
            )
            if not self.salvage:
                raise SourceError(f"{note}; read the rest with --read salvage")
            return [note]
        if PROGRAMS_PLANE in names or any(name.startswith(DEVICE_PLANES) for name in names):
            return [f"{self.name}: the plane {LAST_PLANE!r}, which profilers write last, is missing; the file may be cut off"]
        return []

    def complaint(self, what: str, offset: int, *, truncated: bool, plane: Plane | None, line: Line | None) -> str:
        """The error message for damage: where in the file, in which plane and line, what is wrong, what to do."""
        places = [f"plane {plane.name!r}"] if plane else []
        places += [f"line {line.name!r}"] if line else []
        place = f" (in {', '.join(places)})" if places else ""
        unpacked = " unpacked" if self._unpacked else ""
        advice = "; the undamaged part was read" if self.salvage else "; read the rest with --read salvage"
        if truncated:
            return f"{self.name}: truncated after {self.size:,}{unpacked} bytes{place}; the copy is incomplete{advice}"
        return f"{self.name}: damaged at{unpacked} byte {offset:,}{place}: {what}{advice}"

    def decode(self, plane: Plane, method: Callable[[int], T], row: int, nothing: T) -> T:
        """The result of a method of the index, or ``nothing`` if the message is damaged and ``salvage`` is set."""
        try:
            return method(row)
        except _scan.Damage as damage:
            what, offset, _ = damage.args
            complaint = self.complaint(what, offset, truncated=False, plane=plane, line=None)
            if not self.salvage:
                raise SourceError(complaint) from None
            self.notes = (*self.notes, complaint)
            return nothing

    def plane_of(self, line: Line) -> Plane:
        """The plane a line belongs to."""
        return self.planes[line.plane]

    def bytes_of(self, piece: Slice) -> bytes:
        """A copy of a range of the file."""
        return bytes(self._data[piece.offset : piece.offset + piece.length])

    def forget(self, begin: int, end: int) -> None:
        """Releases the mapped pages of a range that has been read; reading it again would load them from the file again."""
        if isinstance(self._data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            page = mmap.PAGESIZE
            begin, end = -(-begin // page) * page, end // page * page
            if end > begin:
                self._data.madvise(mmap.MADV_DONTNEED, begin, end - begin)

    def close(self) -> None:
        """Closes the file and its mapping."""
        self.index.close()
        if isinstance(self._data, mmap.mmap):
            self._data.close()
        self._data = b""  # frees the data now: planes and space refer to each other, so the garbage collector would free them late

    def __enter__(self) -> Space:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        shorter = self.index.lost() or (isinstance(self._data, mmap.mmap) and self._data.size() < self.size)
        self.close()
        if shorter and (kind is None or issubclass(kind, Exception)):
            raise SourceError(f"{self.name}: became shorter while it was read; wait until it is written, or read a copy") from None


def open_space(path: Path | str, *, salvage: bool = False) -> Space:
    """Opens a local profile: memory-mapped, or, if it is gzipped, unpacked in memory."""
    data: bytes | mmap.mmap = b""
    try:
        with open(opened_path(path), "rb") as file:
            head = file.read(len(GZIP_MAGIC))
            if head == GZIP_MAGIC:
                data = head + file.read()
            elif head:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise SourceError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise SourceError(f"{path}: is a folder; name a file in it") from None
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: cannot read: {error}") from None
    return open_bytes(data, str(path), salvage=salvage)


def open_bytes(data: bytes | bytearray | mmap.mmap, name: str, *, salvage: bool = False) -> Space:
    """Opens a profile that is already in memory, gzipped or not. ``name`` is used in errors."""
    if data[: len(GZIP_MAGIC)] != GZIP_MAGIC:
        return Space(data, name, salvage=salvage)
    unpacked, complaint = _unpack(data, name)
    if complaint and not salvage:
        raise SourceError(f"{complaint}; read the rest with --read salvage")
    space = Space(unpacked, name, salvage=salvage, unpacked=True)
    if complaint:
        space.notes = (complaint, *space.notes)
    return space


def unpacked_limit(packed: int) -> int:
    """The most bytes that a gzipped file of this size may unpack to: 100 times its size, but 256 MiB at least and 8 GiB at most."""
    allowed = limits().size if limits().size > DEFAULT.size else 0  # only if the user raised it
    return max(min(max(UNPACKED_RATIO * packed, UNPACKED_SMALL_BYTES), UNPACKED_BYTES), allowed)


def _unpack(packed: bytes | bytearray | mmap.mmap, name: str) -> tuple[bytearray, str]:
    """The unpacked bytes, up to any damage, and an error message about the rest, or empty."""
    out, at, limit = bytearray(), 0, unpacked_limit(len(packed))
    stream = zlib.decompressobj(GZIP_WINDOW)
    try:
        while at < len(packed):
            piece = packed[at : at + PIECE_BYTES]
            out += stream.decompress(piece)
            at += len(piece) - len(stream.unused_data)
            if len(out) > limit:
                excess = f"decompresses to more than {limit:,} bytes, implausible for its size"
                raise SourceError(f"{name}: {excess}; if you trust it, raise the limit: --read max-size={2 * limit}")
            if stream.eof:
                stream = zlib.decompressobj(GZIP_WINDOW)
                while packed[at : at + 1] == b"\0":  # archives may be padded
                    at += 1
                if at == len(packed):
                    return out, ""
    except zlib.error as error:
        return out, f"{name}: the gzip stream is damaged near byte {at:,} ({error})"
    return out, f"{name}: the gzip stream ends early, after {len(packed):,} bytes; the copy is incomplete"
