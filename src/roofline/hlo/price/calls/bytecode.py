"""MLIR bytecode, as far as counting needs it: operations with their names, operand and result types, constants and regions.

The format is documented (mlir/docs/BytecodeFormat.md, version 6 and below) and stable; codes of builtin types and attributes are
those of BuiltinDialectBytecode.td. Attributes of other dialects are kept as their text, or not at all.
"""

from typing import TypeVar

from msgspec import Struct, field

from .traffic import Misfit

T = TypeVar("T")
MAGIC = b"ML\xefR"
NEWEST, OLDEST = 6, 5  # before 5, properties were attributes
MOST_DEPTH = 32
_STRINGS, _DIALECTS, _ATTRIBUTES, _OFFSETS, _IR, _PROPERTIES = 0, 1, 2, 3, 4, 8
_FLOATS = {3: "bf16", 4: "f16", 5: "f32", 6: "f64"}
_INTEGER, _INDEX, _TENSOR, _ENCODED_TENSOR = 0, 1, 13, 14
_STRING_ATTRIBUTE, _INTEGER_ATTRIBUTE = 2, 8


class Type(Struct, frozen=True):
    """A type: the name of its elements (``f32``, ``i32``, or the text of another dialect's type) and a tensor's shape."""

    element: str
    shape: tuple[int, ...] = ()

    @property
    def elements(self) -> int:
        total = 1
        for size in self.shape:
            total *= size
        return total


class Operation(Struct, frozen=True):
    """One operation. ``operands`` and ``results`` are (number, type) of values.

    ``constants`` are its properties, in order, where they are whole numbers; ``options`` the same, read as properties that may be left
    out, which are encoded otherwise; ``words`` those that are strings.
    """

    name: str
    operands: tuple[tuple[int, Type], ...]
    results: tuple[tuple[int, Type], ...]
    constants: tuple[int | None, ...] = ()
    options: tuple[int | None, ...] = ()
    regions: tuple["Region", ...] = ()
    words: tuple[str, ...] = ()


class Block(Struct, frozen=True):
    """Operations in order, behind the types of the block's arguments."""

    arguments: tuple[Type, ...]
    operations: tuple[Operation, ...]


Region = tuple[Block, ...]


class _Cursor(Struct):
    """A place in some bytes."""

    data: bytes
    at: int = 0

    def byte(self) -> int:
        self.at += 1
        if self.at > len(self.data):
            raise Misfit("bytecode that ends too early")
        return self.data[self.at - 1]

    def take(self, count: int) -> bytes:
        self.at += count
        if count < 0 or self.at > len(self.data):
            raise Misfit("bytecode that ends too early")
        return self.data[self.at - count : self.at]

    def number(self) -> int:
        """A PrefixVarInt: as many low zero bits as there are further bytes."""
        first = self.byte()
        if first == 0:
            return int.from_bytes(self.take(8), "little")
        more = (first & -first).bit_length() - 1
        return int.from_bytes(bytes([first]) + self.take(more), "little") >> (more + 1)

    def signed(self) -> int:
        raw = self.number()
        return (raw >> 1) ^ -(raw & 1)

    def section(self) -> tuple[int, bytes]:
        mark = self.byte()
        length = self.number()
        if mark & 0x80:
            alignment = self.number()
            while alignment > 1 and self.at % alignment:
                self.byte()
        return mark & 0x7F, self.take(length)

    @property
    def is_done(self) -> bool:
        return self.at >= len(self.data)


class _Entry(Struct):
    """An attribute or type not yet decoded."""

    dialect: str
    data: bytes
    custom: bool


class _Reader(Struct):
    strings: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of operations, with their dialect
    attributes: list[_Entry] = field(default_factory=list)
    types: list[_Entry] = field(default_factory=list)
    properties: list[bytes] = field(default_factory=list)
    values: list[Type | None] = field(default_factory=list)

    def type(self, number: int) -> Type:
        entry = _at(self.types, number)
        if not entry.custom:
            return Type(entry.data.split(b"\0")[0].decode("utf-8", "replace"))
        if entry.dialect != "builtin":
            return Type(f"!{entry.dialect}")
        cursor = _Cursor(entry.data)
        code = cursor.number()
        if code in _FLOATS:
            return Type(_FLOATS[code])
        if code == _INTEGER:
            return Type(f"i{cursor.number() >> 2}")
        if code == _INDEX:
            return Type("index")
        if code in (_TENSOR, _ENCODED_TENSOR):
            if code == _ENCODED_TENSOR:
                cursor.number()
            shape = tuple(cursor.signed() for _ in range(cursor.number()))
            inner = cursor.number()
            if inner >= number + len(self.types) or len(shape) > MOST_DEPTH or min(shape, default=0) < 0:
                raise Misfit("a tensor type that makes no sense")
            return Type(self._element(inner), shape)
        return Type(f"!builtin.{code}")

    def _element(self, number: int) -> str:
        """The element type of a tensor, which is none itself."""
        entry = _at(self.types, number)
        if entry.custom and entry.dialect == "builtin" and _Cursor(entry.data).number() in (_TENSOR, _ENCODED_TENSOR):
            raise Misfit("a tensor of tensors")
        return self.type(number).element

    def whole_number(self, number: int) -> int | None:
        """The value of an integer attribute; ``None`` for any other attribute."""
        entry = _at(self.attributes, number)
        if not entry.custom or entry.dialect != "builtin":
            return None
        cursor = _Cursor(entry.data)
        code = cursor.number()
        if code != _INTEGER_ATTRIBUTE:
            return None
        kind = self.type(cursor.number()).element
        if kind == "index":
            return cursor.signed()
        if not kind.startswith("i") or not kind[1:].isdecimal():
            return None
        width = int(kind[1:])
        return cursor.byte() if width <= 8 else cursor.signed() if width <= 64 else None

    def word(self, number: int) -> str | None:
        """The value of a string attribute; ``None`` for any other attribute."""
        entry = _at(self.attributes, number)
        if not entry.custom or entry.dialect != "builtin":
            return None
        cursor = _Cursor(entry.data)
        return _at(self.strings, cursor.number()) if cursor.number() == _STRING_ATTRIBUTE else None

    def settings(self, data: bytes) -> tuple[tuple[int | None, ...], tuple[int | None, ...], tuple[str, ...]]:
        """The properties of an operation: indices of attributes, or of those that may be left out twice the index plus one."""
        cursor = _Cursor(data)
        numbers = []
        while not cursor.is_done:
            numbers.append(cursor.number())
        held = len(self.attributes)
        required = tuple(self.whole_number(number) if number < held else None for number in numbers)
        optional = tuple(self.whole_number(number >> 1) if number & 1 and number >> 1 < held else None for number in numbers)
        return required, optional, tuple(word for number in numbers if number < held and (word := self.word(number)))

    def block(self, cursor: _Cursor, first: int, depth: int) -> tuple[Block, int]:
        """A block whose values start at number ``first``, and the number of the next value."""
        encoding = cursor.number()
        arguments: list[Type] = []
        if encoding & 1:
            for _ in range(cursor.number()):
                kind = cursor.number()
                if kind & 1:
                    cursor.number()
                arguments.append(self.type(kind >> 1))
                first = self._define(first, arguments[-1])
            if cursor.byte():
                _skip_orders(cursor, len(arguments))
        operations = []
        for _ in range(encoding >> 1):
            operation, first = self.operation(cursor, first, depth)
            operations.append(operation)
        return Block(tuple(arguments), tuple(operations)), first

    def _define(self, number: int, kind: Type) -> int:
        if not 0 <= number < len(self.values):
            raise Misfit("more values than a region says it has")
        self.values[number] = kind
        return number + 1

    def operation(self, cursor: _Cursor, first: int, depth: int) -> tuple[Operation, int]:
        if depth > MOST_DEPTH:
            raise Misfit(f"regions nested deeper than {MOST_DEPTH}")
        name = _at(self.names, cursor.number())
        mask = cursor.byte()
        cursor.number()  # location
        if mask & 0x01:
            cursor.number()  # attributes beside the properties
        constants: tuple[int | None, ...] = ()
        options: tuple[int | None, ...] = ()
        words: tuple[str, ...] = ()
        if mask & 0x40:
            constants, options, words = self.settings(_at(self.properties, cursor.number()))
        results = []
        if mask & 0x02:
            for _ in range(cursor.number()):
                kind = self.type(cursor.number())
                results.append((first, kind))
                first = self._define(first, kind)
        operands = []
        if mask & 0x04:
            for _ in range(cursor.number()):
                number = cursor.number()
                operands.append((number, _at(self.values, number) or Type("?")))
        if mask & 0x08:
            for _ in range(cursor.number()):
                cursor.number()  # successors
        if mask & 0x20:
            _skip_orders(cursor, len(results))
        regions = []
        if mask & 0x10:
            encoding = cursor.number()
            for _ in range(encoding >> 1):
                regions.append(self.region(cursor, depth, isolated=bool(encoding & 1)))
        return Operation(name, tuple(operands), tuple(results), constants, options, tuple(regions), words), first

    def region(self, cursor: _Cursor, depth: int, *, isolated: bool) -> Region:
        if isolated:
            code, data = cursor.section()
            if code != _IR:
                raise Misfit("an isolated region that is no section of operations")
            outer, self.values = self.values, []
            found = self.region(_Cursor(data), depth + 1, isolated=False)
            self.values = outer
            return found
        count = cursor.number()
        if not count:
            return ()
        held = cursor.number()
        if held > len(cursor.data):
            raise Misfit("more values than bytes")
        first = len(self.values)
        self.values += [None] * held
        blocks = []
        number = first
        for _ in range(count):
            block, number = self.block(cursor, number, depth + 1)
            blocks.append(block)
        del self.values[first:]
        return tuple(blocks)


def _at(table: list[T], number: int) -> T:
    if number >= len(table):
        raise Misfit("bytecode that points outside its tables")
    return table[number]


def _skip_orders(cursor: _Cursor, values: int) -> None:
    """Past the orders in which values are used, which say nothing about what is computed."""
    count = cursor.number() if values > 1 else 1
    for _ in range(count):
        if values > 1:
            cursor.number()
        for _ in range(cursor.number() >> 1):
            cursor.number()


def read_bytecode(data: bytes) -> Block:
    """The top-level block of a module."""
    cursor = _Cursor(data)
    if cursor.take(4) != MAGIC:
        raise Misfit("not MLIR bytecode")
    version = cursor.number()
    if not OLDEST <= version <= NEWEST:
        raise Misfit(f"MLIR bytecode of version {version}")
    while cursor.byte():
        pass  # the producer's name
    sections: dict[int, bytes] = {}
    while not cursor.is_done:
        code, content = cursor.section()
        sections[code] = content
    strings = _strings(_Cursor(sections.get(_STRINGS, b"")))
    reader = _Reader(strings=strings)
    dialects = _dialects(_Cursor(sections.get(_DIALECTS, b"")), strings, reader)
    _entries(sections.get(_ATTRIBUTES, b""), _Cursor(sections.get(_OFFSETS, b"")), dialects, reader)
    if _PROPERTIES in sections:
        properties = _Cursor(sections[_PROPERTIES])
        reader.properties = [properties.take(properties.number()) for _ in range(properties.number())]
    return reader.block(_Cursor(sections.get(_IR, b"")), 0, 0)[0]


def _strings(cursor: _Cursor) -> list[str]:
    """The table of strings: their lengths, last first, then their characters."""
    sizes = [cursor.number() for _ in range(_count(cursor))][::-1]
    return [cursor.take(size)[:-1].decode("utf-8", "replace") for size in sizes]


def _count(cursor: _Cursor) -> int:
    """A number of things that take a byte each at least."""
    count = cursor.number()
    if count > len(cursor.data):
        raise Misfit("more entries than bytes")
    return count


def _dialects(cursor: _Cursor, strings: list[str], reader: _Reader) -> list[str]:
    dialects = []
    for _ in range(_count(cursor)):
        name = cursor.number()
        dialects.append(_at(strings, name >> 1))
        if name & 1:
            cursor.section()
    cursor.number()  # operations in all
    while not cursor.is_done:
        dialect = _at(dialects, cursor.number())
        for _ in range(_count(cursor)):
            reader.names.append(f"{dialect}.{_at(strings, cursor.number() >> 1)}")
    return dialects


def _entries(data: bytes, offsets: _Cursor, dialects: list[str], reader: _Reader) -> None:
    """Attributes, then types, grouped by dialect: the size of each and whether its dialect encoded it."""
    contents = _Cursor(data)
    for table, count in ((reader.attributes, offsets.number()), (reader.types, offsets.number())):
        while len(table) < count:
            dialect = _at(dialects, offsets.number())
            for _ in range(_count(offsets)):
                size = offsets.number()
                table.append(_Entry(dialect, contents.take(size >> 1), bool(size & 1)))
