"""The code of a Mosaic or Triton kernel: its functions, operations and types, read from MLIR bytecode.

Operations of Mosaic are those of the dialects tpu, arith, math, vector, memref, scf and func; JAX writes them with the prefix
``stable_mosaic.`` and all their settings as attributes. Where they are properties, `Settings` reads them.
"""

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct, field

from ....errors import FormulaError
from ...ir.malformed import Malformed
from ...read.mlir import bytecode as mlir_bytecode
from ...read.mlir import types as mlir_types
from ...read.mlir.bytecode import Bytecode
from ...read.mlir.bytecode_entries import Entries
from ...read.mlir.types import DYNAMIC

PREFIX = "stable_mosaic."


Settings = Callable[[Entries, bytes], Mapping[str, object]]  # an operation's attributes, from its properties


class Misread(FormulaError):
    """Code of a kernel that cannot be counted."""


class Type(Struct, frozen=True):
    """A type: its elements (``f32``), the shape of a vector or memref (`DYNAMIC` for an unknown size), and a memref's memory space."""

    element: str
    shape: tuple[int, ...] = ()
    space: str = ""
    is_vector: bool = False

    @property
    def elements(self) -> int:
        total = 1
        for size in self.shape:
            if size == DYNAMIC:
                raise Misread("an array of unknown size")
            total *= size
        return total


class Operation(Struct, frozen=True):
    """One operation: the numbers of the values it takes and gives, its attributes, and its regions, each a list of blocks."""

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    attributes: Mapping[str, object]
    regions: tuple[tuple["Block", ...], ...]

    def numbers(self, name: str) -> tuple[int, ...]:
        """An attribute that is a list of whole numbers; absent is empty."""
        value = self.attributes.get(name)
        return tuple(number for number in value if isinstance(number, int)) if isinstance(value, list) else ()

    def number(self, name: str) -> int | None:
        value = self.attributes.get(name)
        return value if isinstance(value, int) else None

    def word(self, name: str) -> str:
        return str(self.attributes.get(name, ""))

    def segments(self) -> list[tuple[int, ...]]:
        """The operands in the groups that the attribute ``operandSegmentSizes`` gives."""
        groups, start = [], 0
        for size in self.numbers("operandSegmentSizes"):
            groups.append(self.operands[start : start + size])
            start += size
        return groups

    def body(self, region: int = 0) -> "Block":
        """The only block of a region."""
        if region >= len(self.regions) or len(self.regions[region]) != 1:
            raise Misread(f"{self.name} without the region that it needs, or one that branches")
        return self.regions[region][0]


class Block(Struct, frozen=True):
    """The numbers of a block's arguments, and its operations in order."""

    arguments: tuple[int, ...]
    operations: tuple[Operation, ...]

    def everything(self) -> Iterator[Operation]:
        """Its operations and those of their regions."""
        for operation in self.operations:
            yield operation
            for region in operation.regions:
                for block in region:
                    yield from block.everything()

    @property
    def yielded(self) -> tuple[int, ...]:
        """The values that its last operation passes on."""
        return self.operations[-1].operands if self.operations else ()


class Kernel(Struct, frozen=True):
    """A kernel's main function, the functions of its windows by name, and what is known of each value."""

    main: Operation
    functions: Mapping[str, Operation]
    types: Mapping[int, Type]
    definitions: Mapping[int, tuple[Operation, int]]  # of a value: the operation, and which of its results it is

    @property
    def body(self) -> Block:
        return self.main.body()

    def type(self, value: int) -> Type:
        return self.types.get(value, Type("?"))

    def source(self, value: int) -> int:
        """The memref that a view is a part of."""
        for _ in range(len(self.definitions) + 1):
            operation = self.definitions.get(value)
            if operation is None or not operation[0].name.startswith(("tpu.memref_", "memref.", "tpu.reinterpret_cast")):
                break
            if not operation[0].operands:
                break
            value = operation[0].operands[0]
        return value


def type_of(kind: mlir_types.Type) -> Type:
    """A type with the memory space that its encoding names: ``#tpu.memory_space<vmem>``."""
    space = str(kind.encoding).rpartition("#tpu.memory_space<")[2].partition(">")[0] if kind.name == "memref" else ""
    return Type(kind.element, kind.dims, space, kind.name == "vector")


def kernel_of(top: Block, types: Mapping[int, Type], definitions: Mapping[int, tuple[Operation, int]]) -> Kernel:
    """The kernel in a file: the first function of its module, and those that the windows of that one name."""
    modules = [operation for operation in top.operations if operation.regions]
    functions = [operation for module in modules for operation in module.body().operations if operation.name == "func.func"]
    if not functions or not functions[0].attributes:
        raise Misread("a module without a function that states its grid")
    named = {function.word("sym_name"): function for function in functions}
    return Kernel(functions[0], named, types, definitions)


class _Builder(Struct):
    values: Entries
    settings: Settings
    known: dict[bytes, Mapping[str, object]] = field(default_factory=dict)  # attributes by the properties that have them
    kinds: dict[int, Type] = field(default_factory=dict)
    types: dict[int, Type] = field(default_factory=dict)
    definitions: dict[int, tuple[Operation, int]] = field(default_factory=dict)

    def type(self, number: int) -> Type:
        if number not in self.kinds:
            self.kinds[number] = type_of(self.values.type(number))
        return self.kinds[number]

    def block(self, raw: mlir_bytecode.RawBlock) -> Block:
        for value, kind, _ in raw.arguments:
            self.types[value] = self.type(kind)
        return Block(tuple(value for value, _, _ in raw.arguments), tuple([self.operation(inner) for inner in raw.operations]))

    def operation(self, raw: mlir_bytecode.RawOperation) -> Operation:
        attributes: Mapping[str, object] = self.values.named(raw.attributes) if raw.attributes is not None else {}
        if raw.properties is not None:
            if raw.properties not in self.known:
                self.known[raw.properties] = self.settings(self.values, raw.properties)
            attributes = {**attributes, **self.known[raw.properties]}
        regions = tuple([tuple([self.block(block) for block in region]) for region in raw.regions])
        results = tuple(value for value, _ in raw.results)
        operation = Operation(raw.name.removeprefix(PREFIX), raw.operands, results, attributes, regions)
        for place, (value, kind) in enumerate(raw.results):
            self.types[value] = self.type(kind)
            self.definitions[value] = operation, place
        return operation


def read_block(bytecode: Bytecode, settings: Settings) -> tuple[Block, Mapping[int, Type], Mapping[int, tuple[Operation, int]]]:
    """The operations of a file, the types of its values, and which operation gives each."""
    builder = _Builder(Entries(bytecode, {}), settings)
    return builder.block(bytecode.block), builder.types, builder.definitions


def read_bytecode(data: bytes) -> Kernel:
    """The kernel in a module's bytecode."""
    try:
        return kernel_of(*read_block(mlir_bytecode.read_bytecode(data), lambda entries, properties: {}))
    except Malformed as error:
        raise Misread(str(error)) from None
