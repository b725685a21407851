"""MLIR bytecode, the container: tables of strings, attributes and types, and operations that point into them.

The format is documented (mlir/docs/BytecodeFormat.md); versions 0 to 6 are supported. Attributes, types and properties are encoded by their
dialects: here they stay bytes (`Entry`). Every count and offset is checked against the file's size, so that damaged files raise `Malformed`
in time linear in their size.
"""

from typing import TypeVar

from msgspec import Struct, field

from ....files.input_limits import excess, limits
from ...ir.malformed import Malformed
from . import MAGIC
from .writing import printable_text

T = TypeVar("T")
NEWEST = 6
MAX_DEPTH = 50
# The container version that introduced each feature.
_DIALECT_VERSIONS, _ISOLATED_SECTIONS, _USE_ORDERS, _FEWER_LOCATIONS, _PROPERTIES_APART = 1, 2, 3, 4, 5
_STRINGS, _DIALECTS, _ATTRIBUTES, _OFFSETS, _IR, _PROPERTIES = 0, 1, 2, 3, 4, 8


class Entry(Struct, frozen=True):
    """An attribute or type: in its dialect's encoding, or as text (``custom`` is false)."""

    dialect: str
    data: bytes
    custom: bool

    @property
    def text(self) -> str:
        return self.data.split(b"\0")[0].decode("utf-8", "replace")


class RawOperation(Struct, frozen=True):
    """One operation. Values have numbers that are unique in the file; attributes, types and locations are indices of their tables."""

    name: str
    location: int
    operands: tuple[int, ...] = ()
    results: tuple[tuple[int, int], ...] = ()  # value and type
    attributes: int | None = None
    properties: bytes | None = None
    regions: tuple["RawRegion", ...] = ()


class RawBlock(Struct, frozen=True):
    """The operations of a block in order, and its arguments: value, type, and location if one is given."""

    arguments: tuple[tuple[int, int, int | None], ...]
    operations: tuple[RawOperation, ...]


RawRegion = tuple[RawBlock, ...]


class Bytecode(Struct, frozen=True):
    """A file's tables, and the block of its top-level operations."""

    size: int  # of the file
    version: int
    strings: list[str]
    attributes: list[Entry]
    types: list[Entry]
    value_types: list[int]  # of each value, -1 for one that is never defined
    block: RawBlock


class Cursor(Struct):
    """A position in some bytes."""

    data: bytes
    at: int = 0

    def byte(self) -> int:
        if self.at >= len(self.data):
            raise Malformed("the bytecode ends too early")
        self.at += 1
        return self.data[self.at - 1]

    def take(self, count: int) -> bytes:
        start = self.at
        if count > len(self.data) - start:
            raise Malformed("the bytecode ends too early")
        self.at += count
        return self.data[start : self.at]

    def number(self) -> int:
        """A PrefixVarInt: the number of low zero bits is the number of further bytes."""
        first = self.byte()
        if first & 1:
            return first >> 1
        if first == 0:
            return int.from_bytes(self.take(8), "little")
        more = (first & -first).bit_length() - 1
        return int.from_bytes(bytes([first]) + self.take(more), "little") >> (more + 1)

    def signed(self) -> int:
        raw = self.number()
        return (raw >> 1) ^ -(raw & 1)

    def count(self) -> int:
        """The length of a list whose entries take at least one byte each."""
        count = self.number()
        if count > len(self.data) - self.at:
            raise Malformed("the bytecode has more entries than bytes")
        return count

    def numbers(self) -> list[int]:
        return [self.number() for _ in range(self.count())]

    def signeds(self) -> list[int]:
        return [self.signed() for _ in range(self.count())]

    def section(self) -> tuple[int, bytes]:
        mark = self.byte()
        length = self.number()
        if mark & 0x80:
            alignment = self.number()
            if alignment & (alignment - 1) or alignment > len(self.data):
                raise Malformed("a section of the bytecode has an invalid alignment")
            while alignment > 1 and self.at % alignment:
                self.byte()
        return mark & 0x7F, self.take(length)

    @property
    def is_done(self) -> bool:
        return self.at >= len(self.data)


def entry_at(table: list[T], number: int) -> T:
    """An entry of a table; raises `Malformed` for a number outside of it."""
    if not 0 <= number < len(table):
        raise Malformed("the bytecode points outside its tables")
    return table[number]


class _BlockReader(Struct):
    """Reads operations; ``scope`` has the numbers of the values that the current operation may use."""

    version: int
    most_values: int
    strings: list[str]
    names: list[str] = field(default_factory=list)  # of operations, with their dialect
    attributes: list[Entry] = field(default_factory=list)
    types: list[Entry] = field(default_factory=list)
    properties: list[bytes] = field(default_factory=list)
    count: int = 0  # of operations
    scope: list[int] = field(default_factory=list)
    value_types: list[int] = field(default_factory=list)

    def block(self, cursor: Cursor, first: int, depth: int) -> tuple[RawBlock, int]:
        """A block whose values start at index ``first`` of the scope, and the index of the next value."""
        encoding = cursor.number()
        arguments = []
        if encoding & 1:
            for _ in range(cursor.count()):
                kind, location = cursor.number(), None
                if self.version < _FEWER_LOCATIONS:
                    location = cursor.number()
                else:
                    location = cursor.number() if kind & 1 else None
                    kind >>= 1
                arguments.append((self._define(first, kind), kind, location))
                first += 1
            if self.version >= _USE_ORDERS and cursor.byte():
                _skip_orders(cursor, len(arguments))
        operations = []
        self.count += encoding >> 1
        if self.count > limits().instructions:
            raise Malformed(excess("instructions"))
        for _ in range(encoding >> 1):
            operation, first = self.operation(cursor, first, depth)
            operations.append(operation)
        return RawBlock(tuple(arguments), tuple(operations)), first

    def _define(self, place: int, kind: int) -> int:
        if place >= len(self.scope) or kind >= len(self.types):
            raise Malformed("a region of the bytecode has more values or types than it declares")
        self.value_types[self.scope[place]] = kind
        return self.scope[place]

    def operation(self, cursor: Cursor, first: int, depth: int) -> tuple[RawOperation, int]:
        if depth > MAX_DEPTH:
            raise Malformed(f"regions nested deeper than {MAX_DEPTH}")
        name = entry_at(self.names, cursor.number())
        mask = cursor.byte()
        location = cursor.number()
        attributes = cursor.number() if mask & 0x01 else None
        properties = entry_at(self.properties, cursor.number()) if mask & 0x40 else None
        results = []
        if mask & 0x02:
            for _ in range(cursor.count()):
                kind = cursor.number()
                results.append((self._define(first, kind), kind))
                first += 1
        operands = tuple(entry_at(self.scope, number) for number in cursor.numbers()) if mask & 0x04 else ()
        if mask & 0x08:
            cursor.numbers()  # successors
        if mask & 0x20:
            _skip_orders(cursor, len(results))
        regions = self.regions(cursor, depth) if mask & 0x10 else ()
        return RawOperation(name, location, operands, tuple(results), attributes, properties, regions), first

    def regions(self, cursor: Cursor, depth: int) -> tuple[RawRegion, ...]:
        """The regions of an operation; isolated ones, which use no outer values, are in a section of their own."""
        encoding = cursor.number()
        isolated = bool(encoding & 1)
        if isolated and self.version >= _ISOLATED_SECTIONS:
            code, data = cursor.section()
            if code != _IR:
                raise Malformed("an isolated region of the bytecode is not a section of operations")
            cursor = Cursor(data)
        if encoding >> 1 > len(cursor.data):
            raise Malformed("the bytecode has more regions than bytes")
        return tuple(self.region(cursor, depth, isolated=isolated) for _ in range(encoding >> 1))

    def region(self, cursor: Cursor, depth: int, *, isolated: bool) -> RawRegion:
        count = cursor.number()
        if not count:
            return ()
        outer = self.scope
        if isolated:
            self.scope = []
        first, known = len(self.scope), len(self.value_types)
        count_of_values = cursor.number()
        if count_of_values > self.most_values - known:  # each takes a byte at least
            raise Malformed("the bytecode has more values than bytes")
        self.scope += range(known, known + count_of_values)
        self.value_types += [-1] * count_of_values
        blocks = []
        place = first
        for _ in range(count):
            block, place = self.block(cursor, place, depth + 1)
            blocks.append(block)
        del self.scope[first:]
        self.scope = outer
        return tuple(blocks)


def _skip_orders(cursor: Cursor, values: int) -> None:
    """Skips the use-list orders, which do not affect what is computed."""
    count = cursor.number() if values > 1 else 1
    for _ in range(count):
        if values > 1:
            cursor.number()
        for _ in range(cursor.number() >> 1):
            cursor.number()


def read_bytecode(data: bytes) -> Bytecode:
    """The tables and the operations of a file."""
    cursor = Cursor(data)
    if cursor.take(len(MAGIC)) != MAGIC:
        raise Malformed("not MLIR bytecode")
    version = cursor.number()
    if version > NEWEST:
        raise Malformed(f"MLIR bytecode of version {version:,}; the newest supported version is {NEWEST}")
    while cursor.byte():
        pass  # the producer's name
    sections: dict[int, bytes] = {}
    while not cursor.is_done:
        code, content = cursor.section()
        if code in sections:
            raise Malformed("the bytecode has a section twice")
        sections[code] = content
    reader = _BlockReader(version, len(data), _strings(Cursor(sections.get(_STRINGS, b""))))
    dialects = _dialects(Cursor(sections.get(_DIALECTS, b"")), reader)
    _entries(sections.get(_ATTRIBUTES, b""), Cursor(sections.get(_OFFSETS, b"")), dialects, reader)
    if _PROPERTIES in sections:
        properties = Cursor(sections[_PROPERTIES])
        reader.properties = [properties.take(properties.number()) for _ in range(properties.count())]
    block, _ = reader.block(Cursor(sections.get(_IR, b"")), 0, 0)
    return Bytecode(len(data), version, reader.strings, reader.attributes, reader.types, reader.value_types, block)


def _strings(cursor: Cursor) -> list[str]:
    """The table of strings: their lengths, last first, then their characters. Bytes that are not UTF-8 become surrogates."""
    sizes = cursor.numbers()[::-1]
    return [cursor.take(size)[:-1].decode("utf-8", "surrogateescape") for size in sizes]


def _dialects(cursor: Cursor, reader: _BlockReader) -> list[str]:
    """The dialects; the names of operations follow them, grouped by dialect."""
    dialects = []
    for _ in range(cursor.count()):
        name = cursor.number()
        if reader.version < _DIALECT_VERSIONS:
            dialects.append(entry_at(reader.strings, name))
            continue
        dialects.append(entry_at(reader.strings, name >> 1))
        if name & 1:
            cursor.section()
    if reader.version >= _FEWER_LOCATIONS:
        cursor.number()  # operations in all
    while not cursor.is_done:
        dialect = entry_at(dialects, cursor.number())
        for name in cursor.numbers():
            short = entry_at(reader.strings, name >> 1 if reader.version >= _PROPERTIES_APART else name)
            reader.names.append(printable_text(f"{dialect}.{short}"))
    return dialects


def _entries(data: bytes, offsets: Cursor, dialects: list[str], reader: _BlockReader) -> None:
    """Attributes, then types, grouped by dialect: the size of each and whether its dialect encoded it."""
    contents = Cursor(data)
    for table, count in ((reader.attributes, offsets.number()), (reader.types, offsets.number())):
        while len(table) < count:
            dialect = entry_at(dialects, offsets.number())
            for size in offsets.numbers():
                table.append(Entry(dialect, contents.take(size >> 1), bool(size & 1)))
