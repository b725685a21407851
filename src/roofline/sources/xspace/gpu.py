"""GPUs: kernels, copies and memsets on streams, each attributed to the HLO instruction that launched it.

An event outside of CUDA graphs names its instruction (``hlo_op``); in a graph its node does (`graphs`). Everything one instruction
launches is one operation: helper kernels, memsets and copies are folded into it, and an execution counts once however many kernels it has.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import add

from msgspec import Struct
from msgspec.structs import replace

from ...errors import SourceError
from ..idle import source_files
from ..parts import AUTOTUNING, NAME_LOST, UNKNOWN, DevicePart, Extent, Lane, Launched, Mark, Share, Subject, Tally
from ..timeline import Span, spans, with_host, with_lanes, with_timeline
from .commands import launching
from .compilation import Compilations, changed_shapes
from .extents import extents
from .graphs import Graph, Resolved, Seen, resolve
from .idle import IdleDevice, explain, look
from .kernels import LAUNCH, Key, keys_of, requests, together, tried_apart
from .modules import Place, Program, Programs
from .peaks import gpu_hardware, gpu_name, gpu_rates, ordinal
from .program_runs import Program as ProgramId
from .program_runs import ProgramSteps, Ran, Stretches, stretches
from .scan import Plane, Progress, Space, Totals, read_totals, union
from .steps import NO_MARK, Host, is_last, mark_of, step_lookup, was_tried
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

    Where the host has no annotations, it gets those of the longest program's runs. ``warm`` are the steps that belong to the warm-up.
    """
    unmarked = Stretches() if host.annotations else stretches(host.executed, host.launches)
    steps = step_lookup(unmarked.ids or host.ids(host.launches), LAUNCH, compiled.tried(host.launches))
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
    if unmarked.spans:
        notes += _count_runs(devices, unmarked, host)
    parts = [device.part() for device in devices]
    waiting = [IdleDevice(busy=device.busy, steps=part.steps, streams=device.lines) for device, part in zip(devices, parts, strict=True)]
    users = source_files(subject for part in parts for subject in part.rows)
    idle = explain(look(space, waiting, host), users, lambda function: changed_shapes(programs, function))
    parts = [replace(part, idle=mine.reasons) for part, mine in zip(parts, idle, strict=True)]
    if timeline:
        found = _lanes(space, with_timeline(devices), parts, warm())
        parts = with_lanes(parts, [with_host(lanes, mine.pauses) for lanes, mine in zip(found, idle, strict=False)])
    return parts, notes


def _count_runs(devices: "Sequence[_Device]", unmarked: Stretches, host: Host) -> list[str]:
    """Makes a step of each run of the longest program; returns notes."""
    found = unmarked.steps([device.ran() for device in devices])
    host.annotations = found.annotations
    for device in devices:
        device.counted = found
    return [found.note] if found.note else []


def _lanes(space: Space, devices: "Sequence[_Device]", parts: Sequence[DevicePart], warm: Collection[Mark]) -> list[tuple[Lane, ...]]:
    """The timelines of the first devices, for which their streams are read once more."""
    shown = spans(parts, warm)
    buckets = tuple(span.buckets for span in shown)
    asked = [request for device in devices for request in requests(device.plane, None, [totals.line for totals in device.tables], buckets)]
    tables = iter(read_totals(space, asked))
    return [device.lanes(shown, [next(tables) for _ in device.tables], part.rows) for device, part in zip(devices, parts, strict=False)]


def _price_ahead(programs: Programs, host: Host) -> None:
    """Prices the instructions of the programs that the host executed, before their events need them."""
    for program in programs.expect(host.executions):
        for place in launching(program):
            program.subject(place)


class _Owner(Struct, frozen=True):
    """What a key belongs to, and the instruction that is, if it is one."""

    subject: Subject
    program: Program | None = None
    place: Place | None = None


class _Device:
    """One GPU: its keys led to operations, and these summed up."""

    def __init__(self, plane: Plane, tables: Sequence[Totals], programs: Programs, host: Host) -> None:
        self.plane, self.tables, self.programs, self.host = plane, tables, programs, host
        self.notes: list[str] = []
        self.counted: ProgramSteps | None = None
        self.lines = [totals.line for totals in tables]
        self.busy = union(totals.intervals for totals in tables)[0] if len(tables) > 1 else tables[0].intervals
        self.streams = [keys_of(plane, stream, totals) for stream, totals in enumerate(tables)]
        self.tried = self._tried()
        self.keys = [*(key for keys in self.streams for key in keys if not key.tried), *self.tried.values()]
        self.owners: dict[Key, _Owner] = {}
        nodes: dict[Program, list[Key]] = {}
        for key in self.keys:
            program = self._program(key)
            if key.tried:
                self.owners[key] = _Owner(AUTOTUNING)
            elif key.node is None or program is None or program.find(_innermost(key.operation)):
                self.owners[key] = self._plain(key, program)
            else:
                nodes.setdefault(program, []).append(key)
        for program, keys in nodes.items():
            self._resolve(program, keys)

    def _tried(self) -> dict[Key, Key]:
        """Sets apart the events that compilers launched: from what is left of a key to what is apart, or from that to itself."""
        found: dict[Key, Key] = {}
        for keys, totals in zip(self.streams, self.tables, strict=True):
            cells, apart = totals.cells, dict[int, tuple[int, int, int]]()
            for row, label, *sums in zip(cells.key, cells.label, cells.count, cells.time_ps, cells.self_ps, strict=True):
                if was_tried(label):
                    count, time_ps, self_ps = map(add, apart.get(row, (0, 0, 0)), sums)
                    apart[row] = count, time_ps, self_ps
            for row, part in apart.items():
                left, tried = tried_apart(keys[row], *part)
                keys[row] = left or tried
                found[keys[row]] = tried
        return found

    def _program(self, key: Key) -> Program | None:
        return self.programs.get(key.program, key.module) if key.operation else None

    def _plain(self, key: Key, program: Program | None) -> _Owner:
        """What an event says of itself: an instruction, a copy or a memset of the runtime, or nothing."""
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
        """Nodes of CUDA graphs of one program."""
        graphs: dict[int, Graph] = {}
        for key in keys:
            id = key.graph or 0
            graph = graphs.setdefault(id, Graph(id, key.operation, key.scope, commands=self.host.graph_commands.get(id)))
            graph.add(key.index, Seen(key.kernel, key.first_ps), key.launches)
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
        """What ran, and when."""
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
        """Its timeline, from tables by bucket that have the same keys as those it was made from."""
        places = {subject: place for place, subject in enumerate(rows)}
        return lanes(shown, tables, [[places[self.owners[key].subject] for key in keys] for keys in self.streams])

    def _rows(self) -> dict[Subject, Tally]:
        mine: dict[Subject, list[Key]] = {}
        for key in self.keys:
            mine.setdefault(self.owners[key].subject, []).append(key)
        hidden, cells = self._hidden(), self._cells()
        return {subject: self._tally(keys, hidden.get(subject, 0), cells) for subject, keys in mine.items()}

    def _hidden(self) -> dict[Subject, int]:
        """How long kernels of one operation ran while an earlier one of the same execution had not ended."""
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
                marks = found[self.tried[keys[row]] if was_tried(label) else keys[row]]
                known = marks.get(mark, (0, 0))
                marks[mark] = (known[0] + count, known[1] + time_ps)
        return found

    def _tally(self, keys: Sequence[Key], hidden: int, cells: Cells) -> Tally:
        raw = sum([key.time_ps for key in keys])
        pieces = [(key, self._executions(key)) for key in keys]
        tally = Tally(
            executions=together(pieces),
            kernels=sum([key.count for key in keys]),
            time_ps=raw - hidden,
            self_ps=sum([key.self_ps for key in keys]),
            launched=[Launched(key.kernel, key.first_ps, key.grid, key.count) for key in keys],
        )
        steps: dict[Mark, list[tuple[Key, int]]] = {}
        times: dict[Mark, int] = {}
        for key, executions in pieces:
            for mark, (count, time_ps) in cells[key].items():
                steps.setdefault(mark, []).append((key, -(-count * executions // key.count)))
                times[mark] = times.get(mark, 0) + time_ps
            if not key.operation and not key.tried:
                for resource, amount in key.moved.items():
                    tally.amounts[resource] = tally.amounts.get(resource, 0) + amount * key.count
        for mark, time_ps in times.items():
            # What overlaps hide is not known step by step: each bears its part.
            tally.steps[mark] = Share(together(steps[mark]), time_ps * (raw - hidden) // raw if raw else 0)
        return tally

    def ran(self) -> Ran:
        """What ran in each stretch of the host's time, by program."""
        programs, stretched = dict[ProgramId, tuple[int, int]](), dict[int, dict[ProgramId, int]]()
        for keys, totals in zip(self.streams, self.tables, strict=True):
            for key in keys:
                if key.module and not key.tried:
                    time_ps, count = programs.get((key.module, key.program or 0), (0, 0))
                    programs[key.module, key.program or 0] = time_ps + key.time_ps, count + 1
            cells = totals.cells
            for row, label, time_ps in zip(cells.key, cells.label, cells.time_ps, strict=True):
                program = (keys[row].module, keys[row].program or 0)
                if program in programs and mark_of(label) != NO_MARK:
                    mine = stretched.setdefault(mark_of(label), {})
                    mine[program] = mine.get(program, 0) + time_ps
        return Ran(programs, stretched)

    def _executions(self, key: Key) -> int:
        """How many executions of its operation a key took part in: each run of a node is one, so is each scope outside of graphs."""
        if key.node is not None or not key.operation or key.tried:
            return key.count
        if key.scopes:
            return key.scopes
        # AMD has no scopes: an instruction runs as often as its computation does in the runs of its module.
        owner, runs = self.owners[key], self.host.executions.get(key.module)
        times = owner.program.runs(owner.place.computation) if owner.program and owner.place else None
        return min(key.count, runs * times) if runs and times else key.count

    def _steps(self) -> dict[Mark, Extent]:
        """The work of each step, on whichever stream. A step is complete if its last launch ran."""
        labels = {label for totals in self.tables for label in totals.cells.label}
        ended = {self._mark(label) for label in labels if is_last(label) and (not self.counted or mark_of(label) in self.counted.lasts)}
        found = extents(self.tables, self._mark, ended)
        return {mark: extent for mark, extent in found.items() if mark != NO_MARK}

    def _mark(self, label: int) -> Mark:
        """The step of a label: its own where the host marked steps, else the one that its stretch belongs to."""
        mark = mark_of(label)
        if self.counted is None or mark == NO_MARK:
            return mark
        return self.counted.marks[mark] if self.counted.marks else NO_MARK


def _innermost(operation: str) -> str:
    """The instruction of nested scopes, ``while.5::fusion.3``."""
    return operation.rpartition("::")[2]


def _lost(key: Key, why: str) -> Subject:
    return Subject(
        name=key.kernel, module=key.module, program=str(key.program), category="unknown", cost=UNKNOWN, notes=(why,), found=False
    )
