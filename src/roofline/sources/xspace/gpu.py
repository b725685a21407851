"""GPUs: kernels, copies and memsets on streams, each attributed to the HLO instruction that launched it.

An event outside of CUDA graphs names its instruction (``hlo_op``); inside a graph the instruction is found from the node (`graphs`).
Everything that one instruction launches is one operation, including helper kernels, memsets and copies; an execution counts once, however
many kernels it has.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import add

from msgspec import Struct
from msgspec.structs import replace

from ...errors import SourceError
from ...workload import Device
from ..idle import source_files
from ..parts import AUTOTUNED, NAME_LOST, UNKNOWN, DevicePart, Extent, Lane, Launched, Mark, Share, Subject, Tally
from ..timeline import Span, spans, with_host, with_lanes, with_timeline
from .commands import launching_places
from .compilation import Compilations, changed_shapes
from .extents import extents
from .graphs import Graph, RanNode, Resolved, resolve
from .idle import IdleDevice, explain, look
from .kernels import LAUNCH, Key, count_executions, keys_of, requests, split_autotuned
from .modules import Place, Program, Programs
from .peaks import gpu_hardware, gpu_name, gpu_rates, ordinal
from .program_runs import DeviceTimes, ProgramSteps, RunIntervals, run_intervals
from .program_runs import Program as ProgramId
from .scan import Plane, Progress, Space, Totals, read_totals, union
from .steps import NO_MARK, Host, is_autotuned, is_last, mark_of, step_lookup
from .timeline import lanes

Cells = Mapping[Key, Mapping[Mark, tuple[int, int]]]


def read_gpus(
    space: Space,
    planes: Sequence[Plane],
    programs: Programs,
    host: Host,
    compiled: Compilations,
    progress: Progress | None = None,
    *,
    timeline: bool = False,
    warm: Callable[[], Collection[Mark]] = tuple,
) -> tuple[list[DevicePart], list[str]]:
    """Every GPU of a profile, with its timeline if requested, and notes.

    If ``host`` has no annotations, its annotations are set to the runs of the program with the most time. ``warm`` returns the steps of the
    warm-up.
    """
    intervals = RunIntervals() if host.annotations else run_intervals(host.executed, host.launches)
    steps = step_lookup(intervals.ids or host.ids(host.launches), LAUNCH, compiled.autotuned_ids(host.launches))
    asked = [(plane, request) for plane in planes for request in requests(plane, steps)]
    tables = read_totals(space, [request for _, request in asked], progress=progress, meanwhile=lambda: _price_ahead(programs, host))
    devices, notes = list[_Device](), list[str]()
    for plane in planes:
        mine = [totals for (owner, _), totals in zip(asked, tables, strict=True) if owner is plane and len(totals)]
        notes += [note for totals in mine for note in totals.notes]
        if not mine:
            continue
        devices.append(_Device(plane, mine, programs, host))
        notes += devices[-1].notes
        if dropped := plane.stat("dropped_traces"):
            notes.append(f"{plane.name}: the profiler dropped events ({dropped}); times and counts are too low")
    if intervals.spans:
        notes += _make_steps(devices, intervals, host)
    parts = [device.part() for device in devices]
    waiting = [IdleDevice(busy=device.busy, steps=part.steps, streams=device.lines) for device, part in zip(devices, parts, strict=True)]
    users = source_files(subject for part in parts for subject in part.rows)
    idle = explain(look(space, waiting, host), users, lambda function: changed_shapes(programs, function))
    parts = [replace(part, idle=mine.reasons) for part, mine in zip(parts, idle, strict=True)]
    if timeline:
        found = _lanes(space, with_timeline(devices), parts, warm())
        parts = with_lanes(parts, [with_host(lanes, mine.pauses) for lanes, mine in zip(found, idle, strict=False)])
    return parts, notes


def _make_steps(devices: "Sequence[_Device]", intervals: RunIntervals, host: Host) -> list[str]:
    """Makes a step of each run of the program with the most time; returns notes."""
    found = intervals.steps([device.times() for device in devices])
    host.annotations = found.annotations
    for device in devices:
        device.program_steps = found
    return [found.note] if found.note else []


def _lanes(space: Space, devices: "Sequence[_Device]", parts: Sequence[DevicePart], warm: Collection[Mark]) -> list[tuple[Lane, ...]]:
    """The timelines of the first devices; reads their streams a second time."""
    shown = spans(parts, warm)
    buckets = tuple(span.buckets for span in shown)
    asked = [request for device in devices for request in requests(device.plane, None, [totals.line for totals in device.tables], buckets)]
    tables = iter(read_totals(space, asked))
    return [device.lanes(shown, [next(tables) for _ in device.tables], part.rows) for device, part in zip(devices, parts, strict=False)]


def _price_ahead(programs: Programs, host: Host) -> None:
    """Prices the instructions of the programs that the host executed, while their events are still being read."""
    for program in programs.expect(host.executions):
        for place in launching_places(program):
            program.subject(place)


def gpu_device(plane: Plane) -> Device:
    """The device of a plane, as far as it is described."""
    return Device(id=ordinal(plane), name=gpu_name(plane), rates=gpu_rates(plane), hardware=gpu_hardware(plane))


class _Owner(Struct, frozen=True):
    """The operation that a key belongs to, and its instruction, if it has one."""

    subject: Subject
    program: Program | None = None
    place: Place | None = None


class _Device:
    """One GPU: attributes keys to operations, and sums these up."""

    def __init__(self, plane: Plane, tables: Sequence[Totals], programs: Programs, host: Host) -> None:
        self.plane, self.tables, self.programs, self.host = plane, tables, programs, host
        self.notes: list[str] = []
        self.program_steps: ProgramSteps | None = None
        self.lines = [totals.line for totals in tables]
        self.busy = union(totals.intervals for totals in tables)[0] if len(tables) > 1 else tables[0].intervals
        self.streams = [keys_of(plane, stream, totals) for stream, totals in enumerate(tables)]
        self.autotuned = self._split_autotuned()
        self.keys = [*(key for keys in self.streams for key in keys if not key.autotuned), *self.autotuned.values()]
        self.owners: dict[Key, _Owner] = {}
        nodes: dict[Program, list[Key]] = {}
        for key in self.keys:
            program = self._program(key)
            if key.autotuned:
                self.owners[key] = _Owner(AUTOTUNED)
            elif key.node is None or program is None or program.find(_innermost(key.operation)):
                self.owners[key] = self._plain(key, program)
            else:
                nodes.setdefault(program, []).append(key)
        for program, keys in nodes.items():
            self._resolve(program, keys)

    def _split_autotuned(self) -> dict[Key, Key]:
        """Splits off the events that compilers launched.

        In ``streams``, replaces each key that has such events by its other part, or, if it has none, by the autotuned part. Returns the
        autotuned part by the key in ``streams``.
        """
        found: dict[Key, Key] = {}
        for keys, totals in zip(self.streams, self.tables, strict=True):
            cells, sums_by_row = totals.cells, dict[int, tuple[int, int, int]]()
            for row, label, *sums in zip(cells.key, cells.label, cells.count, cells.time_ps, cells.self_ps, strict=True):
                if is_autotuned(label):
                    count, time_ps, self_ps = map(add, sums_by_row.get(row, (0, 0, 0)), sums)
                    sums_by_row[row] = count, time_ps, self_ps
            for row, part in sums_by_row.items():
                other, autotuned = split_autotuned(keys[row], *part)
                keys[row] = other or autotuned
                found[keys[row]] = autotuned
        return found

    def _program(self, key: Key) -> Program | None:
        return self.programs.get(key.program, key.module) if key.operation else None

    def _plain(self, key: Key, program: Program | None) -> _Owner:
        """The owner of events that are not nodes of a known graph: the instruction they name, the runtime's copy or memset, or unknown."""
        name = _innermost(key.operation)
        place = program.find(name) if program else None
        if program and place:
            return _Owner(program.subject(place), program, place)
        if not self.plane.whole and not key.is_copy and not key.is_memset:
            return _Owner(_lost(key, NAME_LOST))
        if key.node is not None:
            return _Owner(_lost(key, "the profile has no program for its CUDA graph"))
        if key.operation:
            why = "its instruction is not in the program" if program else "the profile has no program for it"
            return _Owner(Subject(name=name, module=key.module, program=str(key.program), category="unknown", cost=UNKNOWN, notes=(why,)))
        if key.is_copy or key.is_memset:
            name, category = (key.kernel, "copy") if key.is_copy else ("Memset", "memset")
            return _Owner(Subject(name=name, category=category, towards=key.towards, bytes_provenance="profile"))
        return _Owner(Subject(name=key.kernel, category="runtime", cost=UNKNOWN, notes=("no operation launched it",), found=False))

    def _resolve(self, program: Program, keys: Sequence[Key]) -> None:
        """Finds the instructions of the nodes of a program's CUDA graphs."""
        graphs: dict[int, Graph] = {}
        for key in keys:
            id = key.graph or 0
            graph = graphs.setdefault(id, Graph(id, key.operation, key.scope, commands=self.host.graph_commands.get(id)))
            graph.add(key.index, RanNode(key.kernel, key.first_ps), key.launches)
        outside: dict[Place, int] = {}
        for key, owner in self.owners.items():
            if owner.program is program and owner.place is not None:
                outside[owner.place] = max(outside.get(owner.place, 0), key.scopes or key.count)
        try:
            found = resolve(program, list(graphs.values()), outside)
        except SourceError as error:  # attributes are parsed on first use
            self.notes.append(f"{error}; its CUDA graphs cannot be matched to ops")
            found = {id: Resolved() for id in graphs}
        for id, graph in graphs.items():
            self.notes += [f"uncertain match of kernels to ops in {program.name}, {graph.label}: {doubt}" for doubt in found[id].doubts]
            if graph.loops:
                self.notes.append(
                    f"{program.name}, {graph.label}: the profiler records one iteration of each loop in this CUDA graph; "
                    "their times and counts are too low"
                )
        for key in keys:
            resolved = found[key.graph or 0]
            place = resolved.places.get(key.index)
            if place is None:
                self.owners[key] = _Owner(_lost(key, "its CUDA graph node matches no instruction"))
                continue
            subject = program.subject(place)
            if resolved.doubts:
                subject = replace(subject, notes=(*subject.notes, f"uncertain match: {'; '.join(resolved.doubts)}"))
            self.owners[key] = _Owner(subject, program, place)

    def part(self) -> DevicePart:
        """The device's operations, steps and times."""
        starts = [totals.start_ps for totals in self.tables if totals.start_ps is not None]
        ends = [totals.end_ps for totals in self.tables if totals.end_ps is not None]
        wall = max(ends) - min(starts) if starts and ends else 0
        busy = sum(self.busy[1::2]) - sum(self.busy[0::2])
        return DevicePart(
            plane=self.plane.name,
            ordinal=ordinal(self.plane),
            name=gpu_name(self.plane),
            rates=gpu_rates(self.plane),
            wall_ps=wall,
            busy_ps=min(busy, wall),
            rows=self._rows(),
            steps=self._steps(),
            begin_ps=min(starts, default=0),
            hardware=gpu_hardware(self.plane),
        )

    def lanes(self, shown: Sequence[Span], tables: Sequence[Totals], rows: Iterable[Subject]) -> tuple[Lane, ...]:
        """The device's timeline, from tables with buckets, which have the same keys as ``self.tables``."""
        places = {subject: place for place, subject in enumerate(rows)}
        return lanes(shown, tables, [[places[self.owners[key].subject] for key in keys] for keys in self.streams])

    def _rows(self) -> dict[Subject, Tally]:
        mine: dict[Subject, list[Key]] = {}
        for key in self.keys:
            mine.setdefault(self.owners[key].subject, []).append(key)
        hidden, cells = self._hidden(), self._cells()
        return {subject: self._tally(keys, hidden.get(subject, 0), cells) for subject, keys in mine.items()}

    def _hidden(self) -> dict[Subject, int]:
        """The time for which kernels of an operation overlapped an earlier kernel of the same execution."""
        hidden: dict[Subject, int] = {}
        for keys, totals in zip(self.streams, self.tables, strict=True):
            overlaps = totals.overlaps
            for covering, covered, time_ps in zip(overlaps.covering, overlaps.covered, overlaps.time_ps, strict=True):
                subject = self.owners[keys[covered]].subject
                if self.owners[keys[covering]].subject == subject:
                    hidden[subject] = hidden.get(subject, 0) + time_ps
        return hidden

    def _cells(self) -> Cells:
        """Events and time of each key in each step."""
        found: dict[Key, dict[Mark, tuple[int, int]]] = {key: {} for key in self.keys}
        for keys, totals in zip(self.streams, self.tables, strict=True):
            cells = totals.cells
            for row, label, count, time_ps in zip(cells.key, cells.label, cells.count, cells.time_ps, strict=True):
                mark = self._mark(label)
                if mark == NO_MARK:
                    continue
                marks = found[self.autotuned[keys[row]] if is_autotuned(label) else keys[row]]
                known = marks.get(mark, (0, 0))
                marks[mark] = (known[0] + count, known[1] + time_ps)
        return found

    def _tally(self, keys: Sequence[Key], hidden: int, cells: Cells) -> Tally:
        raw = sum([key.time_ps for key in keys])
        pieces = [(key, self._executions(key)) for key in keys]
        tally = Tally(
            executions=count_executions(pieces),
            kernels=sum([key.count for key in keys]),
            time_ps=raw - hidden,
            self_ps=sum([key.self_ps for key in keys]),
            launched=[Launched(key.kernel, key.first_ps, key.grid, key.count, block=key.block) for key in keys],
        )
        steps: dict[Mark, list[tuple[Key, int]]] = {}
        times: dict[Mark, int] = {}
        for key, executions in pieces:
            for mark, (count, time_ps) in cells[key].items():
                steps.setdefault(mark, []).append((key, -(-count * executions // key.count)))
                times[mark] = times.get(mark, 0) + time_ps
            if not key.operation and not key.autotuned:
                for resource, amount in key.moved.items():
                    tally.amounts[resource] = tally.amounts.get(resource, 0) + amount * key.count
        for mark, time_ps in times.items():
            # Overlaps are not known per step: they are shared in proportion to time.
            tally.steps[mark] = Share(count_executions(steps[mark]), time_ps * (raw - hidden) // raw if raw else 0)
        return tally

    def times(self) -> DeviceTimes:
        """The time of each program, in total and in each interval of the host's time."""
        programs, by_interval = dict[ProgramId, tuple[int, int]](), dict[int, dict[ProgramId, int]]()
        for keys, totals in zip(self.streams, self.tables, strict=True):
            for key in keys:
                if key.module and not key.autotuned:
                    time_ps, count = programs.get((key.module, key.program or 0), (0, 0))
                    programs[key.module, key.program or 0] = time_ps + key.time_ps, count + 1
            cells = totals.cells
            for row, label, time_ps in zip(cells.key, cells.label, cells.time_ps, strict=True):
                program = (keys[row].module, keys[row].program or 0)
                if program in programs and mark_of(label) != NO_MARK:
                    mine = by_interval.setdefault(mark_of(label), {})
                    mine[program] = mine.get(program, 0) + time_ps
        return DeviceTimes(programs, by_interval)

    def _executions(self, key: Key) -> int:
        """The executions of its operation in which a key ran: each run of a graph node is one; outside of graphs each scope is one."""
        if key.node is not None or not key.operation or key.autotuned:
            return key.count
        if key.scopes:
            return key.scopes
        # On AMD there are no scopes: an instruction runs as often as its computation runs in all runs of its module.
        owner, runs = self.owners[key], self.host.executions.get(key.module)
        times = owner.program.runs(owner.place.computation) if owner.program and owner.place else None
        return min(key.count, runs * times) if runs and times else key.count

    def _steps(self) -> dict[Mark, Extent]:
        """The extent of each step over all streams. A step is complete if the work of its last launch was recorded."""
        labels = {label for totals in self.tables for label in totals.cells.label if is_last(label)}
        lasts = self.program_steps.lasts if self.program_steps else None
        ended = {self._mark(label) for label in labels if lasts is None or mark_of(label) in lasts}
        found = extents(self.tables, self._mark, ended)
        return {mark: extent for mark, extent in found.items() if mark != NO_MARK}

    def _mark(self, label: int) -> Mark:
        """The step of a label: its own if the host annotated steps, else the step that its interval belongs to."""
        mark = mark_of(label)
        if self.program_steps is None or mark == NO_MARK:
            return mark
        return self.program_steps.marks[mark] if self.program_steps.marks else NO_MARK


def _innermost(operation: str) -> str:
    """The innermost instruction of nested scopes: ``fusion.3`` of ``while.5::fusion.3``."""
    return operation.rpartition("::")[2]


def _lost(key: Key, why: str) -> Subject:
    return Subject(
        name=key.kernel, module=key.module, program=str(key.program), category="unknown", cost=UNKNOWN, notes=(why,), found=False
    )
