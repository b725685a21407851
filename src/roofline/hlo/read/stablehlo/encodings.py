"""How StableHLO, CHLO, MHLO, Shardy and the quantised types encode their types and attributes in MLIR bytecode.

Codes are those of StablehloBytecode.cpp, ChloBytecode.cpp, Shardy's bytecode.td and QuantDialectBytecode.td. An attribute that is not used
here is returned as the name of its code.
"""

from ..mlir.bytecode import Cursor
from ..mlir.bytecode_entries import Encoding, Entries
from ..mlir.types import Type
from ..mlir.writing import Bare, quoted
from . import vhlo
from .properties import CONVOLVED, DOT, GATHER, SCATTER
from .vhlo import operand_alias, quantized

# Words of enumerations, by the codes that VHLO has for them.
_ENUMERATIONS = {code: vhlo.ENUMERATIONS[other] for code, other in {2: 3, 3: 4, 6: 7, 8: 11, 9: 12, 10: 13, 12: 16}.items()}
# Attributes of numbers; plurals and maps are lists.
_NUMBERED = {1: "handle type", 4: CONVOLVED, 5: DOT, 7: GATHER, 11: SCATTER}
_ALIAS, _MHLO_ALIAS = 14, 16


def _type(entries: Entries, cursor: Cursor) -> Type:
    return Type("!stablehlo.token" if cursor.number() == 0 else "!stablehlo.future")


def _attribute(entries: Entries, cursor: Cursor) -> object:
    code = cursor.number()
    if code in _ENUMERATIONS:
        names, number = _ENUMERATIONS[code], cursor.number()
        return Bare(names[number] if number < len(names) else "")
    if code in _NUMBERED:
        return {name: cursor.signeds() if name.endswith(("s", "_map")) else cursor.signed() for name in _NUMBERED[code].split()}
    if code == 13:
        return cursor.signeds()  # the bounds of a tensor's sizes
    if code == _ALIAS:
        return operand_alias(cursor)
    if code == 15:
        left, right, accumulation = (entries.type(cursor.number()).name for _ in range(3))
        *_, steps = (cursor.signed() for _ in range(3))
        return {
            "lhs_precision_type": left,
            "rhs_precision_type": right,
            "accumulation_type": accumulation,
            "num_primitive_operations": steps,
            "allow_imprecise_accumulation": bool(cursor.byte()),
        }
    return Bare(f"#stablehlo.{code}")


def _mhlo_attribute(entries: Entries, cursor: Cursor) -> object:
    """MHLO's attributes: the codes are StableHLO's, except for newer ones."""
    code = Cursor(cursor.data).number()
    if code == _MHLO_ALIAS:
        cursor.number()
        return operand_alias(cursor)
    return _attribute(entries, cursor) if code < _ALIAS else Bare(f"#mhlo.{code}")


def _chlo_attribute(entries: Entries, cursor: Cursor) -> object:
    code, number = cursor.number(), cursor.number()
    names = _ENUMERATIONS.get(code + 2, ())  # of comparisons: their direction and their kind
    return Bare(names[number] if number < len(names) else f"#chlo.{code}")


def _quantized_type(entries: Entries, cursor: Cursor) -> Type:
    return quantized(entries, cursor) if cursor.number() in (4, 5) else Type("!quant")


def _shardy_attribute(entries: Entries, cursor: Cursor) -> object:
    """Shardings and meshes of Shardy (its bytecode.td), spelled as its text: ``#sdy.sharding<@mesh, [{"x"}, {?}]>``."""
    code = cursor.number()
    if code == 0:
        return {str(name): True for name in entries.list(cursor)}  # the manual axes of a manual computation
    if code == 1:
        return Bare(f"{quoted(entries.string(cursor))}={cursor.signed()}")
    if code == 2:
        axes, devices = _joined(entries, cursor), cursor.signeds()
        return Bare(f"#sdy.mesh<[{axes}]{f', device_ids={devices}' if devices else ''}>")
    if code == 3:
        return Bare(f":({cursor.signed()}){cursor.signed()}")
    if code == 4:
        name, part = quoted(entries.string(cursor)), cursor.number()
        return Bare(f"{name}{entries.attribute(part >> 1) if part & 1 else ''}")
    if code == 5:
        names, closed, priority = [str(axis) for axis in entries.list(cursor)], cursor.byte(), cursor.number()
        inside = ", ".join(names if closed else [*names, "?"])
        return Bare(f"{{{inside}}}{f'p{priority >> 1}' if priority & 1 else ''}")
    if code in (6, 15, 17):
        mesh, dimensions = entries.attribute(cursor.number()), _joined(entries, cursor)
        words = ("replicated",) if code == 6 else ("replicated", "unreduced")
        more = [f", {word}={{{axes}}}" for word in words if (axes := _joined(entries, cursor))]
        return Bare(f"#sdy.sharding<{str(mesh).removeprefix('#sdy.mesh')}, [{dimensions}]{''.join(more)}>")
    if code in (7, 16):
        shardings = [str(sharding).removeprefix("#sdy.sharding") for sharding in entries.list(cursor)]
        return Bare(f"#sdy.sharding_per_value<[{', '.join(shardings)}]>")
    return Bare(f"#sdy.{code}")  # sharding rules and parameters of collectives, which only a partitioner writes


def _joined(entries: Entries, cursor: Cursor) -> str:
    return ", ".join(str(value) for value in entries.list(cursor))


ENCODINGS = {
    "vhlo": vhlo.ENCODING,
    "stablehlo": Encoding(_type, _attribute),
    "mhlo": Encoding(_type, _mhlo_attribute),
    "chlo": Encoding(_type, _chlo_attribute),
    "sdy": Encoding(lambda entries, cursor: Type("!sdy"), _shardy_attribute),
    "quant": Encoding(_quantized_type, lambda entries, cursor: "#quant"),
}
