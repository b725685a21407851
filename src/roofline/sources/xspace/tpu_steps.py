"""Steps of TPUs: from the device's own "Steps" line, from the host's annotations, or from the runs of its main program.

All of them are intervals on the clock of events; operations have times on that clock and on the device's own.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from ..parts import Instance, Mark, numbered
from .scan import Line, Plane, RowsOf, Space, Steps, Totals, TotalsOf, read_rows, read_totals
from .steps import read_host

STEP_LINE, MODULE_LINE, RUN = "Steps", "XLA Modules", "run_id"
MOST_RUNS = 1_000  # of a program that count as steps without annotations
_CUT_OFF = 0.9  # a first or last step shorter than this share of the others was cut off by the recording
Span = tuple[Instance, int, int]  # a step on one device: which, begin, end


class DeviceSteps(Struct):
    """The steps of each device, by the name of its plane: begin, end and mark of each, and the steps that were recorded completely.

    ``programs`` has the runs of programs on each device, if they had to be read to find the steps.
    """

    spans: dict[str, list[tuple[int, int, Mark]]] = field(default_factory=dict)
    complete: dict[str, set[Mark]] = field(default_factory=dict)
    programs: dict[str, Totals] = field(default_factory=dict)

    def lookup(self, plane: str) -> Steps | None:
        """The lookup of an operation's step by its start."""
        return Steps.of(self.spans[plane]) if self.spans.get(plane) else None


def device_steps(space: Space, planes: Sequence[Plane]) -> tuple[DeviceSteps, tuple[Instance, ...], list[str]]:
    """The steps of all devices, their instances in order of first appearance, and notes on where they come from."""
    found = _marked(space, planes)
    notes = list[str]()
    if not found:
        found = _annotated(space, planes)
    steps = DeviceSteps()
    if not found:
        steps.programs = programs_of(space, planes)
        found, notes = _runs(space, planes, steps.programs)
    marks: dict[Instance, Mark] = {}
    for plane, spans in found.items():
        whole = _whole(spans)
        for instance, begin, end in spans:
            mark = marks.setdefault(instance, len(marks))
            steps.spans.setdefault(plane, []).append((begin, end, mark))
            if instance in whole:
                steps.complete.setdefault(plane, set()).add(mark)
    return steps, tuple(marks), notes


def _whole(spans: Sequence[Span]) -> set[Instance]:
    """The steps that were recorded completely: all except a first or last that is shorter than the others."""
    usual = sorted(end - begin for _, begin, end in spans)[len(spans) // 2]
    ends = (spans[0], spans[-1]) if len(spans) > 2 else ()
    cut = {instance for instance, begin, end in ends if end - begin < _CUT_OFF * usual}
    return {instance for instance, _, _ in spans} - cut


def _lines(planes: Iterable[Plane], name: str) -> list[tuple[Plane, Line]]:
    return [(plane, line) for plane in planes for line in plane.lines if line.name == name and line.length]


def _marked(space: Space, planes: Sequence[Plane]) -> dict[str, list[Span]]:
    """Steps that the devices marked themselves: events whose names are step numbers."""
    lines = _lines([plane for plane in planes if plane.event_names], STEP_LINE)  # a truncated plane may have lost its names
    found: dict[str, list[Span]] = {}
    for (plane, _), rows in zip(lines, read_rows(space, [RowsOf(line=line, stats=("step_num",)) for _, line in lines]), strict=True):
        labels: list[tuple[str, int | None]] = []
        for row in range(len(rows)):
            name, number = plane.event_names.get(rows.metadata_id[row], ""), rows.stats["step_num"][row]
            if isinstance(number, int):
                labels.append((name, number))
            else:
                labels.append(("", int(name)) if name.isdecimal() else (name, None))
        found[plane.name] = [
            (instance, rows.start_ps[row], rows.start_ps[row] + rows.duration_ps[row]) for row, instance in enumerate(numbered(labels))
        ]
    return {name: spans for name, spans in found.items() if spans}


def _annotated(space: Space, planes: Sequence[Plane]) -> dict[str, list[Span]]:
    """Steps that the host annotated: each consists of the runs of programs that the host started in it."""
    host = read_host(space, runs=True)
    if not host.annotations:
        return {}
    steps = {run: instance for instance, runs in zip(host.instances, host.ids(host.runs), strict=True) for run in runs}
    lines = _lines(planes, MODULE_LINE)
    found: dict[str, list[Span]] = {}
    for (plane, _), rows in zip(lines, read_rows(space, [RowsOf(line=line, stats=(RUN,)) for _, line in lines]), strict=True):
        for row in range(len(rows)):
            run = rows.stats[RUN][row]
            if isinstance(run, int) and run in steps:
                span = (steps[run], rows.start_ps[row], rows.start_ps[row] + rows.duration_ps[row])
                found.setdefault(plane.name, []).append(span)
    return found


def programs_of(space: Space, planes: Sequence[Plane]) -> dict[str, Totals]:
    """The runs of programs on each device, by the name of its plane, if they were recorded."""
    lines = _lines(planes, MODULE_LINE)
    tables = read_totals(space, [TotalsOf(line=line, intervals=True) for _, line in lines])
    return {plane.name: totals for (plane, _), totals in reversed([*zip(lines, tables, strict=True)])}  # the first line of that name


def _runs(space: Space, planes: Sequence[Plane], programs: Mapping[str, Totals]) -> tuple[dict[str, list[Span]], list[str]]:
    """Steps from the runs of the program with the most time, for profiles without step annotations; and notes."""
    ran = [(plane, programs[plane.name]) for plane in planes if plane.name in programs]
    time_ps: dict[str, int] = {}
    most: dict[str, int] = {}
    for plane, totals in ran:
        for id, count, time in zip(totals.metadata_id, totals.count, totals.time_ps, strict=True):
            name = plane.event_names.get(id)
            if name is None:  # lost in a truncated plane
                continue
            time_ps[name] = time_ps.get(name, 0) + time
            most[name] = max(most.get(name, 0), count)
    if not time_ps:
        return {}, []
    main = max(sorted(time_ps), key=lambda name: time_ps[name])
    short = main.partition("(")[0]
    if most[main] > MOST_RUNS:
        return {}, [f"no steps marked, and {short} ran {most[main]:,} times: its runs are not shown separately"]
    requests = [RowsOf(line=totals.line, only=_ids(plane.event_names, main)) for plane, totals in ran]
    found: dict[str, list[Span]] = {}
    for (plane, _), rows in zip(ran, read_rows(space, requests), strict=True):
        instances = [Instance(short, number) for number in range(len(rows))]
        found[plane.name] = [
            (instance, rows.start_ps[row], rows.start_ps[row] + rows.duration_ps[row]) for row, instance in enumerate(instances)
        ]
    return {name: spans for name, spans in found.items() if spans}, [f"no steps marked: each run of {short} counts as a step"]


def _ids(names: Mapping[int, str], name: str) -> list[int]:
    return [id for id, known in names.items() if known == name]
