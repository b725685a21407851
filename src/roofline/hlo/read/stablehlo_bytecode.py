"""StableHLO in MLIR bytecode, as portable artifacts (VHLO) or as written by ``module.operation.write_bytecode``.

Operations come out as the text reader gives them, under the names that MLIR would print, so that text and bytecode of one program
make the same `HloModule`.
"""

from ...errors import SourceError
from ..ir.malformed import Malformed, placed
from ..ir.module import HloModule
from . import mlir_bytecode, vhlo
from .mlir import Operation, Region
from .mlir_bytecode import Bytecode, Cursor, read_bytecode
from .mlir_bytecode_locations import alias, location_aliases
from .mlir_bytecode_values import Dialect, Values, tensor_parts, written
from .mlir_locations import Locations
from .mlir_properties import properties_of
from .stablehlo import Source, programs
from .vhlo import alias_text, bounds_text, quantized, to_stablehlo

_ENUMERATIONS = {
    2: ("EQ", "NE", "GE", "GT", "LE", "LT"),
    3: ("NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"),
    6: ("FFT", "IFFT", "RFFT", "IRFFT"),
    8: ("DEFAULT", "HIGH", "HIGHEST"),
    9: ("DEFAULT", "THREE_FRY", "PHILOX"),
    10: ("", "UNIFORM", "NORMAL"),
    12: ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
}
# Attributes of numbers: how their text begins, and their fields; ``name*`` is a list of numbers.
_NUMBERED = {
    1: ("channel_handle<", "handle type"),
    4: (
        "conv<raw ",
        "input_batch_dimension input_feature_dimension input_spatial_dimensions* kernel_input_feature_dimension"
        " kernel_output_feature_dimension kernel_spatial_dimensions* output_batch_dimension output_feature_dimension"
        " output_spatial_dimensions*",
    ),
    5: (
        "dot<",
        "lhs_batching_dimensions* rhs_batching_dimensions* lhs_contracting_dimensions* rhs_contracting_dimensions*",
    ),
    7: (
        "gather<",
        "offset_dims* collapsed_slice_dims* operand_batching_dims* start_indices_batching_dims* start_index_map* index_vector_dim",
    ),
    11: (
        "scatter<",
        "update_window_dims* inserted_window_dims* input_batching_dims* scatter_indices_batching_dims*"
        " scatter_dims_to_operand_dims* index_vector_dim",
    ),
}


def _type(values: Values, cursor: Cursor) -> str:
    return "!stablehlo.token" if cursor.number() == 0 else "!stablehlo.future"


def _attribute(values: Values, cursor: Cursor) -> object:
    code = cursor.number()
    if code in _ENUMERATIONS:
        names, number = _ENUMERATIONS[code], cursor.number()
        return names[number] if number < len(names) else ""
    if code in _NUMBERED:
        begins, fields = _NUMBERED[code]
        parts = [f"{name.rstrip('*')} = {cursor.signeds() if name.endswith('*') else cursor.signed()}" for name in fields.split()]
        return f"#stablehlo.{begins}{', '.join(parts)}>"
    if code == 13:
        return bounds_text(cursor.signeds())
    if code == 14:
        return alias_text(cursor.signeds(), cursor.signed(), cursor.signeds())
    if code == 15:
        kinds = [values.type(cursor.number()) for _ in range(3)]
        counts = [cursor.signed() for _ in range(3)]
        return (
            f"#stablehlo.dot_algorithm<lhs_precision_type = {kinds[0]}, rhs_precision_type = {kinds[1]}, accumulation_type = {kinds[2]},"
            f" lhs_component_count = {counts[0]}, rhs_component_count = {counts[1]}, num_primitive_operations = {counts[2]},"
            f" allow_imprecise_accumulation = {'true' if cursor.byte() else 'false'}>"
        )
    return f"#stablehlo.{code}"


def _chlo_attribute(values: Values, cursor: Cursor) -> object:
    code, number = cursor.number(), cursor.number()
    names = _ENUMERATIONS.get(code + 2, ())  # of comparisons: their direction and their kind
    return names[number] if number < len(names) else f"#chlo.{code}"


def _quantized_type(values: Values, cursor: Cursor) -> str:
    return quantized(values, cursor) if cursor.number() in (4, 5) else "!quant"


_STABLEHLO = Dialect(_type, _attribute)
_DIALECTS = {
    "vhlo": vhlo.DIALECT,
    "stablehlo": _STABLEHLO,
    "mhlo": _STABLEHLO,  # which StableHLO took its codes from
    "chlo": Dialect(_type, _chlo_attribute),
    "quant": Dialect(_quantized_type, lambda values, cursor: "#quant"),
}


class _Names:
    """The names that MLIR prints for values: ``%0``, ``%arg0``, ``%cst``, with a number behind one that is taken."""

    def __init__(self, outer: "_Names | None" = None) -> None:
        self.values = outer.values if outer else 0
        self.arguments = outer.arguments if outer else 0
        self.conflicts = outer.conflicts if outer else 0
        self.taken: set[str] = set()
        self.outer = outer

    def is_taken(self, name: str) -> bool:
        return name in self.taken or (self.outer is not None and self.outer.is_taken(name))

    def unique(self, name: str) -> str:
        found = name
        while self.is_taken(found):
            found = f"{name}_{self.conflicts}"
            self.conflicts += 1
        self.taken.add(found)
        return f"%{found}"

    def result(self) -> str:
        self.values += 1
        return f"%{self.values - 1}"

    def argument(self) -> str:
        self.arguments += 1
        return self.unique(f"arg{self.arguments - 1}")


class _Builder:
    """Turns the container's operations into those that the text reader gives."""

    def __init__(self, bytecode: Bytecode) -> None:
        self.bytecode = bytecode
        self.values = Values(bytecode, _DIALECTS)
        self.names: dict[int, str] = {}  # of values
        self.done = 0

    def block(self, block: mlir_bytecode.Block, scope: _Names, within: str = "") -> Region:
        """A block: its own values are named before those of the regions in it."""
        region = Region()
        for value, kind, location in block.arguments:
            self.names[value] = scope.unique("iterArg") if within == "stablehlo.while" else scope.argument()
            given: dict[str, object] = {} if location is None else {"loc": alias(location)}
            region.arguments.append((self.names[value], self.values.type(kind), given))
        for raw in block.operations:
            self.name(raw, scope)
        for raw in block.operations:
            region.operations.append(self.operation(raw, scope))
        return region

    def name(self, raw: mlir_bytecode.Operation, scope: _Names) -> None:
        if not raw.results:
            return
        if raw.name.rpartition(".")[2] in ("constant", "constant_v1"):
            _, element = tensor_parts(self.values.type(raw.results[0][1]))
            first = scope.unique("c" if element.startswith(("i", "ui", "si")) else "cst")
        else:
            first = scope.result()
        for place, (value, _) in enumerate(raw.results):
            self.names[value] = f"{first}#{place}" if len(raw.results) > 1 else first

    def operation(self, raw: mlir_bytecode.Operation, scope: _Names) -> Operation:
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
        """What the text form says elsewhere than in attributes."""
        given = operation.attributes
        if operation.name in ("sdy.sharding_constraint", "sdy.reshard"):
            given["<"] = str(given.pop("sharding", "")).removeprefix("#sdy.sharding")
        for name in ("mhlo.backend_config", "backend_config"):
            if isinstance(given.get(name), dict):
                operation.text = f"{name} = {written(given[name])}"
        if operation.name == "func.func" and not isinstance(given.get("sym_name"), str):
            raise Malformed("a function without a name")


def _describe_arguments(function: Operation) -> None:
    """Gives each argument of a function its attributes."""
    described = function.attributes.get("arg_attrs")
    for region in function.regions:
        for (_, _, given), more in zip(region.arguments, described if isinstance(described, list) else [], strict=False):
            if isinstance(more, dict):
                given.update(more)


def parse_bytecode(data: bytes, where: str = "StableHLO") -> tuple[HloModule, ...]:
    """The programs that bytecode describes, as `parse_stablehlos` gives those of text. A `SourceError` counts operations."""
    builder: _Builder | None = None
    try:
        bytecode = read_bytecode(data)
        builder = _Builder(bytecode)
        operations = builder.block(bytecode.block, _Names()).operations
        aliases = location_aliases(bytecode)
    except Malformed as error:
        if builder is not None and builder.done:
            raise placed(error, where, "operation", builder.done) from None
        raise SourceError(f"{where}: {error}") from None
    except RecursionError:
        raise SourceError(f"{where}: nested too deeply") from None
    return programs(operations, Source(where, "operation"), lambda: Locations("", aliases))
