"""MLIR locations: the framework's name of an operation and its call stack, as shared frames.

``loc("jit(f)/sin"(callsite("f"("m.py":3:4) at "main"("m.py":9:0))))`` is an operation named ``jit(f)/sin``, made in ``f`` at line 3,
called from ``main`` at line 9.
"""

import re
from collections.abc import Mapping
from typing import TypeVar

from msgspec import Struct

from ...ir.attributes import Metadata, StackFrames
from ...ir.malformed import Malformed
from ..lexing import STRING
from .scanning import end_of_nest, unescape

MAX_DEPTH = 300
MAX_FRAMES = 2**20  # aliases that each refer to others twice could expand to exponentially many
Key = TypeVar("Key")

_ALIAS = re.compile(r"^(#loc\d*)\s*=\s*loc\((.*)\)\s*$", re.MULTILINE)
_FILE = re.compile(rf"({STRING}):(\d+):(\d+)", re.DOTALL)
_CALL_MARK = re.compile(rf'{STRING}|[(){{}}\[\]"]|\bat\b', re.DOTALL)
_LIST_MARK = re.compile(rf'{STRING}|[()\[\]<>,"]', re.DOTALL)
_NAME = re.compile(rf"({STRING})\s*(\()?", re.DOTALL)
_OPENING, _CLOSING = ("(", "[", "{", "<"), (")", "]", "}", ">")


class FileLine(Struct, frozen=True):
    """A place in a file."""

    file: str
    line: int
    column: int


class Named(Struct, frozen=True):
    """A place with the name of what is there; without a name it stands for several places, of which it is the first."""

    name: str
    place: str


class CallSite(Struct, frozen=True):
    """A place in a function, and the place that it was called from."""

    callee: str
    caller: str


Location = FileLine | Named | CallSite | str | None  # a string is the text or the alias of another one; None is unknown


class Locations:
    """Resolves the locations of one module, each once; they refer to others by their text, or by their alias: ``#loc7``."""

    def __init__(self, text: str = "", known: Mapping[str, Location] | None = None) -> None:
        self.known: dict[str, Location] = dict(_ALIAS.findall(text) if known is None else known)
        self.files: dict[str, int] = {}
        self.functions: dict[str, int] = {}
        self.places: dict[tuple[int, int, int, int], int] = {}
        self.stack: dict[tuple[int, int], int] = {}
        self.resolved: dict[str, Metadata | None] = {}
        self.numbered: dict[tuple[str, int], int] = {}

    def frames(self) -> StackFrames:
        """All frames so far."""
        return StackFrames(files=tuple(self.files), functions=tuple(self.functions), locations=tuple(self.places), frames=tuple(self.stack))

    def metadata(self, key: str) -> Metadata | None:
        """The name and call stack of a location; ``None`` if it is unknown."""
        if key not in self.resolved:
            self.resolved[key] = self._metadata(key)
        return self.resolved[key]

    def _metadata(self, key: str) -> Metadata | None:
        location = self._location(key)
        name = location.name if isinstance(location, Named) else ""
        frame = self._frame(location.place if isinstance(location, Named) and name else key, 0, 0)
        return Metadata(op_name=name, stack_frame_id=frame) if name or frame else None

    def _location(self, key: str) -> FileLine | Named | CallSite | None:
        """What a text or an alias stands for; a cycle of aliases is unknown."""
        for _ in range(MAX_DEPTH):
            key = key.strip()
            if key not in self.known:
                self.known[key] = _parsed(key)
            location = self.known[key]
            if not isinstance(location, str):
                return location
            key = location
        return None

    def _frame(self, key: str, parent: int, depth: int) -> int:
        """The number of the frame at a location, called from ``parent``; the parent itself if the location is unknown."""
        if depth > MAX_DEPTH or len(self.numbered) > MAX_FRAMES:
            return parent
        if (key, parent) not in self.numbered:
            self.numbered[key, parent] = self._new_frame(self._location(key), parent, depth)
        return self.numbered[key, parent]

    def _new_frame(self, location: Location, parent: int, depth: int) -> int:
        if isinstance(location, CallSite):
            return self._frame(location.callee, self._frame(location.caller, parent, depth + 1), depth + 1)
        name, place = (location.name, self._location(location.place)) if isinstance(location, Named) else ("", location)
        if isinstance(place, FileLine):
            row = (_number(self.files, place.file), _number(self.functions, name) if name else 0, place.line, place.column)
            return _number(self.stack, (_number(self.places, row), parent))
        return self._frame(location.place, parent, depth + 1) if isinstance(location, Named) else parent


def _parsed(text: str) -> Location:
    """The location that a text is, apart from those that it refers to."""
    if text.startswith("callsite("):
        return CallSite(*_call(text)) if text.count("callsite(") <= MAX_DEPTH else None
    if text.startswith("fused"):
        return Named("", _first(text[text.find("[") + 1 : -1])) if "[" in text else None
    file = _FILE.match(text)
    if file is not None:
        return FileLine(unescape(file[1][1:-1]), int(file[2][-9:]), int(file[3][-9:]))
    match = _NAME.match(text)
    if match is None:
        return None
    start = match.end() - 1
    return Named(unescape(match[1][1:-1]), text[start + 1 : end_of_nest(text, start) - 1] if match[2] else "")


def _number(table: dict[Key, int], key: Key) -> int:
    """The number of a key, counted from 1 in order of first use."""
    return table.setdefault(key, len(table) + 1)


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
