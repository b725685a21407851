"""The report: one versioned value that feeds every view. Its fields are the JSON contract, in base units; unknown is ``None``.

`report.schema.json` beside this file describes the same shape as JSON Schema. Fields are added, never renamed.
"""

from dataclasses import dataclass, field

from .workload import NO_COVERAGE, Coverage

SCHEMA = "roofline.report/1"

Amounts = dict[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """A device the input came from."""

    id: int
    name: str
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputInfo:
    """What was read."""

    format: str
    files: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    devices: tuple[DeviceInfo, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherFigure:
    """A value that another source gives."""

    rate: float
    citation: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingInfo:
    """One roof, and where its height comes from."""

    resource: str
    rate: float
    per: str
    provenance: str
    citation: str = ""
    note: str = ""
    peak: float | None = None
    count: int = 1
    others: tuple[OtherFigure, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityInfo:
    """How much one memory holds."""

    level: str
    bytes: float
    provenance: str
    citation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitInfo:
    """A named lower roof inside the roof."""

    name: str
    resource: str
    fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineInfo:
    """The machine everything was held against."""

    name: str
    ceilings: tuple[CeilingInfo, ...]
    title: str = ""
    scope: str = "chip"
    devices_per_chip: int = 1
    launch_latency_s: float | None = None
    capacities: tuple[CapacityInfo, ...] = ()
    limits: tuple[LimitInfo, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The program as one point: all of it, by counters, the average step, or one step."""

    scope: str
    step: int | None = None
    infeed_outfeed: bool = True
    time_s: float | None = None
    busy_s: float | None = None
    work: Amounts = field(default_factory=dict)
    flops: float | None = None
    bytes: Amounts = field(default_factory=dict)
    intensity: float | None = None
    bound: str | None = None
    floor_s: float | None = None
    serial_s: float | None = None
    efficiency: float | None = None
    op_efficiency: float | None = None
    utilization: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One tensor of an op's ledger."""

    tensor: str
    shape: tuple[float, ...]
    dtype: str
    access: str
    level: str
    bytes: float
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterInfo:
    """What hardware counters measured."""

    work: Amounts = field(default_factory=dict)
    bytes: Amounts = field(default_factory=dict)
    time_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpInfo:
    """One operation and where it stands: totals over all executions."""

    id: int
    rank: int
    name: str
    category: str = ""
    module: str = ""
    scope: str = ""
    location: str = ""
    phase: str = ""
    count: float = 1
    kernels: float | None = None
    time_s: float | None = None
    self_time_s: float | None = None
    work: Amounts = field(default_factory=dict)
    flops: float | None = None
    unit: str | None = None
    dtype: str | None = None
    bytes: Amounts = field(default_factory=dict)
    hops: Amounts = field(default_factory=dict)
    intensity: float | None = None
    ridge: float | None = None
    attainable: float | None = None
    floor_s: float | None = None
    serial_s: float | None = None
    expected_s: float | None = None
    bound: str | None = None
    efficiency: float | None = None
    times: dict[str, float] = field(default_factory=dict)
    utilization: dict[str, float] = field(default_factory=dict)
    provenance: dict[str, str] = field(default_factory=dict)
    counters: CounterInfo | None = None
    roofs: tuple[str, ...] = ()
    unrated: tuple[str, ...] = ()
    ledger: tuple[LedgerRow, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShare:
    """The part of an op in one step."""

    op: int
    step: int
    count: float
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceShare:
    """The part of an op on one device."""

    op: int
    device: int
    count: float
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something worth telling: what kind, about which ops, in words, and the seconds it could save."""

    kind: str
    message: str
    ops: tuple[int, ...] = ()
    saving_s: float | None = None
    levers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A program held against a machine."""

    schema: str = SCHEMA
    input: InputInfo
    machine: MachineInfo
    coverage: Coverage = NO_COVERAGE
    points: tuple[Point, ...] = ()
    ops: tuple[OpInfo, ...] = ()
    by_step: tuple[StepShare, ...] = ()
    by_device: tuple[DeviceShare, ...] = ()
    findings: tuple[Finding, ...] = ()
