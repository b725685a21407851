"""The code of a kernel that the TPU compiler writes itself, such as its online softmax: MLIR as text where JAX writes bytecode."""

import re
from collections.abc import Mapping

from msgspec import Struct, field

from ...ir.malformed import Malformed
from ...read.mlir import operations as mlir
from ...read.mlir import types as mlir_types
from .code import PREFIX, Block, Kernel, Misread, Operation, Type, kernel_of, type_of

_NAME = re.compile(r"%[\w$.\-]+(?:#\d+)?")
_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_ENDS = {"return": "func.return"}


class _Builder(Struct):
    numbers: dict[str, int] = field(default_factory=dict)
    types: dict[int, Type] = field(default_factory=dict)
    definitions: dict[int, tuple[Operation, int]] = field(default_factory=dict)
    count: int = 0

    def define(self, name: str, kind: mlir_types.Type) -> int:
        self.count += 1
        self.numbers[name] = self.count
        self.types[self.count] = type_of(kind)
        return self.count

    def number(self, name: str) -> int:
        if name not in self.numbers:
            raise Misread(f"a value {name} that is not defined")
        return self.numbers[name]

    def block(self, region: mlir.Region) -> Block:
        arguments = tuple(self.define(name, kind) for name, kind, _ in region.arguments)
        operations: list[Operation] = []
        for raw, after in zip(region.operations, (*region.operations[1:], None), strict=True):
            if raw.name != "to":  # the type of the result of the operation before
                operations.append(self.operation(raw, _result_type(after) if after is not None and after.name == "to" else None))
        return Block(arguments, tuple(operations))

    def operation(self, raw: mlir.Operation, converted: mlir_types.Type | None) -> Operation:
        if raw.name == "func.func":
            self.numbers = {}
        indices = _NAME.findall(str(raw.attributes.get("[", "")))
        operands = tuple(self.number(name) for name in (*raw.operands, *indices))
        regions = tuple([(self.block(region),) for region in raw.regions])
        kind = converted or (raw.result_types[-1] if raw.result_types else mlir_types.Type(""))
        results = tuple(self.define(name, kind) for name in raw.results)
        name = _ENDS.get(raw.name, raw.name).removeprefix(PREFIX)
        made = Operation(name, operands, results, _attributes(raw), regions)
        for place, result in enumerate(results):
            self.definitions[result] = made, place
        return made


def _result_type(conversion: mlir.Operation) -> mlir_types.Type:
    """The type after ``to``, which the reader takes for an operation's name."""
    return mlir_types.parse_type(f"{' '.join(conversion.words)}{conversion.attributes.get('<', '')}")


def _attributes(raw: mlir.Operation) -> Mapping[str, object]:
    """Its attributes, and those that the text has as words: constants, predicates of comparisons and kinds of reductions."""
    attributes = dict(raw.attributes)
    word = raw.words[0] if raw.words else ""
    if raw.name == "arith.constant" and word.lstrip("-").isdecimal():
        attributes["value"] = int(word)
    elif raw.name == "arith.constant" and word in ("true", "false"):
        attributes["value"] = word == "true"
    elif raw.name == "arith.cmpi" and word in _PREDICATES:
        attributes["predicate"] = _PREDICATES.index(word)
    elif "<" in attributes:
        attributes.setdefault("kind", attributes["<"])
    return attributes


def read_text(text: str) -> Kernel:
    """The kernel in a module's text."""
    builder = _Builder()
    try:
        top = builder.block(mlir.Region(operations=mlir.OperationReader(text).operations()))
    except Malformed as error:
        raise Misread(str(error)) from None
    return kernel_of(top, builder.types, builder.definitions)
