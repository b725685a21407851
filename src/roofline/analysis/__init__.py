"""Analysis: a recording compared with a machine's limits. The command line and every other entry point call this."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from ..cost import Amount, Cost
from ..ledger import Ledger
from ..machine import Machine
from ..machines import load
from ..machines.detection import machine_for
from ..placement import IDEAL, Corrections, hold
from ..report import (
    CapacityInfo,
    CeilingInfo,
    CounterInfo,
    DeviceInfo,
    DeviceShare,
    Finding,
    InputInfo,
    LedgerRow,
    LimitInfo,
    MachineInfo,
    OpInfo,
    OtherFigure,
    Report,
    StepDeviceShare,
    StepInfo,
    StepShare,
)
from ..sources import read
from ..sources.remote import Progress
from ..sources.report_json import stored_report
from ..workload import Op, Recording, Workload
from .advice import Placed, advise, in_order
from .cache_hits import resident, served
from .counters import LaunchCounters, model_against_counters, with_counters
from .program_points import amounts, known_parts, number, points
from .stragglers import straggler

ONLY_HBM = "GPU profiles have no counters: only hbm traffic is modelled; add l2 and l1 with --counters FILE.csv (Nsight Compute)"


def analyze(
    source: Recording | str | Path | Sequence[str | Path],
    machine: Machine | str | None = None,
    corrections: Corrections = IDEAL,
    *,
    counters: Sequence[str | Path] = (),
    salvage: bool = False,
    jobs: int | None = None,
    cluster: str | None = None,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> Report:
    """The report on a profile, program, table or report, from its path, from the paths of a run's hosts, or already read.

    Without a ``machine`` it is the profile's own device; a report is returned as it was written. ``counters`` are Nsight Compute CSVs of
    the same program. ``salvage`` reads a damaged profile up to the damage. Files of several hosts are read by ``jobs`` processes, or by the
    Dask cluster at ``cluster``, with parsed profiles cached in the folder ``cache``. ``progress`` is called with the bytes read and the
    bytes to read.
    """
    target = load(machine) if isinstance(machine, str) else machine
    if isinstance(source, Recording):
        recording = source
    else:
        if target is None and corrections == IDEAL and not counters and (kept := _stored(source)) is not None:
            return kept
        machine_to_read = target or (lambda: machine_for(()))
        recording = read(source, machine_to_read, salvage=salvage, jobs=jobs, cluster=cluster, cache=cache, progress=progress)
    if counters:
        recording = with_counters(recording, counters)
    return assemble(recording, target or machine_for(recording.devices), corrections)


def _stored(source: str | Path | Sequence[str | Path]) -> Report | None:
    """The report that the one file to read already is; it keeps its machine."""
    names = [source] if isinstance(source, str | Path) else list(source)
    return stored_report(names[0]) if len(names) == 1 else None


def assemble(recording: Recording, machine: Machine, corrections: Corrections = IDEAL) -> Report:
    """The report on a recording, on a machine."""
    placed = [_placed(number, op, machine, corrections) for number, op in enumerate(recording.workload)]
    moved = [one for one, op in zip(placed, recording.workload, strict=True) if one.op is not op]
    ops = tuple(_op_info(one, rank) for rank, one in enumerate(sorted(placed, key=_weight), start=1))
    devices = tuple(DeviceInfo(id=device.id, name=device.name, host=device.host) for device in recording.devices)
    by_device = tuple(DeviceShare(op=one.id, device=s.key, count=s.count, time_s=s.time_s) for one in placed for s in one.op.by_device)
    bare = recording.kernels and all(op.counters is None for op in recording.workload)
    return Report(
        input=InputInfo(
            format=recording.format,
            files=recording.files,
            hosts=recording.hosts,
            devices=devices,
            notes=(*recording.notes, ONLY_HBM) if bare else recording.notes,
        ),
        machine=describe(corrections.lower(machine)),
        coverage=recording.coverage,
        points=points(recording, placed, machine, corrections),
        ops=ops,
        steps=tuple(
            StepInfo(
                step=s.key,
                name=s.name,
                number=s.number,
                time_s=s.time_s,
                slowest_s=s.slowest_s,
                span_s=s.span_s,
                busy_s=s.busy_s,
                device_seconds=s.device_seconds,
                complete=s.complete,
                followed=s.followed,
            )
            for s in recording.steps
        ),
        by_step=tuple(StepShare(op=one.id, step=s.key, count=s.count, time_s=s.time_s) for one in placed for s in one.op.by_step),
        by_device=by_device,
        by_step_and_device=tuple(
            StepDeviceShare(op=one.id, device=part.device, steps=part.steps, counts=part.counts, times_s=part.times_s)
            for one in placed
            for part in one.op.by_step_and_device
        ),
        findings=_findings(placed, machine, ops, by_device, devices, moved),
    )


def _findings(
    placed: list[Placed],
    machine: Machine,
    ops: tuple[OpInfo, ...],
    shares: tuple[DeviceShare, ...],
    devices: tuple[DeviceInfo, ...],
    moved: list[Placed],
) -> tuple[Finding, ...]:
    """What the ops themselves say, which of them a cache served, and what the devices do that ran them."""
    found = advise(placed, machine)
    if moved:
        found = in_order([*found, served(moved)])
    if len(devices) < 2:
        return found
    slow = straggler(ops, shares, devices)
    return in_order([*found, slow]) if slow else found


def _placed(number: int, op: Op, machine: Machine, corrections: Corrections) -> Placed:
    placement = hold(op.cost, machine, op.time_s, corrections, op.launches)
    if cached := resident(op, placement):
        return Placed(number, cached, hold(cached.cost, machine, op.time_s, corrections, op.launches))
    return Placed(number, op, placement)


def price(ledgers: Iterable[Ledger], machine: Machine, *, time_s: float | None = None, corrections: Corrections = IDEAL) -> Report:
    """The report on hand formulas: each ledger an op, with the measured time of the only one if there is one."""
    ops = tuple(
        Op(
            name=ledger.name,
            cost=ledger.cost,
            kernels=float(ledger.kernels),
            time_s=time_s,
            work_provenance="formula",
            bytes_provenance="formula",
            ledger=ledger,
            notes=ledger.notes,
        )
        for ledger in ledgers
    )
    return analyze(Recording(workload=Workload(ops), format="formula"), machine, corrections)


def describe(machine: Machine) -> MachineInfo:
    """A machine as the report shows it, every roof with its origin."""
    return MachineInfo(
        name=machine.name,
        title=machine.title,
        kind=machine.kind,
        scope=machine.scope,
        devices_per_chip=machine.devices,
        launch_latency_s=machine.launch_latency_s,
        ceilings=tuple(
            CeilingInfo(
                resource=ceiling.resource.name,
                rate=ceiling.rate,
                per=ceiling.resource.per,
                provenance=ceiling.provenance,
                citation=ceiling.citation,
                note=ceiling.note,
                peak=ceiling.peak,
                count=ceiling.count,
                others=tuple(OtherFigure(rate=other.value, citation=other.citation, note=other.note) for other in ceiling.others),
            )
            for ceiling in machine.ceilings
        ),
        capacities=tuple(
            CapacityInfo(level=held.level.name, bytes=held.bytes, provenance=held.provenance, citation=held.citation)
            for held in machine.capacities
        ),
        limits=tuple(LimitInfo(name=limit.name, resource=limit.resource.name, fraction=limit.fraction) for limit in machine.limits),
        notes=machine.notes,
    )


def _weight(one: Placed) -> tuple[float, int]:
    """Ops come longest first: by measured time, else by the floor."""
    seconds = one.op.time_s if one.op.time_s is not None else one.placement.floor_s
    return -seconds, one.id


def _op_info(one: Placed, rank: int) -> OpInfo:
    op, placement = one.op, one.placement
    flops, compute = op.cost.flops, placement.compute
    return OpInfo(
        id=one.id,
        rank=rank,
        name=op.name,
        category=op.category,
        module=op.module,
        scope=op.scope,
        location=op.location,
        phase=op.phase,
        count=op.count,
        kernels=op.kernels,
        time_s=op.time_s,
        self_time_s=op.self_time_s,
        work=amounts(op.cost, "FLOP"),
        flops=number(flops),
        unit=compute.unit if compute else None,
        dtype=compute.kind if compute else None,
        bytes=amounts(op.cost, "B"),
        hops=amounts(op.cost, "hop"),
        known=known_parts(op.cost),
        intensity=placement.intensity(),
        intensities=_intensities(op.cost, flops),
        rate=placement.achieved,
        bandwidth=_bandwidth(op.cost, op.time_s),
        ridge=placement.ridge(),
        attainable=placement.attainable,
        floor_s=None if placement.is_unknown else placement.floor_s,
        serial_s=None if placement.is_unknown else placement.serial_s,
        expected_s=None if placement.is_unknown else placement.expected_s,
        bound=placement.bound,
        efficiency=placement.efficiency,
        times=dict(placement.times),
        utilization=placement.utilization,
        provenance={"work": op.work_provenance, "bytes": op.bytes_provenance},
        counters=_counters(op),
        roofs=tuple(resource.name for resource in placement.roofs),
        unrated=tuple(resource.name for resource in placement.unrated),
        ledger=tuple(_ledger_rows(op.ledger)),
        notes=op.notes,
    )


def _intensities(cost: Cost, flops: Amount | None) -> dict[str, float]:
    """FLOP over the bytes of each memory level and link, where both are known."""
    return {level: float(flops / amount) for level, amount in _moved(cost)} if flops else {}


def _bandwidth(cost: Cost, time_s: float | None) -> dict[str, float]:
    """Bytes a second over each memory level and link."""
    return {level: float(amount) / time_s for level, amount in _moved(cost)} if time_s else {}


def _moved(cost: Cost) -> Iterable[tuple[str, Amount]]:
    return ((level.name, amount) for level, amount in cost.amounts if level.measure == "B" and level not in cost.unknown)


def _counters(op: Op) -> CounterInfo | None:
    if op.counters is None:
        return None
    counters, cost = op.counters, op.counters.cost
    launches, of = (counters.launches, counters.of) if isinstance(counters, LaunchCounters) else (None, None)
    return CounterInfo(
        work=amounts(cost, "FLOP"),
        bytes=amounts(cost, "B"),
        time_s=counters.time_s,
        flops=number(cost.flops),
        launches=launches,
        of=of,
        rate=float(cost.flops) / op.time_s if cost.flops is not None and op.time_s else None,
        bandwidth=_bandwidth(cost, op.time_s),
        intensities=_intensities(cost, cost.flops),
        ratio={row.quantity: row.ratio for row in model_against_counters([op]) if row.ratio is not None},
    )


def _ledger_rows(ledger: Ledger | None) -> Iterable[LedgerRow]:
    for row in ledger.rows if ledger else ():
        yield LedgerRow(
            tensor=row.tensor,
            shape=tuple(number(size) or 0 for size in row.shape),
            dtype=row.dtype.name,
            access=row.access,
            level=row.level.name,
            bytes=number(row.bytes) or 0,
            note=row.note,
        )
