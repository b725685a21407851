"""A trace in pieces: its bytes a few megabytes at a time, cut where one event ends and the next begins.

A cut may be wrong (it may lie inside of an event that has objects of its own): a piece that does not decode is joined with what follows
it, and if that does not help, decoded event by event, so that one bad event costs itself alone.
"""

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from mmap import mmap
from typing import BinaryIO

import msgspec

from ...errors import SourceError
from ...files.input_limits import limits
from ...units import parse
from .events import DOCUMENT, EVENTS, EXACT_EVENTS, HEAD, Event, Head

CHUNK_BYTES = int(parse("256 KiB", "B"))  # whose events a processor's cache can hold
TAIL_BYTES = int(parse("4 KiB", "B"))  # of a chunk in which its last event is looked for first, then in 16 times as many
MOST_HEAD_BYTES = int(parse("64 MiB", "B"))  # before the events
MOST_UNPACKED_BYTES = int(parse("16 GiB", "B"))  # of a gzipped trace, unless --max size is more; none is held at once
MOST_JOINED_BYTES = int(parse("8 MiB", "B"))  # of chunks, when one does not decode
MOST_JOINED = 8  # pieces of one event
EXACT_US = 2**43  # from here on a float does not hold nanoseconds
GZIP = b"\x1f\x8b"
_GZIPPED = 31  # zlib's word for a gzip header and the largest window
_NEXT, _ANY_NEXT = rb'\s*,\s*(?=\{\s*"(?:ph|name|cat)")', rb'\s*,\s*(?=\{\s*")'
CUT, _ANY_CUT = re.compile(rb"(?<=\})" + _NEXT), re.compile(rb"(?<=\})" + _ANY_NEXT)
_END, _ANY_END = re.compile(rb"\}" + _NEXT), re.compile(rb"\}" + _ANY_NEXT)  # the same with the brace, which is found fast
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_CLOSED = re.compile(rb"\}\s*\]")

Blocks = Iterator[bytes]


def blocks(data: bytes | mmap | BinaryIO, name: str, salvage: bool, told: Callable[[int], None], notes: list[str]) -> Blocks:
    """The bytes of a trace, unpacked if it is gzipped. ``told`` hears how many bytes of the file have been read."""
    raw = _pieces(data, told)
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
            raise SourceError(f"{name}: unpacks to more than {most:,} bytes; if you trust it, raise the limit: --max size={2 * most}")
        yield block
        waiting = unpack.unconsumed_tail
        if unpack.eof and unpack.unused_data.startswith(GZIP):  # a file of several members
            waiting, unpack = unpack.unused_data, zlib.decompressobj(_GZIPPED)
        elif unpack.eof:
            return
    if not unpack.eof:
        _damaged(f"{name}: truncated: the gzipped data end too early; the copy is incomplete", salvage, notes)


def _pieces(data: bytes | mmap | BinaryIO, told: Callable[[int], None]) -> Iterator[bytes]:
    if isinstance(data, bytes | mmap):
        for begin in range(0, len(data), CHUNK_BYTES):
            told(begin)
            yield bytes(data[begin : begin + CHUNK_BYTES])
        return
    done = 0
    while piece := data.read(CHUNK_BYTES):
        done += len(piece)
        told(done)
        yield piece


def _damaged(what: str, salvage: bool, notes: list[str]) -> None:
    if not salvage:
        raise SourceError(f"{what}; read the intact part with --salvage")
    notes.append(what)


class Chunks:
    """The events of a trace, a list at a time; ``head`` is complete when all of them were read, ``bad`` counts those that are not JSON."""

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
            enough = 2 * len(text)  # if there is no cut, or one inside of an event, or an event that is not JSON: more text tells
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
            said = "one event is not valid JSON and was" if self.bad == 1 else f"{self.bad:,} events are not valid JSON and were"
            self._notes.append(f"{self._name}: {said} skipped (profilers leave quotes in names unescaped)")

    def _begin(self) -> bytes:
        """What follows the opening bracket of the events; what comes before it is the head."""
        buffer = b""
        for block in self._source:
            buffer += block
            start = buffer.lstrip()
            if start[:1] == b"[":
                self.bare = True
                return start[1:]
            if found := _EVENTS.search(buffer):
                self.head = self._head(buffer[: found.end()] + b"]}")
                return buffer[found.end() :]
            if len(buffer) > MOST_HEAD_BYTES:
                break
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
        """The events of some pieces; those that are not JSON are counted and left out."""
        events: list[Event] = []
        place = 0
        while place < len(pieces):
            for length in range(1, MOST_JOINED + 1):  # more than one: a cut inside of an event
                found = self._decode(b"[" + b",".join(pieces[place : place + length]) + b"]")
                if found is not None or place + length >= len(pieces):
                    break
            if found is None:
                self.bad, length = self.bad + 1, 1
            events += found or ()
            place += length
        return events

    def _end(self, text: bytes) -> list[Event]:
        """The last events, and what the document says after them."""
        if (found := self._document(text)) is not None:
            return found
        *pieces, last = _split(text)
        if (found := self._document(last)) is None:
            for closing in _CLOSED.finditer(last):
                if self._document(last[closing.start() + 1 :]) is not None:  # the event before it is not JSON
                    self.bad += 1
                    return self._one_by_one(pieces)
            found = self._decode(b"[" + last + b"]")
            where = "in the middle of an event" if found is None else "between two events"
            _damaged(f"{self._name}: truncated {where}; the copy is incomplete", self._salvage, self._notes)
        return [*self._one_by_one(pieces), *(found or [])]

    def _document(self, text: bytes) -> list[Event] | None:
        """The events of the rest of the document, if it is whole."""
        if self.bare:
            return self._decode(b"[" + text)
        try:
            rest = DOCUMENT.decode(b'{"traceEvents":[' + text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        for name in Head.__struct_fields__:
            if (said := getattr(rest, name)) is not None:
                setattr(self.head, name, said)
        return self._decode(bytes(rest.events))


def _last_cut(text: bytearray) -> int | None:
    """Where the comma before the last event of a text is."""
    tails = (max(0, len(text) - size) for size in (TAIL_BYTES, 16 * TAIL_BYTES, len(text)))
    for pattern, begin in (*((_END, tail) for tail in tails), (_ANY_END, 0)):
        cut = None
        for found in pattern.finditer(text, begin):
            cut = found
        if cut is not None:
            return text.index(b",", cut.start())
    return None


def _split(text: bytes) -> list[bytes]:
    """A text cut between its events, or wherever that may be."""
    return CUT.split(text) if CUT.search(text) else _ANY_CUT.split(text)
