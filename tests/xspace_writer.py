"""Small XSpace profiles for tests, written field by field.

    plane = Plane("/device:TPU:0", lines=[Line("XLA Ops", [Event("fusion", 10, 5, {"flops": 3})])])
    data = space([plane])

A stat's value says how it is written: a float as a double, an int as int64, a str or bytes as such, `Unsigned` as uint64, and `Ref` as a
reference to an interned string. Metadata ids are given in the order names appear; `Plane.event_id` tells them.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

VARINT, EIGHT, BYTES = 0, 1, 2


class Unsigned(int):
    """A number to be written as uint64."""


class Ref(str):
    """A string to be written as a reference to stat metadata."""


Value = float | int | str | bytes


def varint(number: int) -> bytes:
    """A number in the wire format; negative ones take ten bytes."""
    number %= 2**64
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def number_field(number: int, value: int) -> bytes:
    """A field that holds a number."""
    return varint(number << 3 | VARINT) + varint(value)


def bytes_field(number: int, payload: bytes) -> bytes:
    """A field that holds bytes, a string or a message."""
    return varint(number << 3 | BYTES) + varint(len(payload)) + payload


@dataclass(frozen=True)
class Event:
    """An event: an op or kernel by name, when it began after the line's timestamp, how long it took."""

    name: str
    offset_ps: int = 0
    duration_ps: int = 0
    stats: Mapping[str, Value] = field(default_factory=dict)
    occurrences: int | None = None


@dataclass(frozen=True)
class Line:
    """A timeline."""

    name: str
    events: Iterable[Event] = ()
    timestamp_ns: int = 0
    id: int = 0


@dataclass(frozen=True)
class Metadata:
    """What events of one name share."""

    name: str
    display_name: str = ""
    stats: Mapping[str, Value] = field(default_factory=dict)
    metadata: bytes = b""
    children: tuple[int, ...] = ()
    id: int | None = None


class Plane:
    """A plane. Event metadata not given in ``metadata`` is made from the names of events."""

    def __init__(
        self,
        name: str,
        lines: Iterable[Line] = (),
        stats: Mapping[str, Value] | None = None,
        metadata: Iterable[Metadata] = (),
        id: int = 0,
    ) -> None:
        self.name, self.id, self.lines, self.stats = name, id, list(lines), dict(stats or {})
        self._names: dict[str, int] = {}
        self._events: dict[str, int] = {}
        self.metadata = list(metadata)
        for known in self.metadata:
            self._events[known.name] = known.id if known.id is not None else len(self._events) + 1
        known_names = set(self._events)
        for line in self.lines:
            for event in line.events:
                self.event_id(event.name)
        self.metadata += [Metadata(name) for name in self._events if name not in known_names]

    def event_id(self, name: str) -> int:
        """The metadata id of an event's name."""
        return self._events.setdefault(name, len(self._events) + 1)

    def stat_id(self, name: str) -> int:
        """The metadata id of a stat's name, or of an interned string."""
        return self._names.setdefault(name, len(self._names) + 1)

    def encode(self) -> bytes:
        """The plane in the order the profiler writes it: metadata behind the events."""
        out = number_field(1, self.id) if self.id else b""
        out += bytes_field(2, self.name.encode())
        out += b"".join(bytes_field(3, self._line(line)) for line in self.lines)
        for known in self.metadata:
            key = self._events[known.name]
            out += bytes_field(4, number_field(1, key) + bytes_field(2, self._metadata(key, known)))
        stats = b"".join(bytes_field(6, self._stat(name, value)) for name, value in self.stats.items())
        for name, key in self._names.items():
            out += bytes_field(5, number_field(1, key) + bytes_field(2, number_field(1, key) + bytes_field(2, name.encode())))
        return out + stats

    def _line(self, line: Line) -> bytes:
        out = number_field(1, line.id) + bytes_field(2, line.name.encode())
        out += number_field(3, line.timestamp_ns) if line.timestamp_ns else b""
        return out + b"".join(bytes_field(4, self._event(event)) for event in line.events) + bytes_field(11, line.name.encode())

    def _event(self, event: Event) -> bytes:
        out = number_field(1, self.event_id(event.name))
        out += number_field(2, event.offset_ps) if event.occurrences is None else number_field(5, event.occurrences)
        out += number_field(3, event.duration_ps) if event.duration_ps else b""
        return out + b"".join(bytes_field(4, self._stat(name, value)) for name, value in event.stats.items())

    def _metadata(self, key: int, known: Metadata) -> bytes:
        out = number_field(1, key) + bytes_field(2, known.name.encode())
        out += bytes_field(3, known.metadata) if known.metadata else b""
        out += bytes_field(4, known.display_name.encode()) if known.display_name else b""
        out += b"".join(bytes_field(5, self._stat(name, value)) for name, value in known.stats.items())
        return out + b"".join(number_field(6, child) for child in known.children)

    def _stat(self, name: str, value: Value) -> bytes:
        out = number_field(1, self.stat_id(name))
        if isinstance(value, Ref):
            return out + number_field(7, self.stat_id(str(value)))
        if isinstance(value, Unsigned):
            return out + number_field(3, value)
        if isinstance(value, float):
            return out + varint(2 << 3 | EIGHT) + struct.pack("<d", value)
        if isinstance(value, int):
            return out + number_field(4, value)
        return out + (bytes_field(5, value.encode()) if isinstance(value, str) else bytes_field(6, value))


def space(planes: Iterable[Plane], hostnames: Iterable[str] = (), errors: Iterable[str] = (), warnings: Iterable[str] = ()) -> bytes:
    """A whole profile."""
    out = b"".join(bytes_field(1, plane.encode()) for plane in planes)
    for number, texts in ((2, errors), (3, warnings), (4, hostnames)):
        out += b"".join(bytes_field(number, text.encode()) for text in texts)
    return out
