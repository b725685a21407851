"""StableHLO in MLIR bytecode, as portable artifacts (VHLO) or as written by ``module.operation.write_bytecode``.

Operations are returned as the text reader does, with the names that MLIR would print, so that text and bytecode of one program give the
same `HloModule`.
"""

from ....errors import SourceError
from ...ir.malformed import Malformed, placed
from ...ir.module import HloModule
from ..mlir.bytecode import Bytecode, RawBlock, RawOperation, read_bytecode
from ..mlir.bytecode_entries import Entries
from ..mlir.bytecode_locations import alias, locations_of
from ..mlir.locations import Locations
from ..mlir.operations import Operation, Region
from ..mlir.writing import printable, written
from .builder import Source
from .encodings import ENCODINGS
from .properties import properties_of
from .text import programs
from .vhlo import to_stablehlo


class _Names:
    """The names that MLIR prints for values: ``%0``, ``%arg0``, ``%cst``, with a number appended if taken."""

    def __init__(self, outer: "_Names | None" = None) -> None:
        self.values: int = outer.values if outer else 0
        self.arguments: int = outer.arguments if outer else 0
        self.conflicts: int = outer.conflicts if outer else 0
        self.taken: set[str] = set()
        self.outer = outer

    def is_taken(self, name: str) -> bool:
        return name in self.taken or (self.outer is not None and self.outer.is_taken(name))

    def unique(self, name: str) -> str:
        free = name
        while self.is_taken(free):
            free = f"{name}_{self.conflicts}"
            self.conflicts += 1
        self.taken.add(free)
        return f"%{free}"

    def result(self) -> str:
        self.values += 1
        return f"%{self.values - 1}"

    def argument(self) -> str:
        self.arguments += 1
        return self.unique(f"arg{self.arguments - 1}")


class _Builder:
    """Converts the container's operations to those that the text reader returns."""

    def __init__(self, bytecode: Bytecode) -> None:
        self.bytecode = bytecode
        self.values = Entries(bytecode, ENCODINGS)
        self.names: dict[int, str] = {}  # of values
        self.done = 0

    def block(self, block: RawBlock, scope: _Names, within: str = "") -> Region:
        """A block: its own values are named before those of the regions in it."""
        region = Region()
        for value, kind, location in block.arguments:
            self.names[value] = scope.unique("iterArg") if within == "stablehlo.while" else scope.argument()
            given: dict[str, object] = {} if location is None else {"loc": alias(location)}
            region.arguments.append((self.names[value], self.values.type(kind), given))
        for raw in block.operations:
            self.name(raw, scope)
        for raw in block.operations:
            if not _is_cast(raw):
                region.operations.append(self.operation(raw, scope))
        return region

    def name(self, raw: RawOperation, scope: _Names) -> None:
        if not raw.results:
            return
        if _is_cast(raw):
            for (value, _), source in zip(raw.results, raw.operands, strict=True):
                self.names[value] = self.named(source)
            return
        if raw.name.rpartition(".")[2] in ("constant", "constant_v1"):
            element = self.values.type(raw.results[0][1]).element
            first = scope.unique("c" if element.startswith(("i", "ui", "si")) else "cst")
        else:
            first = scope.result()
        for place, (value, _) in enumerate(raw.results):
            self.names[value] = f"{first}#{place}" if len(raw.results) > 1 else first

    def operation(self, raw: RawOperation, scope: _Names) -> Operation:
        self.done += 1
        place = self.done
        operation = Operation(
            raw.name,
            place,
            results=[self.names[value] for value, _ in raw.results],
            operands=[self.named(value) for value in raw.operands],
            attributes=dict(self.values.named(raw.attributes)) if raw.attributes is not None else {},
            result_types=[self.values.type(kind) for _, kind in raw.results],
            location=alias(raw.location),
        )
        if raw.properties is not None:
            operation.attributes.update(properties_of(raw.name, raw.properties, self.values))
        if raw.name.startswith("vhlo."):
            operation = to_stablehlo(operation)
        self.adapt(operation)
        for region in raw.regions:
            if len(region) > 1:
                raise Malformed("a region of several blocks; StableHLO regions have one")
            if not region and operation.name == "func.func":
                continue  # a declaration
            inner = _Names() if operation.name in ("func.func", "builtin.module") else _Names(scope)
            operation.regions.append(self.block(region[0], inner, operation.name) if region else Region())
        if operation.name == "func.func":
            _describe_arguments(operation)
        return operation

    def named(self, value: int) -> str:
        if value not in self.names:
            raise Malformed("an operation uses a value that nothing before it defines")
        return self.names[value]

    def adapt(self, operation: Operation) -> None:
        """Makes attributes those of the text form."""
        given = operation.attributes
        for name in ("mhlo.backend_config", "backend_config"):
            if isinstance(given.get(name), dict):
                operation.text = f"{name} = {written(given[name])}"
        if self.values.has_binary_strings:
            operation.attributes = {name: printable(value) for name, value in given.items()}
        if operation.name == "func.func" and not isinstance(given.get("sym_name"), str):
            raise Malformed("a function without a name")


def _is_cast(raw: RawOperation) -> bool:
    """Whether an operation only casts a VHLO type to an MLIR type, as between VHLO and other dialects."""
    return raw.name == "builtin.unrealized_conversion_cast" and len(raw.results) == len(raw.operands)


def _describe_arguments(function: Operation) -> None:
    """Sets the attributes of each argument of a function."""
    described = function.attributes.get("arg_attrs")
    for region in function.regions:
        for (_, _, given), more in zip(region.arguments, described if isinstance(described, list) else [], strict=False):
            if isinstance(more, dict):
                given.update(more)


def parse_bytecode(data: bytes, where: str = "StableHLO") -> tuple[HloModule, ...]:
    """The programs in bytecode, as `parse_stablehlos` returns those of text. A `SourceError` names the number of the operation."""
    builder: _Builder | None = None
    try:
        bytecode = read_bytecode(data)
        builder = _Builder(bytecode)
        operations = builder.block(bytecode.block, _Names()).operations
        known = locations_of(bytecode)
    except Malformed as error:
        if builder is not None and builder.done:
            raise placed(error, where, "operation", builder.done) from None
        raise SourceError(f"{where}: {error}") from None
    except RecursionError:
        raise SourceError(f"{where}: nested too deeply") from None
    return programs(operations, Source(where, "operation"), lambda: Locations(known=known))
