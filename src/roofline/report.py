"""The report: one versioned value that feeds every view. Its fields are the JSON contract, in base units; unknown is ``None``.

`report.schema.json` next to this file describes the same structure as JSON Schema. Fields are added, never renamed.
"""

from msgspec import Struct, field

from .errors import clean
from .machine import Figure, Spread
from .peak_memory import PeakMemory
from .reported_op import Amounts as Amounts
from .reported_op import AvoidableInfo as AvoidableInfo
from .reported_op import CounterInfo as CounterInfo
from .reported_op import Expected as Expected
from .reported_op import LedgerRow as LedgerRow
from .reported_op import Number as Number
from .reported_op import OpInfo as OpInfo
from .reported_op import WrittenOp as WrittenOp
from .reported_op import written_op as written_op
from .schedule import PredictedTime
from .units import number_of, show
from .workload import NO_COVERAGE, Coverage, Row
from .workload import Device as Device
from .workload import Step as Step

SCHEMA = "roofline.report/1"
FINDINGS_IN_SUMMARY = 3


class InputInfo(Struct, frozen=True, kw_only=True):
    """What was read."""

    format: str
    files: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    notes: tuple[str, ...] = ()


class CeilingInfo(Struct, frozen=True, kw_only=True):
    """One roof, and where its height comes from; ``fraction`` is the part of that rate which corrections left."""

    resource: str
    rate: Number
    per: str
    provenance: str
    citation: str = ""
    note: str = ""
    peak: Number | None = None
    count: int = 1
    others: tuple[Figure, ...] = ()
    spread: Spread | None = None
    fraction: Number = 1


class CapacityInfo(Struct, frozen=True, kw_only=True):
    """How much one memory holds."""

    level: str
    bytes: Number
    provenance: str
    citation: str = ""


class LimitInfo(Struct, frozen=True, kw_only=True):
    """A named lower roof inside the roof."""

    name: str
    resource: str
    fraction: Number


class MachineInfo(Struct, frozen=True, kw_only=True):
    """The machine of a report; ``matrix_unit`` is false for one that has none, so that products run on its vector unit.

    ``assumed`` is whether neither the user nor the input named it.
    """

    name: str
    ceilings: tuple[CeilingInfo, ...]
    title: str = ""
    kind: str = ""
    scope: str = "chip"
    devices_per_chip: int = 1
    matrix_unit: bool | None = None
    launch_latency_s: Number | None = None
    capacities: tuple[CapacityInfo, ...] = ()
    limits: tuple[LimitInfo, ...] = ()
    notes: tuple[str, ...] = ()
    conditions: dict[str, str] = field(default_factory=dict)
    assumed: bool = False


class Throughput(Struct, frozen=True, kw_only=True):
    """How many tokens, samples or requests a program handles: per second, per second and device, and per hour of one chip.

    ``per_dollar`` is known where the price of a chip's hour was given.
    """

    per_s: Number
    per_device_s: Number
    per_chip_hour: Number
    per_dollar: Number | None = None


class Point(Struct, frozen=True, kw_only=True):
    """The program as one point: all of it, by counters, the average step, or one step.

    Seconds are wall time of a device, ``time_s`` the mean over devices and ``slowest_s`` the longest; of the whole program both are the
    wall clock of the run. ``device_seconds`` is the sum over devices, which rates and efficiencies use: work and bytes are those of all
    devices. ``span_s`` is from the first device work to the last. ``time_s`` is ``at_roof_s``, the sum of the ops' minimum times for
    needed work, plus what is ``lost`` by cause: see `losses.split_losses`. ``floors_s`` is the sum of the ops' minimum times for all work,
    where ops that run beside others count as far as these wait for them: the least for a program without times. ``hfu`` is the time that
    the matrix work would take at its peak rates over the time, ``mfu`` the same for the work that the model needed; ``needed`` is that
    work where it is less than ``work``, ``unneeded`` the rest by class, as for ops. ``op_efficiency`` is the share of the time at the ops'
    minimum times for all work: ``at_roof_s`` and what is lost as unneeded. ``flops_by_convention`` has the FLOP as other counters count
    them, by their name: ``flop_counter`` is PyTorch's (attention in full, recomputed scores and padding included). ``throughput`` is by
    the words given with the number per step (tokens, samples). ``unprofiled_s`` is the time of a step without the profiler, of an average
    step that was captured. Of a program after a change, ``time_s`` is predicted, ``expected`` has its
    bounds and ``before_s`` is what was measured before.
    """

    scope: str
    step: int | None = None
    infeed_outfeed: bool = True
    time_s: Number | None = None
    slowest_s: Number | None = None
    span_s: Number | None = None
    busy_s: Number | None = None
    device_seconds: Number | None = None
    work: Amounts = field(default_factory=dict)
    flops: Number | None = None
    bytes: Amounts = field(default_factory=dict)
    hops: Amounts = field(default_factory=dict)
    known: dict[str, Number] = field(default_factory=dict)
    intensity: Number | None = None
    bound: str | None = None
    floor_s: Number | None = None
    serial_s: Number | None = None
    efficiency: Number | None = None
    op_efficiency: Number | None = None
    utilization: dict[str, Number] = field(default_factory=dict)
    at_roof_s: Number | None = None
    floors_s: Number | None = None
    lost: dict[str, Number] = field(default_factory=dict)
    mfu: Number | None = None
    hfu: Number | None = None
    needed: Amounts | None = None
    unneeded: dict[str, Number] = field(default_factory=dict)
    flops_by_convention: dict[str, Number] = field(default_factory=dict)
    throughput: dict[str, Throughput] = field(default_factory=dict)
    expected: Expected | None = None
    before_s: Number | None = None
    unprofiled_s: Number | None = None


class StepShare(Struct, frozen=True, kw_only=True):
    """The part of an op in one step."""

    op: int
    step: int
    count: Number
    time_s: Number


class DeviceShare(Struct, frozen=True, kw_only=True):
    """The part of an op on one device."""

    op: int
    device: int
    count: Number
    time_s: Number


class StepDeviceShare(Struct, frozen=True, kw_only=True):
    """The parts of an op in each of some steps on one device, in columns; only where there are several devices."""

    op: int
    device: int
    steps: tuple[int, ...]
    counts: tuple[Number, ...]
    times_s: tuple[Number, ...]


class PredictedOp(Struct, frozen=True, kw_only=True):
    """An op after a change: the seconds of all its executions, its FLOP and bytes of main memory; all 0 where the change removes it."""

    op: int
    time_s: Number
    flops: Number
    hbm: Number


class Predicted(Struct, frozen=True, kw_only=True):
    """The predicted effect of a change: its ``roofline whatif`` arguments, and the seconds of a step (else of the run) before and after.

    ``low_s`` and ``high_s`` are the 90% interval; ``ops`` are those that change. ``after`` has the changes made before it: those that it
    needs, and those with a larger saving of the same ops; ``before_s`` is the time after these.
    """

    change: str
    after: str = ""
    before_s: Number
    time_s: Number
    low_s: Number
    high_s: Number
    ops: tuple[PredictedOp, ...] = ()


class Finding(Row, frozen=True, kw_only=True):
    """A diagnosis: what kind, about which ops, in words, and the seconds it could save.

    ``saving_s`` is in device-seconds, summed over devices, as ops' times are. ``saving_per_device_s`` is the time saved on the clock of the
    run, the mean over devices; ``saving_per_step_s`` the same of one step, where there are steps. ``after_s`` is the run's device-seconds
    without them. ``title`` is what the finding is about, in a few words, ``where`` the scope and the source line of the op that it is most
    about. ``predicted`` is the effect of the change that it recommends,
    where that can be computed. ``then_s`` is the time of a step, else of the run, after this change and those made before it: the one with
    the longest comes first.
    """

    kind: str
    message: str
    title: str = ""
    where: str = ""
    ops: tuple[int, ...] = ()
    saving_s: Number | None = None
    saving_per_device_s: Number | None = None
    saving_per_step_s: Number | None = None
    after_s: Number | None = None
    levers: tuple[str, ...] = ()
    predicted: Predicted | None = None
    then_s: Number | None = None


class IdleShare(Struct, frozen=True, kw_only=True):
    """The part of an idle reason that falls into one step."""

    step: int
    gaps: int
    time_s: Number


class IdleInfo(Row, frozen=True, kw_only=True):
    """Why devices were idle: the kind of reason (`causes.REASONS`), what the host did then, and where in the user's code.

    ``time_s`` is the mean over devices, and so is that of each step in ``by_step``; ``gaps`` are those of all devices. ``recording_s``
    estimates how much of it the profiler itself took to record events of the host; null where that is not known.
    """

    reason: str
    activity: str
    location: str = ""
    time_s: Number
    gaps: int
    recording_s: Number | None = None
    by_step: tuple[IdleShare, ...] = ()


class LaneInfo(Struct, frozen=True, kw_only=True):
    """What one device did in each bucket of a stretch of time: one typical step, or the whole run (``step`` is null).

    ``start_s`` counts from the first device work of its host. A bucket lasts ``bucket_s``; the last one ends with ``time_s``. ``at_roof_s``
    and each of ``causes`` (those of a point's ``lost`` that occur) have the seconds of each bucket, which sum to its length. ``ops`` are
    the ids of the longest ops in each bucket, longest first, and ``ops_s`` their self times there. ``host`` is what the host did for most
    of the idle time of each bucket, as an index into the report's ``idle``; null where the device was busy, and empty where the profile did
    not record the host.
    """

    device: int
    step: int | None
    start_s: Number
    time_s: Number
    bucket_s: Number
    at_roof_s: tuple[Number, ...]
    causes: dict[str, tuple[Number, ...]]
    ops: tuple[tuple[int, ...], ...]
    ops_s: tuple[tuple[Number, ...], ...]
    host: tuple[int | None, ...] = ()


class CollectiveInfo(Row, frozen=True, kw_only=True):
    """A collective of a program that was divided between devices, by the id of its op, and why it is there.

    ``axes`` are those of the mesh that its groups of ``devices`` span, ``bytes`` those of the arrays that it gives, each time of its
    ``count``. ``time_s`` is how long it is in flight in all, ``exposed_s`` the part of that which nothing hides. ``reason`` is ``argument``
    (divided, but needed whole), ``table`` (the same, to look up rows of it), ``rows`` (of a divided table), ``value`` (a computed array),
    ``summed`` (a product sums over a divided dimension), ``gradient`` (of a part of the batch), ``reduced``, ``written`` (by the author),
    ``resharded`` (divided in another way), ``windowed`` (a product in parts), ``neighbours`` or ``unknown``; ``array`` names the argument.
    """

    op: int
    kind: str
    axes: tuple[str, ...] = ()
    devices: int = 1
    count: Number = 1
    bytes: Number = 0
    time_s: Number | None = None
    exposed_s: Number | None = None
    reason: str = ""
    array: str = ""
    why: str = ""
    location: str = ""


class VariantInfo(Row, frozen=True, kw_only=True):
    """A variant of a program, compiled beside it: on another slice or mesh, or after a change; its step, and the memory of a device.

    Without ``step_s`` it does not fit (``fits`` is false), or was not compiled, for the ``reason``. ``exposed_s`` is the part of the step
    that waits for communication and copies; ``chip_seconds`` those of all chips that a step takes.
    """

    chip: str
    mesh: str = ""
    change: str = ""
    fits: bool | None = None
    step_s: Number | None = None
    low_s: Number | None = None
    high_s: Number | None = None
    exposed_s: Number | None = None
    needed_bytes: Number | None = None
    capacity_bytes: Number | None = None
    chip_seconds: Number | None = None
    per_chip_hour: dict[str, Number] = field(default_factory=dict)
    reason: str = ""


class FoldInfo(Struct, frozen=True, kw_only=True):
    """Ops that do the same work in every layer, or many times in one scope: their ids, and a label for all of them with their number."""

    label: str
    ops: tuple[int, ...]


def main_point(points: tuple[Point, ...]) -> Point | None:
    """The average step, else the whole program; without infeed and outfeed only where there are no others."""
    whole = [point for point in points if point.infeed_outfeed] or points
    of = {point.scope: point for point in reversed(whole)}
    return of.get("average") or of.get("total")


class Report(Struct, frozen=True, kw_only=True):
    """A program compared with a machine's limits; with ``changes``, its prediction after them.

    With ``predicted`` its times are not measured: its schedule was played on the machine. ``variants`` are those that were compiled with
    it, itself among them, the best first.
    """

    schema: str = SCHEMA
    input: InputInfo
    machine: MachineInfo
    coverage: Coverage = NO_COVERAGE
    points: tuple[Point, ...] = ()
    ops: tuple[OpInfo, ...] = ()
    steps: tuple[Step, ...] = ()
    by_step: tuple[StepShare, ...] = ()
    by_device: tuple[DeviceShare, ...] = ()
    by_step_and_device: tuple[StepDeviceShare, ...] = ()
    idle: tuple[IdleInfo, ...] = ()
    findings: tuple[Finding, ...] = ()
    memory: PeakMemory | None = None
    predicted: PredictedTime | None = None
    timeline: tuple[LaneInfo, ...] = ()
    collectives: tuple[CollectiveInfo, ...] = ()
    changes: tuple[str, ...] = ()
    folds: tuple[FoldInfo, ...] = ()
    variants: tuple[VariantInfo, ...] = ()
    summary: str = ""

    @property
    def total(self) -> Point | None:
        """The whole program, infeed and outfeed included."""
        return next((point for point in self.points if point.scope == "total" and point.infeed_outfeed), None)

    @property
    def main_point(self) -> Point | None:
        """The average step, or the whole program."""
        return main_point(self.points)

    def __repr__(self) -> str:
        return clean(f"<Report: {self.heading}>")

    def __str__(self) -> str:
        """A short summary: what ran where, for how long, how near to the roofline, and the first findings."""
        lines, total = [self.heading], self.total
        if self.summary:
            lines.append(self.summary)
        elif total:
            lines.append(f"minimum time {show(total.floor_s, 's')}")
        return clean("\n".join([*lines, *(f"- {finding.message}" for finding in self.findings[:FINDINGS_IN_SUMMARY])]))

    @property
    def heading(self) -> str:
        """What was analyzed, on which machine, and how many ops it has."""
        what = ", ".join(self.input.files) or self.input.format
        return f"{what} on {self.machine.name}, {number_of(len(self.ops), 'op')}"
