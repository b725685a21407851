"""Workloads: the operations that a program runs, and what a source recorded about them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache

from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from .cost import NOTHING, Amount, Cost, sum_of_known
from .graph import Graph
from .ledger import Ledger
from .operation import UNLABELLED, UNSTATED, Compiled, Label, Operation
from .peak_memory import PeakMemory
from .schedule import PredictedTime, Schedule

COST_PROVENANCES = ("counter", "profile", "compiler", "shape", "formula", "user")
COUNTED = "counted: "  # prefix of a note that only says how an op was counted
UPPER_BOUND = "upper bound: "  # prefix of a note on a cost that is at least the true one
LOWER_BOUND = "lower bound: "  # prefix of a note on a cost that is at most the true one
AUTOTUNING = "autotuning"  # category of the kernels and copies that a compiler runs to choose among candidates
UNPRICED = "unpriced: "  # prefix of a note that says how to record what the cost of an op needs
FEEDS = ("infeed", "outfeed")  # in the categories of ops that only move data from or to the host


def is_upper_bound(notes: Iterable[str]) -> bool:
    """Whether an op with these notes has a cost that is at least the true one."""
    return any(note.startswith(UPPER_BOUND) for note in notes)


def feeds(category: str) -> bool:
    """Whether ops of a category only bring data in from the host or out to it."""
    return any(word in category for word in FEEDS)


def source_line(location: str) -> str:
    """A location without its folders.

    >>> source_line("/home/me/train.py:12"), source_line("C:\\\\me\\\\train.py:12")
    ('train.py:12', 'train.py:12')
    """
    return location.replace("\\", "/").rpartition("/")[2]


def is_caveat(note: str) -> bool:
    """Whether a note says that a figure may be off, rests on an assumption, or can be improved by the reader."""
    return not note.startswith(COUNTED)


class _DataclassFields:
    """The fields of a struct in the form of `dataclasses`, by which pandas and polars recognize rows."""

    def __get__(self, instance: object, owner: "type[Row]") -> Mapping[str, object]:
        return _dataclass_fields(owner)


@cache
def _dataclass_fields(owner: "type[Row]") -> Mapping[str, object]:
    from dataclasses import fields, make_dataclass

    return {field.name: field for field in fields(make_dataclass(owner.__name__, owner.columns()))}


class Row(Struct, frozen=True, kw_only=True):
    """A row of a table: ``pandas.DataFrame(report.ops)`` and ``polars.DataFrame(report.ops)`` have a column for each field."""

    __dataclass_fields__ = _DataclassFields()

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """The names of its columns."""
        return cls.__struct_fields__


class Counters(Struct, frozen=True, kw_only=True):
    """What hardware counters measured for an op, in addition to the modelled figures, never instead of them."""

    cost: Cost
    time_s: float | None = None


class Usage(Struct, frozen=True, kw_only=True):
    """How a kernel used a GPU, by counters; ``None`` was not counted. Shares are between 0 and 1.

    ``sms_busy`` is the share of the time in which an SM had work, averaged over all SMs. ``occupancy`` is the share of the warps of an SM
    that can run at once, and ``occupancy_limit`` what limits it. ``lanes`` is the number of threads of a warp that an instruction is
    executed for. ``busy`` is the share of its peak at which each unit worked: ``memory`` is the busiest unit of the memory system,
    ``compute`` the busiest of the SMs, ``dram`` the main memory and ``shared memory`` the data stage of L1.

    ``sectors`` are the 32-byte sectors of global accesses and ``sectors_used`` those that the same bytes would fill without gaps;
    ``passes`` those over shared memory and ``passes_needed`` the same without bank conflicts. ``local`` is the share of local memory, which
    is a thread's own, in the sectors of local and global memory, and ``spills`` whether it holds spilled registers. ``atomics`` is the
    share of atomics in the sectors of L2. ``bytes_a_request`` is what a warp's load or store of global memory moves.
    """

    blocks: int | None = None
    sms: int | None = None
    sms_busy: float | None = None
    occupancy: float | None = None
    occupancy_limit: str = ""
    lanes: float | None = None
    busy: Mapping[str, float] = field(default_factory=dict)
    sectors: float | None = None
    sectors_used: float | None = None
    passes: float | None = None
    passes_needed: float | None = None
    local: float | None = None
    spills: bool = False
    atomics: float | None = None
    bytes_a_request: float | None = None


class Launch(Struct, frozen=True, kw_only=True):
    """One kernel launch that hardware counters measured: its time in seconds, the cost they counted, and how it used the GPU."""

    name: str
    cost: Cost
    time_s: float | None = None
    grid: tuple[int, ...] | None = None
    block: tuple[int, ...] | None = None
    device: int = 0
    usage: Usage = Usage()


class Share(Struct, frozen=True, kw_only=True):
    """The part of an op that fell into one step or on one device."""

    key: int
    count: float
    time_s: float


class StepsOnDevice(Struct, frozen=True, kw_only=True):
    """The parts of an op that fell into each step on one device: executions and seconds, in the order of the steps."""

    device: int
    steps: tuple[int, ...]
    counts: tuple[float, ...]
    times_s: tuple[float, ...]


Fact = str | int | float


class Facts(dict[str, Fact]):
    """Numbers in base units and names, by what they are. It is never changed, so it can be a key."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


class Saves(Enum):
    """How the time that an op would save without some of its work follows from minimum times.

    It is in proportion to the minimum times with and without the work, if nothing else is said. Ops that the work slows down beyond its
    cost, so that they run far from their roof, save what their time exceeds that of a good kernel without it.
    """

    IN_PROPORTION = "in proportion"
    ALL = "all"  # the op does not run, however little work it has
    SHARED_READS = "shared reads"  # in proportion where memory binds the op; else it saves nothing
    ONE_KERNEL = "one kernel"  # as a good kernel, where launches bind the op: one kernel would do the work of many
    SHARED_LOOP = "shared loop"  # either of the two
    GOOD_KERNEL = "good kernel"  # as a good kernel of its category
    GOOD_PRODUCT = "good product"  # as a good matmul
    GOOD_STREAM = "good stream"  # as a good kernel that only moves its bytes
    GOOD_TRANSFORM = "good transform"  # as a Fourier transform of a length that is a power of 2
    GOOD_NORM = "good norm"  # as a batch norm with stored statistics
    GOOD_VECTOR = "good vector code"  # as good code of the vector unit: functions execute many more FLOP than are counted


class Usual(Enum):
    """Whether good programs have such work too: then a little of it is not worth a finding."""

    NO = "no"
    UNLESS_ASKED = "unless asked"  # compilers and backward passes add it by themselves
    YES = "yes"  # the other way has a price too, such as a longer compilation


class Avoidable(Struct, frozen=True, kw_only=True):
    """Work of an op that could be avoided by writing the program differently.

    ``kind`` is that of the finding about it, empty where nothing can be done; ``instead`` is the cost of one execution without it;
    ``facts`` are what its observation in the words of its kind is written with, and ``cause`` says which one that is, where there are
    several (`rules.words`). ``why`` is the observation itself, a clause that starts with a verb, where it is not among the words.
    ``unneeded`` is the class of work that the model did not
    need (``recomputed``, ``padded``, ``masked``, ``duplicated``, ``dense``, ``unused``, ``layout``, ``copied``, ``wide``), empty where the
    work is needed but written in a costly way. ``group`` is equal for avoidable work of one kind that the same change removes; ``factor``
    is the executed work over the needed work. ``besides`` is the cost of one execution of kernels that would run in addition. ``extra`` is
    whether the op does only what another did, or a copy would spare: of several kinds of avoidable work that it has, this one counts.
    ``share`` is the part of the op's executions that it is about, ``removed`` how many launches
    go with each of the op's where it becomes part of another kernel.
    """

    kind: str
    instead: Cost
    why: str = ""
    cause: str = ""
    facts: Mapping[str, Fact] = Facts()
    unneeded: str = ""
    group: str = ""
    factor: float | None = None
    besides: Cost = NOTHING
    saves: Saves = Saves.IN_PROPORTION
    usual: Usual = Usual.NO
    extra: bool = False
    share: float = 1.0
    removed: float = 0.0

    def __post_init__(self) -> None:
        if type(self.facts) is not Facts:
            force_setattr(self, "facts", Facts(self.facts))


class Array(Struct, frozen=True):
    """An array that one program passes to another: its shape and format, and its bytes."""

    shape: str
    bytes: int


class Op(Struct, frozen=True, kw_only=True):
    """One operation: totals over all its executions.

    ``label`` is a name that a person recognises, of the framework's words. ``takes`` and ``gives`` are the arguments and
    results of its program that it reads and writes, in programs without products. ``value`` is equal for products of several programs that
    compute the same from arguments of the same names and shapes.

    ``phase`` is ``forward`` or ``backward`` in a program that computes gradients, where the program tells them apart. ``in_loop`` is
    whether its name in the framework says that a loop of its program runs it. ``towards`` is which way it goes, where the source knows: a
    copy over the bus to the host ``in`` to the device or ``out``, a permute ``up`` or ``down`` the rings of a slice. ``caller`` is the
    source line that calls its program, where a step has several.
    ``time_s`` is the duration of its kernels, ``self_time_s`` the same without nested ops and
    earlier events on the same stream, so that self times sum to busy time; ``dma_stall_s`` is the part of it in which the core waited for
    DMA, as at the end of an asynchronous copy. ``None`` is unknown. ``by_step_and_device`` has the parts in
    each step on each device, where there are several devices; with one they are ``by_step``. ``operation`` describes one execution by its
    sizes, ``compiled`` is what else a compiled program says of it. ``counted`` are its launches that counters measured. A note is a caveat,
    or begins with `COUNTED`. ``conventions`` has the FLOP as other counters count them, by their name. ``shapes`` has the shapes of its
    first arrays, where a recording without compiled programs says so.
    """

    name: str
    cost: Cost
    label: Label = UNLABELLED
    count: float = 1
    kernels: float | None = None
    time_s: float | None = None
    self_time_s: float | None = None
    dma_stall_s: float | None = None
    category: str = ""
    module: str = ""
    scope: str = ""
    location: str = ""
    phase: str = ""
    in_loop: bool = False
    towards: str = ""
    work_provenance: str = "user"
    bytes_provenance: str = "user"
    counters: Counters | None = None
    counted: tuple[Launch, ...] = ()
    by_step: tuple[Share, ...] = ()
    by_device: tuple[Share, ...] = ()
    by_step_and_device: tuple[StepsOnDevice, ...] = ()
    ledger: Ledger | None = None
    avoidable: tuple[Avoidable, ...] = ()
    takes: tuple[Array, ...] = ()
    gives: tuple[Array, ...] = ()
    value: str = ""
    caller: str = ""
    operation: Operation | None = None
    compiled: Compiled = UNSTATED
    notes: tuple[str, ...] = ()
    conventions: Mapping[str, Amount] = field(default_factory=dict)
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def priced(self) -> bool:
        """Whether no resource it uses is unknown."""
        return self.cost.is_known

    @property
    def own_s(self) -> float:
        """The seconds that it kept its device busy: its self time, or its time where no ops are nested; 0 if not known."""
        return (self.time_s if self.self_time_s is None else self.self_time_s) or 0.0

    @property
    def launches(self) -> float:
        """How many launches its time is spread over: its kernels, where they are known."""
        return self.kernels or self.count


class Workload(Struct, frozen=True):
    """The operations of a program. Its cost is the sum of theirs."""

    ops: Sequence[Op]

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops)

    def __len__(self) -> int:
        return len(self.ops)

    @property
    def cost(self) -> Cost:
        total: Cost = sum((op.cost for op in self.ops), Cost())
        return total

    @property
    def time_s(self) -> float | None:
        """The sum of the known times; ``None`` when no op was timed."""
        return sum_of_known(op.time_s for op in self.ops)


class Hardware(Struct, frozen=True, kw_only=True):
    """What a GPU reports about itself besides its name; empty and ``None`` are unknown.

    ``cores`` are SMs or CUs, ``clock_hz`` is their highest clock, ``bandwidth`` is the memory's clock times the width of its bus.
    """

    vendor: str = ""
    capability: str = ""
    cores: int | None = None
    clock_hz: float | None = None
    memory_bytes: float | None = None
    bandwidth: float | None = None


class Device(Struct, frozen=True, kw_only=True):
    """A device of a recording, the peak rates that it reported, and its hardware."""

    id: int
    name: str
    host: str = ""
    rates: Mapping[str, float] = field(default_factory=dict)
    hardware: Hardware = Hardware()


class Coverage(Struct, frozen=True, kw_only=True):
    """Seconds of wall, busy, attributed and priced time, each a union of intervals; ``None`` when the source has no clock.

    These are device-seconds: last end minus first start, and so on, summed over devices. ``run_s`` is the wall clock of the run, from the
    first work on any device to the last; ``before_steps_s`` is from the first annotation or the first work, whichever is earlier, to the
    first work of the first step, as the mean over devices. ``counted_s`` is the self time of the ops that hardware counters measured
    whole; ``None`` where nothing was counted. ``dma_stall_s`` is the busy time in which cores waited for DMA, where a source tells.
    """

    wall_s: int | float | None = None
    busy_s: int | float | None = None
    attributed_s: int | float | None = None
    priced_s: int | float | None = None
    counted_s: int | float | None = None
    dma_stall_s: int | float | None = None
    run_s: int | float | None = None
    before_steps_s: int | float | None = None


class Step(Row, frozen=True, kw_only=True):
    """A step of the run: its key in shares of ops and in ``points``, and its name and number, which are labels and may repeat.

    ``title`` calls it by its key, which ``--only step=`` takes, and its name; with its number in the program where that is another.

    On each device it starts with its first work and lasts to the first work of the next step, idle included; one that no step followed
    lasts to the end of its work. ``time_s`` is the mean over devices, ``slowest_s`` the longest, ``device_seconds`` the sum. ``span_s``,
    from its first work to the end of its last, and ``busy_s``, the union of its work (that of other steps is not counted), are means over
    devices too. Averages are over steps that are ``steady``, complete (the recording did not cut them off) and ``followed`` by another.

    ``lead_s`` is the time from the launch of its first work to that work's start, the mean over devices, and ``launching_s`` how long the
    host took from its first launch to its last, ``launch_call_s`` how long its median call to launch a kernel took; unknown where a
    recording does not say what the host launched.

    ``compiled`` is whether the host compiled in it. Steps that did are the warm-up, and not steady, until the first that did not; a
    compilation after that is not a warm-up, nor is one if more than half of the steps compile. After a change ``before_s`` is its time
    before.
    """

    step: int
    name: str = ""
    number: int | None = None
    time_s: float | None = None
    slowest_s: float | None = None
    span_s: float | None = None
    busy_s: float | None = None
    device_seconds: float | None = None
    complete: bool = True
    followed: bool = True
    compiled: bool = False
    steady: bool = True
    lead_s: float | None = None
    launching_s: float | None = None
    launch_call_s: float | None = None
    before_s: float | None = None
    title: str = ""

    def __post_init__(self) -> None:
        if not self.title:
            force_setattr(self, "title", _step_title(self.step, self.name, self.number))


def _step_title(step: int, name: str, number: int | None) -> str:
    """A step in words: ``3 train``, or ``3 (train 10)`` where the program numbers it otherwise."""
    if number is None or number == step:
        return f"{step}" if name.lower() == "step" else f"{step} {name}".strip()
    return f"{step} ({f'{name} {number}'.strip()})"


NO_COVERAGE = Coverage()


def averaged(steps: Iterable[Step]) -> list[Step]:
    """The steps that are averaged: complete, steady, and followed by another, which ends their idle time; else the next best."""
    complete = [step for step in steps if step.complete]
    steady = [step for step in complete if step.steady]
    return [step for step in steady if step.followed] or steady or complete


class Block(Struct, frozen=True):
    """What a block of a kernel takes of a GPU's core: threads, registers of a thread, and bytes of shared memory."""

    threads: int
    registers: int
    shared: int


class KernelUse(Struct, frozen=True):
    """A kernel that an operation of a profile launched: what counters of kernels are joined by.

    ``op_index`` is the operation's place in the recording's workload; ``kernel_name`` the device event's name as the profile has it;
    ``order`` any number that grows with the order of launches (an event's start); ``grid`` its blocks (``kernel_details``), if known;
    ``count`` how many launches this entry represents. Give one per event, or one for each kernel of an operation with the order of its
    first launch and the count of all: both join alike. For an operation that a step runs several times, with others in between, ``nth`` is
    which of its launches of this kernel in a step it is. ``block`` is what its blocks take of a core, if known. Memsets and copies may be
    among them; counters have none, so they match nothing.
    """

    op_index: int
    kernel_name: str
    order: float
    grid: tuple[int, ...] | None = None
    count: int = 1
    nth: int = 0
    block: Block | None = None


# Causes of idle time that may be known beyond its kind: the host reads the length of a boolean mask, allocates or frees device memory,
# looks for NaN in gradients or in every result, calls an operator that waits, runs code that is not recorded, runs a graph break between
# compiled parts, lets a library try its kernels, reads how often rows are repeated, computes an operator itself, copies data from the
# device, passes its own arrays to a jitted function, which copies them, reads a value by a call such as float(), or sends small tensors to
# the device one by one.
BY_A_MASK, ALLOCATES, CHECKS_GRADIENTS, CHECKS_RESULTS, BY_AN_OPERATOR = "mask", "memory", "anomaly", "nans", "operator"
WAITS_FOR_LAUNCHES = "blocking"
UNSEEN, GRAPH_BREAK, TRIES_KERNELS, BY_REPEATS, COMPUTES = "unseen", "graph break", "trials", "repeats", "computes"
FETCHES, PASSES_ARRAYS, READS_VALUES, SENDS = "fetches", "arguments", "value", "sends"


class IdleReason(Struct, frozen=True, kw_only=True):
    """Why devices were idle: the kind of reason, what the host did then in plain words, and where in the user's code.

    ``kind`` is one of `causes.REASONS`: user Python before the next launch (``input``), a value read back (``sync``), a host callback,
    a compilation, the dispatch of many programs, the host's side of a copy (``transfer``), another device, kernels that follow each other
    closely (``latency``), or ``unknown``. ``time_s`` is the device-seconds of its ``gaps``; those of all reasons add up to wall less busy
    time. ``by_step`` has gaps and device-seconds of each step, by the step in which a gap began. The profiler itself took about
    ``recording_s`` of it to record ``recorded`` events of the host; without it the gaps are that much shorter. ``cause`` is `BY_A_MASK`,
    `ALLOCATES`, `CHECKS_GRADIENTS`, `CHECKS_RESULTS`, `WAITS_FOR_LAUNCHES`, `BY_AN_OPERATOR`, `UNSEEN`, `GRAPH_BREAK`, `TRIES_KERNELS`,
    `BY_REPEATS`, `COMPUTES`, `FETCHES`, `PASSES_ARRAYS`, `READS_VALUES`, `SENDS` or nothing.
    """

    kind: str
    activity: str
    location: str = ""
    cause: str = ""
    time_s: float
    gaps: int
    recording_s: float = 0.0
    recorded: int = 0
    by_step: tuple[Share, ...] = ()


class Lane(Struct, frozen=True, kw_only=True):
    """What one device did in each bucket of a stretch of time: a step by its key, or the whole run (``None``).

    It starts ``start_s`` after the first device work of its host, lasts ``time_s``, and its buckets ``bucket_s`` each, of which the last
    may be shorter. ``busy_s`` is how much of each bucket something ran. ``ops`` are the longest ops of each bucket by their indices in the
    workload, ``ops_s`` their self times there, where ops that run at the same time share it; the rest of the busy time is that of other
    ops. ``rest_s`` has those: ops with their self times in all buckets that do not list them. ``host`` is the reason of most of the idle
    time of each bucket, as an index into the recording's ``idle``; ``None`` where there is none, empty where the host was not recorded.
    """

    device: int
    step: int | None
    start_s: float
    time_s: float
    bucket_s: float
    busy_s: tuple[float, ...]
    ops: tuple[tuple[int, ...], ...]
    ops_s: tuple[tuple[float, ...], ...]
    rest_s: tuple[tuple[int, float], ...] = ()
    host: tuple[int | None, ...] = ()


class ProgramGraph(Struct, frozen=True):
    """The graph of a program, and for each of its kernels the numbers of the ops that it is.

    They are several in equal layers, and none if it did not run. ``program`` names the program in notes.
    """

    program: str
    graph: Graph
    ops: tuple[tuple[int, ...], ...]

    def moved(self, places: int) -> "ProgramGraph":
        """The same with the ops so many places further on."""
        return replace(self, ops=tuple([tuple([op + places for op in ops]) for ops in self.ops])) if places else self

    def kept(self, places: Mapping[int, int]) -> "ProgramGraph":
        """The same where only some ops are left, with their new numbers."""
        return replace(self, ops=tuple([tuple([places[op] for op in ops if op in places]) for ops in self.ops]))


class Recording(Struct, frozen=True, kw_only=True):
    """The result of reading an input.

    ``kernels`` are what the operations launched, where a profile names kernels. ``measured`` is the share of the wall time for which
    hardware counters of the whole program saw each unit busy (0 to 1), where a profile has such counters. ``idle`` is why the devices were
    idle, the longest reason first. ``memory`` is the peak memory of a program, of several that of the one that needs most, or of the device
    that had most. ``timeline`` is what each device did when, in one typical step and in the run, where it was requested. ``programs`` has
    the id of the program of each module that ran, where a profile has several of one name and ran one of them. ``graphs`` are those of the
    programs that ran; once it ``is_reviewed``, its ops have what rules find on them as avoidable work. ``schedules`` are those of compiled
    programs that have not run; once they were played, its times are ``predicted``. ``mesh`` has the axes of the mesh of devices that the
    program was divided over, in order, where they are known.
    """

    workload: Workload
    format: str
    files: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    steps: tuple[Step, ...] = ()
    coverage: Coverage = NO_COVERAGE
    kernels: tuple[KernelUse, ...] = ()
    measured: Mapping[str, float] = field(default_factory=dict)
    idle: tuple[IdleReason, ...] = ()
    memory: PeakMemory | None = None
    timeline: tuple[Lane, ...] = ()
    programs: Mapping[str, str] = field(default_factory=dict)
    graphs: tuple[ProgramGraph, ...] = ()
    schedules: tuple[Schedule, ...] = ()
    predicted: PredictedTime | None = None
    mesh: Mapping[str, int] = field(default_factory=dict)
    is_reviewed: bool = False
    notes: tuple[str, ...] = ()

    @property
    def is_on_host(self) -> bool:
        """Whether the ops run on the host's CPU itself: nothing is launched ahead, and the time between ops is host work."""
        return bool(self.devices) and all(device.name == "CPU" for device in self.devices)
