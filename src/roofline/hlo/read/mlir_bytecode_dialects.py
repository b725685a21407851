"""How StableHLO, CHLO, MHLO, Shardy and the quantised types encode their types and attributes in MLIR bytecode.

Codes are those of StablehloBytecode.cpp, ChloBytecode.cpp, Shardy's bytecode.td and QuantDialectBytecode.td. An attribute that is not used
here is returned as the name of its code.
"""

from . import vhlo
from .mlir_bytecode import Cursor
from .mlir_bytecode_values import Dialect, Values
from .mlir_writing import Bare, quoted
from .vhlo import alias_text, bounds_text, numbered, quantized

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
    5: ("dot<", "lhs_batching_dimensions* rhs_batching_dimensions* lhs_contracting_dimensions* rhs_contracting_dimensions*"),
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


_ALIAS, _MHLO_ALIAS = 14, 16


def _type(values: Values, cursor: Cursor) -> str:
    return "!stablehlo.token" if cursor.number() == 0 else "!stablehlo.future"


def _attribute(values: Values, cursor: Cursor) -> object:
    code = cursor.number()
    if code in _ENUMERATIONS:
        names, number = _ENUMERATIONS[code], cursor.number()
        return Bare(names[number] if number < len(names) else "")
    if code in _NUMBERED:
        begins, fields = _NUMBERED[code]
        found: dict[str, object] = {
            name.rstrip("*"): cursor.signeds() if name.endswith("*") else cursor.signed() for name in fields.split()
        }
        return Bare(f"#stablehlo.{begins}{numbered(found)}>")
    if code == 13:
        return bounds_text(cursor.signeds())
    if code == _ALIAS:
        return alias_text(cursor.signeds(), cursor.signed(), cursor.signeds())
    if code == 15:
        kinds = [values.type(cursor.number()) for _ in range(3)]
        counts = [cursor.signed() for _ in range(3)]
        return Bare(
            f"#stablehlo.dot_algorithm<lhs_precision_type = {kinds[0]}, rhs_precision_type = {kinds[1]}, accumulation_type = {kinds[2]},"
            f" lhs_component_count = {counts[0]}, rhs_component_count = {counts[1]}, num_primitive_operations = {counts[2]},"
            f" allow_imprecise_accumulation = {'true' if cursor.byte() else 'false'}>"
        )
    return Bare(f"#stablehlo.{code}")


def _mhlo_attribute(values: Values, cursor: Cursor) -> object:
    """MHLO's attributes: the codes are StableHLO's, except for newer ones."""
    code = Cursor(cursor.data).number()
    if code == _MHLO_ALIAS:
        cursor.number()
        return alias_text(cursor.signeds(), cursor.signed(), cursor.signeds())
    return _attribute(values, cursor) if code < _ALIAS else Bare(f"#mhlo.{code}")


def _chlo_attribute(values: Values, cursor: Cursor) -> object:
    code, number = cursor.number(), cursor.number()
    names = _ENUMERATIONS.get(code + 2, ())  # of comparisons: their direction and their kind
    return Bare(names[number] if number < len(names) else f"#chlo.{code}")


def _quantized_type(values: Values, cursor: Cursor) -> str:
    return quantized(values, cursor) if cursor.number() in (4, 5) else "!quant"


def _shardy_attribute(values: Values, cursor: Cursor) -> object:
    """Shardings and meshes of Shardy (its bytecode.td), spelled as its text: ``#sdy.sharding<@mesh, [{"x"}, {?}]>``."""
    code = cursor.number()
    if code == 0:
        return {str(name): True for name in values.list(cursor)}  # the manual axes of a manual computation
    if code == 1:
        return Bare(f"{quoted(values.string(cursor))}={cursor.signed()}")
    if code == 2:
        axes, devices = _joined(values, cursor), cursor.signeds()
        return Bare(f"#sdy.mesh<[{axes}]{f', device_ids={devices}' if devices else ''}>")
    if code == 3:
        return Bare(f":({cursor.signed()}){cursor.signed()}")
    if code == 4:
        name, part = quoted(values.string(cursor)), cursor.number()
        return Bare(f"{name}{values.attribute(part >> 1) if part & 1 else ''}")
    if code == 5:
        axes, closed, priority = _joined(values, cursor), cursor.byte(), cursor.number()
        inside = axes if closed else f"{axes}, ?" if axes else "?"
        return Bare(f"{{{inside}}}{f'p{priority >> 1}' if priority & 1 else ''}")
    if code in (6, 15, 17):
        mesh, dimensions = values.attribute(cursor.number()), _joined(values, cursor)
        words = ("replicated",) if code == 6 else ("replicated", "unreduced")
        more = [f", {word}={{{axes}}}" for word in words if (axes := _joined(values, cursor))]
        return Bare(f"#sdy.sharding<{str(mesh).removeprefix('#sdy.mesh')}, [{dimensions}]{''.join(more)}>")
    if code in (7, 16):
        shardings = [str(sharding).removeprefix("#sdy.sharding") for sharding in values.list(cursor)]
        return Bare(f"#sdy.sharding_per_value<[{', '.join(shardings)}]>")
    return Bare(f"#sdy.{code}")  # sharding rules and parameters of collectives, which only a partitioner writes


def _joined(values: Values, cursor: Cursor) -> str:
    return ", ".join(str(value) for value in values.list(cursor))


DIALECTS = {
    "vhlo": vhlo.DIALECT,
    "stablehlo": Dialect(_type, _attribute),
    "mhlo": Dialect(_type, _mhlo_attribute),
    "chlo": Dialect(_type, _chlo_attribute),
    "sdy": Dialect(lambda values, cursor: "!sdy", _shardy_attribute),
    "quant": Dialect(_quantized_type, lambda values, cursor: "#quant"),
}
