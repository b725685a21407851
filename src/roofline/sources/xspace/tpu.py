"""TPUs: reads the "XLA Ops" line of each core by the device's own clock, with nested loops and joined asynchronous pairs.

The events' own offsets and durations are distorted; ``device_offset_ps`` and ``device_duration_ps`` are not. SparseCores are part of their
chip; their operations are separate.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from ...errors import SourceError
from ...workload import Device
from ..parts import NAME_LOST, UNKNOWN, DevicePart, Instance, Lane, PartGraph, Share, Subject, Tally, known_sum
from ..target import Target
from ..timeline import spans, with_host, with_lanes, with_timeline
from .extents import extents
from .peaks import ordinal, tpu_name, tpu_rates
from .scan import NO_STEP, Buckets, Line, Pair, Plane, Progress, Space, Totals, TotalsOf, read_totals, union
from .tpu_idle import look_between_runs, on_device_clock, tpu_idle
from .tpu_ops import TpuOp, link, needs_program, paired, subject, tpu_op, weight
from .tpu_steps import DeviceSteps, device_steps

if TYPE_CHECKING:
    from .modules import Program, Programs

_DEVICE, _SPARSE_CORE = "/device:TPU:", " SparseCore"
_OP_LINES = ("XLA Ops", "Sparse Core Ops")
STALL = "dma_stall_duration_ps"  # how long the core waited for DMA in an event


def read_tpus(
    space: Space, target: Target | None, progress: Progress | None = None, *, timeline: bool = False
) -> tuple[list[DevicePart], tuple[Instance, ...], list[str], tuple[PartGraph, ...]]:
    """Every TPU core of a profile, with its SparseCores, and its timeline if requested; their steps; notes; the graphs of programs."""
    modules = _Modules(space, target)
    chips: dict[str, list[_Core]] = {plane.name: [_Core(space, plane, modules)] for plane in space.planes if _is_core(plane.name)}
    for plane in space.planes:
        chip, sparse, _ = plane.name.partition(_SPARSE_CORE)
        if sparse and chip in chips:
            chips[chip].append(_Core(space, plane, modules, sparse=True))
    ready = [[core for core in cores if core.line is not None] for cores in chips.values()]
    planes = tuple(cores[0].plane for cores in ready if cores)
    steps, instances, notes = device_steps(space, planes)
    asked = [(core, core.request(steps, alone=len(cores) == 1)) for cores in ready for core in cores]
    look = cache(partial(look_between_runs, space, steps))

    def look_ahead() -> None:
        modules.prepare()
        with suppress(SourceError):  # raised again below, after errors in operations
            look(planes)

    tables = read_totals(space, [request for _, request in asked], progress=progress, meanwhile=look_ahead)
    for (core, _), totals in zip(asked, tables, strict=True):
        core.totals = totals
        notes += totals.notes
    chips_read = [cores for cores in ready if any(core.totals for core in cores)]
    parts = [_part(cores, steps) for cores in chips_read]
    devices = [(cores[0].plane, part) for cores, part in zip(chips_read, parts, strict=True)]
    waits = tpu_idle(look(tuple(plane for plane, _ in devices)), parts)  # read ahead and cached, unless a core ran nothing
    parts = [replace(part, idle=idle.reasons) for part, idle in zip(parts, waits, strict=True)]
    if timeline:
        found = _lanes(space, with_timeline(chips_read), parts)
        pauses = [
            on_device_clock(idle.pauses, plane, part, steps) for idle, (plane, part) in zip(waits, with_timeline(devices), strict=False)
        ]
        parts = with_lanes(parts, [with_host(lanes, mine) for lanes, mine in zip(found, pauses, strict=True)])
    graphs = modules.graphs(parts)
    return parts, instances, [*notes, *(note for core, _ in asked for note in core.notes), *modules.notes], graphs


def _is_core(plane: str) -> bool:
    return plane.startswith(_DEVICE) and plane.removeprefix(_DEVICE).isdecimal()


class _Modules:
    """The programs of a profile: their names from metadata, their HLO only when an operation needs it."""

    def __init__(self, space: Space, target: Target | None) -> None:
        self._space, self._target = space, target
        self._names = dict[int, str]()
        for plane in space.planes:
            if plane.name == "/host:metadata" or _is_core(plane.name):
                for name in plane.event_names.values():
                    module, _, id = name.rpartition("(")  # jit_f(123)
                    if id.endswith(")") and id[:-1].isdecimal():
                        self._names[int(id[:-1])] = module
        self._programs: Programs | None = None

    @property
    def notes(self) -> list[str]:
        """What could not be read or reviewed of the programs that were asked for."""
        return self._programs.notes if self._programs is not None else []

    def prepare(self) -> None:
        """Imports what reads programs, if the profile has any."""
        if self._names:
            self._embedded()

    def name(self, program: int | None) -> str:
        return self._names.get(program % 2**64, "") if program is not None else ""

    def get(self, op: TpuOp) -> "Program | None":
        """The program of an operation, if it is needed to price it."""
        return self._embedded().get(op.program) if op.program is not None and needs_program(op) else None

    def labelled(self, op: TpuOp, ran: Subject) -> Subject:
        """An operation with the label that its program gives it, where the profile has that."""
        program = self._embedded().readable(op.program) if op.program is not None else None
        place = program.find(op.name) if program is not None else None
        if program is None or place is None:
            return ran
        return replace(ran, label=program.review.label(*place, ran.scope, ran.location))

    def graphs(self, parts: Sequence[DevicePart]) -> tuple[PartGraph, ...]:
        """The graphs of the programs that ran and are in the profile."""
        graphs, operations = [], {operation: operation.program for part in parts for operation in part.rows if operation.program}
        for id in dict.fromkeys(operations.values()):
            program = self._embedded().readable(int(id))
            if program is None:
                continue
            ran = [operation for operation, of in operations.items() if of == id]
            places = {place: operation for operation in ran if (place := program.find(operation.name)) is not None}
            graphs += [] if (graph := program.graph(places)) is None else [graph]
        return tuple(graphs)

    def _embedded(self) -> "Programs":
        """The programs in the profile. The HLO reader is imported for an operation that needs it."""
        from ..target import network_for
        from .modules import Programs

        if self._programs is None:
            plane = next(plane for plane in self._space.planes if _is_core(plane.name))
            device = Device(id=ordinal(plane), name=tpu_name(plane), rates=tpu_rates(plane))
            self._programs = Programs(self._space, "tpu", network_for(self._target, device))
        return self._programs


class _Join(Struct):
    """An asynchronous operation: its start and its done."""

    start: TpuOp
    done: TpuOp


class _Core(Struct):
    """A core, its metadata, and the totals of its operations."""

    space: Space
    plane: Plane
    modules: _Modules
    sparse: bool = False
    totals: Totals | None = None
    joins: list[_Join] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _ops: dict[int, TpuOp] = field(default_factory=dict)

    @property
    def line(self) -> Line | None:
        return next((line for line in self.plane.lines if line.name in _OP_LINES and line.length), None)

    def op(self, id: int) -> TpuOp:
        known = self._ops.get(id)
        if known is None:
            metadata = self.plane.event(id)
            known = tpu_op(self.space, metadata, self.sparse) if metadata is not None else TpuOp(id=id, name=f"event {id}")
            self._ops[id] = known
        return known

    def request(self, steps: DeviceSteps, alone: bool) -> TotalsOf:
        """The scanner request for the core's operations."""
        self.joins = self._joins()
        assert self.line is not None
        return TotalsOf(
            line=self.line,
            device_clock=True,
            nested=True,
            sums=(STALL,) if STALL in self.plane.stat_ids else (),
            steps=steps.lookup(self.plane.name),
            intervals=not alone,
            pairs=tuple(
                Pair(start=join.start.id, done=join.done.id, group=link(join.start), weight=weight(join.start, join.done))
                for join in self.joins
            ),
        )

    def bucket_request(self, buckets: tuple[Buckets, ...], alone: bool) -> TotalsOf:
        """The scanner request for the core's operations in a timeline."""
        assert self.line is not None
        return TotalsOf(line=self.line, device_clock=True, nested=True, intervals=not alone, buckets=buckets)

    def _joins(self) -> list[_Join]:
        """Pairs of a start and the done that has it as operand, in the same program."""
        halves = [self.op(id) for id, name in self.plane.event_names.items() if "-start" in name or "-done" in name]
        starts = {(op.program, op.name): op for op in halves if op.is_start}
        found = []
        for done in halves:
            start = starts.pop((done.program, done.operand), None) if done.is_done else None
            if start is not None:
                found.append(_Join(start, done))
        return found

    def subjects(self) -> list[Subject]:
        """The operation of each row of the totals."""
        assert self.totals is not None
        halves = self._halves()
        return [self._subject(id) if id not in halves else self._joined(self.joins[halves[id]]) for id in self.totals.metadata_id]

    def _halves(self) -> dict[int, int]:
        """The asynchronous operation of each start and done, by metadata id."""
        return {half.id: number for number, join in enumerate(self.joins) for half in (join.start, join.done)}

    def _joined(self, join: _Join) -> Subject:
        whole = paired(join.start, join.done, self.modules.name(join.start.program), self.modules.get(join.start))
        return self.modules.labelled(join.start, whole)

    def rows(self) -> dict[Subject, Tally]:
        """The tally of each operation on the core."""
        assert self.totals is not None
        halves = self._halves()
        joined = [Tally() for _ in self.joins]
        rows: dict[Subject, Tally] = {}
        tallies = self._tallies()
        for row, tally in enumerate(tallies):
            number = halves.get(self.totals.metadata_id[row])
            if number is None:
                _add(rows, self._subject(self.totals.metadata_id[row]), tally)
            else:
                joined[number].kernels += tally.kernels
                joined[number].self_ps += tally.self_ps
                joined[number].dma_stall_ps = known_sum((joined[number].dma_stall_ps, tally.dma_stall_ps))
        self._add_pairs(joined)
        for join, tally in zip(self.joins, joined, strict=True):
            if tally.kernels:
                _add(rows, self._joined(join), tally)
        return rows

    def _subject(self, id: int) -> Subject:
        op = self.op(id)
        if not op.text:
            return Subject(name=op.name, category="unknown", cost=UNKNOWN, notes=(NAME_LOST,) if not self.plane.whole else (), found=False)
        return self.modules.labelled(op, subject(op, self.modules.name(op.program), self.modules.get(op)))

    def _tallies(self) -> list[Tally]:
        totals = self.totals
        assert totals is not None
        tallies = [
            Tally(executions, executions, time_ps, self_ps)
            for executions, time_ps, self_ps in zip(totals.count, totals.time_ps, totals.self_ps, strict=True)
        ]
        told = totals.sums.get(STALL)
        for row, tally in enumerate(tallies if not self.sparse else ()):
            op = self.op(totals.metadata_id[row])
            awaited_ps = tally.self_ps if op.is_done and not op.is_collective else 0  # from where the core needs the data to their arrival
            tally.dma_stall_ps = max(awaited_ps, min(round(told[row]) if told else 0, tally.self_ps))
        cells = totals.cells
        for row, label, executions, time_ps in zip(cells.key, cells.label, cells.count, cells.time_ps, strict=True):
            tallies[row].steps[label] = Share(executions, time_ps)
        return tallies

    def _add_pairs(self, joined: Sequence[Tally]) -> None:
        pairs = self.totals.pairs if self.totals is not None else None
        if pairs is None:
            return
        for number, label, executions, share_ps in zip(pairs.pair, pairs.label, pairs.count, pairs.share_ps, strict=True):
            time_ps = round(share_ps)
            tally = joined[number]
            tally.executions += executions
            tally.time_ps += time_ps
            if label == NO_STEP:
                continue
            known = tally.steps.setdefault(label, Share())
            known.executions += executions
            known.time_ps += time_ps
        if pairs.unpaired:
            self.notes.append(f"{self.plane.name}: {pairs.unpaired:,} asynchronous starts or ends have no counterpart")


def _part(cores: Sequence[_Core], steps: DeviceSteps) -> DevicePart:
    """A device, which is a chip or a part of one: its TensorCore and SparseCores."""
    main, tables = cores[0], [core.totals for core in cores if core.totals is not None]
    starts = [totals.start_ps for totals in tables if totals.start_ps is not None]
    ends = [totals.end_ps for totals in tables if totals.end_ps is not None]
    wall = max(ends) - min(starts) if starts and ends else 0
    busy = tables[0].busy_ps if len(tables) == 1 else union(totals.intervals for totals in tables)[1]
    rows: dict[Subject, Tally] = {}
    for core in cores:
        for found, tally in core.rows().items():
            _add(rows, found, tally)
    return DevicePart(
        plane=main.plane.name,
        ordinal=ordinal(main.plane),
        name=tpu_name(main.plane),
        rates=tpu_rates(main.plane),
        wall_ps=wall,
        busy_ps=min(busy, wall),
        rows=rows,
        steps=extents(tables, int, steps.complete.get(main.plane.name, ())),
        begin_ps=min(starts, default=0),
    )


def _lanes(space: Space, chips: Sequence[Sequence[_Core]], parts: Sequence[DevicePart]) -> list[tuple[Lane, ...]]:
    """The timelines of the first devices; reads their operations a second time."""
    from .timeline import lanes  # here because only timelines need it

    shown = spans(parts)
    buckets = tuple(span.buckets for span in shown)
    asked = [core.bucket_request(buckets, alone=len(cores) == 1) for cores in chips for core in cores]
    tables = iter(read_totals(space, asked))
    found = []
    for cores, part in zip(chips, parts, strict=False):
        places = {subject: place for place, subject in enumerate(part.rows)}
        owners = [[places[subject] for subject in core.subjects()] for core in cores]
        found.append(lanes(shown, [next(tables) for _ in cores], owners))
    return found


def _add(rows: dict[Subject, Tally], subject: Subject, tally: Tally) -> None:
    """Adds a tally of an operation to its row; the first tally becomes the row."""
    known = rows.setdefault(subject, tally)
    if known is not tally:
        known.add(tally)
