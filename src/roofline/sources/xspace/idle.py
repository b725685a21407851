"""Why the devices of a profile were idle: what the host's lines say of the gaps between their work (`roofline.sources.idle`)."""

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

from msgspec import Struct, field

from ..host_activity import NOTHING, RUNS, Activity, activity
from ..idle import Gap, Idle, explained, gaps_between, unexplained
from ..parts import Extent, Mark
from .scan import Line, Plane, Rows, RowsOf, Space, read_rows
from .steps import HOST_PLANE, Host

LAUNCH, _COPIED = "correlation_id", "memcpy_details"
_SIZE = re.compile(r"\b(?:size|num_bytes):(\d+)")


class IdleDevice(Struct, kw_only=True):
    """What is asked about one device: when it was busy (begin, end, begin, end, …), its steps, its streams, and files of the user's.

    ``launch`` is the stat of events on its streams that says as what the host launched them.
    """

    busy: Sequence[int]
    steps: Mapping[Mark, Extent] = field(default_factory=dict)
    streams: Sequence[Line] = ()
    users: Collection[str] = ()
    launch: str = LAUNCH


def explain(space: Space, devices: Sequence[IdleDevice], host: Host, changed: Callable[[str], str] = lambda function: "") -> list[Idle]:
    """The reasons of each device's idle time; ``changed`` says in which shapes the programs differ that a function was compiled to."""
    plane = next((plane for plane in space.planes if plane.name == HOST_PLANE), None)
    looked = [gaps_between(device.busy, device.steps) for device in devices]
    if plane is None or not any(line.length for line in plane.lines):
        return [unexplained(gaps) for gaps in looked]
    launches = _Launches(host)
    for device, gaps in zip(devices, looked, strict=True):
        _neighbours(space, device, gaps, launches)
    every = [gap for gaps in looked for gap in gaps]
    threads = _Threads(space, plane, every, {name for device in devices for name in device.users})
    threads.changed = cache(changed)
    return [explained(gaps, threads, several=len(devices) > 1) for gaps in looked]


class _Launches:
    """When and on which line the host launched each piece of work."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def find(self, wanted: Collection[int]) -> dict[int, tuple[int, int, int | None]]:
        """Of each id: when it was launched, on which line, and when that line launched something before."""
        found: dict[int, tuple[int, int, int | None]] = {}
        for one in self.host.launches:
            for place, id in enumerate(one.ids):
                if id in wanted and id not in found:
                    found[id] = one.start_ps[place], one.line, one.start_ps[place - 1] if place else None
        return found


def _neighbours(space: Space, device: IdleDevice, gaps: Sequence[Gap], launches: _Launches) -> None:
    """Finds the work on either side of each gap: who launched what ended it, and the copies there."""
    if not device.streams or not gaps:
        return
    at = array("q", sorted({instant for gap in gaps for instant in (gap.begin - 1, gap.end)}))
    after: dict[int, int] = {}
    copies: dict[int, tuple[str, int]] = {}
    ends = {gap.end for gap in gaps}
    for rows in read_rows(space, [RowsOf(line=line, stats=(device.launch, _COPIED), at=at) for line in device.streams]):
        names = space.plane_of(rows.line).event_names
        for row, (start, duration) in enumerate(zip(rows.start_ps, rows.duration_ps, strict=True)):
            id, said = rows.stats[device.launch][row], rows.stats[_COPIED][row]
            if start in ends and isinstance(id, int):
                after[start] = id
            name = names.get(rows.metadata_id[row], "")
            towards = "in" if "H2D" in name else "out" if "D2H" in name else ""
            size = _SIZE.search(str(said)) if said and towards else None
            if size:
                for instant in (start, start + duration):
                    copies[instant] = max(copies.get(instant, ("", 0)), (towards, int(size[1])), key=lambda copy: copy[1])
    found = launches.find(set(after.values()))
    for gap in gaps:
        if (id := after.get(gap.end)) in found:
            gap.launched, gap.line, gap.before = found[id]
        gap.copy = max(copies.get(gap.begin, ("", 0)), copies.get(gap.end, ("", 0)), key=lambda copy: copy[1])


class _Threads:
    """What each thread of the host did at the instants asked for."""

    def __init__(self, space: Space, plane: Plane, gaps: Sequence[Gap], users: Collection[str]) -> None:
        self.users, self.names = users, plane.event_names
        self.with_frames = "roofline capture --python"
        self.changed: Callable[[str], str] = lambda function: ""
        self._known: dict[tuple[int, ...], Activity] = {}
        self._stacks: dict[int, dict[int, tuple[int, ...]]] = {}
        self._running: dict[int, dict[int, int]] = {}
        runs = {id for id, name in self.names.items() if RUNS.search(name) and "ecut" in name}
        instants = {instant for gap in gaps for instant in (gap.begin, *gap.samples)}
        instants |= {gap.launched for gap in gaps if gap.launched is not None}
        at = array("q", sorted(instants))
        said = Counter[int]()
        for rows in read_rows(space, [RowsOf(line=line, at=at) for line in plane.lines if line.length]):
            line = rows.line.row
            self._stacks[line], self._running[line] = _stacks(rows, at, runs)
            said[line] = sum(self.names.get(id, "").startswith(("$", "PjitFunction")) for id in rows.metadata_id)
        self.driver = max(said, key=lambda line: (said[line], -line), default=None)
        self.has_frames = any(name.startswith("$") for name in self.names.values())

    def at(self, line: int | None, instant: int) -> Activity:
        """What a thread did at an instant."""
        stack = self._stacks.get(line, {}).get(instant, ()) if line is not None else ()
        if not stack:
            return NOTHING
        known = self._known.get(stack)
        if known is None:
            known = self._known[stack] = activity([self.names.get(id, "") for id in stack], self.users)
        return known

    def running_since(self, line: int | None, instant: int | None) -> int | None:
        """When the run of a program began that a thread was in at an instant."""
        return None if line is None or instant is None else self._running.get(line, {}).get(instant)


def _stacks(rows: Rows, at: Sequence[int], runs: Collection[int]) -> tuple[dict[int, tuple[int, ...]], dict[int, int]]:
    """The open events at each instant that has some, by metadata id, the outermost first; and the begin of the outermost of ``runs``."""
    events = sorted(zip(rows.start_ps, rows.duration_ps, rows.metadata_id, strict=True), key=lambda event: (event[0], -event[1]))
    found: dict[int, list[int]] = {}
    running: dict[int, int] = {}
    for start, duration, id in events:
        for place in range(bisect_left(at, start), bisect_left(at, start + duration)):
            instant = at[place]
            found.setdefault(instant, []).append(id)
            if id in runs:
                running.setdefault(instant, start)
    return {instant: tuple(stack) for instant, stack in found.items()}, running
