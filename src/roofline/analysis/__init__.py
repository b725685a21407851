"""Analysis: a recording compared with a machine's limits. The command line and every other entry point call this.

Ops are placed (`placed_ops`), their times and losses summed into points (`program_points`, `losses`), and findings made of what is lost,
idle or unneeded (`findings/`). `what_if` predicts changes
(`changes/`), `validation` checks that counts and times agree, `budgets` checks conditions.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from msgspec.structs import replace

from ..cost import Cost
from ..dtypes import dtype, one_pass_note
from ..errors import UsageError
from ..grouping.folding import fold_infos
from ..ledger import Ledger
from ..machine import Machine
from ..machines import load
from ..machines.calibrations import calibration_for
from ..machines.detection import machine_for
from ..placement import IDEAL, Corrections, MinimumTimes
from ..prediction import Expected
from ..prediction.calibration import Calibration
from ..report import (
    CapacityInfo,
    CeilingInfo,
    DeviceShare,
    IdleInfo,
    IdleShare,
    InputInfo,
    LaneInfo,
    LimitInfo,
    MachineInfo,
    Report,
    StepDeviceShare,
    StepShare,
)
from ..sources import HowToRead, read
from ..sources.remote import Progress
from ..sources.report_json import only_stored_report
from ..sources.target import Target
from ..workload import IdleReason, Lane, Op, Recording, Workload
from .assumed_machine import machine_as_it_ran
from .cache_hits import cache_hits_note
from .evidence import with_evidence
from .expected_times import predict_op
from .findings.diagnosis import findings
from .findings.stragglers import straggler
from .memory import out_of_memory, with_capacity
from .needed_work import Needed, needed
from .op_info import op_infos
from .op_times import OpTimes, share_waited_for
from .placed_ops import PlacedOps
from .played.collectives import collectives
from .played.times import expected_step, with_played_times
from .program_points import points
from .shared_work import with_shared_work
from .summary import summary
from .throughput import with_throughput

if TYPE_CHECKING:
    from ..formulas.network import Network

MOST_PREDICTED = 50_000  # programs with more ops get no predicted times
ONLY_HBM = "GPU profiles have no counters: only hbm traffic is modelled; add l2 and l1 with --counters FILE.csv (Nsight Compute)"


class Opened(NamedTuple):
    """An input: its report, and the recording with the machine that the report was made of, unless the input was a stored report."""

    report: Report
    recording: Recording | None = None
    machine: Machine | None = None


def open_report(
    source: Recording | str | Path | Sequence[str | Path],
    machine: Target = machine_for,
    corrections: Corrections = IDEAL,
    *,
    again: bool = False,
    counters: Sequence[str | Path] = (),
    per_step: Mapping[str, float] | None = None,
    price: float | None = None,
    network: "Callable[[Machine], Network | None] | None" = None,
    trips: Mapping[str, int] | None = None,
    **how: Unpack[HowToRead],
) -> Opened:
    """The one way from an input to its report: every command, server, agent and function of Python takes it.

    ``machine`` is one, or finds that of devices, with every change that is asked for: a recording meets it once. A stored report keeps its
    own, unless it is analyzed ``again``. Programs alone are read with a ``network`` or ``trips`` of loops.
    """
    if isinstance(source, Recording):
        recording = source
    else:
        if not (again or counters or corrections != IDEAL) and (kept := only_stored_report(source)) is not None:
            return Opened(with_throughput(kept, per_step or {}, price))
        if network is None:
            recording = read(source, machine, **how)
        else:
            from ..sources import programs  # takes 30 ms to import, and profiles do not need it

            (path,) = [source] if isinstance(source, str | Path) else source
            recording = programs.read(Path(path), machine, network=network, trips=trips)
    if counters:
        from .counters.joining import with_counters  # needed by few profiles

        recording = with_counters(recording, counters)
    chip = machine if isinstance(machine, Machine) else machine(recording.devices)
    report = assemble(recording, chip, corrections)
    return Opened(with_throughput(report, per_step or {}, price), recording, chip)


def analyze(
    source: Recording | str | Path | Sequence[str | Path],
    machine: Machine | str | None = None,
    corrections: Corrections = IDEAL,
    *,
    counters: Sequence[str | Path] = (),
    per_step: Mapping[str, float] | None = None,
    price: float | None = None,
    salvage: bool = False,
    timeline: bool = False,
    jobs: int | None = None,
    cluster: str | None = None,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> Report:
    """The report on a profile, program, table or report, from its path, from the paths of a run's hosts, or already read.

    Without a ``machine`` it is the profile's own device; a report is returned as it was written. ``counters`` are Nsight Compute CSVs of
    the same program. ``per_step`` is how many tokens, samples or requests a step handles on all devices together, for its throughput,
    ``price`` what an hour of one chip costs.
    ``salvage`` reads a damaged profile up to the damage. ``timeline`` adds what each device of a profile did when, which is read in a
    second pass. Files of several hosts are read by ``jobs`` processes, or by the Dask cluster at ``cluster``, with parsed profiles cached
    in the folder ``cache``. ``progress`` is called with the bytes read and the bytes to read.
    """
    if isinstance(source, Report):
        raise UsageError("a report is analyzed already; to analyze the same work on another chip, give its file: rl.analyze(path, 'h100')")
    target = load(machine) if isinstance(machine, str) else machine or machine_for
    how: HowToRead = {"salvage": salvage, "timeline": timeline, "jobs": jobs, "cluster": cluster, "cache": cache, "progress": progress}
    again = machine is not None
    return open_report(source, target, corrections, again=again, counters=counters, per_step=per_step, price=price, **how).report


def assemble(recording: Recording, machine: Machine, corrections: Corrections = IDEAL, calibration: Calibration | None = None) -> Report:
    """The report on a recording, on a machine; expected times come from the ``calibration``, by default the machine's own."""
    recording = with_evidence(recording)
    if any(op.value for op in recording.workload.ops):
        recording = replace(recording, workload=Workload(with_shared_work(recording.workload.ops)))
    machine = machine_as_it_ran(machine, recording)
    lowered = corrections.lower(machine)
    fitted = calibration or calibration_for(lowered)
    predicted = predictions(recording.workload.ops, lowered, fitted if recording.format == "formula" else fitted.for_kernels())
    placed = PlacedOps(recording.workload.ops, machine, corrections)
    if recording.schedules:
        recording = with_played_times(recording, machine, predicted, placed.floor_s)
        placed = PlacedOps(recording.workload.ops, machine, corrections)
    op_times = _op_times(placed, machine, corrections, predicted)
    ops = op_infos(placed, op_times)
    made = points(recording, op_times, machine, corrections)
    if recording.predicted is not None:
        step = expected_step(recording.predicted)
        made = tuple(replace(point, expected=step) for point in made)
    devices = recording.devices
    device_shares = _device_shares(placed.ops)
    memory, described = with_capacity(recording.memory, machine), describe(lowered)
    other = [
        straggler(ops, device_shares, devices) if len(devices) > 1 else None,
        out_of_memory(memory, machine),
    ]
    found = findings(
        recording,
        placed,
        op_times,
        made,
        machine,
        corrections,
        fitted,
        [evidence for evidence in other if evidence is not None],
    )
    return Report(
        input=InputInfo(
            format=recording.format,
            files=recording.files,
            hosts=recording.hosts,
            devices=devices,
            notes=(*recording.notes, *_notes(placed, has_kernels=bool(recording.kernels))),
        ),
        machine=described,
        coverage=recording.coverage,
        points=made,
        ops=ops,
        steps=recording.steps,
        by_step=_step_shares(placed.ops),
        by_device=device_shares,
        by_step_and_device=_step_device_shares(placed.ops),
        idle=_idle(recording.idle, len(devices)),
        findings=found,
        memory=memory,
        predicted=recording.predicted,
        timeline=_timeline(recording.timeline, op_times),
        collectives=collectives(recording.graphs, recording.mesh, ops),
        folds=fold_infos(ops),
        summary=summary(made, described, devices, found, recording.predicted),
    )


def _notes(placed: PlacedOps, *, has_kernels: bool) -> tuple[str, ...]:
    """Notes on the memory levels that the ops are placed on."""
    cached = (cache_hits_note(placed.moved),) if placed.moved else ()
    without_counters = has_kernels and not any(op.counters for op in placed.ops)
    return (*cached, *((ONLY_HBM,) if without_counters else ()))


def _step_shares(ops: Sequence[Op]) -> tuple[StepShare, ...]:
    """The executions and the time of each op in each step."""
    parts = ((id, share) for id, op in enumerate(ops) for share in op.by_step)
    return tuple([StepShare(op=id, step=share.key, count=share.count, time_s=share.time_s) for id, share in parts])


def _device_shares(ops: Sequence[Op]) -> tuple[DeviceShare, ...]:
    """The executions and the time of each op on each device."""
    parts = ((id, share) for id, op in enumerate(ops) for share in op.by_device)
    return tuple([DeviceShare(op=id, device=share.key, count=share.count, time_s=share.time_s) for id, share in parts])


def _step_device_shares(ops: Sequence[Op]) -> tuple[StepDeviceShare, ...]:
    """The executions and the times of each op on each device, by step."""
    parts = ((id, on) for id, op in enumerate(ops) for on in op.by_step_and_device)
    return tuple([StepDeviceShare(op=id, device=on.device, steps=on.steps, counts=on.counts, times_s=on.times_s) for id, on in parts])


def _timeline(lanes: Sequence[Lane], op_times: OpTimes) -> tuple[LaneInfo, ...]:
    """What each device did when, where that was read."""
    if not lanes:
        return ()
    from .timeline import timeline_info

    return timeline_info(lanes, op_times)


def _idle(reasons: Iterable[IdleReason], devices: int) -> tuple[IdleInfo, ...]:
    """Why so many devices were idle, in seconds of one."""
    devices = max(devices, 1)
    return tuple(
        IdleInfo(
            reason=one.kind,
            activity=one.activity,
            location=one.location,
            time_s=one.time_s / devices,
            gaps=one.gaps,
            recording_s=one.recording_s / devices if one.recording_s else None,
            by_step=tuple(IdleShare(step=s.key, gaps=int(s.count), time_s=s.time_s / devices) for s in one.by_step),
        )
        for one in reasons
    )


def predictions(ops: Sequence[Op], machine: Machine, calibration: Calibration) -> dict[int, Expected]:
    """The expected time of each op, by its id; none for very many ops, where this would take longer than the rest."""
    if len(ops) > MOST_PREDICTED:
        return {}
    found: dict[int, Expected] = {}
    known: dict[tuple[Any, ...], Expected | None] = {}  # the layers of a program repeat their ops
    for id, op in enumerate(ops):
        work = (op.operation, op.cost, op.count, op.launches, op.compiled)
        if work not in known:
            known[work] = predict_op(op, machine, calibration)
        if (prediction := known[work]) is not None:
            found[id] = prediction
    return found


def _op_times(placed: PlacedOps, machine: Machine, corrections: Corrections, predicted: Mapping[int, Expected]) -> OpTimes:
    """Each op with its minimum and its expected time."""
    wasteful = [(number, op) for number, op in enumerate(placed.ops) if op.avoidable or op.compiled.products]
    minimum_s = MinimumTimes(machine, corrections)
    known: dict[Hashable, Needed | None] = {}  # ops of equal layers share their costs and avoidable work
    needs: dict[int, Needed] = {}
    for number, op in wasteful:
        floor_s = placed.floor_s[number]
        same = (*[(id(one.instead), one.unneeded) for one in op.avoidable], id(op.cost), op.compiled.products, op.count, floor_s)
        if same not in known:
            known[same] = needed(op, floor_s, minimum_s, machine)
        if (least := known[same]) is not None:
            needs[number] = least
    waited_share = share_waited_for(placed.ops, placed.floor_s, minimum_s)
    return OpTimes(placed.ops, placed.floor_s, placed.causes, placed.unit, needs, predicted, waited_share)


def price(
    ledgers: Iterable[Ledger],
    machine: Machine | str,
    *,
    time_s: float | None = None,
    corrections: Corrections = IDEAL,
    launch_floor_s: float | None = None,
) -> Report:
    """The report on hand formulas, one op per ledger; ``machine`` may be a chip's name, ``time_s`` is the measured time of a single one.

    ``launch_floor_s`` is how long the smallest op takes, where that was measured: expected times start from it.
    """
    machine = load(machine) if isinstance(machine, str) else machine
    ops = tuple(
        Op(
            name=ledger.name,
            cost=ledger.cost,
            kernels=float(ledger.kernels),
            time_s=time_s,
            work_provenance="formula",
            bytes_provenance="formula",
            ledger=ledger,
            operation=ledger.operation,
            notes=(*ledger.notes, *_precision_notes(ledger.cost, machine)),
        )
        for ledger in ledgers
    )
    recording = Recording(workload=Workload(ops), format="formula")
    return assemble(recording, machine, corrections, calibration_for(machine, launch_floor_s))


def _precision_notes(cost: Cost, machine: Machine) -> tuple[str, ...]:
    """Notes on how a machine runs fp32 products: a TPU in passes of bf16, a GPU in fp32 unless tf32 is allowed."""
    rated = machine.resolve("matrix/fp32") if cost.known("matrix/fp32") else None
    if rated is None:
        return ()
    if machine.kind == "tpu" and rated.resource.kind == "bf16":
        return (one_pass_note(dtype("fp32"), "bf16"),)
    if machine.ceiling("matrix/tf32"):
        return ("fp32 at highest precision; at default precision JAX runs it as tf32 on GPUs (compute tf32)",)
    return ()


def describe(machine: Machine) -> MachineInfo:
    """A machine as the report shows it, every roof with its origin."""
    return MachineInfo(
        name=machine.name,
        title=machine.title,
        kind=machine.kind,
        scope=machine.scope,
        devices_per_chip=machine.devices,
        matrix_unit=machine.matrix_unit,
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
                others=ceiling.others,
                spread=ceiling.spread,
                fraction=ceiling.fraction,
            )
            for ceiling in machine.ceilings
        ),
        capacities=tuple(
            CapacityInfo(level=capacity.level.name, bytes=capacity.bytes, provenance=capacity.provenance, citation=capacity.citation)
            for capacity in machine.capacities
        ),
        limits=tuple(LimitInfo(name=limit.name, resource=limit.resource.name, fraction=limit.fraction) for limit in machine.limits),
        notes=machine.notes,
        conditions=dict(machine.conditions),
        assumed=machine.assumed,
    )
