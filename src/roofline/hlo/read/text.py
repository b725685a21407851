"""HLO text as any version of XLA prints it, scheduled or not: one pass over the lines, one regular expression per line.

A line that is not a whole instruction as XLA prints it is read by `freeform_text`. Attributes stay text until they are needed; only the
connections of instructions (operands, called computations, control predecessors) are read at once.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from sys import intern
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from ...errors import SourceError
from ...files.input_limits import excess, limits
from ..ir.attributes import StackFrames
from ..ir.malformed import Malformed, excerpt, placed
from ..ir.module import Call, Computation, HloModule, Instruction, check_operands
from ..ir.opcodes import LEAVES, asynchronous
from ..ir.shapes import Shape, parse_shape, whole
from .freeform_text import ROLES, Inline, Instructions, Scanner, Unfinished, Written, operand_names
from .lexing import Balance, attributes_of, find_attribute, split, unquote, without_line_comment
from .shape_inference import infer_shape
from .text_attributes import braced, parse_aliases, parse_frontend_attributes
from .text_dialect import TextDialect, keep_plain, like_earlier, parted
from .text_frames import read_frames

# A tuple's shape ends at the first ')' that an opcode follows. An atomic group keeps that end: otherwise a ')' in a later string would be
# tried. A line whose operands have neither parentheses nor strings is a whole instruction: nearly all are.
_HEAD = (
    r"\s*(ROOT\s+)?%?([^\s=%,(){}\"]+)\s*=\s*"
    r"((?>b?\(.*?\)(?=\s+[a-z][\w\-]*\())|[a-z]\w*\[[^\[\]]*+\](?:\{[^{}]*+\})?)\s+"
    r"([a-z][\w\-]*+)\("
)
_LINE = re.compile(_HEAD + r"([^()\"]*+)\)(.*)", re.DOTALL)
# Cases that need the whole text: a comment of several lines, or a line that begins with a comma.
_LONG_COMMENT = re.compile(r"/\*[^*\n]*+(?:\*(?!/)[^*\n]*+)*+\n")
_LEADING_COMMA = re.compile(r"\n[ \t]*,")
_NOTHING = re.compile(r"(?!)")
_OPERAND = re.compile(r"%([^\s,(){}\[\]]+)")
# A name without a percent sign: alone or after a shape, whose sizes are separated by commas too.
_UNSIGNED = re.compile(r"(?:\A|[,\]})/])\s*+[A-Za-z_][\w.\-#]*+\s*+(?:,|\Z)")
_NAME = re.compile(r"%?([^\s,{}%\"=]+)")
_ROLE = re.compile(rf"[,\s](?:{'|'.join(ROLES)})=")
_ONLY_CALL = re.compile(r"(?:, \w+=(?:\w++|\{[\d,]*+\}))*+, (calls|to_apply)=%([\w.\-]++)(?=,|\Z)")  # after attributes of the usual kind
_BETWEEN = re.compile(r"// -----\s*\Z")  # between modules of one file, as XLA's tests write it
_HEADER = re.compile(r"(ENTRY )?%([^\s,(){}\[\]=%\"]+) \([^\"/]*\) -> [^\"/]* \{\Z")  # as XLA prints it: `%name (x: f32[4]) -> f32[4] {`
_SECTIONS = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_ENTRY = re.compile(r'\s*(\d+)\s+(?:"(.*)"|\{(.*)\})\s*\Z')


_PLAIN, _PARAMETER, _CONSTANT, _CALLER = range(4)
_SHORT = 100  # characters: shorter attributes of parameters and constants are cached, because several have the same


class _Draft(Struct):
    """A computation while it is being read."""

    name: str
    line: int
    instructions: list[Instruction] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    root: int | None = None
    parameters: dict[int, int] = field(default_factory=dict)
    # Instructions with names that are defined later: position, operands, control predecessors.
    pending: list[tuple[int, list[str], list[str]]] = field(default_factory=list)


def parse_texts(text: str, where: str) -> list[HloModule]:
    """The modules in HLO text, in order; a `SourceError` names the line of an error."""
    text = text.replace("\r\n", "\n")
    lines, loose = text.split("\n"), bool(_LONG_COMMENT.search(text) or _LEADING_COMMA.search(text))
    found: list[HloModule] = []
    start = 0
    while not found or start < len(lines):
        reader = _Reader(lines, where, loose=loose)
        try:
            module, start = reader.read(start)
        except Malformed as error:
            raise placed(error, where, "line", reader.line) from None
        except RecursionError:
            raise SourceError(f"{where}: line {reader.line:,}: nested too deeply") from None
        found.append(module)
    return found


class _Reader:
    """Reads the lines in one pass; ``line`` is the current one, counted from 1. With ``loose``, a line need not be a whole instruction."""

    def __init__(self, lines: list[str], where: str, *, loose: bool = False) -> None:
        self.lines = lines
        self.before = 0  # lines before these, for a computation written inside an instruction
        self.loose = loose
        self.line = 1
        self.dialect = TextDialect(where)
        self.shapes: dict[str, Shape] = {}
        self.texts: dict[str, str] = {}  # the texts of attributes, so that equal ones are one object
        self.plain: dict[str, str] = {}  # texts of attributes without strings, which later lines may repeat before their metadata
        self.leaves: dict[tuple[str, str, str], tuple[str, object]] = {}  # short attributes of parameters and constants
        self.opcodes: dict[str, tuple[str, int]] = {}
        self.drafts: list[_Draft] = []
        self.remaining = limits().instructions  # how many more instructions are allowed
        self.numbers: dict[str, int] = {}
        self.calls: dict[tuple[tuple[str, str], ...], tuple[Call, ...]] = {}
        # Calls of computations that are defined later: draft, position, role and name of each.
        self.later: list[tuple[_Draft, int, tuple[tuple[str, str], ...], int]] = []
        self.entry: int | None = None
        self.marks_entry = True

    def read(self, number: int) -> tuple[HloModule, int]:
        """The module that begins in a line, and the number of the line where the next one does."""
        name, header = "", ""
        sections: dict[str, dict[int, str]] = {}
        lines = self.lines
        while number < len(lines):
            self.line = number + 1
            line = lines[number].strip()
            if not line or line.startswith("//"):
                number += 1
                if self.drafts and _BETWEEN.match(line):
                    break
            elif line.startswith("/*"):
                number = self.read_over_lines(number, lambda scanner: scanner.skip(0))
            elif line.startswith("HloModule"):
                if header or self.drafts:
                    break
                header, number = self.logical(number)
                name, _, header = header.strip().removeprefix("HloModule").partition(",")
                header = header or " "
            elif line in _SECTIONS:
                sections[line], number = self.section(number + 1)
            else:
                number = self.computation(number)
        after = _first_word(lines, number)
        self.line = max(1, number)
        if not self.drafts:
            raise Malformed("no computation; is the text cut off, or not HLO?")
        if self.entry is None:
            if "entry_computation_layout" in header:  # every dump has it; a fragment written by hand may have no ENTRY
                raise Malformed("the header describes an entry computation, but none is marked ENTRY; is the text cut off?")
            self.entry, self.marks_entry = len(self.drafts) - 1, not header
        self.resolve()
        self.line = 1
        module = self.module(name.strip().lstrip("%"), header, read_frames(sections))
        check_operands(module.computations)
        return module, after

    def logical(self, number: int) -> tuple[str, int]:
        """A line with the lines that continue it, because brackets are open or it ends with a comma; and the number of the next line."""
        balance = Balance()
        balance.feed(self.lines[number])
        end = number + 1
        while balance.is_open or self.lines[end - 1].rstrip()[-1:] in (",", "="):
            if end == len(self.lines):
                what = "unterminated string" if balance.in_string else "unterminated comment" if balance.in_comment else "unclosed bracket"
                raise Malformed(f"{what}: {excerpt(self.lines[number].strip())}")
            self.lines[end] = without_line_comment(self.lines[end]) if "//" in self.lines[end] else self.lines[end]
            balance.feed("\n")
            balance.feed(self.lines[end])
            end += 1
        return "\n".join(self.lines[number:end]), end

    def section(self, number: int) -> tuple[dict[int, str], int]:
        """The numbered entries of a table of stack frames, up to the next empty line."""
        found: dict[int, str] = {}
        while number < len(self.lines) and (line := self.lines[number].strip()):
            self.line = number + 1
            match = _ENTRY.match(line)
            if match is None:
                raise Malformed(f"not an entry of a table of stack frames: {excerpt(line)}")
            found[whole(match[1])] = unquote(f'"{match[2]}"') if match[2] is not None else match[3]
            number += 1
        return found, number

    def computation(self, number: int) -> int:
        """One computation, from its header to its closing brace; the number of the line after it."""
        usual = None if self.loose else _HEADER.match(self.lines[number])
        if usual is not None and usual[0].count("{") == usual[0].count("}") + 1 and usual[0].count("(") == usual[0].count(")"):
            number += 1
            is_entry, name = usual[1] is not None, usual[2]
        else:
            number, is_entry, name = self.header(number)
        draft = _Draft(intern(name), self.line)
        if is_entry:
            if self.entry is not None:
                raise Malformed("a second ENTRY computation")
            self.entry = -1
        number = self.whole(draft, number)
        if is_entry:
            self.entry = len(self.drafts) - 1
        return number

    def header(self, number: int) -> tuple[int, bool, str]:
        """The header of a computation: the number of the line where its instructions begin, whether it is the entry, and its name."""
        found: list[tuple[bool, str]] = []

        def header(scanner: Scanner) -> int:
            is_entry, name, end = scanner.header()
            found[:] = [(is_entry, name)]
            return end

        number = self.read_over_lines(number, header)
        ((is_entry, name),) = found
        return number, is_entry, name

    def whole(self, draft: _Draft, number: int) -> int:
        """Reads a computation's instructions from a line to its closing brace; returns the number of the line after it."""
        number = self.body(draft, number)
        if not draft.instructions:
            raise Malformed(f"the computation {excerpt(draft.name)} is empty")
        self.complete(draft)
        draft.index.clear()  # names have become indices
        self.add(draft)
        return number

    def read_over_lines(self, number: int, read: Callable[[Scanner], int]) -> int:
        """Applies ``read`` from the start of a line, over as many lines as it needs; returns the number of the line with the rest."""
        count = 2
        while True:
            end = min(number + count, len(self.lines))
            scanner = Scanner("\n".join(self.lines[number:end]), end == len(self.lines))
            try:
                at = read(scanner)
                break
            except Unfinished:
                count *= 4
        last = number + scanner.text.count("\n", 0, at)
        self.lines[last] = scanner.text[at:].partition("\n")[0]
        return last

    def written(self, number: int) -> tuple[list[Written], int]:
        """The instruction that begins in a line, preceded by those written inside it; and the number of the line where the next begins."""
        found: list[Instructions] = []
        text = ""

        def read(scanner: Scanner) -> int:
            nonlocal text
            text = scanner.text
            found[:] = [scanner.instruction()]
            return found[0].end

        after = self.read_over_lines(number, read)
        for inline in found[0].inline:
            self.inline(inline, self.before + number + text.count("\n", 0, inline.at))
        return found[0].written, after

    def inline(self, inline: Inline, before: int) -> None:
        """Reads a computation written where it is called."""
        outer, self.lines, self.before = (self.lines, self.before), [*inline.text.split("\n"), "}"], before
        draft = _Draft(intern(inline.name), before + 1)
        if self.whole(draft, 0) < len(self.lines):
            raise Malformed(f"unmatched '}}' in the computation {excerpt(draft.name)}")
        self.lines, self.before = outer

    def add(self, draft: _Draft) -> int:
        if draft.name in self.numbers:
            self.line = draft.line
            raise Malformed(f"a second computation named {excerpt(draft.name)}")
        self.numbers[draft.name] = len(self.drafts)
        self.drafts.append(draft)
        self.remaining -= len(draft.instructions)
        return len(self.drafts) - 1

    def body(self, draft: _Draft, number: int) -> int:
        """Reads the instructions up to the closing brace. Most of the time of reading a file is spent in this loop."""
        lines, before, plain, count = self.lines, self.before, self.plain, len(self.lines)
        match_line = (_NOTHING if self.loose else _LINE).match
        while number < count:
            place = before + number + 1
            line = lines[number]
            if "//" in line:
                line = lines[number] = without_line_comment(line)
            match = match_line(line)
            if match is not None:
                rest = match[6]
                raw = like_earlier(rest, plain)
                # Open brackets, or a comma at the end: the instruction continues in the next line.
                if raw is not None or not (rest.count("{") != rest.count("}") or rest[-1:] in (",", " ", "=") or "/*" in rest):
                    self.instruction(draft, place, match.groups(), raw)
                    number += 1
                    continue
            self.line = place
            line = line.strip()
            if line.startswith("}"):
                return number + 1
            if not line:
                number += 1
            elif line.startswith(("/*", "//")):
                number = self.read_over_lines(number, lambda scanner: scanner.skip(0))
            else:
                several, number = self.written(number)
                for one in several:
                    words = (one.root, one.name, one.shape, one.opcode, one.inside, one.rest)
                    self.instruction(draft, place, words, is_usual=False)
        raise Malformed(f"the computation {excerpt(draft.name)} is not closed; is the text cut off?")

    def instruction(self, draft: _Draft, place: int, words: tuple[Any, ...], raw: object = None, is_usual: bool = True) -> None:
        """Adds an instruction to a draft. ``words`` are ROOT or not, name, shape, opcode, operands, and the text after them.

        ``raw`` are its attributes if an earlier line had the same. ``is_usual`` is false for a spelling that XLA does not print.
        """
        root, name, spelling, opcode, inside, rest = words
        shape = self.shapes.get(spelling)
        if shape is None and spelling:
            self.line = place
            shape = parse_shape(spelling, self.shapes)
        kind = self.opcodes.get(opcode)
        if kind is None:
            kind = self.opcodes[opcode] = (intern(opcode), _kind(opcode))
        opcode, sort = kind
        instructions, index = draft.instructions, draft.index
        operands: tuple[int, ...] = ()
        if sort == _PARAMETER:
            self.line = place
            self.parameter(draft, inside)
            rest, raw = self.leaf("parameter_number=", inside, rest)
        elif sort == _CONSTANT:
            rest, raw = self.leaf(f"literal={shape.dtype if shape else ''} ", inside, rest)
        elif inside[:1] == "%":  # as XLA prints nearly all
            try:
                operands = tuple([index[operand] for operand in inside[1:].split(", %")])
            except KeyError:
                operands = self.named(draft, inside, place)
        elif inside:
            operands = self.named(draft, inside, place)
        position = len(instructions)
        if position >= self.remaining:
            raise Malformed(excess("instructions"))
        if name in index or (root and draft.root is not None):
            self.line = place
            raise Malformed(
                f"a second instruction named {excerpt(name)} in this computation" if name in index else "a second ROOT in this computation"
            )
        index[name] = position
        if root:
            draft.root = position
        if shape is None:
            self.line = place
            shape = self.inferred(draft, opcode, operands, rest)
        if raw is None:
            raw = parted(rest, self.texts)
            if "control-predecessors=" in rest:
                self.line = place
                draft.pending.append((position, [], _control(rest)))
            elif is_usual and sort != _PARAMETER and sort != _CONSTANT:
                keep_plain(raw, self.plain)
        calls: tuple[Call, ...] = ()
        if sort == _CALLER:
            self.line = place
            opcode, calls = self.link(draft, name, opcode, shape, operands, raw)
        instructions.append(Instruction(name, opcode, shape, operands, calls, (), place, raw, self.dialect))

    def leaf(self, what: str, inside: str, rest: str) -> tuple[str, object]:
        """The attributes of a parameter or a constant, with the text in its parentheses as one of them: as text, and as ``raw``."""
        known = self.leaves.get((what, inside, rest))
        if known is None:
            text = f"{what}{inside.strip()}{rest}"
            if len(text) > _SHORT or "control-predecessors=" in text:
                return text, None
            known = self.leaves[what, inside, rest] = (text, parted(text, self.texts))
        return known

    def named(self, draft: _Draft, inside: str, place: int) -> tuple[int, ...]:
        """The operands that an instruction names, in whichever spelling."""
        names = _OPERAND.findall(inside) if "%" in inside else operand_names(inside)
        if len(names) <= inside.count(",") and "%" in inside and _UNSIGNED.search(inside):
            names = operand_names(inside)
        try:
            return tuple([draft.index[operand] for operand in names])
        except KeyError:
            self.line = place
            return self.later_operands(draft, names)

    def inferred(self, draft: _Draft, opcode: str, operands: tuple[int, ...], rest: str) -> Shape:
        """The inferred shape of an instruction whose text does not give it."""
        called: dict[str, Shape] = {}
        for role, name in _calls(rest):
            if name in self.numbers:
                inner = self.drafts[self.numbers[name]]
                called.setdefault(role, inner.instructions[inner.root or 0].shape)
        shapes = tuple(draft.instructions[operand].shape for operand in operands)
        return infer_shape(opcode, shapes, lambda name: self.dialect.attribute(rest, name), called)

    def later_operands(self, draft: _Draft, names: list[str]) -> tuple[int, ...]:
        """Operands some of which are not defined yet: elements of tuples written ``x#1``, or names defined later."""
        for name in names:
            base, *steps = name.split("#")
            index = draft.index.get(base)
            if not steps or index is None:
                continue
            for step in steps:
                base = f"{base}#{step}"
                if base not in draft.index:
                    number, parts = whole(step), draft.instructions[index].shape.parts
                    if not 0 <= number < len(parts):
                        raise Malformed(f"{excerpt(name)} has no element {number}")
                    draft.index[base] = len(draft.instructions)
                    draft.instructions.append(
                        Instruction(base, "get-tuple-element", parts[number], (index,), (), (), self.line, f"index={number}", self.dialect)
                    )
                index = draft.index[base]
        if all(name in draft.index for name in names):
            return tuple(draft.index[name] for name in names)
        draft.pending.append((len(draft.instructions), names, []))
        return ()

    def parameter(self, draft: _Draft, inside: str) -> None:
        number = whole(inside)
        if number < 0 or number in draft.parameters:
            raise Malformed(f"a second parameter({number})")
        draft.parameters[number] = len(draft.instructions)

    def link(
        self, draft: _Draft, name: str, opcode: str, shape: Shape, operands: tuple[int, ...], raw: object
    ) -> tuple[str, tuple[Call, ...]]:
        """The opcode and the calls of the next instruction of a draft; short spellings of asynchronous operations are expanded."""
        names = _calls(raw[0] if isinstance(raw, tuple) else str(raw))
        if opcode == "custom-call":
            names = tuple(("called_computations", called) for _, called in names)
        halves = asynchronous(opcode)
        if halves is None:
            return opcode, self.call(draft, names)
        half, operation = halves
        if half != "async-start":
            return half, ()
        return half, (Call("calls", self.wrap(draft, name, intern(operation), shape, operands, raw, names)),)

    def call(self, draft: _Draft, names: tuple[tuple[str, str], ...]) -> tuple[Call, ...]:
        """Calls by role and name; empty until `resolve` if a computation is defined later."""
        calls = self.calls.get(names)
        if calls is None:
            if not all(name in self.numbers for _, name in names):
                self.later.append((draft, len(draft.instructions), names, self.line))
                return ()
            calls = self.calls[names] = tuple(Call(role, self.numbers[name]) for role, name in names)
        return calls

    def wrap(
        self,
        draft: _Draft,
        name: str,
        operation: str,
        shape: Shape,
        operands: tuple[int, ...],
        raw: object,
        names: tuple[tuple[str, str], ...],
    ) -> int:
        """The computation of an async-start in short spelling: parameters and one operation."""
        inner = _Draft(f"{name}.wrapped", self.line)
        for number, operand in enumerate(operands):
            inner.parameters[number] = number
            taken = draft.instructions[operand].shape
            text = f"parameter_number={number}"
            inner.instructions.append(Instruction(f"{inner.name}.{number}", "parameter", taken, (), (), (), self.line, text, self.dialect))
        # An async-start's shape is (operands, result, context…).
        result = shape.parts[1] if len(shape.parts) > 1 else shape
        inner.root = len(operands)
        taken_all = tuple(range(len(operands)))
        calls = self.call(inner, names)
        inner.instructions.append(Instruction(f"{name}.{operation}", operation, result, taken_all, calls, (), self.line, raw, self.dialect))
        return self.add(inner)

    def complete(self, draft: _Draft) -> None:
        """Resolves names that are used before their definition, and makes the checks that need the whole computation."""
        for position, names, control in draft.pending:
            instruction = draft.instructions[position]
            self.line = instruction.place
            for name in (*names, *control):
                if name not in draft.index:
                    raise Malformed(f"{excerpt(instruction.name)} uses {excerpt(name)}, which this computation does not define")
            operands = tuple(draft.index[name] for name in names) or instruction.operands
            predecessors = tuple(draft.index[name] for name in control) or instruction.control
            draft.instructions[position] = replace(instruction, operands=operands, control=predecessors)
        self.line = draft.line
        if draft.root is None:
            draft.root = len(draft.instructions) - 1
        if sorted(draft.parameters) != list(range(len(draft.parameters))):
            raise Malformed(f"the parameters of {excerpt(draft.name)} are not numbered 0, 1, 2, …")

    def resolve(self) -> None:
        """Resolves calls of computations that are defined after their callers."""
        for draft, position, names, line in self.later:
            self.line = line
            for _, name in names:
                if name not in self.numbers:
                    raise Malformed(
                        f"{excerpt(draft.instructions[position].name)} calls {excerpt(name)}, which the program does not define"
                    )
            calls = tuple(Call(role, self.numbers[name]) for role, name in names)
            draft.instructions[position] = replace(draft.instructions[position], calls=calls)

    def module(self, name: str, header: str, frames: StackFrames) -> HloModule:
        words: dict[str, str] = {key: header[start:end].strip() for key, start, end in attributes_of(header)}
        return HloModule(
            name=name or self.drafts[self.entry or 0].name,
            computations=tuple(
                Computation(
                    name=draft.name,
                    instructions=tuple(draft.instructions),
                    root=draft.root or 0,
                    parameters=tuple(draft.parameters[number] for number in range(len(draft.parameters))),
                )
                for draft in self.drafts
            ),
            entry=self.entry or 0,
            marks_entry=self.marks_entry,
            form="hlo text",
            is_scheduled=words.get("is_scheduled") == "true",
            replica_count=whole(words.get("replica_count", "1")),
            num_partitions=whole(words.get("num_partitions", "1")),
            aliases=parse_aliases(words.get("input_output_alias", "")),
            frontend_attributes=parse_frontend_attributes(words.get("frontend_attributes", "{}")),
            frames=frames,
        )


def _first_word(lines: list[str], number: int) -> int:
    """The number of the next line that is neither empty nor a comment."""
    while number < len(lines) and (not (line := lines[number].strip()) or line.startswith("//")):
        number += 1
    return number


def _kind(opcode: str) -> int:
    """How an instruction is read beyond its operands. An unknown opcode may call computations."""
    if opcode == "parameter":
        return _PARAMETER
    if opcode == "constant":
        return _CONSTANT
    return _PLAIN if opcode in LEAVES else _CALLER


@lru_cache(maxsize=1_000)  # instructions that call a reduction or a library repeat their attributes
def _calls(rest: str) -> tuple[tuple[str, str], ...]:
    """Role and name of each computation that the attributes after an instruction's operands call."""
    last = -1
    for match in _ROLE.finditer(rest):
        last = match.end()
    only = _ONLY_CALL.match(rest)
    if only is not None and only.start(2) == last + 1:
        return ((ROLES[only[1]], only[2]),)
    found: list[tuple[str, str]] = []
    if last >= 0:
        for role, start, end in attributes_of(rest):
            if role in ROLES:
                found += [(ROLES[role], name) for name in _called(role, rest[start:end])]
            if start >= last:
                break
    return tuple(found)


def _called(role: str, value: str) -> list[str]:
    names = braced(value) if value.startswith("{") else value
    if "=" in names:
        raise Malformed(f"{role} is not a list of computations: {excerpt(names)}")
    return [name.strip().lstrip("%") for name in names.split(",") if name.strip()]


def _control(rest: str) -> list[str]:
    found = find_attribute(rest, "control-predecessors")
    if found is None:
        return []
    return [match[1] for item in split(braced(rest[slice(*found)])) if (match := _NAME.fullmatch(item))]
