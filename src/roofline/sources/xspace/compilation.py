"""Compilations: when the host compiled, in which steps, and what the compiler launched on the devices for autotuning.

A compiler runs candidate kernels on the device (autotuning), from its own threads or from the thread that compiles. These are not part of
the program: whatever a compiling thread launches while it compiles is attributed to the compiler.
"""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from ..host_activity import COMPILES
from .modules import Programs
from .scan import RowsOf, Space, read_rows, union
from .steps import HOST_PLANE, Annotation, Launches

MOST_PROGRAMS, SHOWN_SHAPES = 8, 3
_COMPILER_THREADS = "compil"  # in the names of threads that only compile


class Compilations(Struct, frozen=True):
    """When each line of the host compiled, and when any of them did: sorted, disjoint intervals (begin, end, begin, end, …).

    ``compilers`` are the lines of threads that only compile.
    """

    lines: dict[int, Sequence[int]] = field(default_factory=dict)
    any_line: Sequence[int] = ()
    compilers: frozenset[int] = frozenset()

    def marks(self, annotations: Sequence[Annotation]) -> tuple[int, ...]:
        """The steps in which the host compiled."""
        return tuple(place for place, step in enumerate(annotations) if _meets(self.any_line, step.begin_ps, step.end_ps))

    def autotuned_ids(self, launches: Iterable[Launches]) -> set[int]:
        """The ids of the work that compilers launched."""
        return {
            id
            for one in launches
            if one.line in self.lines
            for start, id in zip(one.start_ps, one.ids, strict=True)
            if _meets(self.any_line if one.line in self.compilers else self.lines[one.line], start, start + 1)
        }


def compilations(space: Space) -> Compilations:
    """When the host compiled. The host's events are read only if the profile has names of compilations."""
    plane = next((plane for plane in space.planes if plane.name == HOST_PLANE), None)
    wanted = [id for id, name in plane.event_names.items() if re.search(COMPILES, name)] if plane else []
    if plane is None or not wanted:
        return Compilations()
    lines: dict[int, Sequence[int]] = {}
    for rows in read_rows(space, [RowsOf(line=line, only=wanted) for line in plane.lines if line.length]):
        if len(rows):
            bounds = array("q", [at for begin, time in zip(rows.start_ps, rows.duration_ps, strict=True) for at in (begin, begin + time)])
            lines[rows.line.row] = union([memoryview(bounds)])[0].tolist()
    together, _ = union(memoryview(array("q", spans)) for spans in lines.values())
    compilers = frozenset(line.row for line in plane.lines if _COMPILER_THREADS in line.name.lower())
    return Compilations(lines, together.tolist(), compilers)


def changed_shapes(programs: Programs, function: str) -> str:
    """Text that follows a function's name: the first argument whose shape differs between its compiled programs; empty if none does."""
    found = programs.compiled_from(function, MOST_PROGRAMS) if function else []
    entries = [program.module.entry_computation for program in found]
    arguments = [[str(entry[place].shape).partition("{")[0] for place in entry.parameters] for entry in entries]
    for place, shapes in enumerate(zip(*arguments, strict=False)):
        distinct = list(dict.fromkeys(shapes))
        if len(distinct) > 1:
            more = ", …" if len(distinct) > SHOWN_SHAPES else ""
            return f", argument {place}: {', '.join(distinct[:SHOWN_SHAPES])}{more}"
    return ""


def _meets(spans: Sequence[int], begin: int, end: int) -> bool:
    """Whether an interval overlaps one of the sorted, disjoint spans (begin, end, …): an odd place among their bounds is inside one."""
    place = bisect_right(spans, begin)
    return place % 2 == 1 or (place < len(spans) and spans[place] < end)
