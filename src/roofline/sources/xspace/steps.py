"""Steps: the host's annotations, and the launches and runs that belong to each.

A step is one instance of an annotation (``StepTraceAnnotation``: an event with the stat ``_r``). Everything launched during it, on any
thread, belongs to it. Its name and number are only labels: different steps may have the same.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate, compress, pairwise

from msgspec import Struct, field

from ..parts import Instance, Mark, numbered
from .scan import Plane, Rows, RowsOf, Space, Steps, read_rows

HOST_PLANE = "/host:CPU"
_ROOT, _NUMBER, _LAUNCH, _COMMANDS = "_r", "step_num", "correlation_id", "num_commands"
_GRAPH, _MODULE, _RUN = "cuda_graph_id", "module_name", "run_id"
_RUNS_EXECUTE = "LoadedExecutable::Execute"  # the host's event for a run of a program; the device's event has the same run_id
_CALLS = "PjitFunction("  # the host's event for a call of a jitted function, which also copies its arguments to the device
_CAPTURES = "cuGraphCreate"  # has a correlation id, but launches nothing on the device
NO_MARK, _AUTOTUNED = -1, 2
_LOOK_BACK = 64  # rows before a launch that are searched for the event around it


class Annotation(Struct, frozen=True):
    """An annotated step, by the host's clock."""

    name: str
    number: int | None
    begin_ps: int
    end_ps: int
    line: int


class Launches(Struct, frozen=True):
    """The launches of one thread: their times, by the host's clock, and their ids."""

    line: int
    start_ps: Sequence[int]
    ids: Sequence[int]

    def between(self, begin_ps: int, end_ps: int) -> Sequence[int]:
        """The ids launched in a span of time."""
        return self.ids[bisect_left(self.start_ps, begin_ps) : bisect_left(self.start_ps, end_ps)]


class Run(Struct, frozen=True):
    """A start of a program by the host: its time, its thread, the name of the event, and when the function was called that runs it."""

    module: str
    begin_ps: int
    line: int
    event: str = ""
    called_ps: int | None = None


class Host(Struct):
    """Events of the host: steps, launches, the number of commands of each CUDA graph, and the executions of each module."""

    annotations: tuple[Annotation, ...] = ()
    launches: list[Launches] = field(default_factory=list)
    runs: list[Launches] = field(default_factory=list)
    graph_commands: dict[int, int] = field(default_factory=dict)
    executions: dict[str, int] = field(default_factory=dict)
    executed: list[Run] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    @property
    def begin_ps(self) -> int | None:
        """When the first annotated step began."""
        return self.annotations[0].begin_ps if self.annotations else None

    @property
    def instances(self) -> tuple[Instance, ...]:
        return numbered((annotation.name, annotation.number) for annotation in self.annotations)

    def ids(self, launches: Iterable[Launches]) -> list[list[int]]:
        """The ids launched in each step."""
        return launched_in(self.annotations, launches)


def launched_in(steps: Sequence[Annotation], launches: Iterable[Launches]) -> list[list[int]]:
    """The ids launched in each step; steps are in order of start. If steps overlap, only launches on a step's own thread belong to it."""
    found, ended = list[list[int]](), list(accumulate((step.end_ps for step in steps), max))
    for number, step in enumerate(steps):
        alone = (not number or ended[number - 1] <= step.begin_ps) and all(
            step.end_ps <= after.begin_ps for after in steps[number + 1 : number + 2]
        )
        mine = [one for one in launches if alone or one.line == step.line]
        found.append([id for one in mine for id in one.between(step.begin_ps, step.end_ps)])
    return found


def launch_times(steps: Sequence[Annotation], launches: Iterable[Launches]) -> dict[Mark, tuple[int, int]]:
    """The times of the host's first and last launch in each step; steps are in order of start."""
    found = dict[Mark, tuple[int, int]]()
    for mark, ids in enumerate(launched_in(steps, [Launches(one.line, one.start_ps, one.start_ps) for one in launches])):
        if ids:
            found[mark] = min(ids), max(ids)
    return found


def read_host(space: Space, *, launches: bool = False, runs: bool = False) -> Host:
    """The annotations of a profile and, if requested, launches (of GPU work, by correlation id) or runs (of programs, by run id)."""
    host = Host()
    plane = next((plane for plane in space.planes if plane.name == HOST_PLANE), None)
    if plane is None:
        return host
    having = [_ROOT, *((_LAUNCH, _COMMANDS, _MODULE) if launches else ())]
    wanted = [name for name in having if name in plane.stat_ids]
    if not wanted:
        return host
    executes = [id for id, name in plane.event_names.items() if _RUNS_EXECUTE in name] if runs and _ROOT in wanted else []
    if launches:
        executes += [id for id, name in plane.event_names.items() if name.startswith(_CALLS)]
    stats = (_ROOT, _NUMBER, _LAUNCH, _COMMANDS, _GRAPH, _MODULE, _RUN)
    requests = [RowsOf(line=line, stats=stats, having=tuple(wanted), only=executes) for line in plane.lines if line.length]
    roots: list[Annotation] = []
    for rows in read_rows(space, requests):
        roots += _roots(plane, rows)
        if launches:
            _add_launches(plane, rows, host)
        if runs:
            host.runs.append(_ids(rows, _RUN))
        host.notes += rows.notes
    host.annotations = tuple(sorted(roots, key=lambda root: (root.begin_ps, -root.end_ps)))
    return host


def _roots(plane: Plane, rows: Rows) -> list[Annotation]:
    """The outermost annotations of a thread."""
    marked, found = rows.stats[_ROOT], list[Annotation]()
    for row in compress(range(len(rows)), marked.kinds):
        begin, number = rows.start_ps[row], rows.stats[_NUMBER][row]
        if not marked[row] or (found and begin < found[-1].end_ps):
            continue
        name = plane.event_names.get(rows.metadata_id[row], "")
        found.append(Annotation(name, number if isinstance(number, int) else None, begin, begin + rows.duration_ps[row], rows.line.row))
    return found


def _ids(rows: Rows, stat: str) -> Launches:
    column = rows.stats[stat]
    return Launches(rows.line.row, list(compress(rows.start_ps, column.kinds)), list(compress(column.values, column.kinds)))


def _add_launches(plane: Plane, rows: Rows, host: Host) -> None:
    """Adds the launches of a thread, the number of commands of each graph (from the event around its launch), and runs of modules."""
    captures = {id for id, name in plane.event_names.items() if name.startswith(_CAPTURES)}
    launched = [row for row in compress(range(len(rows)), rows.stats[_LAUNCH].kinds) if rows.metadata_id[row] not in captures]
    starts, ids = rows.start_ps, rows.stats[_LAUNCH].values
    host.launches.append(Launches(rows.line.row, [starts[row] for row in launched], [ids[row] for row in launched]))
    for row in compress(range(len(rows)), rows.stats[_GRAPH].kinds):
        graph = rows.stats[_GRAPH].values[row]
        if graph not in host.graph_commands and (commands := _enclosing_commands(rows, row)) is not None:
            host.graph_commands[graph] = commands
    runs = [row for row in compress(range(len(rows)), rows.stats[_MODULE].kinds) if isinstance(rows.stats[_MODULE][row], str)]
    for row, called_ps in zip(runs, _called_at(plane, rows, runs), strict=True):
        module = str(rows.stats[_MODULE][row])
        host.executions[module] = host.executions.get(module, 0) + 1
        name = plane.event_names.get(rows.metadata_id[row], "")
        host.executed.append(Run(module, rows.start_ps[row], rows.line.row, name, called_ps))


def _called_at(plane: Plane, rows: Rows, runs: Sequence[int]) -> list[int | None]:
    """When the host called the function of each run, where that was recorded."""
    ids = {id for id, name in plane.event_names.items() if name.startswith(_CALLS)}
    begins, ends = list[int](), list[int]()
    for row, id in enumerate(rows.metadata_id):
        if id in ids and (not ends or rows.start_ps[row] >= ends[-1]):  # one call may be several nested events
            begins.append(rows.start_ps[row])
            ends.append(rows.start_ps[row] + rows.duration_ps[row])
    around = [bisect_right(begins, rows.start_ps[row]) - 1 for row in runs]
    return [begins[call] if call >= 0 and rows.start_ps[row] < ends[call] else None for call, row in zip(around, runs, strict=True)]


def _enclosing_commands(rows: Rows, row: int) -> int | None:
    """The number of commands in the nearest event around a launch that has that stat."""
    column, start = rows.stats[_COMMANDS], rows.start_ps[row]
    for outer in range(row - 1, max(-1, row - _LOOK_BACK), -1):
        if column.kinds[outer] and rows.start_ps[outer] + rows.duration_ps[outer] >= start:
            return column.values[outer]
    return None


def step_lookup(ids: Sequence[Sequence[int]], by: str, autotuned: Collection[int] = ()) -> Steps | None:
    """Steps by the ids of launches or runs, for looking up the step of an event.

    The label of a step is four times its mark. The last launch in a step has one more, so that a step that was cut off can be recognised;
    ``autotuned`` ids, which a compiler launched, have two more.
    """
    if autotuned:
        return _lookup_with_autotuning(ids, by, autotuned)
    spans = [(min(mine), max(mine), mark) for mark, mine in enumerate(ids) if mine]
    if not spans:
        return None
    ordered = sorted(spans)
    if all(left[1] < right[0] for left, right in pairwise(ordered)):
        intervals = [piece for low, high, mark in ordered for piece in ((low, high, 4 * mark), (high, high + 1, 4 * mark + 1))]
    else:  # ids of several threads interleave
        lasts = {mark: high for _, high, mark in spans}
        intervals = [(id, id + 1, 4 * mark + (id == lasts[mark])) for mark, mine in enumerate(ids) for id in mine]
    return Steps.of(((low, high, label) for low, high, label in intervals if low < high), by)


def _lookup_with_autotuning(ids: Sequence[Sequence[int]], by: str, autotuned: Collection[int]) -> Steps:
    """As `step_lookup`, if compilers launched something: an interval for each run of consecutive ids with the same label."""
    labels = dict.fromkeys(autotuned, 4 * NO_MARK + _AUTOTUNED)
    for mark, mine in enumerate(ids):
        last = max((id for id in mine if id not in autotuned), default=None)
        labels.update((id, 4 * mark + (_AUTOTUNED if id in autotuned else id == last)) for id in mine)
    intervals = list[tuple[int, int, int]]()
    for id, label in sorted(labels.items()):
        if intervals and intervals[-1][2] == label and intervals[-1][1] == id:
            intervals[-1] = (intervals[-1][0], id + 1, label)
        else:
            intervals.append((id, id + 1, label))
    return Steps.of(intervals, by)


def mark_of(label: int) -> Mark:
    """The step of a label of `step_lookup`; `NO_MARK` outside of all steps."""
    return label >> 2


def is_autotuned(label: int) -> bool:
    """Whether a label is that of a compiler's launches."""
    return bool(label & _AUTOTUNED)


def is_last(label: int) -> bool:
    """Whether a label is that of the last launch of a step."""
    return bool(label & 1)
