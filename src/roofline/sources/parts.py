"""The data types that profiles are read into: operations, their times on each device, and the part of a run that one file holds.

All amounts are integers (picoseconds, executions, kernels, bytes), so merging in any order gives the same digits.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise

from msgspec import Struct, field

from ..cost import NOTHING, Amount, Cost
from ..graph import Graph
from ..operation import UNLABELLED, Label, Operation
from ..resource import HBM, UNNAMED_WORK
from ..units import parse
from ..workload import AUTOTUNING, Array, Avoidable, Block, Hardware

UNKNOWN = Cost.of({UNNAMED_WORK: None, HBM: None})  # the cost of an operation that cannot be priced
NAME_LOST = "the damaged file lost the metadata that names its op"
PICOSECOND = parse("1 ps", "s")
Mark = int  # a step: its index in Part.instances


class Subject(Struct, frozen=True, kw_only=True):
    """An operation: what it is, and what one execution costs. Equal on every device and host that runs it.

    ``program`` is an id that distinguishes modules of the same name. ``found`` is whether its events were matched to an instruction, or are
    the runtime's copies and memsets, which have none. ``conventions`` has the FLOP of one execution as other counters count them, by the
    name of the counter. ``shapes`` has the shapes of its first arrays, where the source has them.
    """

    name: str
    module: str = ""
    program: str = ""
    category: str = ""
    scope: str = ""
    location: str = ""
    phase: str = ""
    in_loop: bool = False
    towards: str = ""
    label: Label = UNLABELLED
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
    shapes: tuple[tuple[int, ...], ...] = ()

    def __hash__(self) -> int:
        """A hash of the fields that nearly always differ, as hashing all of them takes long; equality compares them all."""
        return hash((self.name, self.module, self.program))

    @property
    def priced(self) -> bool:
        return self.cost.is_known


# Kernels and copies that a compiler ran to choose among candidates; they are not part of the program.
AUTOTUNED = Subject(
    name=AUTOTUNING, category=AUTOTUNING, notes=("kernels and copies that a compiler or library ran to choose the fastest",)
)


def known_sum(amounts: Iterable[int | None]) -> int | None:
    """The sum of the known amounts; ``None`` if none is known."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


class Share(Struct):
    """The executions and time of an operation in one step."""

    executions: int = 0
    time_ps: int = 0

    def add(self, other: "Share") -> None:
        self.executions += other.executions
        self.time_ps += other.time_ps


class Launched(Struct, frozen=True):
    """A kernel that an operation launches: its first start, its grid, how often it ran, which launch of it in a step this is, and what its
    blocks take.
    """

    kernel: str
    first_ps: int
    grid: tuple[int, ...] | None
    count: int
    nth: int = 0
    block: Block | None = None


class Tally(Struct):
    """The totals of an operation on one device.

    ``amounts`` are total costs in addition to the subject's cost per execution: the bytes of copies, which differ in size.
    ``launched`` are its kernels, where they have names. ``dma_stall_ps`` is how long the core waited for DMA, where a source tells.
    """

    executions: int = 0
    kernels: int = 0
    time_ps: int = 0
    self_ps: int = 0
    steps: dict[Mark, Share] = field(default_factory=dict)
    amounts: dict[str, int] = field(default_factory=dict)
    launched: list[Launched] = field(default_factory=list)
    dma_stall_ps: int | None = None

    def add(self, other: "Tally") -> None:
        """Adds another tally of the same operation."""
        self.add_totals(other)
        for mark, share in other.steps.items():
            self.steps.setdefault(mark, Share()).add(share)

    def add_totals(self, other: "Tally") -> None:
        """Adds another tally without its steps, whose marks belong to another part."""
        self.executions += other.executions
        self.kernels += other.kernels
        self.time_ps += other.time_ps
        self.self_ps += other.self_ps
        self.dma_stall_ps = known_sum((self.dma_stall_ps, other.dma_stall_ps))
        for resource, amount in other.amounts.items():
            self.amounts[resource] = self.amounts.get(resource, 0) + amount
        self.launched += other.launched


class Instance(Struct, frozen=True):
    """A step on its host: the annotation's name and number, and its index among the annotations of the same name and number."""

    name: str
    number: int | None
    nth: int = 0


class Extent(Struct, frozen=True):
    """The work of a step on one device: first start, last end, busy time, and whether the work of its last launch was recorded."""

    begin_ps: int
    end_ps: int
    busy_ps: int
    complete: bool = True

    @property
    def span_ps(self) -> int:
        return self.end_ps - self.begin_ps


class IdleKey(Struct, frozen=True):
    """A reason for idle time of a device: its kind, what the host did in words, the file and line of the user's code, and the cause."""

    kind: str
    activity: str
    location: str = ""
    cause: str = ""


class IdleTally(Struct):
    """The gaps of one reason on one device: their number and time, in total and by the step in which each began.

    ``recording_ps`` is the part of that time that the profiler itself took, to record ``recorded`` events of the host.
    """

    gaps: int = 0
    time_ps: int = 0
    steps: dict[Mark, tuple[int, int]] = field(default_factory=dict)
    recording_ps: int = 0
    recorded: int = 0


class Pause(Struct, frozen=True):
    """A span of time in which a device was idle for ``idle_ps``, and the reason."""

    begin_ps: int
    end_ps: int
    idle_ps: int
    reason: IdleKey


class Lane(Struct, frozen=True, kw_only=True):
    """A timeline of one device in buckets of equal width: of the step with this mark, or of the whole run (``None``).

    ``busy_ps`` is the busy time of each bucket. ``ops`` are the operations with the most time in each bucket, as indices of the device's
    rows, and ``ops_ps`` their self times there; operations that run at the same time share it. ``rest`` has the self time of each
    operation in the buckets whose ``ops`` do not list it. ``host`` is the main reason for idle time in each bucket, as an index of
    ``reasons``; ``None`` in a bucket without idle time. It is empty if the reasons were not read.
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
    """One device of one host: its description, the extent of its work, its operations, steps and reasons for idle time."""

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
        """The time of each step and whether another followed: up to the first work of the next, idle included, or else to its own end."""
        ordered = sorted(self.steps, key=lambda mark: (self.steps[mark].begin_ps, mark))
        times = {mark: (self.steps[after].begin_ps - self.steps[mark].begin_ps, True) for mark, after in pairwise(ordered)}
        return times | {mark: (self.steps[mark].span_ps, False) for mark in ordered[-1:]}

    @property
    def unfound_ps(self) -> int:
        """Busy time of events that were not matched to an operation: the sum of self times, which do not overlap."""
        return sum(tally.self_ps for subject, tally in self.rows.items() if not subject.found)

    @property
    def dma_stall_ps(self) -> int | None:
        """Busy time in which the core waited for DMA, where its source tells."""
        return known_sum(tally.dma_stall_ps for tally in self.rows.values())

    @property
    def unpriced_ps(self) -> int:
        """Busy time of operations whose cost is unknown."""
        return sum(tally.self_ps for subject, tally in self.rows.items() if not subject.priced)


class PartGraph(Struct, frozen=True):
    """The graph of a program that ran, and the operations that each of its kernels is.

    Several hosts may run a program of one ``identity``.
    """

    program: str
    graph: Graph
    subjects: tuple[tuple[Subject, ...], ...]
    identity: str = ""


class Part(Struct, frozen=True, kw_only=True):
    """The contents of one file. Parts of one run are merged into a recording, in any order; they are sent between processes.

    ``measured`` is the share of time for which hardware counters saw each unit busy, if the profile has such counters.
    ``annotated_ps`` is when the host began the first annotated step, by the clock of the devices' events. ``compiled`` are the steps in
    which the host compiled, ``capturing`` those in which it captured a graph. ``launches`` has the times of the host's first and last
    launch of each step, by the clock of the devices' events, ``launch_calls`` the median duration of its calls that launch a kernel.
    ``allocated`` and ``reserved`` are the peak bytes of each on one device, 0 if they were not recorded.
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
    allocated: int = 0
    reserved: int = 0
    graphs: tuple[PartGraph, ...] = ()


def numbered(labels: Iterable[tuple[str, int | None]]) -> tuple[Instance, ...]:
    """Instances of steps from their names and numbers; those with the same name and number are counted through.

    >>> [instance.nth for instance in numbered([("train", 4), ("train", 4), ("train", 2)])]
    [0, 1, 0]
    """
    seen: dict[tuple[str, int | None], int] = {}
    found = []
    for label in labels:
        seen[label] = seen.get(label, -1) + 1
        found.append(Instance(*label, seen[label]))
    return tuple(found)
