"""MLIR text as a tree of operations: results, operands, attributes, regions, types; in pretty and in generic form.

Only the syntax is parsed here, which is the same for every dialect that prints like StableHLO.
"""

import re

from msgspec import Struct, field

from ....files.input_limits import excess, limits
from ...ir.malformed import Malformed, excerpt
from ..lexing import STRING
from .attributes import parse_dictionary, parse_lists, parse_value
from .scanning import end_of_nest, end_of_type, skip, symbol, unescape
from .types import Type, parse_type, split_types

MAX_DEPTH = 50

_SSA = re.compile(r"%[\w$.\-]+(?:#\d+)?")
_RESULT = re.compile(r"(%[\w$.\-]+)(?::(\d+))?\s*(?=[,=])")
_WORD = re.compile(r"[A-Za-z_][\w$.]*")
_STRING = re.compile(STRING, re.DOTALL)
_SYMBOL = re.compile(rf"@(?:[\w$.\-]+|{STRING})", re.DOTALL)
_KEY = re.compile(r"([A-Za-z_][\w$.]*)\s*=(?!=)")
_DICTIONARY = re.compile(rf"\{{\s*(?:\}}|(?:[A-Za-z_][\w$.\-]*|{STRING})\s*[=,}}])", re.DOTALL)
_BLOCK = re.compile(r"\^[\w$.\-]+\s*")
_CONTINUES = re.compile(r"\s*(?:[:{]|[a-z_]+\s*=(?!=)|applies\b|across\b)")  # how a line starts that continues the previous one
_ALIAS_PIECE = re.compile(r"[\n<{(\[]")
_BLANK = re.compile(r"[ \t]*(?://[^\n]*)?")


class Region(Struct):
    """A block with its arguments: name, type and attributes of each."""

    arguments: list[tuple[str, Type, dict[str, object]]] = field(default_factory=list)
    operations: list["Operation"] = field(default_factory=list)


class Operation(Struct):
    """One operation of the text. ``words`` are the bare words and symbols between operands, in order."""

    name: str
    place: int
    results: list[str] = field(default_factory=list)
    operands: list[str] = field(default_factory=list)
    attributes: dict[str, object] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    types: list[Type] = field(default_factory=list)
    result_types: list[Type] = field(default_factory=list)
    location: str = ""
    text: str = ""  # the attribute dictionary as written


class OperationReader:
    """Reads operations; ``at`` is the current position in the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = self.count = 0

    def skip(self) -> str:
        """Skips blanks and comments; the next character, or empty at the end."""
        self.at = skip(self.text, self.at)
        return self.text[self.at : self.at + 1]

    def must(self, mark: str, expected: str = "") -> None:
        """Reads a character that has to follow."""
        if self.skip() != mark:
            raise self.fail(expected or f"'{mark}'")
        self.at += 1

    def may(self, mark: str) -> bool:
        """Reads a character, if it follows."""
        follows = self.skip() == mark
        self.at += follows
        return follows

    def fail(self, expected: str) -> Malformed:
        return Malformed(f"expected {expected}, found {excerpt(self.text[self.at :].strip() or 'the end of the text')}")

    def operations(self, depth: int = 0) -> list[Operation]:
        """Operations up to a closing brace or the end; aliases (``#loc1 = …``) are skipped."""
        if depth > MAX_DEPTH:
            raise Malformed(f"regions nested deeper than {MAX_DEPTH}")
        operations = []
        while (mark := self.skip()) not in ("", "}"):
            if mark in "#!":
                self.alias()
            elif self.text.startswith("{-#", self.at):
                # Resources of the file: large constants by name, after the module.
                end = self.text.find("#-}", self.at)
                self.at = len(self.text) if end < 0 else end + 3
            else:
                self.count += 1
                if self.count > limits().instructions:
                    raise Malformed(excess("instructions"))
                operations.append(self.operation(depth))
        return operations

    def alias(self) -> None:
        """Skips ``#name = …`` to the end of its line, or of the brackets that are open there."""
        while (match := _ALIAS_PIECE.search(self.text, self.at)) is not None:
            self.at = match.start() if match[0] == "\n" else end_of_nest(self.text, match.start())
            if match[0] == "\n":
                return
        self.at = len(self.text)

    def operation(self, depth: int) -> Operation:
        place = self.at
        results = self.results()
        mark = self.skip()
        name = self.expect(_STRING if mark == '"' else _WORD, "an operation")[0]
        operation = Operation(name[1:-1] if mark == '"' else name, place, results)
        if mark == '"':
            self.generic(operation, depth)
        elif name in ("func.func", "func"):
            self.function(operation, depth)
        elif name in ("module", "builtin.module"):
            self.module(operation, depth)
        else:
            self.pretty(operation, depth)
        return operation

    def results(self) -> list[str]:
        """The names before ``=``: ``%0``, ``%1:2`` (which are ``%1#0`` and ``%1#1``), ``%values, %indices``."""
        names: list[str] = []
        start = self.at
        while match := _RESULT.match(self.text, self.at):
            count = int(match[2]) if match[2] and len(match[2]) < 6 else 1
            names += [match[1]] if match[2] is None else [f"{match[1]}#{number}" for number in range(count)]
            self.at = match.end()
            if self.text[self.at] == "=":
                self.at += 1
                return names
            self.at = skip(self.text, self.at + 1)
        if self.text[start : start + 1] == "%":
            raise self.fail("'=' after results")
        return []

    def generic(self, operation: Operation, depth: int) -> None:
        """``(%a, %b) <{properties}> ({regions}) {attributes} : (types) -> types``"""
        if self.skip() != "(":
            raise self.fail("'('")
        end = end_of_nest(self.text, self.at)
        operation.operands = _SSA.findall(self.text, self.at, end)
        self.at = end
        while (mark := self.skip()) not in (":", ""):
            if mark == "<" and self.text.startswith("<{", self.at):
                self.attributes(operation, self.at + 1)
                self.must(">")
            elif mark == "[":
                self.at = end_of_nest(self.text, self.at)
            elif mark == "(":
                self.at += 1
                while self.skip() == "{":
                    operation.regions.append(self.region(depth + 1))
                    self.may(",")
                self.must(")", "')' after regions")
            elif mark == "{":
                self.attributes(operation, self.at)
            else:
                raise self.fail("':' and types")
        self.signature(operation)
        self.location(operation)

    def attributes(self, operation: Operation, start: int) -> None:
        attributes, self.at = parse_dictionary(self.text, start)
        operation.attributes.update(attributes)
        operation.text += self.text[start : self.at]

    def pretty(self, operation: Operation, depth: int) -> None:
        """``dialect.op %a, %b, key = value, word {attributes} : types``, ending with its types or its line."""
        open_parentheses = 0
        initials: list[str] = []
        mark = ""
        while True:
            if open_parentheses or mark == ",":  # the operation continues
                mark = self.skip()
            else:
                blank = _BLANK.match(self.text, self.at)
                self.at = blank.end() if blank else self.at
                mark = self.text[self.at : self.at + 1]
            if mark in ("", "\n", "\r", "}") and not open_parentheses:
                if not mark.isspace() or not _CONTINUES.match(self.text, self.at):
                    break
                mark = self.skip()
            if not mark:
                raise self.fail("')'")
            if mark == ":":
                if operation.words[-1:] == ["init"]:
                    # reduce(%x init: %zero): initial values are operands after all the inputs.
                    operation.words.pop()
                    self.at += 1
                    self.skip()
                    initials.append(self.expect(_SSA, "an initial value")[0])
                    continue
                self.signature(operation)
                break
            open_parentheses += self.piece(operation, mark, depth)
            if open_parentheses < 0:
                raise self.fail("no ')'")
        operation.operands += initials
        self.tail(operation, depth)
        self.location(operation)

    def piece(self, operation: Operation, mark: str, depth: int) -> int:
        """One piece of a pretty operation before its types; +1 or -1 when it opens or closes a parenthesis."""
        text = self.text
        if mark in "()":
            self.at += 1
            return 1 if mark == "(" else -1
        if mark in ",=":
            self.at += 1
        elif mark == "%":
            return self.value(operation, depth)
        elif mark == "@":
            operation.words.append(self.expect(_SYMBOL, "a symbol")[0])
        elif mark == '"':
            operation.words.append(unescape(self.expect(_STRING, "a string")[0][1:-1]))
        elif text.startswith("->", self.at):
            self.at += 2
            operation.result_types = self.types()
        elif mark == "{":
            if not _DICTIONARY.match(text, self.at):
                operation.regions.append(self.region(depth + 1))
            else:
                self.attributes(operation, self.at)
        elif mark in "[<":
            end = end_of_nest(text, self.at)
            operation.attributes[mark] = text[self.at : end]
            self.at = end
        elif key := _KEY.match(text, self.at):
            self.pair(operation, key)
        elif word := _WORD.match(text, self.at):
            operation.words.append(word[0])
            self.at = word.end()
        else:
            value, self.at = parse_value(text, self.at, typed=False)
            operation.words.append(str(value))
        return 0

    def value(self, operation: Operation, depth: int) -> int:
        """An operand of a pretty operation; -1 if its parenthesis is closed too."""
        match = self.expect(_SSA, "a value")
        after = skip(self.text, self.at)
        if operation.name.endswith((".while", ".for")) and self.text[after : after + 1] == "=":
            # while(%iterArg = %start), for %i = %first to %last iter_args(%iterArg = %start): the name inside, then its first value.
            self.at = after + 1
            self.skip()
            operation.words.append(match[0])
            match = self.expect(_SSA, "a value")
        elif self.text[after : after + 1] == ":" and operation.name.endswith("_computation"):
            self.at = match.start()
            self.region_with_arguments(operation, depth)
            return -1
        operation.operands.append(match[0])
        return 0

    def expect(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        """Reads a match of a pattern at the current position."""
        match = pattern.match(self.text, self.at)
        if match is None:
            raise self.fail(what)
        self.at = match.end()
        return match

    def pair(self, operation: Operation, key: re.Match[str]) -> None:
        """``key = value``, where dimension numbers may be pairs (``[1] x [0]``) or a convolution's (``[b, 0]x[i, o]->[b, 0]``)."""
        text = self.text
        start = skip(text, key.end())
        if text[start : start + 1] == "[":
            operation.attributes[key[1]], self.at = parse_lists(text, start)
        else:
            operation.attributes[key[1]], self.at = parse_value(text, start, typed=False)

    def signature(self, operation: Operation) -> None:
        """``: (A, B) -> C``, ``: A``, ``: A, B``, ``: A -> B``"""
        self.must(":", "':' and types")
        operation.types = self.types()
        after = skip(self.text, self.at)
        if self.text.startswith("->", after):
            self.at = after + 2
            operation.result_types = self.types()
        elif len(operation.results) > 1:
            operation.result_types = operation.result_types or operation.types[: len(operation.results)]
        else:
            operation.result_types = operation.result_types or operation.types[-1:]

    def types(self) -> list[Type]:
        """``(A, B)`` or ``A, B``"""
        if self.skip() == "(":
            start, self.at = self.at, end_of_nest(self.text, self.at)
            return [parse_type(text) for text in split_types(self.text[start + 1 : self.at - 1])]
        types = []
        while True:
            self.skip()
            types.append(self.type())
            comma = skip(self.text, self.at)
            if self.text[comma : comma + 1] != ",":
                return types
            self.at = comma + 1

    def type(self) -> Type:
        start, self.at = self.at, end_of_type(self.text, self.at)
        return parse_type(self.text[start : self.at])

    def tail(self, operation: Operation, depth: int) -> None:
        """Regions after the types: a reduce's reducer, the condition and body of a while, the body of a loop with a counter."""
        while True:
            after = skip(self.text, self.at)
            if self.text[after : after + 1] == "{" and "\n" not in self.text[self.at : after]:
                if _DICTIONARY.match(self.text, after):
                    self.attributes(operation, after)
                else:
                    self.at = after
                    operation.regions.append(self.region(depth + 1))
                continue
            word = _WORD.match(self.text, after)
            if word is None or word[0] not in ("reducer", "cond", "do", "attributes") or operation.name.endswith("return"):
                return
            self.at = word.end()
            mark = self.skip()
            if word[0] == "reducer" and mark == "(":
                self.region_with_arguments(operation, depth)
            elif word[0] == "attributes" and mark == "{":
                self.attributes(operation, self.at)
            elif mark == "{":
                operation.regions.append(self.region(depth + 1))
            else:
                raise self.fail("'{'")

    def region_with_arguments(self, operation: Operation, depth: int) -> None:
        """``(%a: A, %b: B) (%c: C, %d: D) {…}``: the arguments of a region, printed before it."""
        arguments: list[tuple[str, Type, dict[str, object]]] = []
        groups = 0
        while self.skip() in ("(", "%"):
            self.at += self.text[self.at] == "("
            arguments += self.arguments()
            groups += 1
        if self.skip() != "{":
            raise self.fail("'{'")
        region = self.region(depth + 1)
        # A reducer's arguments come in pairs; the block's are all the left ones, then all the right ones.
        region.arguments = arguments[0::2] + arguments[1::2] if groups > 1 else arguments
        operation.regions.append(region)

    def arguments(self) -> list[tuple[str, Type, dict[str, object]]]:
        """``%a: A {attributes} loc(…), %b: B)`` up to and past the closing parenthesis."""
        arguments: list[tuple[str, Type, dict[str, object]]] = []
        while self.skip() != ")":
            match = self.expect(_SSA, "an argument")
            self.must(":", "':' and a type")
            self.skip()
            kind = self.type()
            given: dict[str, object] = {}
            if self.skip() == "{":
                given, self.at = parse_dictionary(self.text, self.at)
            holder = Operation("", self.at)
            self.location(holder)
            if holder.location:
                given["loc"] = holder.location
            arguments.append((match[0], kind, given))
            if not self.may(",") and self.skip() != ")":
                raise self.fail("',' or ')'")
        self.at += 1
        return arguments

    def result_attributes(self) -> list[object]:
        """``(A {attributes}, B)``: the attributes of each result."""
        end = end_of_nest(self.text, self.at)
        listed: list[object] = []
        self.at += 1
        while self.skip() != ")":
            self.at = end_of_type(self.text, self.at)
            given: dict[str, object] = {}
            if self.skip() == "{":
                given, self.at = parse_dictionary(self.text, self.at)
            listed.append(given)
            if not self.may(",") and self.at + 1 < end:
                raise self.fail("',' or ')'")
        self.at = end
        return listed

    def region(self, depth: int) -> Region:
        """``{ ^bb0(%a: A): operations }``, one block only."""
        region = Region()
        self.at += 1
        if self.skip() == "^":
            match = _BLOCK.match(self.text, self.at)
            self.at = match.end() if match else self.at + 1
            if self.may("("):
                region.arguments = self.arguments()
            self.must(":", "':' after a block's arguments")
        region.operations = self.operations(depth)
        if self.skip() == "^":
            raise Malformed("a region of several blocks; StableHLO regions have one")
        self.must("}")
        return region

    def function(self, operation: Operation, depth: int) -> None:
        """``func.func public @main(%a: A {…}) -> (B {…}) attributes {…} {…}``; a declaration has no body."""
        self.skip()
        while word := _WORD.match(self.text, self.at):
            operation.words.append(word[0])
            self.at = word.end()
            self.skip()
        operation.attributes["sym_name"] = symbol(self.expect(_SYMBOL, "a function's name")[0])
        self.must("(")
        arguments: list[tuple[str, Type, dict[str, object]]] = []
        if self.skip() == "%":
            arguments = self.arguments()
        else:
            self.at = end_of_nest(self.text, self.at - 1)
        self.skip()
        if self.text.startswith("->", self.at):
            self.at += 2
            if self.skip() == "(":
                operation.attributes["res_attrs"] = self.result_attributes()
            else:
                self.at = end_of_type(self.text, self.at)
        self.named_attributes(operation)
        if self.skip() == "{":
            region = self.region(depth + 1)
            region.arguments = region.arguments or arguments
            operation.regions.append(region)
        self.location(operation)

    def module(self, operation: Operation, depth: int) -> None:
        """``module @name attributes {…} {…}``"""
        if self.skip() == "@":
            operation.attributes["sym_name"] = symbol(self.expect(_SYMBOL, "a module's name")[0])
        self.named_attributes(operation)
        if self.skip() != "{":
            raise self.fail("'{'")
        operation.regions.append(self.region(depth + 1))
        self.location(operation)

    def named_attributes(self, operation: Operation) -> None:
        """``attributes {…}``, if that comes next."""
        word = _WORD.match(self.text, skip(self.text, self.at))
        if word is not None and word[0] == "attributes":
            self.attributes(operation, skip(self.text, word.end()))

    def location(self, operation: Operation) -> None:
        """``loc(…)``, if that comes next."""
        after = skip(self.text, self.at)
        if self.text.startswith("loc(", after):
            end = end_of_nest(self.text, after + 3)
            operation.location = self.text[after + 4 : end - 1]
            self.at = end
