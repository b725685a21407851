"""Locations in MLIR bytecode, as the aliases (``#loc7 = loc("f"(#loc3))``) that text gives them."""

from ..ir.malformed import Malformed
from .mlir_bytecode import Bytecode, Cursor, entry_at
from .mlir_writing import quoted

_CALL_SITE, _FILE_LINE, _FUSED, _FUSED_WITH_METADATA, _NAME, _FILE_RANGE = 10, 11, 12, 13, 14, 22
_STRING = 2


def alias(number: int) -> str:
    """The name of the location with this number."""
    return f"#loc{number}"


def location_aliases(bytecode: Bytecode) -> dict[str, str]:
    """The text of each location, which refers to others by alias. A location that cannot be read is unknown; no cost depends on it."""
    found = {}
    for number, entry in enumerate(bytecode.attributes):
        if entry.dialect != "builtin" or not entry.custom or not entry.data:
            continue
        try:
            text = _location(bytecode, Cursor(entry.data))
        except Malformed:
            continue
        if text:
            found[alias(number)] = text
    return found


def _location(bytecode: Bytecode, cursor: Cursor) -> str:
    code = cursor.number()
    if code == _CALL_SITE:
        return f"callsite({alias(cursor.number())} at {alias(cursor.number())})"
    if code == _FILE_LINE:
        return f"{_name(bytecode, cursor)}:{cursor.number()}:{cursor.number()}"
    if code == _FILE_RANGE:
        name, parts = _name(bytecode, cursor), cursor.numbers()
        return f"{name}:{parts[0] if parts else 0}:{parts[1] if len(parts) > 1 else 0}"
    if code in (_FUSED, _FUSED_WITH_METADATA):
        return f"fused[{', '.join(alias(number) for number in cursor.numbers()[:1])}]"  # only the first is shown
    if code == _NAME:
        return f"{_name(bytecode, cursor)}({alias(cursor.number())})"
    return ""


def _name(bytecode: Bytecode, cursor: Cursor) -> str:
    """The string that a string attribute holds, quoted."""
    entry = entry_at(bytecode.attributes, cursor.number())
    inner = Cursor(entry.data)
    if inner.number() != _STRING:
        raise Malformed("a location whose name is not a string")
    return quoted(entry_at(bytecode.strings, inner.number()))
