"""Steps: what the host annotated, and which launches and runs belong to each.

A step is one instance of an annotation (``StepTraceAnnotation``: an event with the stat ``_r``). What was launched while it lasted, from
whatever thread, belongs to it. Its number and name are labels: thirty steps may carry three numbers.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate, compress, pairwise

from msgspec import Struct, field

from ..parts import Instance, Mark, numbered
from .scan import Plane, Rows, RowsOf, Space, Steps, read_rows

HOST_PLANE = "/host:CPU"
_ROOT, _NUMBER, _LAUNCH, _COMMANDS, _GRAPH, _MODULE, _RUN = (
    "_r",
    "step_num",
    "correlation_id",
    "num_commands",
    "cuda_graph_id",
    "module_name",
    "run_id",
)
_RUNS_EXECUTE = "LoadedExecutable::Execute"  # the host's side of a run of a program, whose run_id the device's side repeats
_CAPTURES = "cuGraphCreate"  # has a correlation id and nothing on the device
NO_MARK, _TRIED = -1, 2
_LOOK_BACK = 64  # rows between a launch and the event that encloses it


class Annotation(Struct, frozen=True):
    """A step as it was annotated, by the host's clock."""

    name: str
    number: int | None
    begin_ps: int
    end_ps: int
    line: int


class Launches(Struct, frozen=True):
    """What one thread launched: when, by the host's clock, and as what."""

    line: int
    start_ps: Sequence[int]
    ids: Sequence[int]

    def between(self, begin_ps: int, end_ps: int) -> Sequence[int]:
        """The ids of what was launched in a span of time."""
        return self.ids[bisect_left(self.start_ps, begin_ps) : bisect_left(self.start_ps, end_ps)]


class Run(Struct, frozen=True):
    """The host starts a program: when, on which thread, and how the event is called."""

    module: str
    begin_ps: int
    line: int
    event: str = ""


class Host(Struct):
    """What the host's threads say: steps, launches, how many commands each CUDA graph has, how often and when each module was executed."""

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
    """The ids launched in each step, which are in the order of their beginnings; where two overlap in time, by the thread of its own."""
    found, ended = list[list[int]](), list(accumulate((step.end_ps for step in steps), max))
    for number, step in enumerate(steps):
        alone = (not number or ended[number - 1] <= step.begin_ps) and all(
            step.end_ps <= after.begin_ps for after in steps[number + 1 : number + 2]
        )
        mine = [one for one in launches if alone or one.line == step.line]
        found.append([id for one in mine for id in one.between(step.begin_ps, step.end_ps)])
    return found


def launch_times(steps: Sequence[Annotation], launches: Iterable[Launches]) -> dict[Mark, tuple[int, int]]:
    """When the host first and last launched something in each step, which are in the order of their beginnings."""
    found = dict[Mark, tuple[int, int]]()
    for mark, ids in enumerate(launched_in(steps, [Launches(one.line, one.start_ps, one.start_ps) for one in launches])):
        if ids:
            found[mark] = min(ids), max(ids)
    return found


def read_host(space: Space, *, launches: bool = False, runs: bool = False) -> Host:
    """The annotations of a profile, with launches (of GPU work, by correlation id) or runs (of programs, by run id) if requested."""
    host = Host()
    plane = next((plane for plane in space.planes if plane.name == HOST_PLANE), None)
    if plane is None:
        return host
    having = [_ROOT, *((_LAUNCH, _COMMANDS, _MODULE) if launches else ())]
    wanted = [name for name in having if name in plane.stat_ids]
    executes = [id for id, name in plane.event_names.items() if _RUNS_EXECUTE in name] if runs and _ROOT in wanted else []
    if not wanted:
        return host
    stats = (_ROOT, _NUMBER, _LAUNCH, _COMMANDS, _GRAPH, _MODULE, _RUN)
    requests = [RowsOf(line=line, stats=stats, having=tuple(wanted), only=executes) for line in plane.lines if line.length]
    roots: list[Annotation] = []
    for rows in read_rows(space, requests):
        roots += _roots(plane, rows)
        if launches:
            _take_launches(plane, rows, host)
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


def _take_launches(plane: Plane, rows: Rows, host: Host) -> None:
    """Launches of a thread; graphs with the number of commands that the event around their launch gives; executions of modules."""
    captures = {id for id, name in plane.event_names.items() if name.startswith(_CAPTURES)}
    launched = [row for row in compress(range(len(rows)), rows.stats[_LAUNCH].kinds) if rows.metadata_id[row] not in captures]
    starts, ids = rows.start_ps, rows.stats[_LAUNCH].values
    host.launches.append(Launches(rows.line.row, [starts[row] for row in launched], [ids[row] for row in launched]))
    for row in compress(range(len(rows)), rows.stats[_GRAPH].kinds):
        graph = rows.stats[_GRAPH].values[row]
        if graph not in host.graph_commands and (commands := _enclosing(rows, row)) is not None:
            host.graph_commands[graph] = commands
    for row in compress(range(len(rows)), rows.stats[_MODULE].kinds):
        module = rows.stats[_MODULE][row]
        if isinstance(module, str):
            host.executions[module] = host.executions.get(module, 0) + 1
            host.executed.append(Run(module, rows.start_ps[row], rows.line.row, plane.event_names.get(rows.metadata_id[row], "")))


def _enclosing(rows: Rows, row: int) -> int | None:
    """The number of commands of the nearest event around a launch that has one."""
    column, start = rows.stats[_COMMANDS], rows.start_ps[row]
    for outer in range(row - 1, max(-1, row - _LOOK_BACK), -1):
        if column.kinds[outer] and rows.start_ps[outer] + rows.duration_ps[outer] >= start:
            return column.values[outer]
    return None


def step_lookup(ids: Sequence[Sequence[int]], by: str, tried: Collection[int] = ()) -> Steps | None:
    """Which step an event belongs to, by an id that its launch or run gave it.

    A step's label is four times its mark; what was launched last in it has one more, so that a step that was cut off can be recognised, and
    kernels that a compiler ``tried`` (autotuning) have two more.
    """
    if tried:
        return _apart(ids, by, tried)
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


def _apart(ids: Sequence[Sequence[int]], by: str, tried: Collection[int]) -> Steps:
    """The same where compilers launched something: each id for itself, those that follow each other with one label together."""
    labels = dict.fromkeys(tried, 4 * NO_MARK + _TRIED)
    for mark, mine in enumerate(ids):
        last = max((id for id in mine if id not in tried), default=None)
        labels.update((id, 4 * mark + (_TRIED if id in tried else id == last)) for id in mine)
    intervals = list[tuple[int, int, int]]()
    for id, label in sorted(labels.items()):
        if intervals and intervals[-1][2] == label and intervals[-1][1] == id:
            intervals[-1] = (intervals[-1][0], id + 1, label)
        else:
            intervals.append((id, id + 1, label))
    return Steps.of(intervals, by)


def mark_of(label: int) -> Mark:
    """The step of a label that `step_lookup` gave; `NO_MARK` outside of all."""
    return label >> 2


def was_tried(label: int) -> bool:
    """Whether a label is that of what a compiler launched."""
    return bool(label & _TRIED)


def is_last(label: int) -> bool:
    """Whether a label is that of what was launched last in a step."""
    return bool(label & 1)
