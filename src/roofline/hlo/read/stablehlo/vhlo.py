"""VHLO, the versioned form of StableHLO in portable artifacts: its encoding in bytecode, and its operations converted to StableHLO.

Codes are those of VhloBytecode.cpp, names and attributes of operations those of VhloOps.td, versions 0.9.0 to 1.20.0. Each operation has
its own version (``dot_general_v2``), so one table serves older and newer files.
"""

import re

from ...ir.malformed import Malformed, excerpt
from ..mlir.bytecode import Cursor
from ..mlir.bytecode_entries import Encoding, Entries, array, encoded, types_by_code
from ..mlir.operations import Operation
from ..mlir.types import DYNAMIC, Type
from ..mlir.writing import Bare

_NEWEST = "VHLO 1.20.0, the newest supported version"
# Types without nested types, by their codes.
_TYPES = types_by_code(
    (0, ("i1",)),
    (2, ("bf16", "f16", "f32", "f64", "f8E4M3FN", "f8E5M2")),
    (9, ("index", "i4", "i8", "i16", "i32", "i64", "ui4", "ui8", "ui16", "ui32", "ui64")),
    (22, ("!stablehlo.token",)),
    (26, ("!shape.witness", "f8E4M3FNUZ", "f8E5M2FNUZ", "f8E4M3B11FNUZ")),
    (31, ("i2", "ui2", "none", "tf32", "f8E4M3", "f8E3M4", "f4E2M1FN", "f6E2M3FN", "f6E3M2FN", "f8E8M0FNU")),
)
ENUMERATIONS = {
    3: ("EQ", "NE", "GE", "GT", "LE", "LT"),
    4: ("NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"),
    5: (
        "API_VERSION_UNSPECIFIED",
        "API_VERSION_ORIGINAL",
        "API_VERSION_STATUS_RETURNING",
        "API_VERSION_STATUS_RETURNING_UNIFIED",
        "API_VERSION_TYPED_FFI",
    ),
    7: ("FFT", "IFFT", "RFFT", "IRFFT"),
    11: ("DEFAULT", "HIGH", "HIGHEST"),
    12: ("DEFAULT", "THREE_FRY", "PHILOX"),
    13: ("", "UNIFORM", "NORMAL"),
    16: ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
    19: ("DEFAULT", "HIGHEST", "TOLERANCE"),
}
# Operations with a result accuracy, since 1.9.0.
ROUGH = (
    *("cbrt", "cosine", "exponential", "exponential_minus_one", "log", "log_plus_one"),
    *("logistic", "rsqrt", "sine", "sqrt", "tan", "tanh"),
)
# Operations of a second version.
_SECOND = frozenset(
    (
        *("all_gather", "all_reduce", "all_to_all", "collective_broadcast", "composite", "custom_call", "dot_general", "dynamic_conv"),
        *("dynamic_gather", "gather", "recv", "scatter", "send", *ROUGH),
    )
)
_VERSION = re.compile(r"(.+)_v(\d{1,9})")


def _type(entries: Entries, cursor: Cursor) -> Type:
    code = cursor.number()
    if code in _TYPES:
        return _TYPES[code]
    if code == 1:
        return Type(f"complex<{entries.type(cursor.number()).name}>")
    if code == 8:
        return Type("() -> ()")  # a function's types are read from its body
    if code == 20:
        return array("tensor", entries, cursor)
    if code == 21:
        return encoded("tensor", entries, cursor)
    if code == 23:
        return Type("tuple", (), tuple([entries.type(number) for number in cursor.numbers()]))
    if code in (24, 30):
        return quantized(entries, cursor)
    if code == 25:
        return Type("tensor", (DYNAMIC,), (entries.type(cursor.number()),))
    if code == 41:
        return array("memref", entries, cursor)
    if code == 42:
        return Type("!stablehlo.future")
    raise Malformed(f"a VHLO type with the unknown code {code:,}; it may be newer than {_NEWEST}")


def quantized(entries: Entries, cursor: Cursor) -> Type:
    """A quantised type: that of the integers that are stored."""
    signed = cursor.number() & 1
    stored = entries.type(cursor.number())
    return stored if signed or stored.name.startswith("u") else Type(f"u{stored.name}")


def _attribute(entries: Entries, cursor: Cursor) -> object:
    code = cursor.number()
    if code in ENUMERATIONS:
        names, number = ENUMERATIONS[code], cursor.number()
        if number >= len(names):
            raise Malformed(f"a VHLO enumeration with the unknown codes {code} and {number:,}; it may be newer than {_NEWEST}")
        return Bare(names[number])
    if code == 1:
        return entries.list(cursor)
    if code == 2:
        return bool(cursor.number())
    if code == 6:
        return entries.dictionary(cursor)
    if code in (8, 9):
        kind = entries.type(cursor.number())
        return entries.float(cursor, kind) if code == 8 else entries.integer(cursor, kind)
    if code == 10:
        return operand_alias(cursor)
    if code == 14:
        return entries.string(cursor)
    if code == 15:
        return entries.elements(entries.type(cursor.number()), cursor.take(cursor.number()))
    if code == 17:
        return Bare(entries.type(cursor.number()).name)
    if code == 18:
        return cursor.signeds()  # the bounds of a tensor's sizes
    if code in (20, 21, 22, 23, 24, 25):
        return Bare(f"#stablehlo.{code}")  # accuracies, and axes of a mesh: not used
    raise Malformed(f"a VHLO attribute with the unknown code {code:,}; it may be newer than {_NEWEST}")


def operand_alias(cursor: Cursor) -> dict[str, object]:
    return {"output_tuple_indices": cursor.signeds(), "operand_index": cursor.signed(), "operand_tuple_indices": cursor.signeds()}


ENCODING = Encoding(_type, _attribute)


def versioned(name: str) -> tuple[str, int]:
    """The name of an operation without its version, and the version; a version that is not known is `Malformed`.

    >>> versioned("dot_general_v2")
    ('dot_general', 2)
    """
    match = _VERSION.fullmatch(name)
    if match is None:
        raise Malformed(f"an operation of VHLO without a version: {excerpt(name)}")
    short, version = match[1], int(match[2])
    if not 1 <= version <= (2 if short in _SECOND else 1):
        raise Malformed(f"vhlo.{name} is newer than {_NEWEST}")
    return short, version


def to_stablehlo(operation: Operation) -> Operation:
    """A VHLO operation converted to StableHLO, without the defaults that VHLO writes."""
    name, _ = versioned(operation.name.removeprefix("vhlo."))
    given = {
        key: value
        for key, value in operation.attributes.items()
        if value is not False and value not in ("none", {}) and key != "result_accuracy"
    }
    if name == "sort" and given.get("dimension") == -1:
        del given["dimension"]
    if given.get("channel_id") == 0:
        del given["channel_id"]
    if name in ("func", "call"):
        operation.name = f"func.{name}"
    else:
        operation.name = f"stablehlo.{name}"
    operation.attributes = given
    return operation
