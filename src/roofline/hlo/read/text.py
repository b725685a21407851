"""HLO text as any version of XLA prints it, scheduled or not: one pass over the lines, one regular expression per line.

A line that is not a whole instruction as XLA prints it is read by `freeform_text`. `text_program` makes instructions of the words.
"""

import re
from collections.abc import Callable
from sys import intern
from typing import TypeVar

from ...errors import SourceError
from ..ir.attributes import NO_FRAMES, StackFrames
from ..ir.consistency import consistent
from ..ir.malformed import Malformed, excerpt, placed
from ..ir.module import HloModule
from ..ir.shapes import whole
from .freeform_text import Inline, Scanner, Unfinished, Written
from .lexing import attributes_of, unquote, without_line_comment
from .text_attributes import parse_aliases, parse_frontend_attributes
from .text_program import Draft, Program

# ROOT or not, name, shape, opcode; then operands, and the text after them.
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
_BETWEEN = re.compile(r"// -----\s*\Z")  # between modules of one file, as XLA's tests write it
_SECTIONS = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_ENTRY = re.compile(r'\s*(\d+)\s+(?:"(.*)"|\{(.*)\})\s*\Z')
_PAIR = re.compile(r"(?<!\w)(\w++)=(-?\d++)")  # a field of a stack frame
T = TypeVar("T")


def parse_texts(text: str, where: str) -> list[HloModule]:
    """The modules in HLO text, in order; a `SourceError` names the line of an error."""
    text = text.replace("\r\n", "\n")
    lines, loose = text.split("\n"), bool(_LONG_COMMENT.search(text) or _LEADING_COMMA.search(text))
    modules: list[HloModule] = []
    start = 0
    while not modules or start < len(lines):
        reader = _LineReader(lines, where, loose=loose)
        try:
            module, start = reader.read(start)
        except Malformed as error:
            raise placed(error, where, "line", reader.program.line) from None
        except RecursionError:
            raise SourceError(f"{where}: line {reader.program.line:,}: nested too deeply") from None
        modules.append(module)
    return modules


class _LineReader:
    """Reads the lines in one pass. With ``loose``, a line need not be a whole instruction."""

    def __init__(self, lines: list[str], where: str, *, loose: bool = False) -> None:
        self.lines = lines
        self.before = 0  # lines before these, for a computation written inside an instruction
        self.loose = loose
        self.program = Program(where)
        self.entry: int | None = None
        self.marks_entry = True

    def read(self, number: int) -> tuple[HloModule, int]:
        """The module that begins in a line, and the number of the line where the next one does."""
        name, header = "", ""
        sections: dict[str, dict[int, str]] = {}
        lines = self.lines
        while number < len(lines):
            self.program.line = number + 1
            line = lines[number].strip()
            if not line or line.startswith("//"):
                number += 1
                if self.program.drafts and _BETWEEN.match(line):
                    break
            elif line.startswith("/*"):
                number = self.skip_comment(number)
            elif line.startswith("HloModule"):
                if header or self.program.drafts:
                    break
                (name, header), number, _ = self.read_over_lines(number, Scanner.module)
                header = header or " "
            elif line in _SECTIONS:
                sections[line], number = self.section(number + 1)
            else:
                number = self.computation(number)
        after = _first_word(lines, number)
        self.program.line = max(1, number)
        if not self.program.drafts:
            raise Malformed("no computation; is the text cut off, or not HLO?")
        if self.entry is None:
            if "entry_computation_layout" in header:  # every dump has it; a fragment written by hand may have no ENTRY
                raise Malformed("the header describes an entry computation, but none is marked ENTRY; is the text cut off?")
            self.entry, self.marks_entry = len(self.program.drafts) - 1, not header
        self.program.resolve()
        self.program.line = 1
        module = self.module(name.strip().lstrip("%"), header, _read_frames(sections))
        return module, after

    def section(self, number: int) -> tuple[dict[int, str], int]:
        """The numbered entries of a table of stack frames, up to the next empty line."""
        entries: dict[int, str] = {}
        while number < len(self.lines) and (line := self.lines[number].strip()):
            self.program.line = number + 1
            match = _ENTRY.match(line)
            if match is None:
                raise Malformed(f"not an entry of a table of stack frames: {excerpt(line)}")
            entries[whole(match[1])] = unquote(f'"{match[2]}"') if match[2] is not None else match[3]
            number += 1
        return entries, number

    def computation(self, number: int) -> int:
        """One computation, from its header to its closing brace; the number of the line after it."""
        (is_entry, name), number, _ = self.read_over_lines(number, Scanner.header)
        draft = Draft(intern(name), self.program.line)
        if is_entry:
            if self.entry is not None:
                raise Malformed("a second ENTRY computation")
            self.entry = -1
        number = self.whole(draft, number)
        if is_entry:
            self.entry = len(self.program.drafts) - 1
        return number

    def whole(self, draft: Draft, number: int) -> int:
        """Reads a computation's instructions from a line to its closing brace; returns the number of the line after it."""
        number = self.body(draft, number)
        if not draft.instructions:
            raise Malformed(f"the computation {excerpt(draft.name)} is empty")
        self.program.complete(draft)
        draft.index.clear()  # names have become indices
        self.program.add(draft)
        return number

    def read_over_lines(self, number: int, read: Callable[[Scanner], tuple[T, int]]) -> tuple[T, int, str]:
        """Applies ``read`` from the start of a line, over as many lines as it needs.

        ``read`` returns what it found and where that ends. Returns what was found, the number of the line with the rest, and the text.
        """
        count = 2
        while True:
            end = min(number + count, len(self.lines))
            scanner = Scanner("\n".join(self.lines[number:end]), end == len(self.lines))
            try:
                value, at = read(scanner)
                break
            except Unfinished:
                count *= 4
        last = number + scanner.text.count("\n", 0, at)
        self.lines[last] = scanner.text[at:].partition("\n")[0]
        return value, last, scanner.text

    def written(self, number: int) -> tuple[list[Written], int]:
        """The instruction that begins in a line, preceded by those written inside it; and the number of the line where the next begins."""
        (written, inline), after, text = self.read_over_lines(number, Scanner.instruction)
        for computation in inline:
            self.inline(computation, self.before + number + text.count("\n", 0, computation.at))
        return written, after

    def skip_comment(self, number: int) -> int:
        """The number of the line after a comment."""
        return self.read_over_lines(number, lambda scanner: (None, scanner.after_blanks(0)))[1]

    def inline(self, inline: Inline, before: int) -> None:
        """Reads a computation written where it is called."""
        outer, self.lines, self.before = (self.lines, self.before), [*inline.text.split("\n"), "}"], before
        draft = Draft(intern(inline.name), before + 1)
        if self.whole(draft, 0) < len(self.lines):
            raise Malformed(f"unmatched '}}' in the computation {excerpt(draft.name)}")
        self.lines, self.before = outer

    def body(self, draft: Draft, number: int) -> int:
        """Reads the instructions up to the closing brace. Most of the time of reading a file is spent in this loop."""
        lines, before, count = self.lines, self.before, len(self.lines)
        program = self.program
        match_line = (_NOTHING if self.loose else _LINE).match
        while number < count:
            place = before + number + 1
            line = lines[number]
            if "//" in line:
                line = lines[number] = without_line_comment(line)
            match = match_line(line)
            if match is not None:
                rest = match[6]
                # Open brackets, or a comma at the end: the instruction continues in the next line.
                if rest.count("{") == rest.count("}") and rest[-1:] not in (",", " ", "=") and "/*" not in rest:
                    program.instruction(draft, place, match.groups())
                    number += 1
                    continue
            program.line = place
            line = line.strip()
            if line.startswith("}"):
                return number + 1
            if not line:
                number += 1
            elif line.startswith(("/*", "//")):
                number = self.skip_comment(number)
            else:
                several, number = self.written(number)
                for instruction in several:
                    program.instruction(draft, place, instruction)
        raise Malformed(f"the computation {excerpt(draft.name)} is not closed; is the text cut off?")

    def module(self, name: str, header: str, frames: StackFrames) -> HloModule:
        words: dict[str, str] = {key: header[start:end].strip() for key, start, end in attributes_of(header)}
        return HloModule(
            name=name or self.program.drafts[self.entry or 0].name,
            computations=consistent(self.program.computations()),
            entry=self.entry or 0,
            marks_entry=self.marks_entry,
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


def _read_frames(sections: dict[str, dict[int, str]]) -> StackFrames:
    """The tables of stack frames. Text prints a frame's parent plus one: that of an outermost frame is 1."""
    if "StackFrames" not in sections:
        return NO_FRAMES
    frames = [_fields(entry, "file_location_id", "parent_frame_id") for entry in _ordered(sections["StackFrames"])]
    # A text that prints parents as they are has a frame whose parent is 0.
    shift = 0 if any(parent == 0 for _, parent in frames) else 1
    return StackFrames(
        files=tuple(_ordered(sections.get("FileNames", {}))),
        functions=tuple(_ordered(sections.get("FunctionNames", {}))),
        locations=tuple([_location(entry) for entry in _ordered(sections.get("FileLocations", {}))]),
        frames=tuple((location, parent - shift) for location, parent in frames),
    )


def _location(entry: str) -> tuple[int, int, int, int]:
    file, function, line, column = _fields(entry, "file_name_id", "function_name_id", "line", "column")
    return file, function, line, column


def _ordered(table: dict[int, str]) -> list[str]:
    if list(table) != list(range(1, len(table) + 1)):
        raise Malformed("a table of stack frames is not numbered 1, 2, 3, …")
    return list(table.values())


def _fields(entry: str, *names: str) -> tuple[int, ...]:
    fields = dict(_PAIR.findall(entry))
    return tuple(whole(fields.get(name, "0")) for name in names)
