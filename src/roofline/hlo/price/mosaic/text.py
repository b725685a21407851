"""The code of a kernel that the TPU compiler writes itself, such as its online softmax: MLIR as text where JAX writes bytecode."""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

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

    def block(self, region: mlir.Region, arguments: Sequence[tuple[str, mlir_types.Type]] = ()) -> Block:
        named = arguments or [(name, kind) for name, kind, _ in region.arguments]
        defined = tuple(self.define(name, kind) for name, kind in named)
        operations: list[Operation] = []
        for raw, after in zip(region.operations, (*region.operations[1:], None), strict=True):
            if raw.name != "to":  # the type of the result of the operation before
                operations.append(self.operation(raw, _result_type(after) if after is not None and after.name == "to" else None))
        return Block(defined, tuple(operations))

    def operation(self, raw: mlir.Operation, converted: mlir_types.Type | None) -> Operation:
        if raw.name == "func.func":
            self.numbers = {}
        indices = _NAME.findall(str(raw.attributes.get("[", "")))
        operands = tuple(self.number(name) for name in (*raw.operands, *indices))
        regions = tuple([(self.block(region, () if place else _loop_arguments(raw)),) for place, region in enumerate(raw.regions)])
        kinds = _result_types(raw, converted)
        results = tuple(self.define(name, kind) for name, kind in zip(raw.results, kinds, strict=True))
        name = _ENDS.get(raw.name, raw.name).removeprefix(PREFIX)
        operation = Operation(name, operands, results, _attributes(raw), regions)
        for place, result in enumerate(results):
            self.definitions[result] = operation, place
        return operation


def _loop_arguments(raw: mlir.Operation) -> list[tuple[str, mlir_types.Type]]:
    """The names that a loop has for its counter and for what it carries, which the text has before the region."""
    names = [word for word in raw.words if word.startswith("%")]
    counters = (raw.types or [mlir_types.parse_type("index")]) if raw.name == "scf.for" else []
    kinds = [*counters, *(raw.result_types if counters and raw.results else []), *([] if counters else raw.types)]
    if len(names) > len(kinds):
        raise Misread(f"{raw.name} with other types than arguments")
    return list(zip(names, kinds, strict=False))


def _result_types(raw: mlir.Operation, converted: mlir_types.Type | None) -> list[mlir_types.Type]:
    """The types of an operation's results; of loads and comparisons the text has the type of the operand."""
    if len(raw.result_types) == len(raw.results) > 1:
        return raw.result_types
    kind = converted or (raw.result_types[-1] if raw.result_types else mlir_types.Type(""))
    if raw.name == "memref.load":
        kind = mlir_types.parse_type(kind.element)
    elif raw.name in ("arith.cmpi", "arith.cmpf"):
        flag = mlir_types.parse_type("i1")
        kind = replace(kind, parts=(flag,)) if kind.parts else flag
    return [kind] * len(raw.results)


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
    elif raw.name.endswith(".transpose") and isinstance(order := attributes.get("["), str):
        attributes["permutation"] = [int(axis) for axis in re.findall(r"\d+", order)]
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
