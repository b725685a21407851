"""The reasons for idle time of a profile's devices, from the host's events during the gaps (`roofline.sources.idle`)."""

import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import compress

from msgspec import Struct, field

from ..host_activity import NOTHING, RUNS, Activity, activity
from ..idle import Gap, Idle, explained, gaps_between, unexplained
from ..parts import Extent, Mark
from .scan import Line, Plane, Rows, RowsOf, Space, read_rows
from .steps import HOST_PLANE, Host
from .tables import Integers

LAUNCH, _COPIED = "correlation_id", "memcpy_details"
_SIZE = r"\b(?:size|num_bytes):(\d+)"


class IdleDevice(Struct, kw_only=True):
    """One device: its busy intervals (begin, end, begin, end, …), its steps and its streams.

    ``launch`` is the stat of the streams' events that has the id of their launch. Where events have none, ``launches`` is the time and line
    of the launch of the work that began at an instant.
    """

    busy: Integers
    steps: Mapping[Mark, Extent] = field(default_factory=dict)
    streams: Sequence[Line] = ()
    launch: str = LAUNCH
    launches: Mapping[int, tuple[int, int]] = field(default_factory=dict)


class Waits(Struct):
    """The gaps of some devices, and the activities of the host's threads, if the profile has any."""

    gaps: list[list[Gap]] = field(default_factory=list)
    threads: "_Threads | None" = None


def look(space: Space, devices: Sequence[IdleDevice], host: Host) -> Waits:
    """Reads the gaps of the devices, the launches that ended them, and the host's activities in them."""
    plane = next((plane for plane in space.planes if plane.name == HOST_PLANE), None)
    found = Waits([gaps_between(device.busy, device.steps, len(devices)) for device in devices])
    if plane is not None and any(line.length for line in plane.lines):
        _find_neighbours(space, devices, found.gaps, host)
        found.threads = _Threads(space, plane, [gap for gaps in found.gaps for gap in gaps])
    return found


def explain(waits: Waits, users: Collection[str], changed: Callable[[str], str] = lambda function: "") -> list[Idle]:
    """The reasons for each device's idle time.

    ``users`` are names of the user's files; ``changed`` returns the shapes in which the compiled programs of a function differ, in words.
    """
    threads = waits.threads
    if threads is None:
        return [unexplained(gaps) for gaps in waits.gaps]
    threads.users, threads.changed = users, cache(changed)
    return [explained(gaps, threads, several=len(waits.gaps) > 1) for gaps in waits.gaps]


def _launches(host: Host, wanted: Collection[int]) -> dict[int, tuple[int, int, int | None]]:
    """For each id of work: the time and line of its launch, and the time of the launch before it on that line."""
    found: dict[int, tuple[int, int, int | None]] = {}
    for one in host.launches:
        for place, id in enumerate(one.ids):
            if id in wanted and id not in found:
                found[id] = one.start_ps[place], one.line, one.start_ps[place - 1] if place else None
    return found


def _find_neighbours(space: Space, devices: Sequence[IdleDevice], gaps: Sequence[Sequence[Gap]], host: Host) -> None:
    """Finds the work on both sides of each gap of each device."""
    asked = []
    for device, mine in zip(devices, gaps, strict=True):
        at = array("q", sorted({instant for gap in mine for instant in (gap.begin - 1, gap.end)}))
        asked.append([RowsOf(line=line, stats=(device.launch, _COPIED), at=at) for line in device.streams if mine])
    tables = iter(read_rows(space, [request for requests in asked for request in requests]))
    for device, mine, requests in zip(devices, gaps, asked, strict=True):
        for gap in mine:
            if gap.end in device.launches:
                gap.launched, gap.line = device.launches[gap.end]
        if requests:
            _add_neighbours(space, mine, [next(tables) for _ in requests], device.launch, host)


def _add_neighbours(space: Space, gaps: Sequence[Gap], tables: Iterable[Rows], launched: str, host: Host) -> None:
    """Sets, for each gap of a device, the launch of the work that ended it, and the copies on both sides."""
    after: dict[int, int] = {}
    copies: dict[int, tuple[str, int]] = {}
    ends = {gap.end for gap in gaps}
    for rows in tables:
        launch = rows.stats[launched]
        after.update((start, id) for row, start in enumerate(rows.start_ps) if start in ends and isinstance(id := launch[row], int))
        _add_copies(space.plane_of(rows.line), rows, copies)
    found = _launches(host, set(after.values()))
    for gap in gaps:
        if (id := after.get(gap.end)) in found:
            gap.launched, gap.line, gap.before = found[id]
        if copies:
            gap.copy = max(copies.get(gap.begin, ("", 0)), copies.get(gap.end, ("", 0)), key=lambda copy: copy[1])


def _add_copies(plane: Plane, rows: Rows, copies: dict[int, tuple[str, int]]) -> None:
    """Adds copies between host and device (direction and bytes) under the times of their begin and end; of several, the largest."""
    said = rows.stats[_COPIED]
    for row in compress(range(len(rows)), said.kinds):
        name = plane.event_names.get(rows.metadata_id[row], "")
        towards = "in" if "H2D" in name else "out" if "D2H" in name else ""
        size = re.search(_SIZE, str(said[row])) if towards else None
        if size:
            for instant in (rows.start_ps[row], rows.start_ps[row] + rows.duration_ps[row]):
                copies[instant] = max(copies.get(instant, ("", 0)), (towards, int(size[1])), key=lambda copy: copy[1])


class _Threads:
    """The activity of each host thread at some instants."""

    def __init__(self, space: Space, plane: Plane, gaps: Sequence[Gap]) -> None:
        names = plane.event_names
        self.with_frames = "roofline capture --python"
        self.users: Collection[str] = ()
        self.changed: Callable[[str], str] = lambda function: ""
        runs = {id for id, name in names.items() if "ecut" in name and re.search(RUNS, name)}
        instants = {instant for gap in gaps for instant in (gap.begin, *gap.samples)}
        instants |= {gap.launched for gap in gaps if gap.launched is not None}
        at = array("q", sorted(instants))
        calls = {id for id, name in names.items() if name.startswith(("$", "PjitFunction"))}
        lines = {rows.line.row: rows for rows in read_rows(space, [RowsOf(line=line, at=at) for line in plane.lines if line.length])}
        said = {line: sum(id in calls for id in rows.metadata_id) for line, rows in lines.items()}
        self._stacks = cache(lambda line: stacks(lines[line], at, runs) if line in lines else Stacks())  # only few threads are needed
        self._activity = cache(lambda stack: activity([names.get(id, "") for id in stack], self.users))
        self.driver = max(said, key=lambda line: (said[line], -line), default=None)
        self.has_frames = any(name.startswith("$") for name in names.values())

    def at(self, line: int | None, instant: int) -> Activity:
        """The activity of a thread at an instant."""
        stack = self._stacks(line).open.get(instant) if line is not None else None
        return NOTHING if stack is None else self._activity(stack)

    def running_since(self, line: int | None, instant: int | None) -> int | None:
        """When the run of a program that a thread was in at an instant began."""
        return None if line is None or instant is None else self._stacks(line).running.get(instant)


class Stacks(Struct):
    """By instant, the metadata ids of a thread's open events, the outermost first, and the start of the program's run around it."""

    open: dict[int, tuple[int, ...]] = field(default_factory=dict)
    running: dict[int, int] = field(default_factory=dict)


def stacks(rows: Rows, at: Sequence[int], runs: Collection[int]) -> Stacks:
    """The open events at each of the instants, which are sorted; ``runs`` are the metadata ids of runs of programs."""
    found = Stacks()
    events = sorted(zip(rows.start_ps, rows.duration_ps, rows.metadata_id, strict=True), key=lambda event: (event[0], -event[1]))
    begun: list[tuple[int, int, int]] = []  # open events: the place of the first instant after it, metadata id, start
    done = 0
    for start, duration, id in [*events, (at[-1] + 1 if at else 0, 0, 0)]:
        until = bisect_left(at, start, done)
        while done < until:
            begun = [event for event in begun if event[0] > done]
            same = min([until, *(end for end, _, _ in begun)])
            if begun:
                since = next((begin for _, id, begin in begun if id in runs), None)
                found.open.update(dict.fromkeys(at[done:same], tuple([id for _, id, _ in begun])))
                if since is not None:
                    found.running.update(dict.fromkeys(at[done:same], since))
            done = same
        begun.append((bisect_left(at, start + duration, done), id, start))
    return found
