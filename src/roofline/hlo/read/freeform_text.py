"""Instructions of HLO text in any spelling that XLA's parser accepts: without shapes, with line breaks and comments anywhere, instructions
as operands of others, computations written where they are called.

`text` reads the form that XLA prints, with one instruction per line; all other lines are read here.
"""

import re
from typing import NamedTuple

from msgspec import Struct

from ..ir.malformed import Malformed, excerpt
from .lexing import COMMENT, STRING, split, without_comments

ROLES = {
    "calls": "calls",
    "to_apply": "to_apply",
    "condition": "condition",
    "body": "body",
    "true_computation": "branch_computations",
    "false_computation": "branch_computations",
    "branch_computations": "branch_computations",
    "select": "select",
    "scatter": "scatter",
    "called_computations": "called_computations",
}
_LISTS = ("branch_computations", "called_computations")  # attributes that are lists of computations, in braces

_BLANK = re.compile(rf"(?:\s++|{COMMENT})*+")
_NEST = re.compile(rf"{STRING}|{COMMENT}|[{{}}()\[\]\"]|/\*", re.DOTALL)
_SHUT = {"{": "}", "(": ")", "[": "]"}
_ENTRY = re.compile(r"ENTRY(?=\s|/)")
_ROOT = re.compile(r"ROOT(?=\s|/)")
_NAME = re.compile(r"%?([^\s=%,(){}\[\]\"]+)")
_ARRAY = re.compile(r"[a-z]\w*\[")
_LAYOUT = re.compile(r"\s*+\{(?=\s*(?:\d|:|\}))")
_OPCODE = re.compile(r"[a-z][\w\-]*+")
_KEY = re.compile(r"[A-Za-z_][\w.\-]*+")
_STRING = re.compile(STRING, re.DOTALL)
_BARE = re.compile(r"[^\s,(){}\[\]\"/]++|/(?![/*])")
_CONTINUES = re.compile(r"[ \t]+(?=\{|<=|T\()")  # a blank inside one value: mesh['a'=2] {'a'}


class Unfinished(Exception):
    """The text ends before the instruction does."""


class Inline(Struct, frozen=True):
    """A computation written where it is called: its generated name, the text of its instructions, and where that starts."""

    name: str
    text: str
    at: int


class Written(NamedTuple):
    """The parts of an instruction's text: ``inside`` is its operands, ``rest`` its attributes; ``shape`` is empty if it is not given."""

    root: str
    name: str
    shape: str
    opcode: str
    inside: str
    rest: str = ""


class Scanner(Struct):
    """Parses a piece of HLO text; ``whole`` is true if the text does not continue after it."""

    text: str
    whole: bool

    def after_blanks(self, at: int) -> int:
        """The position after blanks and comments."""
        match = _BLANK.match(self.text, at)
        at = match.end() if match else at
        if at >= len(self.text) or self.text.startswith("/*", at):
            if not self.whole:
                raise Unfinished
            if at < len(self.text):
                raise Malformed(f"unterminated comment: {excerpt(self.text[at:])}")
        return at

    def end_of_nest(self, at: int) -> int:
        """The position after the bracket at a position and its contents."""
        stack: list[str] = []
        for match in _NEST.finditer(self.text, at):
            mark = match[0]
            if mark in _SHUT:
                stack.append(_SHUT[mark])
            elif mark in ("}", ")", "]"):
                if stack.pop() != mark:
                    raise Malformed(f"unmatched {mark!r} in {excerpt(self.text[at:])}")
                if not stack:
                    return match.end()
            elif mark in ('"', "/*"):
                raise self.cut("unterminated string" if mark == '"' else "unterminated comment", match.start())
        raise self.cut("unclosed bracket", at)

    def cut(self, what: str, at: int) -> Exception:
        return Malformed(f"{what}: {excerpt(self.text[at:])}") if self.whole else Unfinished()

    def header(self) -> tuple[tuple[bool, str], int]:
        """``ENTRY %name (parameters) -> result {``: whether it is the entry and its name, and where its instructions begin."""
        start = at = self.after_blanks(0)
        entry = _ENTRY.match(self.text, at)
        at = self.after_blanks(entry.end()) if entry else at
        name = _NAME.match(self.text, at)
        at = self.after_blanks(name.end()) if name else at
        if self.text.startswith("(", at):
            at = self.after_blanks(self.end_of_nest(at))
            if self.text.startswith("->", at):
                at = self.after_blanks(self.end_of_shape(self.after_blanks(at + 2)))
        if name is None or not self.text.startswith("{", at):
            raise Malformed(f"expected a computation, found {excerpt(self.text[start:].partition(chr(10))[0].strip())}")
        return (entry is not None, name[1]), at + 1

    def module(self) -> tuple[tuple[str, str], int]:
        """``HloModule name, key=value, …``: the name and the attributes, and where they end."""
        at = self.after_blanks(0) + len("HloModule")
        name = re.match(r"[^,\n]*", self.text[at:])
        assert name is not None
        attributes, end = self.attributes(at + name.end())
        return (name[0], ", ".join(f"{key}={self.text[slice(*place)]}" for key, place in attributes)), end

    def attributes(self, at: int) -> tuple[list[tuple[str, tuple[int, int]]], int]:
        """``, key=value, …``: each name, and where its value starts and ends; and where no comma and further attribute follow."""
        attributes = []
        while self.text.startswith(",", at := self.after_blanks(at)):
            at = self.after_blanks(at + 1)
            key = _KEY.match(self.text, at)
            equals = self.after_blanks(key.end()) if key else at
            if key is None or not self.text.startswith("=", equals):
                raise Malformed(f"expected name=value at {excerpt(self.text[at:])}")
            start = self.after_blanks(equals + 1)
            at = self.end_of_value(start)
            attributes.append((key[0], (start, at)))
        return attributes, at

    def instruction(self) -> tuple[tuple[list[Written], list[Inline]], int]:
        """The instruction at the start of the text, after those among its operands; the computations written in it; and where it ends.

        It ends where no comma and further attribute follow.
        """
        at = self.after_blanks(0)
        try:
            return self._instruction(at)
        except _Unexpected:
            raise Malformed(f"expected 'name = shape opcode(…)', found {excerpt(self.text[at:].strip())}") from None

    def _instruction(self, at: int) -> tuple[tuple[list[Written], list[Inline]], int]:
        root = _ROOT.match(self.text, at)
        at = self.after_blanks(root.end()) if root else at
        name = _expect(_NAME.match(self.text, at))
        at = self.after_blanks(name.end())
        if not self.text.startswith("=", at):
            raise _Unexpected
        instructions: list[Written] = []
        inline: list[Inline] = []
        shape, opcode, inside, at = self.expression(self.after_blanks(at + 1))
        inside = self.operands(opcode, inside, instructions, name[1])
        rest: list[str] = []
        attributes, at = self.attributes(at)
        for key, (start, end) in attributes:
            value = self.text[start:end]
            if key in ROLES and value.startswith("{") and "=" in value:
                value = self.computations(name[1], key, start, end, inline)
            rest.append(f", {key}={without_comments(value)}")
        instructions.append(Written(root[0] if root else "", name[1], shape, opcode, inside, "".join(rest)))
        return (instructions, inline), at

    def expression(self, at: int) -> tuple[str, str, str, int]:
        """``shape opcode(operands)`` without the attributes; the shape may be missing."""
        after = self.end_of_shape(at)
        shape = re.sub(r"\]\s+\{", "]{", without_comments(self.text[at:after]))
        opcode = _expect(_OPCODE.match(self.text, at := self.after_blanks(after) if shape else at))
        at = self.after_blanks(opcode.end())
        if not self.text.startswith("(", at):
            raise _Unexpected
        end = self.end_of_nest(at)
        return shape, opcode[0], without_comments(self.text[at + 1 : end - 1]), end

    def end_of_shape(self, at: int) -> int:
        """The position after a shape, if there is one here."""
        if self.text.startswith(("(", "b("), at):
            return self.end_of_nest(self.text.index("(", at))
        array = _ARRAY.match(self.text, at)
        if array is None:
            return at
        at = self.end_of_nest(array.end() - 1)
        layout = _LAYOUT.match(self.text, at)  # any other brace opens a computation
        return self.end_of_nest(layout.end() - 1) if layout else at

    def operands(self, opcode: str, inside: str, instructions: list[Written], name: str) -> str:
        """The names of the operands; those that are instructions themselves are added to ``found``."""
        if "(" not in inside or opcode in ("constant", "parameter"):
            return inside
        names = []
        for number, item in enumerate(split(inside)):
            inner = Scanner(item, whole=True)
            after = inner.after_blanks(inner.end_of_shape(0))
            word = _NAME.match(item, after)
            if word is None or not item.startswith("(", inner.after_blanks(word.end())):
                names.append(item[after:])
                continue
            shape, opcode, nested, end = inner.expression(0)
            if item[end:].strip():
                raise _Unexpected
            names.append(f"%{name}.operand_{number}")
            nested = self.operands(opcode, nested, instructions, names[-1][1:])
            instructions.append(Written("", names[-1][1:], shape, opcode, nested))
        return ", ".join(names)

    def end_of_value(self, at: int) -> int:
        """The end of an attribute's value: the next comma or blank outside brackets and strings."""
        while at < len(self.text):
            mark = self.text[at]
            if mark in _SHUT:
                at = self.end_of_nest(at)
            elif mark == '"':
                string = _STRING.match(self.text, at)
                if string is None:
                    raise self.cut("unterminated string", at)
                at = string.end()
            elif match := _BARE.match(self.text, at) or _CONTINUES.match(self.text, at):
                at = match.end()
            else:
                break
        return at

    def computations(self, name: str, key: str, start: int, end: int, inline: list[Inline]) -> str:
        """The names of computations in an attribute; those written in place are added to ``inline``."""
        inner = self.text[start + 1 : end - 1]
        if key not in _LISTS:
            inline.append(Inline(f"{name}.{key}", inner, start + 1))
            return f"%{inline[-1].name}"
        names = []
        for item in split(without_comments(inner)):
            if item.startswith("{"):
                inline.append(Inline(f"{name}.{key}.{len(inline)}", item[1:-1], start + 1))
                names.append(f"%{inline[-1].name}")
            else:
                names.append(item)
        return "{" + ", ".join(names) + "}"


class _Unexpected(Exception):
    """The text is not an instruction."""


def _expect(match: re.Match[str] | None) -> re.Match[str]:
    if match is None:
        raise _Unexpected
    return match


def operand_names(inside: str) -> list[str]:
    """Operands with or without the percent sign, with or without shapes before them."""
    inside = without_comments(inside)
    items = split(inside) if "[" in inside else inside.split(",")
    return [words[-1].removeprefix("%") for item in items if (words := item.split())]
