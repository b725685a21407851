"""MLIR locations: the framework's name of an operation and its call stack, as shared frames.

``loc("jit(f)/sin"(callsite("f"("m.py":3:4) at "main"("m.py":9:0))))`` is an operation named ``jit(f)/sin``, made in ``f`` at line 3,
called from ``main`` at line 9.
"""

import re
from typing import TypeVar

from ..ir.attributes import Metadata, StackFrames
from ..ir.malformed import Malformed
from .lexing import STRING
from .mlir_scanning import end_of_nest, unescape

MAX_DEPTH = 300
MAX_FRAMES = 2**20  # aliases that each refer to others twice could expand to exponentially many
Key = TypeVar("Key")

_ALIAS = re.compile(r"^(#loc\d*)\s*=\s*loc\((.*)\)\s*$", re.MULTILINE)
_FILE = re.compile(rf"({STRING}):(\d+):(\d+)", re.DOTALL)
_CALL_MARK = re.compile(rf'{STRING}|[(){{}}\[\]"]|\bat\b', re.DOTALL)
_LIST_MARK = re.compile(rf'{STRING}|[()\[\]<>,"]', re.DOTALL)
_NAME = re.compile(rf"({STRING})\s*(\()?", re.DOTALL)
_OPENING, _CLOSING = ("(", "[", "{", "<"), (")", "]", "}", ">")


class Locations:
    """Resolves the locations of one module, each text once."""

    def __init__(self, text: str, aliases: dict[str, str] | None = None) -> None:
        self.aliases = dict(_ALIAS.findall(text)) if aliases is None else aliases
        self.files: dict[str, int] = {}
        self.functions: dict[str, int] = {}
        self.places: dict[tuple[int, int, int, int], int] = {}
        self.stack: dict[tuple[int, int], int] = {}
        self.resolved: dict[str, Metadata | None] = {}
        self.numbered: dict[tuple[str, int], int] = {}

    def frames(self) -> StackFrames:
        """All frames found so far."""
        return StackFrames(files=tuple(self.files), functions=tuple(self.functions), locations=tuple(self.places), frames=tuple(self.stack))

    def metadata(self, location: str) -> Metadata | None:
        """The name and call stack of a location; ``None`` if it is unknown."""
        if location not in self.resolved:
            self.resolved[location] = self._metadata(location)
        return self.resolved[location]

    def _metadata(self, location: str) -> Metadata | None:
        text = self._expand(location)
        if text.count("callsite(") > MAX_DEPTH:
            return None
        name, child = _named(text)
        if not name:
            child = text
        frame = self._frame(child, 0, 0) if child else 0
        return Metadata(op_name=name, stack_frame_id=frame) if name or frame else None

    def _expand(self, location: str) -> str:
        """The location that an alias refers to; a cycle of aliases ends the search."""
        text = location.strip()
        for _ in range(MAX_DEPTH):
            if not text.startswith("#"):
                return text
            text = self.aliases.get(text, "unknown").strip()
        return "unknown"

    def _frame(self, location: str, parent: int, depth: int) -> int:
        """The number of the frame at a location, called from ``parent``; the parent itself if the location is unknown."""
        if depth > MAX_DEPTH or len(self.numbered) > MAX_FRAMES:
            return parent
        key = (location, parent)
        if key not in self.numbered:
            self.numbered[key] = self._new_frame(self._expand(location), parent, depth)
        return self.numbered[key]

    def _new_frame(self, text: str, parent: int, depth: int) -> int:
        if text.startswith("callsite("):
            callee, caller = _call(text)
            return self._frame(callee, self._frame(caller, parent, depth + 1), depth + 1)
        if text.startswith("fused"):
            inside = text[text.find("[") + 1 : -1]
            return self._frame(_first(inside), parent, depth + 1) if "[" in text else parent
        function = ""
        file = _FILE.match(text)
        if file is None:
            function, child = _named(text)
            expanded = self._expand(child) if child else ""
            file = _FILE.match(expanded)
            if file is None:
                return self._frame(child, parent, depth + 1) if child else parent
        line, column = int(file[2][-9:]), int(file[3][-9:])
        place = (_number(self.files, unescape(file[1][1:-1])), _number(self.functions, function) if function else 0, line, column)
        return _number(self.stack, (_number(self.places, place), parent))


def _number(table: dict[Key, int], key: Key) -> int:
    """The number of a key, counted from 1 in order of first use."""
    return table.setdefault(key, len(table) + 1)


def _named(text: str) -> tuple[str, str]:
    """The name and the child of ``"name"(child)``; empty for other locations."""
    match = _NAME.match(text)
    if match is None or _FILE.match(text):
        return "", ""
    name = unescape(match[1][1:-1])
    if not match[2]:
        return name, ""
    start = match.end() - 1
    return name, text[start + 1 : end_of_nest(text, start) - 1]


def _call(text: str) -> tuple[str, str]:
    """Callee and caller of ``callsite(callee at caller)``."""
    inside = text[len("callsite(") : -1]
    match = _outside_brackets("at", _CALL_MARK, inside)
    if match is None:
        raise Malformed("a callsite without a caller")
    return inside[: match.start()].strip(), inside[match.end() :].strip()


def _first(text: str) -> str:
    """The first item of a list."""
    match = _outside_brackets(",", _LIST_MARK, text)
    return text if match is None else text[: match.start()]


def _outside_brackets(wanted: str, marks: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The first mark of this spelling outside all brackets."""
    depth = 0
    for match in marks.finditer(text):
        if match[0] == '"':
            break
        if match[0] == wanted and depth == 0:
            return match
        depth += (match[0] in _OPENING) - (match[0] in _CLOSING)
    return None
