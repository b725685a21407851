"""What every kind of device is read into: operations, what each did on one device, and the parts that hosts of a run are merged from.

All of it is whole numbers (picoseconds, executions, kernels, bytes), so that merging in any order gives the same digits.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise

from msgspec import Struct, field

from ..cost import NOTHING, Amount, Cost
from ..operation import Operation
from ..resource import HBM, UNNAMED_WORK
from ..units import parse
from ..workload import Array, Avoidable, Hardware

UNKNOWN = Cost.of({UNNAMED_WORK: None, HBM: None})  # of work that nobody can price
NAME_LOST = "the damaged file lost the metadata that names its op"
PICOSECOND = parse("1 ps", "s")
Mark = int  # a step, by its place among the instances of its part


class Subject(Struct, frozen=True, kw_only=True):
    """An operation: what it is, and what one execution costs. Equal on every device and host that runs it.

    ``program`` tells modules of one name apart. ``found`` is whether its events led to an instruction, or are copies and memsets of the
    runtime, which need none. ``conventions`` has the FLOP of an execution as other counters count them, by their name. ``wide`` is the
    share of the bytes of its arrays that are of 32-bit floats, and ``shapes`` has those of its first arrays, where the source knows.
    """

    name: str
    module: str = ""
    program: str = ""
    category: str = ""
    scope: str = ""
    location: str = ""
    phase: str = ""
    towards: str = ""
    label: str = ""
    cost: Cost = NOTHING
    avoidable: tuple[Avoidable, ...] = ()
    takes: tuple[Array, ...] = ()
    gives: tuple[Array, ...] = ()
    value: str = ""
    caller: str = ""
    operation: Operation | None = None
    work_provenance: str = "compiler"
    bytes_provenance: str = "compiler"
    notes: tuple[str, ...] = ()
    found: bool = True
    conventions: tuple[tuple[str, Amount], ...] = ()
    wide: float = 0.0
    shapes: tuple[tuple[int, ...], ...] = ()

    def __hash__(self) -> int:
        """A hash of the fields in which nearly all differ; equality compares the rest."""
        return hash((self.name, self.module, self.program))

    @property
    def priced(self) -> bool:
        return self.cost.is_known


# What a compiler ran to choose among candidates, which is no work of the program.
AUTOTUNING = Subject(name="autotuning", category="autotuning", notes=("kernels and copies that the compiler ran for autotuning",))


class Share(Struct):
    """What an operation did in one step."""

    executions: int = 0
    time_ps: int = 0

    def add(self, other: "Share") -> None:
        self.executions += other.executions
        self.time_ps += other.time_ps


class Launched(Struct, frozen=True):
    """A kernel that an operation launches: when it first did, with how many blocks, how often, and which of those in a step it is."""

    kernel: str
    first_ps: int
    grid: tuple[int, ...] | None
    count: int
    nth: int = 0


class Tally(Struct):
    """What an operation did on one device.

    ``amounts`` are costs in total, beside the subject's for each execution: bytes of copies, each of which has its own size.
    ``launched`` are its kernels one by one, where they have names of their own.
    """

    executions: int = 0
    kernels: int = 0
    time_ps: int = 0
    self_ps: int = 0
    steps: dict[Mark, Share] = field(default_factory=dict)
    amounts: dict[str, int] = field(default_factory=dict)
    launched: list[Launched] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Another stretch of the same operation."""
        self.add_totals(other)
        for mark, share in other.steps.items():
            self.steps.setdefault(mark, Share()).add(share)

    def add_totals(self, other: "Tally") -> None:
        """All of another stretch but its steps, whose marks are those of its own part."""
        self.executions += other.executions
        self.kernels += other.kernels
        self.time_ps += other.time_ps
        self.self_ps += other.self_ps
        for resource, amount in other.amounts.items():
            self.amounts[resource] = self.amounts.get(resource, 0) + amount
        self.launched += other.launched


class Instance(Struct, frozen=True):
    """A step as its host saw it: the annotation's name and number, and which of those with the same name and number it is."""

    name: str
    number: int | None
    nth: int = 0


class Extent(Struct, frozen=True):
    """The work of a step on one device: its first start, its last end, the union of its events, and whether its last launch ran."""

    begin_ps: int
    end_ps: int
    busy_ps: int
    complete: bool = True

    @property
    def span_ps(self) -> int:
        return self.end_ps - self.begin_ps


class IdleKey(Struct, frozen=True):
    """A reason for a device to be idle: its kind, what the host did in plain words, where in the user's code, and what else is known."""

    kind: str
    activity: str
    location: str = ""
    cause: str = ""


class IdleTally(Struct):
    """How many gaps a reason had on one device and their time, in all and by the step in which each began.

    ``recording_ps`` is how much of it the profiler took itself, to record so many events of the host (``recorded``).
    """

    gaps: int = 0
    time_ps: int = 0
    steps: dict[Mark, tuple[int, int]] = field(default_factory=dict)
    recording_ps: int = 0
    recorded: int = 0


class Pause(Struct, frozen=True):
    """A stretch of time in which a device was idle for ``idle_ps``, and why."""

    begin_ps: int
    end_ps: int
    idle_ps: int
    reason: IdleKey


class Lane(Struct, frozen=True, kw_only=True):
    """What a device did in each bucket of a span of time: of the step with this mark, or of the run (``None``).

    ``busy_ps`` is how much of each bucket something ran. ``ops`` are the longest operations of each bucket, by their places among the
    device's rows, ``ops_ps`` their self times there, where operations that run at the same time share it; ``rest`` has the self time of
    every operation in buckets where it is not among them. ``host`` is why the device was idle in each bucket, mostly, by the place among
    ``reasons``; ``None`` where it was not, and empty where the host was not asked.
    """

    mark: Mark | None
    begin_ps: int
    end_ps: int
    width_ps: int
    busy_ps: tuple[int, ...]
    ops: tuple[tuple[int, ...], ...]
    ops_ps: tuple[tuple[int, ...], ...]
    rest: tuple[tuple[int, int], ...] = ()
    reasons: tuple[IdleKey, ...] = ()
    host: tuple[int | None, ...] = ()


class DevicePart(Struct, frozen=True, kw_only=True):
    """One device of one host: what it is, when its work began and how long it lasted, what ran, and why it was idle."""

    plane: str
    ordinal: int
    name: str
    rates: Mapping[str, float]
    wall_ps: int
    busy_ps: int
    rows: Mapping[Subject, Tally]
    steps: Mapping[Mark, Extent]
    begin_ps: int = 0
    hardware: Hardware = Hardware()
    idle: Mapping[IdleKey, IdleTally] = field(default_factory=dict)
    lanes: tuple[Lane, ...] = ()

    @property
    def end_ps(self) -> int:
        return self.begin_ps + self.wall_ps

    def step_times(self) -> dict[Mark, tuple[int, bool]]:
        """How long each step lasted and whether another followed: to the first work of the next, idle included, or to its own end."""
        ordered = sorted(self.steps, key=lambda mark: (self.steps[mark].begin_ps, mark))
        times = {mark: (self.steps[after].begin_ps - self.steps[mark].begin_ps, True) for mark, after in pairwise(ordered)}
        return times | {mark: (self.steps[mark].span_ps, False) for mark in ordered[-1:]}

    @property
    def unfound_ps(self) -> int:
        """Busy time of events that led to no operation. Self times do not overlap, so the rest of the busy time is found at least."""
        return sum(tally.self_ps for subject, tally in self.rows.items() if not subject.found)

    @property
    def unpriced_ps(self) -> int:
        """Busy time of operations whose cost is unknown."""
        return sum(tally.self_ps for subject, tally in self.rows.items() if not subject.priced)


class Part(Struct, frozen=True, kw_only=True):
    """What one file says. Parts of one run are merged into a recording, in any order; they travel between processes.

    ``measured`` is the share of time for which hardware counters saw each unit busy, where a profile has such counters.
    ``annotated_ps`` is when the host began the first annotated step, by the clock of the devices' events. ``compiled`` are the steps in
    which the host compiled, ``compile_ps`` how long it did in all, ``warm_up_ps`` how long before the first step after its warm-up.
    ``capturing`` are the steps in which the host captured a graph. ``launches`` has of each step when the host first and last launched
    something, by the clock of the devices' events, ``launch_calls`` how long its median call to launch
    a kernel took. ``allocated`` and ``reserved`` are the most bytes that a device had of each at once, 0 where the recording does not say.
    """

    file: str
    host: str
    devices: tuple[DevicePart, ...]
    instances: tuple[Instance, ...] = ()
    measured: tuple[tuple[str, float], ...] = ()
    notes: tuple[str, ...] = ()
    annotated_ps: int | None = None
    compiled: tuple[Mark, ...] = ()
    capturing: tuple[Mark, ...] = ()
    launches: Mapping[Mark, tuple[int, int]] = field(default_factory=dict)
    launch_calls: Mapping[Mark, int] = field(default_factory=dict)
    compile_ps: int = 0
    warm_up_ps: int = 0
    allocated: int = 0
    reserved: int = 0


def numbered(labels: Iterable[tuple[str, int | None]]) -> tuple[Instance, ...]:
    """Instances of steps from their names and numbers, those that are alike counted.

    >>> [instance.nth for instance in numbered([("train", 4), ("train", 4), ("train", 2)])]
    [0, 1, 0]
    """
    seen: dict[tuple[str, int | None], int] = {}
    found = []
    for label in labels:
        seen[label] = seen.get(label, -1) + 1
        found.append(Instance(*label, seen[label]))
    return tuple(found)
