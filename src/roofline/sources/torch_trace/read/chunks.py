"""Decodes a trace in chunks, which are cut between two events.

A cut may be wrong (inside an event that contains objects). A chunk that does not decode is joined with the text after it, and if that does
not help, decoded event by event, so that an invalid event loses only itself.
"""

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from mmap import mmap
from typing import BinaryIO

import msgspec

from ....errors import SourceError
from ....files.input_limits import limits
from ....units import parse
from .events import DOCUMENT, EVENTS, EXACT_EVENTS, HEAD, Event, Head

CHUNK_BYTES = int(parse("256 KiB", "B"))  # small enough for its events to fit into the CPU's cache
TAIL_BYTES = int(parse("4 KiB", "B"))  # at the end of a chunk that are searched for its last event first, then 16 times as many
MOST_HEAD_BYTES = int(parse("64 MiB", "B"))  # before the events
MOST_UNPACKED_BYTES = int(parse("16 GiB", "B"))  # of a gzipped trace, unless --read max-size is larger; never in memory at once
MOST_JOINED_BYTES = int(parse("8 MiB", "B"))  # of chunks that are joined because one does not decode
MOST_JOINED = 8  # pieces of one event
EXACT_US = 2**43  # for larger times in microseconds, a float is not exact to the nanosecond
GZIP = b"\x1f\x8b"
_GZIPPED = 31  # for zlib: a gzip header and the largest window
_NEXT, _ANY_NEXT = rb'\s*,\s*(?=\{\s*"(?:ph|name|cat)")', rb'\s*,\s*(?=\{\s*")'
CUT, _ANY_CUT = re.compile(rb"(?<=\})" + _NEXT), re.compile(rb"(?<=\})" + _ANY_NEXT)
_END, _ANY_END = re.compile(rb"\}" + _NEXT), re.compile(rb"\}" + _ANY_NEXT)  # the same including the brace, which is found faster
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_CLOSED = re.compile(rb"\}\s*\]")

Blocks = Iterator[bytes]


def blocks(data: bytes | mmap | BinaryIO, name: str, salvage: bool, report: Callable[[int], None], notes: list[str]) -> Blocks:
    """The bytes of a trace, unpacked if it is gzipped. ``report`` is called with the bytes of the file that have been read."""
    raw = _pieces(data, report)
    first = next(raw, b"")
    if not first.startswith(GZIP):
        yield first
        yield from raw
        return
    unpack = zlib.decompressobj(_GZIPPED)
    waiting, unpacked, most = first, 0, max(MOST_UNPACKED_BYTES, limits().size)
    while waiting or (waiting := next(raw, b"")):
        try:
            block = unpack.decompress(waiting, CHUNK_BYTES)
        except zlib.error as error:
            _damaged(f"{name}: cannot unpack: {error}", salvage, notes)
            return
        unpacked += len(block)
        if unpacked > most:
            raise SourceError(f"{name}: unpacks to more than {most:,} bytes; if you trust it, raise the limit: --read max-size={2 * most}")
        yield block
        waiting = unpack.unconsumed_tail
        if unpack.eof and unpack.unused_data.startswith(GZIP):  # a file of several members
            waiting, unpack = unpack.unused_data, zlib.decompressobj(_GZIPPED)
        elif unpack.eof:
            return
    if not unpack.eof:
        _damaged(f"{name}: truncated: the gzipped data end too early; the copy is incomplete", salvage, notes)


def _pieces(data: bytes | mmap | BinaryIO, report: Callable[[int], None]) -> Iterator[bytes]:
    if isinstance(data, bytes | mmap):
        for begin in range(0, len(data), CHUNK_BYTES):
            report(begin)
            yield bytes(data[begin : begin + CHUNK_BYTES])
        return
    done = 0
    while piece := data.read(CHUNK_BYTES):
        done += len(piece)
        report(done)
        yield piece


def _damaged(what: str, salvage: bool, notes: list[str]) -> None:
    if not salvage:
        raise SourceError(f"{what}; read the intact part with --read salvage")
    notes.append(what)


class Chunks:
    """The events of a trace, a list at a time. ``head`` is complete after the last; ``bad`` counts events that are not valid JSON."""

    def __init__(self, source: Blocks, name: str, *, salvage: bool, notes: list[str]) -> None:
        self._source, self._name, self._salvage, self._notes = source, name, salvage, notes
        self._exact = False
        self.head, self.bad, self.bare = Head(), 0, False

    def __iter__(self) -> Iterator[list[Event]]:
        text, enough = bytearray(b"[" + self._begin()), CHUNK_BYTES
        for block in self._source:
            text += block
            if len(text) < enough:
                continue
            enough = 2 * len(text)  # for the case that there is no cut, a wrong one, or an invalid event: then read more
            cut = _last_cut(text)
            if cut is None:
                if len(text) > MOST_HEAD_BYTES:
                    raise SourceError(
                        f"{self._name}: no event ends within {len(text):,} bytes; not a trace of the PyTorch profiler, or damaged"
                    )
                continue
            rest = text[cut + 1 :]
            text[cut:] = b"]"
            events = self._decode(text)
            if events is None and len(text) > MOST_JOINED_BYTES:
                events = self._one_by_one(_split(bytes(text[1:-1])))
            if events is None:
                text[cut:] = b"," + rest
            else:
                text, enough = bytearray(b"[") + rest, CHUNK_BYTES
                yield events
        yield self._end(bytes(text[1:]))
        if self.bad:
            bad = "one event is not valid JSON and was" if self.bad == 1 else f"{self.bad:,} events are not valid JSON and were"
            self._notes.append(f"{self._name}: {bad} skipped (profilers leave quotes in names unescaped)")

    def _begin(self) -> bytes:
        """Reads up to the opening bracket of the events; sets the head from the text before it and returns the text after it."""
        buffer = b""
        for block in self._source:
            buffer += block
            start = buffer.lstrip()
            if start[:1] == b"[":
                self.bare = True
                return start[1:]
            if match := _EVENTS.search(buffer):
                self.head = self._head(buffer[: match.end()] + b"]}")
                return buffer[match.end() :]
            if len(buffer) > MOST_HEAD_BYTES:
                break
        if len(buffer) <= MOST_HEAD_BYTES and not _is_json(buffer):
            raise SourceError(f"{self._name}: truncated before its first event; the copy is incomplete: copy it again, or record it again")
        raise SourceError(f"{self._name}: no traceEvents in this file; name a trace of the PyTorch profiler")

    def _head(self, text: bytes) -> Head:
        try:
            return HEAD.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._notes.append(f"{self._name}: what comes before its events is not valid JSON: names of devices may be missing")
            return Head()

    def _decode(self, text: bytes | bytearray) -> list[Event] | None:
        """Events, or ``None`` if the text is not a list of them."""
        try:
            events = (EXACT_EVENTS if self._exact else EVENTS).decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if not self._exact and any(event.ts >= EXACT_US for event in events[:64]):
            self._exact = True
            return self._decode(text)
        return events

    def _one_by_one(self, pieces: Sequence[bytes]) -> list[Event]:
        """The events of some pieces; those that are not valid JSON are counted and left out."""
        events: list[Event] = []
        place = 0
        while place < len(pieces):
            for length in range(1, MOST_JOINED + 1):  # an event has several pieces if a cut is inside it
                decoded = self._decode(b"[" + b",".join(pieces[place : place + length]) + b"]")
                if decoded is not None or place + length >= len(pieces):
                    break
            if decoded is None:
                self.bad, length = self.bad + 1, 1
            events += decoded or ()
            place += length
        return events

    def _end(self, text: bytes) -> list[Event]:
        """The last events; adds the fields after them to the head."""
        if (events := self._document(text)) is not None:
            return events
        *pieces, last = _split(text)
        if (events := self._document(last)) is None:
            for closing in _CLOSED.finditer(last):
                if self._document(last[closing.start() + 1 :]) is not None:  # the event before it is not valid JSON
                    self.bad += 1
                    return self._one_by_one(pieces)
            events = self._decode(b"[" + last + b"]")
            where = "in the middle of an event" if events is None else "between two events"
            _damaged(f"{self._name}: truncated {where}; the copy is incomplete", self._salvage, self._notes)
        return [*self._one_by_one(pieces), *(events or [])]

    def _document(self, text: bytes) -> list[Event] | None:
        """The events of the rest of the document; ``None`` if it is not complete and valid."""
        if self.bare:
            return self._decode(b"[" + text)
        try:
            rest = DOCUMENT.decode(b'{"traceEvents":[' + text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        for name in Head.__struct_fields__:
            if (value := getattr(rest, name)) is not None:
                setattr(self.head, name, value)
        return self._decode(bytes(rest.events))


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _last_cut(text: bytearray) -> int | None:
    """The place of the comma before the last event of a text."""
    tails = (max(0, len(text) - size) for size in (TAIL_BYTES, 16 * TAIL_BYTES, len(text)))
    for pattern, begin in (*((_END, tail) for tail in tails), (_ANY_END, 0)):
        cut = None
        for match in pattern.finditer(text, begin):
            cut = match
        if cut is not None:
            return text.index(b",", cut.start())
    return None


def _split(text: bytes) -> list[bytes]:
    """A text cut between its events; if none is recognised, at every place where an object may begin."""
    return CUT.split(text) if CUT.search(text) else _ANY_CUT.split(text)
