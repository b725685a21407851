"""The stack frames that HLO text prints before its computations: which line of the user's program an instruction comes from."""

import re

from ..ir.attributes import NO_FRAMES, StackFrames
from ..ir.malformed import Malformed
from ..ir.shapes import whole

_PAIR = re.compile(r"(?<!\w)(\w++)=(-?\d++)")


def read_frames(sections: dict[str, dict[int, str]]) -> StackFrames:
    """The tables of stack frames. Text prints a frame's parent plus one: that of an outermost frame is 1."""
    if "StackFrames" not in sections:
        return NO_FRAMES
    frames = [_fields(entry, "file_location_id", "parent_frame_id") for entry in _ordered(sections["StackFrames"])]
    # A text that prints parents as they are has a frame whose parent is 0.
    shift = 0 if any(parent == 0 for _, parent in frames) else 1
    return StackFrames(
        files=tuple(_ordered(sections.get("FileNames", {}))),
        functions=tuple(_ordered(sections.get("FunctionNames", {}))),
        locations=tuple(
            (file, function, line, column)
            for entry in _ordered(sections.get("FileLocations", {}))
            for file, function, line, column in [_fields(entry, "file_name_id", "function_name_id", "line", "column")]
        ),
        frames=tuple((location, parent - shift) for location, parent in frames),
    )


def _ordered(table: dict[int, str]) -> list[str]:
    if list(table) != list(range(1, len(table) + 1)):
        raise Malformed("a table of stack frames is not numbered 1, 2, 3, …")
    return list(table.values())


def _fields(entry: str, *names: str) -> tuple[int, ...]:
    found = dict(_PAIR.findall(entry))
    return tuple(whole(found.get(name, "0")) for name in names)
