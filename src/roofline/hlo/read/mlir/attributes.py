"""MLIR's attribute syntax: dictionaries, numbers with types, arrays, dense elements; for backend configs and StableHLO.

Values are returned as plain Python: dictionaries, lists, numbers, booleans, strings. Attributes of StableHLO's dialects with named fields
are dictionaries, those of an enumeration its word. Others (``#dialect.thing<…>``, ``tensor<…>``, ``@symbol``) are returned as their text; a
number's type is dropped.
"""

import re

from ...ir.malformed import Malformed, excerpt
from ..lexing import STRING
from .elements import Elements, parse_elements
from .scanning import SIGIL, end_of_nest, end_of_type, skip, unescape
from .types import parse_type

MAX_DEPTH = 100

_STRING = re.compile(STRING, re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:0x[0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)")
_WORD = re.compile(r"[A-Za-z_][\w$.\-]*")
_FIELDS = re.compile(r"(?:#(?:stablehlo|mhlo|chlo)\.\w+)?<\s*(?:raw\s+)?(?=[A-Za-z_]\w*\s*=(?!=))")
_LISTS = re.compile(r"#(?:stablehlo|mhlo)\.conv<\s*(?=\[)")
_ENUMERATOR = re.compile(r"#\w+<\w+ (\w+)>")
_CROSS = re.compile(r"\s*(?:x|->)\s*(?=\[)")


def parse_value(text: str, position: int = 0, depth: int = 0, typed: bool = True) -> tuple[object, int]:
    """One attribute value, and where it ends: after its ``: type``, or before the colon if ``typed`` is false."""
    if depth > MAX_DEPTH:
        raise Malformed(f"attributes nested deeper than {MAX_DEPTH}")
    position = skip(text, position)
    mark = text[position : position + 1]
    if not mark:
        raise Malformed("expected a value, found the end of the text")
    if mark == "{":
        return parse_dictionary(text, position, depth + 1)
    if mark == "[":
        items, end = _array(text, position, depth + 1)
        return items, _past_type(text, end)[1] if typed else end
    if mark == '"':
        match = _STRING.match(text, position)
        if match is None:
            raise Malformed(f"unterminated string: {excerpt(text[position:])}")
        return unescape(match[0][1:-1]), _past_type(text, match.end())[1] if typed else match.end()
    if mark in "<#" and (match := _FIELDS.match(text, position)):
        return _entries(text, match.end(), ">", depth + 1)
    if mark in "<(":
        end = end_of_nest(text, position) if mark == "<" else end_of_type(text, position)
        return text[position:end], end
    if mark in "#!@%^":
        return _sigil(text, position, depth)
    if mark == "?":
        return mark, position + 1
    number = _NUMBER.match(text, position)
    if number is not None and (number.end() == len(text) or not (text[number.end()].isalnum() or text[number.end()] == "_")):
        kind, end = _past_type(text, number.end()) if typed else ("", number.end())
        return _number(number[0], kind), end
    word = _WORD.match(text, position)
    if word is None:
        raise Malformed(f"expected a value at {excerpt(text[position:])}")
    end = word.end()
    if word[0] in ("true", "false"):
        return word[0] == "true", end
    if text[end : end + 1] == "<":
        close = end_of_nest(text, end)
        inner = text[end + 1 : close - 1]
        if word[0] == "array":
            return _numbers(inner.partition(":")[2]), close
        if word[0] in ("dense", "dense_resource"):
            kind, close = _past_type(text, close)
            type_ = parse_type(kind)
            return parse_elements(inner, type_) if word[0] == "dense" else Elements(type_), close
        end = close
    return text[position:end], _past_type(text, end)[1] if typed else end


def _sigil(text: str, position: int, depth: int) -> tuple[object, int]:
    if match := _LISTS.match(text, position):
        lists, end = parse_lists(text, match.end(), depth + 1)
        return lists, _after(text, end, ">")
    if match := _ENUMERATOR.match(text, position):
        return match[1], match.end()
    match = SIGIL.match(text, position)
    end = match.end() if match else position + 1
    if text[end : end + 1] == "<":
        end = end_of_nest(text, end)
    while text.startswith("::", end):
        match = SIGIL.match(text, end + 2)
        end = match.end() if match else end + 2
    return text[position:end], end


def parse_dictionary(text: str, position: int, depth: int = 0) -> tuple[dict[str, object], int]:
    """``{a = 1 : i64, flag, "quoted key" = [2]}``; a name without a value is true."""
    return _entries(text, position + 1, "}", depth)


def _entries(text: str, position: int, close: str, depth: int) -> tuple[dict[str, object], int]:
    entries: dict[str, object] = {}
    position = skip(text, position)
    while text[position : position + 1] != close:
        string = _STRING.match(text, position)
        match = string or _WORD.match(text, position)
        if match is None:
            raise Malformed(f"expected a name or {close!r} at {excerpt(text[position:])}")
        name = unescape(match[0][1:-1]) if string else match[0]
        position = skip(text, match.end())
        if text[position : position + 1] == "=":
            entries[name], position = parse_value(text, position + 1, depth)
        else:
            entries[name] = True
        position = skip(text, position)
        if text[position : position + 1] == ",":
            position = skip(text, position + 1)
        elif text[position : position + 1] != close:
            raise Malformed(f"expected ',' or {close!r} at {excerpt(text[position:])}")
    return entries, position + 1


def parse_lists(text: str, position: int, depth: int = 0) -> tuple[object, int]:
    """``[1]``, or lists that belong together as a tuple: ``[1] x [0]``, and the labels ``[b, 0, f]x[0, i, o]->[b, 0, f]``."""
    first, position = _array(text, position, depth)
    lists = [first]
    while match := _CROSS.match(text, position):
        inner, position = _array(text, match.end(), depth)
        lists.append(inner)
    return (tuple(lists) if len(lists) > 1 else first), position


def _after(text: str, position: int, mark: str) -> int:
    position = skip(text, position)
    if text[position : position + 1] != mark:
        raise Malformed(f"expected {mark!r} at {excerpt(text[position:])}")
    return position + 1


def _array(text: str, position: int, depth: int) -> tuple[list[object], int]:
    items: list[object] = []
    position = skip(text, position + 1)
    while text[position : position + 1] != "]":
        value, position = parse_value(text, position, depth)
        items.append(value)
        position = skip(text, position)
        if text[position : position + 1] == ",":
            position = skip(text, position + 1)
        elif text[position : position + 1] != "]":
            raise Malformed(f"expected ',' or ']' at {excerpt(text[position:])}")
    return items, position + 1


def _past_type(text: str, position: int) -> tuple[str, int]:
    """The type after a value, if one follows a colon, and where it ends."""
    start = skip(text, position)
    if text[start : start + 1] != ":" or text[start : start + 2] == "::":
        return "", position
    start = skip(text, start + 1)
    return text[start : (end := end_of_type(text, start))], end


def _number(text: str, kind: str) -> int | float:
    if kind.startswith(("f", "bf")) and not text.startswith("0x"):
        return float(text)
    try:
        return int(text, 0)
    except ValueError:
        # Leading zeros, fractions, and digits beyond what int() takes at once.
        return float(text)


def _numbers(text: str) -> list[object]:
    values: list[object] = []
    for item in text.split(","):
        word = item.strip()
        if word in ("true", "false"):
            values.append(word == "true")
        elif word:
            if not _NUMBER.fullmatch(word):
                raise Malformed(f"not a number: {excerpt(word)}")
            values.append(_number(word, ""))
    return values
