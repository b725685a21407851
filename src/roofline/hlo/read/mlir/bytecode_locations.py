"""Locations in MLIR bytecode, by the aliases (``#loc7``) that text gives them."""

from ...ir.malformed import Malformed
from .bytecode import Bytecode, Cursor, entry_at
from .locations import CallSite, FileLine, Location, Named
from .writing import printable_text

_CALL_SITE, _FILE_LINE, _FUSED, _FUSED_WITH_METADATA, _NAME, _FILE_RANGE = 10, 11, 12, 13, 14, 22
_STRING = 2


def alias(number: int) -> str:
    """The name of the location with this number."""
    return f"#loc{number}"


def locations_of(bytecode: Bytecode) -> dict[str, Location]:
    """The locations, by alias. One that cannot be read is unknown; no cost depends on it."""
    locations = {}
    for number, entry in enumerate(bytecode.attributes):
        if entry.dialect != "builtin" or not entry.custom or not entry.data:
            continue
        try:
            locations[alias(number)] = _location(bytecode, Cursor(entry.data))
        except Malformed:
            continue
    return locations


def _location(bytecode: Bytecode, cursor: Cursor) -> Location:
    code = cursor.number()
    if code == _CALL_SITE:
        return CallSite(alias(cursor.number()), alias(cursor.number()))
    if code == _FILE_LINE:
        return FileLine(_name(bytecode, cursor), cursor.number(), cursor.number())
    if code == _FILE_RANGE:
        name, parts = _name(bytecode, cursor), [*cursor.numbers(), 0, 0]
        return FileLine(name, parts[0], parts[1])
    if code in (_FUSED, _FUSED_WITH_METADATA):
        numbers = cursor.numbers()
        return Named("", alias(numbers[0])) if numbers else None
    if code == _NAME:
        return Named(_name(bytecode, cursor), alias(cursor.number()))
    return None


def _name(bytecode: Bytecode, cursor: Cursor) -> str:
    """The string that a string attribute holds."""
    inner = Cursor(entry_at(bytecode.attributes, cursor.number()).data)
    if inner.number() != _STRING:
        raise Malformed("a location whose name is not a string")
    return printable_text(entry_at(bytecode.strings, inner.number()))
