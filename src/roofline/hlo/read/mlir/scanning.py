"""MLIR's syntax: where blanks, brackets, strings and types of a text end, and the strings and names that it escapes."""

import re

from ...ir.malformed import Malformed, excerpt
from ..lexing import STRING

_SKIP = re.compile(r"(?:\s+|//[^\n]*)+")
_WORD = re.compile(r"[A-Za-z_][\w$.\-]*")
SIGIL = re.compile(r"[#!@%^][\w$.\-:]*(?:\"[^\"]*\")?")
_HEX = re.compile(rb"\\(?:([0-9a-fA-F]{2})|(.))", re.DOTALL)
_NESTED = re.compile(rf'{STRING}|->|[<>{{}}()\[\]"]', re.DOTALL)
_SHUT = {"<": ">", "{": "}", "(": ")", "[": "]"}
_NAMED = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}


def unescape(text: str) -> str:
    """An MLIR string without its quotes: two hexadecimal digits after a backslash are a byte."""
    if "\\" not in text:
        return text
    raw = _HEX.sub(
        lambda match: bytes([int(match[1], 16)]) if match[1] else _NAMED.get(match[2], match[2]), text.encode("utf-8", "surrogatepass")
    )
    return raw.decode("utf-8", "backslashreplace")


def skip(text: str, position: int) -> int:
    """The position after blanks and comments."""
    match = _SKIP.match(text, position)
    return match.end() if match else position


def end_of_nest(text: str, position: int) -> int:
    """The position after the bracket at ``position`` and its contents; arrows are not brackets, strings are skipped."""
    stack: list[str] = []
    for match in _NESTED.finditer(text, position):
        mark = match[0]
        if mark in _SHUT:
            stack.append(_SHUT[mark])
        elif mark == '"':
            raise Malformed(f"unterminated string: {excerpt(text[match.start() :])}")
        elif mark in (">", "}", ")", "]"):
            if not stack or stack.pop() != mark:
                raise Malformed(f"unmatched {mark!r} after {excerpt(text[position:])}")
            if not stack:
                return match.end()
    raise Malformed(f"unclosed bracket: {excerpt(text[position:])}")


def end_of_type(text: str, position: int) -> int:
    """The position after a type: ``tensor<4x8xf32>``, ``i64``, ``!stablehlo.token``, ``(A, B) -> C``."""
    if text[position : position + 1] == "(":
        end = skip(text, end_of_nest(text, position))
        return end_of_type(text, skip(text, end + 2)) if text.startswith("->", end) else end
    match = SIGIL.match(text, position) or _WORD.match(text, position)
    if match is None:
        raise Malformed(f"expected a type at {excerpt(text[position:])}")
    return end_of_nest(text, match.end()) if text[match.end() : match.end() + 1] == "<" else match.end()


def symbol(text: str) -> str:
    """``@name`` or ``@"odd name"`` without its sign."""
    return unescape(text[2:-1]) if text.startswith('@"') else text.removeprefix("@")
