"""XLA on a CPU: the thunks of a program on the host's threads, each of which names its instruction.

A thunk's event may only start the work, which then ends where an event ``end: NAME`` begins, on whichever thread finishes it. The two are
linked by context ids (``_p`` of the start is ``_c`` of the end). A thread that was descheduled may write the end too late, so work ends at
the latest with the wait for the completion of its run. Ops of one device therefore overlap: busy time is the union of their intervals, and
ops that run at the same time share it equally as self time. An op that only runs other thunks (a loop, a call) gets self time only while
none of those runs.

Dispatch is asynchronous: steps are annotated long before they run. The n-th run of a program belongs to its n-th call, and so to the
step around that call. Since some instructions are several thunks, executions are not counted by events: an instruction is executed once
per run of its program, times the trip counts around it.
"""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct, field

from ..idle import source_files
from ..parts import UNKNOWN, DevicePart, Extent, Lane, Mark, Share, Subject, Tally
from ..timeline import Span, spans, with_host, with_lanes, with_timeline
from .compilation import changed_shapes
from .idle import IdleDevice, explain, look
from .modules import CONTROL, Place, Program, Programs, identifier
from .program_runs import LEAST_KERNELS, MOST_RUNS, similar_counts
from .scan import Plane, Progress, Rows, RowsOf, Space, read_rows, union
from .steps import HOST_PLANE, Annotation, Host, Launches, read_host
from .timeline import shared_lane

_THUNK, _RUN, _STARTED, _ENDED = "hlo_op", "run_id", "_p", "_c"
_DEVICE = "device_ordinal"
_BY = ("program_id", "hlo_module", _THUNK, _DEVICE)
_END = "end: "
_WAIT = "(wait for completion)"
_CALL = re.compile(r"PjitFunction\((.*)\)")  # the host's call of module jit_…
_STARTS = "ExecuteHelper"  # the host's event that starts a run, where no event has the run's id
_ANY_THREAD, _NO_RUN = -1, -1


class _Thunk(Struct, eq=False):
    """An instruction on one device; ``control`` is whether it only runs other instructions."""

    device: int
    module: str
    subject: Subject
    program: Program | None = None
    place: Place | None = None
    control: bool = False


class _Run(Struct, eq=False):
    """A run of a program: its start, whether the ends of all its thunks were recorded, its step, and the time and thread of its call."""

    program: object
    id: int | None
    module: str
    begin_ps: int
    ended: bool = True
    mark: Mark | None = None
    call: tuple[int, int] | None = None


class _Event(Struct, eq=False):
    """One thunk: when its work began and ended. ``outer`` is whether it only runs other thunks."""

    begin_ps: int
    end_ps: int
    thunk: _Thunk
    run: _Run
    outer: bool


class _Times(Struct):
    """Times of a device: busy time, busy time of each step, and the time and self time of each instruction."""

    busy_ps: int = 0
    steps_ps: Counter[Mark] = field(default_factory=Counter)
    time_ps: Counter[tuple[Subject, Mark | None]] = field(default_factory=Counter)
    self_ps: dict[Subject, float] = field(default_factory=dict)


def read_cpus(
    space: Space, programs: Programs, progress: Progress | None = None, *, timeline: bool = False
) -> tuple[list[DevicePart], Host, list[str]]:
    """Every XLA device of a host, with its timeline if requested, the host's record of its steps, and notes."""
    plane = next((plane for plane in space.planes if plane.name == HOST_PLANE), None)
    if plane is None or _THUNK not in plane.stat_ids:
        return [], Host(), []
    host = read_host(space, runs=True)
    ends = [id for id, name in plane.event_names.items() if name.startswith(_END)]
    waits_for_runs = [id for id, name in plane.event_names.items() if name.endswith(_WAIT)]
    stats = (*_BY, _RUN, _STARTED, _ENDED)
    requests = [RowsOf(line=line, stats=stats, having=(_THUNK,), only=[*ends, *waits_for_runs]) for line in plane.lines if line.length]
    tables = [rows for rows in read_rows(space, requests, progress=progress) if len(rows)]
    events, runs = _events(tables, programs, _completed(tables, waits_for_runs))
    calls = _calls(space, plane)
    notes = [] if host.annotations else _make_steps(host, runs, events)
    cut_off = _mark_runs(calls, host, runs) if not notes else set[Mark]()
    _set_calls(calls, host, runs)
    cut_off |= {run.mark for run in runs if run.mark is not None and not run.ended}
    by_device: dict[int, list[_Event]] = {}
    for event in events:
        by_device.setdefault(event.thunk.device, []).append(event)
    parts, waits = [], []
    for device, mine in sorted(by_device.items()):
        spent = _sum_times(mine)
        rows, steps = _rows(mine, spent), _extents(mine, spent, cut_off)
        looked = look(space, [_idle_device(mine, steps)], host)
        (idle,) = explain(looked, source_files(rows), lambda function: changed_shapes(programs, function))
        begin, end = min(event.begin_ps for event in mine), max(event.end_ps for event in mine)
        parts.append(
            DevicePart(
                plane=f"{HOST_PLANE} device {device}",
                ordinal=device,
                name="CPU",
                rates={},
                wall_ps=end - begin,
                busy_ps=spent.busy_ps,
                rows=rows,
                steps=steps,
                begin_ps=begin,
                idle=idle.reasons,
            )
        )
        waits.append(idle)
    if timeline:
        shown = spans(parts)
        first = zip(with_timeline(parts), waits, strict=False)
        found = [with_host(_lanes(by_device[part.ordinal], shown, part.rows), idle.pauses) for part, idle in first]
        parts = with_lanes(parts, found)
    return parts, host, [*host.notes, *notes, *_sharing_notes(len(parts)), *(note for rows in tables for note in rows.notes)]


def _idle_device(events: Sequence[_Event], steps: Mapping[Mark, Extent]) -> IdleDevice:
    """A device by its events: when it was busy, and the calls that launched its work."""
    bounds = array("q", [at for event in events for at in (event.begin_ps, event.end_ps)])
    launches = {event.begin_ps: event.run.call for event in events if event.run.call is not None}
    return IdleDevice(busy=union([memoryview(bounds)])[0], steps=steps, launches=launches)


def _sharing_notes(devices: int) -> list[str]:
    """A note if there are several devices, as all of them are the same CPU."""
    if devices < 2:
        return []
    return [
        f"{devices:,} devices share one CPU, and each is compared with the limits of the whole CPU: "
        f"running together, each takes at least {devices} times its minimum, and the MFU of the CPU is {devices} times as high as shown"
    ]


def _completed(tables: Sequence[Rows], waits: Sequence[int]) -> dict[tuple[object, object], int]:
    """The end of each run on each device: the end of the wait for its completion."""
    found: dict[tuple[object, object], int] = {}
    for rows in tables:
        for row, id in enumerate(rows.metadata_id):
            if id in waits:
                found[rows.stats[_RUN][row], rows.stats[_DEVICE][row]] = rows.start_ps[row] + rows.duration_ps[row]
    return found


def _events(tables: Sequence[Rows], programs: Programs, completed: Mapping[tuple[object, object], int]) -> tuple[list[_Event], list[_Run]]:
    """Every thunk with the end of its work, and their runs in order of start."""
    ends: dict[int, int] = {}
    for rows in tables:
        column = rows.stats[_ENDED]
        ends.update((id, begin) for id, kind, begin in zip(column.values, column.kinds, rows.start_ps, strict=True) if kind)
    thunks: dict[tuple[object, ...], _Thunk] = {}
    runs: dict[tuple[object, int | None], _Run] = {}
    events = []
    for rows in tables:
        known: dict[tuple[int, ...], _Thunk] = {}
        by = [rows.stats[name] for name in _BY]
        enclosing: list[tuple[int, _Event]] = []  # open thunks on this thread: their ends and events
        for row, (begin, duration) in enumerate(zip(rows.start_ps, rows.duration_ps, strict=True)):
            if not rows.stats[_THUNK].kinds[row]:
                continue
            while enclosing and enclosing[-1][0] <= begin:
                enclosing.pop()
            if enclosing:
                enclosing[-1][1].outer = True
            raw = tuple([column.values[row] for column in by])
            thunk = known.get(raw)
            if thunk is None:
                values = tuple(column[row] for column in by)
                thunk = known[raw] = thunks.setdefault(values, _thunk(values, programs))
            id = rows.stats[_RUN][row]
            key = raw[0], id if isinstance(id, int) else None
            run = runs.get(key)
            if run is None:
                run = runs[key] = _Run(raw[0], key[1], thunk.module, begin)
            run.begin_ps = min(run.begin_ps, begin)
            started = rows.stats[_STARTED]
            end = ends.get(started.values[row]) if started.kinds[row] else None
            if end is None or end < begin:
                end = begin + duration
                run.ended = run.ended and not (ends and started.kinds[row])
            end = max(min(end, completed.get((id, rows.stats[_DEVICE][row]), end)), begin)
            events.append(_Event(begin, end, thunk, run, thunk.control))
            enclosing.append((begin + duration, events[-1]))
    return events, sorted(runs.values(), key=lambda run: run.begin_ps)


def _thunk(values: Sequence[object], programs: Programs) -> _Thunk:
    id, module, operation, device = values
    name = str(operation).rpartition("::")[2]
    program = programs.get(id if isinstance(id, int) else None, str(module or ""))
    place = program.find(name) if program is not None else None
    thunk = _Thunk(device if isinstance(device, int) else 0, str(module or ""), _unpriced(name, str(module or ""), id), program, place)
    if program is not None and place is not None:
        thunk.subject, thunk.control = program.subject(place), program.instruction(place).opcode in CONTROL
    return thunk


def _unpriced(name: str, module: str, id: object) -> Subject:
    why = "its instruction was not found: the profile has no program for it"
    return Subject(name=name, module=module, program=str(id), category="unknown", cost=UNKNOWN, notes=(why,))


def _make_steps(host: Host, runs: Sequence[_Run], events: Iterable[_Event]) -> list[str]:
    """Without step annotations, each run of the longest program begins a step, which lasts until its next run; returns notes.

    Another program of its name is the same function if it has about as many ops, as in `program_runs`.
    """
    times, ops, devices = Counter[object](), dict[object, set[int]](), dict[object, set[int]]()
    for event in events:
        if not event.outer:
            times[event.run.program] += event.end_ps - event.begin_ps
            ops.setdefault(event.run.program, set()).add(id(event.thunk))
            devices.setdefault(id(event.run), set()).add(event.thunk.device)
    if len(set(map(tuple, devices.values()))) > 1:
        return []  # devices that run different programs
    names = {run.program: run.module for run in runs}
    main = max(names, key=lambda program: times[program], default=None)
    namesakes = [program for program, name in names.items() if name == names.get(main)]
    if main is None or (len(namesakes) > 1 and len(ops.get(main, ())) < LEAST_KERNELS):
        return []
    alike = {program for program in namesakes if similar_counts(len(ops.get(main, ())), len(ops.get(program, ())))}
    begins = [place for place, run in enumerate(runs) if run.program in alike]
    if len(begins) < 2 or len(begins) > MOST_RUNS:
        return []
    steps = []
    for mark, (begin, end) in enumerate(pairwise((*begins, len(runs)))):
        for run in runs[begin:end]:
            run.mark = mark
        last = runs[end].begin_ps if end < len(runs) else max(run.begin_ps for run in runs[begin:])
        steps.append(Annotation(names[main], mark, runs[begin].begin_ps, last, _ANY_THREAD))
    host.annotations = tuple(steps)
    return [f"no steps marked: each run of {names[main]} begins a step"]


def _mark_runs(calls: "_Calls", host: Host, runs: Sequence[_Run]) -> set[Mark]:
    """Sets the step of each run: the one in which the host called it. Returns the steps with a call whose run was not recorded.

    If the host's events have no run ids, runs are matched to its calls in order; a run without a call belongs to the step it began in.
    """
    if not host.annotations:
        return set()
    named = {id: mark for mark, ids in enumerate(host.ids(host.runs)) for id in ids}
    if named:
        for run in runs:
            run.mark = named.get(run.id) if run.id is not None else None
        ran = {run.id for run in runs}
        return {mark for id, mark in named.items() if id not in ran}
    launches, unseen = _match_calls(calls, runs)
    for mark, places in enumerate(host.ids(launches)):
        for place in places:
            runs[place].mark = mark
    return {mark for mark, places in enumerate(host.ids(unseen)) if places}


def _set_calls(calls: "_Calls", host: Host, runs: Sequence[_Run]) -> None:
    """Sets the call of each run, if it is known: by the run's id, else in order."""
    by_id = {id: (begin, one.line) for one in host.runs for begin, id in zip(one.start_ps, one.ids, strict=True)}
    for run in runs:
        run.call = by_id.get(run.id) if run.id is not None else None
    for one in _match_calls(calls, runs)[0] if not by_id else ():
        if one.line != _ANY_THREAD:
            runs[one.ids[0]].call = one.start_ps[0], one.line


_Calls = dict[str, list[tuple[int, int]]]  # by program: the time and thread of each call


def _calls(space: Space, plane: Plane) -> _Calls:
    """When the host started runs, by the function it called; under an empty name if no call encloses the start."""
    names = {id: called[1] for id, name in plane.event_names.items() if (called := _CALL.fullmatch(name))}
    starts = {id for id, name in plane.event_names.items() if _STARTS in name}
    found: _Calls = {}
    wanted = [*names, *starts]
    for rows in read_rows(space, [RowsOf(line=line, only=wanted) for line in plane.lines if line.length]) if starts else ():
        enclosing: list[tuple[int, str]] = []  # open calls: their ends and functions
        events = zip(rows.metadata_id, rows.start_ps, rows.duration_ps, strict=True)
        for id, begin, duration in sorted(events, key=lambda event: (event[1], -event[2])):  # of those with one begin, the outermost first
            while enclosing and enclosing[-1][0] <= begin:
                enclosing.pop()
            if id in starts:
                found.setdefault(identifier(enclosing[-1][1]) if enclosing else "", []).append((begin, rows.line.row))
            else:
                enclosing.append((begin + duration, names[id]))
    return found


def _match_calls(calls: _Calls, runs: Sequence[_Run]) -> tuple[list[Launches], list[Launches]]:
    """Matches the n-th call of each program to its n-th run, given by its place in ``runs``; and the calls without a run."""
    places: dict[str, list[int]] = {}
    for place, run in enumerate(runs):
        name = identifier(run.module.removeprefix("jit_"))
        places.setdefault(name if name in calls else "", []).append(place)
    launched: list[Launches] = []
    unseen: list[Launches] = []
    for name, mine in places.items():
        unmatched = iter(mine)
        for begin, line in sorted(calls.get(name, ())):
            # Runs that began before this call were called before the recording.
            ran = [next((place for place in unmatched if runs[place].begin_ps >= begin), _NO_RUN)]
            (unseen if ran == [_NO_RUN] else launched).append(Launches(line, [begin], ran))
    matched = {place for one in launched for place in one.ids}
    launched += [Launches(_ANY_THREAD, [run.begin_ps], [place]) for place, run in enumerate(runs) if place not in matched]
    return launched, unseen


def _sum_times(events: Iterable[_Event]) -> _Times:
    """Sums up the thunks of a device in order of time; thunks that run at the same time share it."""
    spent = _Times()
    bounds = [(at, opens, event) for event in events if event.end_ps > event.begin_ps for at, opens in _bounds(event)]
    bounds.sort(key=lambda bound: bound[:2])  # at one instant, ends come before begins
    active = [0, 0]  # running thunks: those that do work, and those that only run others
    shared = [0.0, 0.0]  # the self time that a thunk of each kind would have if it had run from the beginning
    entered: dict[int, float] = {}
    running: Counter[object] = Counter()  # running thunks of each (op, run) and of each step
    since: dict[object, int] = {}
    before = 0
    for at, opens, event in bounds:
        if active[0] or active[1]:
            spent.busy_ps += at - before
            paid = 0 if active[0] else 1  # the kind of thunk that gets the self time
            shared[paid] += (at - before) / active[paid]
        before = at
        kind, subject, mark = int(event.outer), event.thunk.subject, event.run.mark
        groups: list[object] = [(id(subject), id(event.run)), *([mark] if mark is not None else [])]
        if opens:
            active[kind] += 1
            entered[id(event)] = shared[kind]
            for group in groups:
                running[group] += 1
                since.setdefault(group, at)
            continue
        active[kind] -= 1
        spent.self_ps[subject] = spent.self_ps.get(subject, 0.0) + shared[kind] - entered.pop(id(event))
        for group in groups:
            running[group] -= 1
            if not running[group]:
                del running[group]
                time_ps = at - since.pop(group)
                if mark is not None and group == mark:
                    spent.steps_ps[mark] += time_ps
                else:
                    spent.time_ps[subject, mark] += time_ps
    return spent


def _bounds(event: _Event) -> Iterable[tuple[int, bool]]:
    return (event.begin_ps, True), (event.end_ps, False)


def _lanes(events: Sequence[_Event], shown: Iterable[Span], rows: Iterable[Subject]) -> tuple[Lane, ...]:
    """The timeline of a device."""
    places = {subject: place for place, subject in enumerate(rows)}
    changes = [
        (at, opens, int(event.outer), places[event.thunk.subject])
        for event in events
        if event.end_ps > event.begin_ps
        for at, opens in _bounds(event)
    ]
    changes.sort(key=lambda change: change[0])
    return tuple(shared_lane(changes, span) for span in shown)


def _rows(events: Sequence[_Event], spent: _Times) -> dict[Subject, Tally]:
    """The tally of each operation on a device."""
    runs: dict[Program, set[int | None]] = {}
    thunks: dict[Subject, _Thunk] = {}
    kernels: Counter[Subject] = Counter()
    in_steps: dict[Subject, Counter[Mark]] = {}
    for event in events:
        thunk, subject = event.thunk, event.thunk.subject
        thunks[subject] = thunk
        kernels[subject] += 1
        if thunk.program is not None:
            runs.setdefault(thunk.program, set()).add(event.run.id)
        if event.run.mark is not None:
            in_steps.setdefault(subject, Counter())[event.run.mark] += 1
    times: dict[Subject, dict[Mark | None, int]] = {}
    for (subject, mark), time_ps in spent.time_ps.items():
        times.setdefault(subject, {})[mark] = time_ps
    rows = {}
    for subject, count in kernels.items():
        executions = _executions(thunks[subject], count, runs)
        mine = times.get(subject, {})
        tally = Tally(executions, count, sum(mine.values()), round(spent.self_ps.get(subject, 0.0)))
        for mark, seen in in_steps.get(subject, {}).items():
            tally.steps[mark] = Share(-(-seen * executions // count), mine.get(mark, 0))
        rows[subject] = tally
    return rows


def _executions(thunk: _Thunk, events: int, runs: Mapping[Program, set[int | None]]) -> int:
    """The executions of an instruction: runs of its program times runs of its computation in each, if both are known; else its events."""
    if thunk.program is None or thunk.place is None or None in runs[thunk.program]:
        return events
    expected = len(runs[thunk.program]) * (thunk.program.runs(thunk.place.computation) or 0)
    return min(events, expected) if expected else events


def _extents(events: Iterable[_Event], spent: _Times, cut_off: set[Mark]) -> dict[Mark, Extent]:
    spans: dict[Mark, tuple[int, int]] = {}
    for event in events:
        mark = event.run.mark
        if mark is not None:
            begin, end = spans.get(mark, (event.begin_ps, event.end_ps))
            spans[mark] = (min(begin, event.begin_ps), max(end, event.end_ps))
    return {mark: Extent(begin, end, spent.steps_ps[mark], mark not in cut_off) for mark, (begin, end) in spans.items()}
