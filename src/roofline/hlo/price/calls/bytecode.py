"""What is needed of the MLIR bytecode of kernels to count FLOP: names, operand and result types, constants and regions of operations."""

from msgspec import Struct

from ...ir.malformed import Malformed
from ...read.mlir import bytecode as mlir_bytecode
from ...read.mlir.bytecode import Bytecode, Cursor
from ...read.mlir.bytecode_entries import Entries
from ...read.mlir.types import Type
from .traffic import Misfit

MAGIC = mlir_bytecode.MAGIC
OLDEST = 5  # before 5, properties were attributes


class Operation(Struct, frozen=True):
    """One operation. ``operands`` and ``results`` are (number, type) of values.

    ``constants`` are its integer properties, in order; ``options`` are the same bytes decoded as optional properties, whose encoding
    differs; ``words`` are the properties that are strings.
    """

    name: str
    operands: tuple[tuple[int, Type], ...]
    results: tuple[tuple[int, Type], ...]
    constants: tuple[int | None, ...] = ()
    options: tuple[int | None, ...] = ()
    regions: tuple["Region", ...] = ()
    words: tuple[str, ...] = ()


class Block(Struct, frozen=True):
    """The operations of a block in order, and the types of its arguments."""

    arguments: tuple[Type, ...]
    operations: tuple[Operation, ...]


Region = tuple[Block, ...]
Settings = tuple[tuple[int | None, ...], tuple[int | None, ...], tuple[str, ...]]


class _Builder:
    def __init__(self, bytecode: Bytecode) -> None:
        self.bytecode = bytecode
        self.values = Entries(bytecode, {})
        self.properties: dict[bytes, Settings] = {}

    def type(self, number: int) -> Type:
        kind = self.values.type(number)
        if min(kind.dims, default=0) < 0:
            raise Malformed("a kernel with a tensor of unknown size")
        return kind

    def settings(self, data: bytes) -> Settings:
        """The properties of an operation: indices of attributes, or for optional ones twice the index plus one."""
        if data not in self.properties:
            cursor = Cursor(data)
            numbers = []
            while not cursor.is_done:
                numbers.append(cursor.number())
            required = [self.attribute(number) for number in numbers]
            optional = [self.attribute(number >> 1) if number & 1 else None for number in numbers]
            self.properties[data] = (
                tuple(value if isinstance(value, int) else None for value in required),
                tuple(value if isinstance(value, int) else None for value in optional),
                tuple(value for value in required if isinstance(value, str) and value),
            )
        return self.properties[data]

    def attribute(self, number: int) -> object:
        """A number or a string; ``None`` for other attributes, or if there is none."""
        if number >= len(self.bytecode.attributes) or not self.bytecode.attributes[number].custom:
            return None
        return self.values.attribute(number)

    def block(self, block: mlir_bytecode.RawBlock) -> Block:
        arguments = tuple(self.type(kind) for _, kind, _ in block.arguments)
        return Block(arguments, tuple(self.operation(operation) for operation in block.operations))

    def operation(self, raw: mlir_bytecode.RawOperation) -> Operation:
        constants, options, words = self.settings(raw.properties) if raw.properties is not None else ((), (), ())
        kinds = [self.bytecode.value_types[value] for value in raw.operands]
        return Operation(
            raw.name,
            tuple((value, self.type(kind) if kind >= 0 else Type("?")) for value, kind in zip(raw.operands, kinds, strict=True)),
            tuple((value, self.type(kind)) for value, kind in raw.results),
            constants,
            options,
            tuple(tuple(self.block(block) for block in region) for region in raw.regions),
            words,
        )


def read_bytecode(data: bytes) -> Block:
    """The top-level block of a module."""
    try:
        bytecode = mlir_bytecode.read_bytecode(data)
        if bytecode.version < OLDEST:
            raise Malformed(f"MLIR bytecode of version {bytecode.version}")
        return _Builder(bytecode).block(bytecode.block)
    except Malformed as error:
        raise Misfit(str(error)) from None
