"""Lexing of HLO text: quoted strings, nested brackets, lists of ``name=value``."""

import re
from collections.abc import Iterator

from ..ir.malformed import Malformed, excerpt

STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_NAMED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
_NAME = re.compile(r"\s*(?:/\*.*?\*/\s*)?([A-Za-z_][\w.\-]*)\s*=\s*", re.DOTALL)
# Common values, matched at once: a string, a list without lists in it, braces with strings in them, a bare word.
_VALUE = re.compile(rf'(?>{STRING}|\{{[^{{}}"]*+(?:{STRING}[^{{}}"]*+)*+\}}|[^,{{}}"()\[\]\n]++)(?=\s*(?:,|\Z))', re.DOTALL)
_BRACKET = re.compile(rf"{STRING}|[{{}}()\[\],\"]", re.DOTALL)
_CLOSES = {"}": "{", ")": "(", "]": "["}


def unescape(text: str) -> str:
    """A C-escaped string without its quotes; bytes that are not UTF-8 show as ``\\xEF``.

    >>> unescape("state[\\\\'m\\\\'] caf\\\\303\\\\251")
    "state['m'] café"
    """
    if "\\" not in text:
        return text
    raw = _ESCAPE.sub(_unescaped, text.encode("utf-8", "surrogatepass"))
    return raw.decode("utf-8", "backslashreplace")


def _unescaped(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, named = match.groups()
    if octal:
        return bytes([int(octal, 8) & 255])
    if hexadecimal:
        return bytes([int(hexadecimal, 16)])
    return _NAMED.get(named, named)


def unquote(text: str) -> str:
    """A word, or a quoted string without quotes and escapes."""
    return unescape(text[1:-1]) if len(text) >= 2 and text[0] == '"' == text[-1] else text


def attributes_of(text: str) -> Iterator[tuple[str, int, int]]:
    """Each ``name=value`` of a comma-separated list: the name, and where its value starts and ends."""
    position, end = 0, len(text)
    while position < end:
        if text[position] in ", \t\r\n":
            position += 1
            continue
        match = _NAME.match(text, position)
        if match is None:
            raise Malformed(f"expected name=value at {excerpt(text[position:])}")
        value = _VALUE.match(text, match.end())
        position = value.end() if value is not None else end_of_value(text, match.end())
        yield match[1], match.end(), position


def find_attribute(text: str, name: str) -> tuple[int, int] | None:
    """Where the value of one attribute of a comma-separated list starts and ends."""
    at = text.find(f"{name}=")
    if at < 0:
        return None
    before = text[:at]
    if '"' not in before and before.count("{") == before.count("}") and before[-1:] in ("", " ", ","):
        # Outside all strings and braces, so this is the attribute and not a word inside another one's value.
        start = at + len(name) + 1
        value = _VALUE.match(text, start)
        return start, value.end() if value is not None else end_of_value(text, start)
    for key, start, end in attributes_of(text):
        if key == name:
            return start, end
    return None


def end_of_value(text: str, start: int) -> int:
    """Where a value ends: at the next comma outside all brackets and strings, or at the end."""
    stack: list[str] = []
    for match in _BRACKET.finditer(text, start):
        mark = match[0]
        if mark == ",":
            if not stack:
                return match.start()
        elif mark in "{([":
            stack.append(mark)
        elif mark in "})]":
            if not stack or stack.pop() != _CLOSES[mark]:
                raise Malformed(f"unmatched {mark!r} in {excerpt(text[start:])}")
        elif mark == '"':
            raise Malformed(f"unterminated string: {excerpt(text[match.start() :])}")
    if stack:
        raise Malformed(f"unclosed {stack[0]!r} in {excerpt(text[start:])}")
    return len(text)


def split(text: str) -> list[str]:
    """The items of a comma-separated list, brackets and strings kept whole.

    >>> split('{0,1}, {2,3}, "a,b"')
    ['{0,1}', '{2,3}', '"a,b"']
    """
    items = []
    position = 0
    while position < len(text):
        end = end_of_value(text, position)
        items.append(text[position:end].strip())
        position = end + 1
    return items if items != [""] else []


COMMENT = r"//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/"
_COMMENTS = re.compile(rf"({STRING})|{COMMENT}", re.DOTALL)


def without_comments(text: str) -> str:
    """The text without comments, but with the line breaks in them."""
    if "//" not in text and "/*" not in text:
        return text
    return _COMMENTS.sub(lambda match: match[1] or " " + "\n" * match[0].count("\n"), text)


_LINE_COMMENT = re.compile(rf'{STRING}|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/|"|/\*|//', re.DOTALL)


def without_line_comment(line: str) -> str:
    """A line up to ``//`` outside strings."""
    for match in _LINE_COMMENT.finditer(line):
        if match[0] == "//":
            return line[: match.start()]
        if match[0] in ('"', "/*"):
            return line  # a string or comment that continues in the next line
    return line
