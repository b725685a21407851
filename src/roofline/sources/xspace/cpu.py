"""XLA on a CPU: the thunks of a program on the host's threads, each of which names its instruction.

A thunk that continues on other threads shows the time it held its own; loops and calls span what they run on their thread. An execution is
counted once a run of the program, times the trip counts around it, for some instructions are several thunks.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from .attribute import UNKNOWN, DevicePart, Extent, Instance, Mark, Share, Subject, Tally
from .modules import Place, Program, Programs
from .scan import Plane, Progress, RowsOf, Space, Totals, TotalsOf, read_rows, read_totals, union
from .steps import HOST_PLANE, Host, Launches, is_last, mark_of, read_host, step_lookup

_THUNK, _RUN = "hlo_op", "run_id"
_BY = ("program_id", "hlo_module", _THUNK, "device_ordinal")
_STARTS = "ExecuteHelper"  # the host's part of a run, where it does not say the run's id
_ANY_THREAD = -1


class _Key(Struct, frozen=True, kw_only=True):
    """The thunks of one instruction on one thread."""

    thread: int
    row: int
    device: int
    subject: Subject
    program: Program | None
    place: Place | None
    count: int
    runs: int
    time_ps: int
    self_ps: int
    first_ps: int
    last_ps: int


class _Cells(Struct):
    """Events, time and self time in steps: of each key, and of all."""

    keys: dict[tuple[int, int], dict[Mark, Share]] = field(default_factory=dict)
    busy_ps: dict[Mark, int] = field(default_factory=dict)
    ended: set[Mark] = field(default_factory=set)


def read_cpus(
    space: Space, programs: Programs, progress: Progress | None = None
) -> tuple[list[DevicePart], tuple[Instance, ...], list[str]]:
    """Every device of XLA's on a host, the steps they ran, and what is to be said about them."""
    plane = next((plane for plane in space.planes if plane.name == HOST_PLANE), None)
    if plane is None or _THUNK not in plane.stat_ids:
        return [], (), []
    host = read_host(space, runs=True)
    spans = _runs(space, plane) if host.annotations else {}
    ids = _runs_of_steps(space, plane, host, spans)
    asked = [
        TotalsOf(line=line, by=_BY, distinct=(_RUN,), having=(_THUNK,), nested=True, steps=step_lookup(ids, _RUN), intervals=True)
        for line in plane.lines
        if line.length
    ]
    tables = [totals for totals in read_totals(space, asked, progress=progress) if len(totals)]
    keys = list(_keys(tables, programs))
    devices = sorted({key.device for key in keys})
    parts = []
    for device in devices:
        mine = [key for key in keys if key.device == device]
        wall = max(key.last_ps for key in mine) - min(key.first_ps for key in mine)
        # Threads that serve several devices are shared out by what each ran.
        busy = union(totals.intervals for totals in tables)[1] if len(devices) == 1 else sum(key.self_ps for key in mine)
        cells = _cells(mine, tables)
        parts.append(
            DevicePart(
                plane=f"{HOST_PLANE} device {device}",
                ordinal=device,
                name="CPU",
                rates={},
                wall_ps=wall,
                busy_ps=min(busy, wall),
                rows=_rows(mine, cells),
                steps=_extents(ids, spans, cells),
            )
        )
    return parts, host.instances, [*host.notes, *(note for totals in tables for note in totals.notes)]


def _keys(tables: Sequence[Totals], programs: Programs) -> Iterator[_Key]:
    for thread, totals in enumerate(tables):
        for row in range(len(totals)):
            id, said, operation, device = (totals.by[name][row] for name in _BY)
            name, module = str(operation).rpartition("::")[2], str(said or "")
            program = programs.get(id if isinstance(id, int) else None, module)
            place = program.find(name) if program is not None else None
            yield _Key(
                thread=thread,
                row=row,
                device=device if isinstance(device, int) else 0,
                subject=program.subject(place) if program is not None and place is not None else _unpriced(name, module, id),
                program=program,
                place=place,
                count=totals.count[row],
                runs=totals.distinct[_RUN][row],
                time_ps=totals.time_ps[row],
                self_ps=totals.self_ps[row],
                first_ps=totals.first_ps[row],
                last_ps=totals.last_ps[row],
            )


def _unpriced(name: str, module: str, id: object) -> Subject:
    why = "its instruction was not found: the profile has no program for it"
    return Subject(name=name, module=module, program=str(id), category="unknown", cost=UNKNOWN, notes=(why,))


def _cells(keys: Sequence[_Key], tables: Sequence[Totals]) -> _Cells:
    """What the keys of one device did in steps; executions still are events."""
    found = _Cells({(key.thread, key.row): {} for key in keys})
    for thread, totals in enumerate(tables):
        table = totals.cells
        for row, label, count, time_ps, self_ps in zip(table.key, table.label, table.count, table.time_ps, table.self_ps, strict=True):
            steps, mark = found.keys.get((thread, row)), mark_of(label)
            if steps is not None:
                steps.setdefault(mark, Share()).add(Share(count, time_ps))
                found.busy_ps[mark] = found.busy_ps.get(mark, 0) + self_ps
                if is_last(label):
                    found.ended.add(mark)
    return found


def _rows(keys: Sequence[_Key], cells: _Cells) -> dict[Subject, Tally]:
    mine: dict[Subject, list[_Key]] = {}
    for key in keys:
        mine.setdefault(key.subject, []).append(key)
    runs = _module_runs(keys)
    rows = {}
    for subject, pieces in mine.items():
        events = sum(key.count for key in pieces)
        executions = _executions(pieces[0], events, runs)
        tally = Tally(executions, events, sum(key.time_ps for key in pieces), sum(key.self_ps for key in pieces))
        for key in pieces:
            for mark, share in cells.keys[key.thread, key.row].items():
                tally.steps.setdefault(mark, Share()).add(share)
        for share in tally.steps.values():
            share.executions = -(-share.executions * executions // events)
        rows[subject] = tally
    return rows


def _module_runs(keys: Sequence[_Key]) -> dict[Program, int]:
    """How often each program ran: as often as the usual instruction of its entry."""
    seen: dict[Program, dict[Place, int]] = {}
    for key in keys:
        if key.program is not None and key.place is not None and key.place.computation == key.program.module.entry:
            places = seen.setdefault(key.program, {})
            places[key.place] = places.get(key.place, 0) + key.runs
    return {program: sorted(places.values())[len(places) // 2] for program, places in seen.items()}


def _executions(key: _Key, events: int, runs: Mapping[Program, int]) -> int:
    """How often an instruction ran: as often as its computation does in the runs of its program, if that can be told."""
    if key.program is None or key.place is None:
        return events
    times = key.program.runs(key.place.computation)
    expected = runs.get(key.program, 0) * (times or 0)
    return min(events, expected) if expected else events


def _runs(space: Space, plane: Plane) -> dict[int, tuple[int, int]]:
    """The runs of programs that thunks belong to: when the first began, and the last ended."""
    spans: dict[int, tuple[int, int]] = {}
    for totals in read_totals(space, [TotalsOf(line=line, by=(_RUN,), having=(_THUNK,)) for line in plane.lines if line.length]):
        column = totals.by[_RUN]
        for row, first, last in zip(range(len(totals)), totals.first_ps, totals.last_ps, strict=True):
            run = column[row]
            if isinstance(run, int):
                begin, end = spans.get(run, (first, last))
                spans[run] = (min(begin, first), max(end, last))
    return spans


def _runs_of_steps(space: Space, plane: Plane, host: Host, spans: Mapping[int, tuple[int, int]]) -> list[list[int]]:
    """The runs of each step: those the host says it started in it.

    Where it does not say which, but started as many as there are, ids are in the order of starts; else those that began in it count.
    """
    named = host.ids(host.runs)
    if any(named):
        return named
    ids = sorted(spans)
    starts = [id for id, name in plane.event_names.items() if _STARTS in name]
    tables = read_rows(space, [RowsOf(line=line, only=starts) for line in plane.lines if line.length]) if starts and ids else []
    started = sorted(start for rows in tables for start in rows.start_ps)
    return host.ids([Launches(_ANY_THREAD, started if len(started) == len(ids) else [spans[id][0] for id in ids], ids)])


def _extents(ids: Sequence[Sequence[int]], spans: Mapping[int, tuple[int, int]], cells: _Cells) -> dict[Mark, Extent]:
    found: dict[Mark, Extent] = {}
    for mark, mine in enumerate(ids):
        known = [spans[id] for id in mine if id in spans]
        if known and mark in cells.busy_ps:
            wall = max(end for _, end in known) - min(begin for begin, _ in known)
            found[mark] = Extent(wall, min(cells.busy_ps[mark], wall), mark in cells.ended)
    return found
