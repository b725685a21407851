"""Workloads: the operations a program runs, and what a source found out about them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from .cost import Cost
from .ledger import Ledger

COST_PROVENANCES = ("counter", "profile", "compiler", "shape", "formula", "user")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What hardware counters measured for an op, beside the modelled figures, never instead of them."""

    cost: Cost
    time_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The part of an op that fell into one step or on one device."""

    key: int
    count: float
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation: totals over all its executions.

    ``phase`` is ``forward`` or ``backward`` in a program that computes gradients, where the program tells them apart.
    ``time_s`` is the duration of its kernels, ``self_time_s`` what is left without nested ops and earlier events on the same
    stream, so that self times sum to busy time. ``None`` is unknown.
    """

    name: str
    cost: Cost
    count: float = 1
    kernels: float | None = None
    time_s: float | None = None
    self_time_s: float | None = None
    category: str = ""
    module: str = ""
    scope: str = ""
    location: str = ""
    phase: str = ""
    work_provenance: str = "user"
    bytes_provenance: str = "user"
    counters: Counters | None = None
    by_step: tuple[Share, ...] = ()
    by_device: tuple[Share, ...] = ()
    ledger: Ledger | None = None
    notes: tuple[str, ...] = ()

    @property
    def priced(self) -> bool:
        """Whether no resource it uses is unknown."""
        return self.cost.is_known

    @property
    def launches(self) -> float:
        """How many launches its time is spread over: its kernels, where they are known."""
        return self.kernels or self.count


@dataclass(frozen=True, slots=True)
class Workload:
    """The operations of a program. Its cost is the sum of theirs."""

    ops: tuple[Op, ...]

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
        times = [op.time_s for op in self.ops if op.time_s is not None]
        return sum(times) if times else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device that a recording saw, and the peaks it reported of itself."""

    id: int
    name: str
    host: str = ""
    rates: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Seconds of wall, busy, attributed and priced time, each a union of intervals; ``None`` when the source has no clock."""

    wall_s: float | None = None
    busy_s: float | None = None
    attributed_s: float | None = None
    priced_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step that a recording saw whole: its key in the ops' shares, its number and name as labels, and its seconds.

    ``wall_s`` is last end minus first start summed over devices, ``busy_s`` the union of its intervals. Steps that the recording cut
    off are not complete, and count in no average.
    """

    key: int
    name: str = ""
    number: int | None = None
    wall_s: float | None = None
    busy_s: float | None = None
    complete: bool = True


NO_COVERAGE = Coverage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What a source turned its input into."""

    workload: Workload
    format: str
    files: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    steps: tuple[Step, ...] = ()
    coverage: Coverage = NO_COVERAGE
    notes: tuple[str, ...] = ()
