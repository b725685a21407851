"""The reasons for idle time of TPUs between two runs of programs: what the host did until it launched the next.

The host's event that enqueues a run has an id (``_p``), and the run on the device has the same id (``_c``). Both have times by the clock of
events, from which the device's own clock, used for timelines, drifts away. Gaps inside a run have no reason on the host.
"""

from array import array
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from ..idle import Idle, Reasons, source_files
from ..parts import DevicePart, Extent, Pause
from .idle import IdleDevice, Waits, explain, look
from .scan import Plane, RowsOf, Space, read_rows
from .steps import HOST_PLANE, Host, Launches
from .tpu_steps import DeviceSteps, programs_of

DRIFT = 0.01  # the largest relative difference of the clocks; more is not drift
_GIVEN, _TAKEN, _ENQUEUES = "_p", "_c", "EnqueueProgram"


def look_between_runs(space: Space, steps: DeviceSteps, planes: Sequence[Plane]) -> Waits | None:
    """The gaps between runs on each device, and the host's activities in them; ``None`` if the host recorded no launches."""
    host = _launches(space)
    if not host.launches:
        return None
    asked = []
    ran = steps.programs or programs_of(space, planes)
    for plane in planes:
        programs = ran.get(plane.name)
        spans = {mark: Extent(begin, end, 0) for begin, end, mark in steps.spans.get(plane.name, ())}
        busy = programs.intervals if programs else memoryview(array("q"))
        streams = [programs.line] if programs else []
        asked.append(IdleDevice(busy=busy, steps=spans, streams=streams, launch=_TAKEN))
    return look(space, asked, host)


def tpu_idle(waits: Waits | None, parts: Sequence[DevicePart]) -> list[Idle]:
    """The reasons for each device's idle time; none if ``waits`` is ``None``."""
    if waits is None:
        return [Idle() for _ in parts]
    found = explain(waits, source_files(subject for part in parts for subject in part.rows))
    for idle, part in zip(found, parts, strict=True):
        idle.reasons = _at_most(idle.reasons, part.wall_ps - part.busy_ps)
    return found


def on_device_clock(pauses: Sequence[Pause], plane: Plane, part: DevicePart, steps: DeviceSteps) -> list[Pause]:
    """Pauses converted from the clock of events to the device's own clock."""
    clock = _clock([(begin, end, part.steps[mark]) for begin, end, mark in steps.spans.get(plane.name, ()) if mark in part.steps])
    return [replace(pause, begin_ps=clock(pause.begin_ps), end_ps=clock(pause.end_ps)) for pause in pauses]


def _clock(steps: Sequence[tuple[int, int, Extent]]) -> Callable[[int], int]:
    """A function from the clock of events to the device's: linear between the first step's begin and the last one's end, known in both."""
    if not steps:
        return lambda instant: instant
    (begin, _, first), (_, end, last) = min(steps, key=lambda one: one[0]), max(steps, key=lambda one: one[1])
    lasted, own = end - begin, last.end_ps - first.begin_ps
    if not lasted or abs(own - lasted) > DRIFT * lasted:
        own = lasted = 1
    return lambda instant: first.begin_ps + (instant - begin) * own // lasted


def _launches(space: Space) -> Host:
    """The host's launches: when, and on which line, it enqueued programs."""
    host = Host()
    plane = next((plane for plane in space.planes if plane.name == HOST_PLANE), None)
    enqueues = [id for id, name in plane.event_names.items() if _ENQUEUES in name] if plane is not None else []
    if plane is None or not enqueues:
        return host
    for rows in read_rows(space, [RowsOf(line=line, stats=(_GIVEN,), only=enqueues) for line in plane.lines if line.length]):
        given = [(start, id) for start, id in zip(rows.start_ps, rows.stats[_GIVEN], strict=True) if isinstance(id, int)]
        if given:
            host.launches.append(Launches(rows.line.row, [start for start, _ in given], [id for _, id in given]))
    return host


def _at_most(reasons: Reasons, idle_ps: int) -> Reasons:
    """The reasons, scaled down if their sum exceeds the idle time, which is measured by the device's own clock."""
    total = sum(tally.time_ps for tally in reasons.values())
    if total <= idle_ps:
        return reasons
    for tally in reasons.values():
        tally.time_ps = tally.time_ps * idle_ps // total
        tally.steps = {mark: (gaps, time_ps * idle_ps // total) for mark, (gaps, time_ps) in tally.steps.items()}
    return reasons
