"""All findings about a recording: evidence of every origin, merged so that an op is in one finding, written and ordered once."""

from collections.abc import Mapping, Sequence, Set
from itertools import compress, count
from operator import not_

from msgspec.structs import replace

from ...causes import COMPUTE, MEMORY
from ...machine import Machine
from ...machines.architectures import capability_of
from ...peak_memory import RECORDED_ALLOCATIONS, PeakMemory
from ...placement import Corrections, MinimumTimes
from ...prediction.calibration import Calibration
from ...report import Finding, Point, Predicted
from ...resource import HBM
from ...rules.words.needs import missing
from ...workload import ProgramGraph, Recording
from ..idle_time import waiting
from ..memory import OUT_OF_MEMORY
from ..op_times import OpTimes, share_in_steps, values_at
from ..placed_ops import PlacedOps
from .avoidable_work import avoidable_cases, avoidable_evidence, worth_a_line
from .block_sizes import block_sizes
from .clock import Clock, clock_of
from .collectives import collective_evidence
from .evidence import LEVERS, Evidence, Saving
from .idle import RECORDED_KERNEL_S, RECORDED_PROGRAM_S, Launching, idle_evidence, with_autotuning
from .joined import with_removed_launches, with_their_copies
from .kernels import PRODUCTS, RECORDED_GAPS, KernelGaps, Limits, kernel_evidence
from .looped_calls import Loops, images_one_by_one, loops_of
from .matrix_fill import fills_the_unit, matrix_fill
from .offloaded import offloaded_tensors
from .order import decisive_doubts, in_order, in_sequence
from .program_chains import KIND as CHAIN
from .program_chains import programs_per_step
from .single_ops import Program, doubts, op_evidence
from .wall_clock import WallClock
from .writing import Writer

TORCH, XSPACE = "torch", "xspace"  # the formats of recordings of PyTorch's profiler and of JAX's
CALLBACK, GRAPH_REPLAY = "host callback", "graph replay"
JAX, PYTORCH, COMPILED, REPLAYED, HOST = "jax", "pytorch", "compiled", "replayed", "host"  # terms of words: see `rules.words`
COMPILED_GRAPH = "## Call CompiledFxGraph"  # the prefix of a compiled graph's name in PyTorch's traces
OF_BYTES = ("tile-padding", "layout-copies")  # kinds of avoidable work that leave the products of an op as they are
MOST_CHANGED = 10_000  # ops: in a longer program changes are not predicted without being asked for
FEW_PROGRAMS = 2  # least number of programs in a step that could be compiled together
# On a TPU, cases of levers that come before those of a kind, unless the chip lacks what they need or the program has it already.
FILL, FASTER, IN_VMEM, NARROW = "fill", "faster", "in vmem", "narrow"


def findings(
    recording: Recording,
    placed: PlacedOps,
    op_times: OpTimes,
    points: Sequence[Point],
    machine: Machine,
    corrections: Corrections,
    calibration: Calibration,
    further: Sequence[Evidence] = (),
) -> tuple[Finding, ...]:
    """The findings: for hand formulas about each op, for a program what changes save, and suspect figures, ``further`` ones among them."""
    decisive, names = {OUT_OF_MEMORY, *decisive_doubts(placed, points, machine)}, [op.name for op in placed.ops]
    has_steps = not recording.steps or any(point.scope == "average" for point in points)
    wall = WallClock(placed.ops, placed.floor_s, len(recording.devices), has_steps=has_steps)
    if recording.format == "formula" or not points:
        expected = {id: prediction.time_s for id, prediction in op_times.predicted.items()}
        faults = op_evidence([replace(placed[id], expected_s=expected.get(id)) for id in range(len(op_times))], machine)
        writer = Writer((machine.kind,), names=names, wall=wall)
        return in_order(map(writer.finding, [*faults, *further]), wall.op_times, wall.floor_s, decisive)
    clock = clock_of(points, recording.steps)
    suspect = doubts(_program(placed, machine, clock), placed.doubts(), placed.__getitem__)
    writer, faults = _diagnosed(op_times, recording, machine, clock, corrections, wall)
    faults = [_with_missing(fault, writer, recording.graphs) for fault in faults]
    predicted = _predicted(faults, writer, recording, clock, corrections.lower(machine), calibration)
    changes = [predicted.get(writer.words(fault.kind, fault.group).whatif or "") for fault in faults]
    faults = [_as_predicted(fault, change, clock) for fault, change in zip(faults, changes, strict=True)]
    written = [writer.finding(fault, change) for fault, change in zip(faults, changes, strict=True)]
    written += [writer.finding(fault) for fault in [*suspect, *further]]
    told = in_order(written, wall.op_times, wall.floor_s, decisive)
    return in_sequence(told, list(predicted), clock.each_s, [op.time_s for op in op_times.ops]) if clock.measured else told


def _as_predicted(fault: Evidence, predicted: Predicted | None, clock: Clock) -> Evidence:
    """The evidence with the saving of its predicted change, after those that come before it."""
    if predicted is None or fault.saved is None or not fault.saved.steps_s:
        return fault
    steps_s = (predicted.before_s - predicted.time_s) * clock.parts
    return replace(fault, saved=Saving(fault.saved.whole_s * steps_s / fault.saved.steps_s, steps_s))


def _with_missing(fault: Evidence, writer: Writer, graphs: Sequence[ProgramGraph]) -> Evidence:
    """The evidence with what the program lacks for its levers."""
    need = writer.words(fault.kind, fault.group).needs
    return replace(fault, missing=missing(need, [program.graph for program in graphs])) if need else fault


def _program(placed: PlacedOps, machine: Machine, clock: Clock) -> Program:
    unpriced = list(compress(count(), map(not_, placed.priced)))
    return Program(
        names=[op.name for op in placed.ops],
        times=placed.time_s,
        unrated=placed.unrated,
        unpriced=unpriced,
        machine=machine,
        count=len(placed.ops),
        time_s=clock.whole_s if clock.measured else 0.0,
        notes={id: placed.ops[id].notes for id in unpriced},
    )


def _diagnosed(
    op_times: OpTimes, recording: Recording, machine: Machine, clock: Clock, corrections: Corrections, wall: WallClock
) -> tuple[Writer, list[Evidence]]:
    """The evidence with savings: avoidable work, idle time, and the distance to what good kernels reach; and what writes it.

    An op is in one finding: first for avoidable work, then for what counters show, then for the speed of its kernel.
    """
    clock, ids = _in_averaged_steps(op_times, clock)
    if (share := clock.exposed(op_times, ids)) < 1:
        op_times = op_times.exposed(share)
    is_torch, launches_singly = recording.format == TORCH, recording.format == TORCH and not recording.is_on_host
    writer = Writer(_terms(op_times, ids, machine, is_torch, launches_singly), clock, op_times, op_times.words("name"), wall)
    idle = waiting(recording.idle, recording.steps, len(recording.devices), clock.parts)
    launching = _launching(op_times, ids, recording, clock)
    faults = idle_evidence(idle, clock, launching)
    if not machine.ceilings:  # no op has a minimum time, so none has a saving
        return writer, faults
    cases = avoidable_cases(op_times, ids, len(recording.steps), recording.idle, machine, corrections, launched_singly=is_torch)
    cases = worth_a_line(cases, clock)
    faults = [*(avoidable_evidence(case, clock) for case in cases), *faults]
    left = _without(ids, {timed.id for case in cases for timed, _, _ in case.ops})
    exchanged = collective_evidence(recording.graphs, op_times, left, clock) if recording.predicted is not None else []
    left = _without(left, {id for fault in exchanged for id in fault.ops})
    multiplying = _without(ids, {timed.id for case in cases if case.kind not in OF_BYTES for timed, _, _ in case.ops})
    faults += matrix_fill(op_times, multiplying, machine, clock)
    faults = with_autotuning(faults, op_times, ids, clock)
    counted = _counted(op_times, left, machine, corrections, clock)
    left = _without(left, {id for fault in counted for id in fault.ops})
    uneven = block_sizes(op_times, left, recording.kernels, machine, clock)
    left = _without(left, {id for fault in uneven for id in fault.ops})
    gaps = KernelGaps.of(idle, op_times, ids, clock, RECORDED_GAPS if recording.format == XSPACE and machine.kind == "gpu" else 0.0)
    limits = Limits(machine.launch_latency_s, MinimumTimes(machine, corrections) if machine.kind == "gpu" else None)
    offloaded = offloaded_tensors(op_times, left, len(recording.steps), machine, clock)
    images = images_one_by_one(op_times, left, clock) if launches_singly else []
    left = _without(left, {id for fault in (*offloaded, *images) for id in fault.ops})
    kernels = kernel_evidence(op_times, left, clock, gaps, limits, writer, recording.kernels, capability_of(machine))
    kernels = [*offloaded, *images, *kernels]
    if machine.kind == "tpu":
        kernels = [_fitting_a_tpu(fault, op_times, ids, recording.memory, machine) for fault in kernels]
    faults = with_their_copies(faults, kernels, idle, op_times, clock)
    if launches_singly:
        faults = with_removed_launches(faults, op_times, ids, clock, launching.loops.updating)
    return writer, [*faults, *exchanged, *counted, *uneven]


def _predicted(
    faults: Sequence[Evidence], writer: Writer, recording: Recording, clock: Clock, machine: Machine, calibration: Calibration
) -> Mapping[str, Predicted]:
    """The predicted effect of the `roofline whatif` changes that findings recommend."""
    ops = recording.workload.ops
    saving = [fault for fault in faults if fault.saved and fault.saved.whole_s and writer.words(fault.kind, fault.group).whatif]
    if not any(op.takes for op in ops) and {fault.kind for fault in saving} <= {CHAIN}:  # chains need the arrays that ops share
        return {}
    if not saving or len(ops) > MOST_CHANGED:
        return {}
    from .predictions import Wanted, predictions  # needed by few programs

    needed = {fault.missing.change for fault in saving}
    by_saving = sorted(saving, key=lambda each: -(each.saved.steps_s if each.saved else 0.0))
    wanted: dict[str, Wanted] = {}
    for fault in sorted(by_saving, key=lambda fault: writer.words(fault.kind, fault.group).whatif not in needed):  # these come first
        words = writer.words(fault.kind, fault.group)
        wanted.setdefault(words.whatif or "", Wanted(words.whatif or "", fault.missing.change))
    return predictions(wanted.values(), recording, clock, machine, calibration.for_kernels())


def _in_averaged_steps(op_times: OpTimes, clock: Clock) -> tuple[Clock, Sequence[int]]:
    """The clock with each op's share in the averaged steps, and the ids of the ops that run in them; without steps, of all ops."""
    if not clock.per:
        return clock, range(len(op_times))
    clock = replace(clock, shares={id: share_in_steps(op, clock.steps) for id, op in enumerate(op_times.ops)})
    return clock, [id for id in range(len(op_times)) if clock.share(id)]


def _terms(op_times: OpTimes, ids: Sequence[int], machine: Machine, is_torch: bool, launches_singly: bool) -> Sequence[str]:
    """The platform, the framework, and how PyTorch runs: the terms of the words of findings."""
    if not is_torch:
        return machine.kind, JAX
    launched = REPLAYED if _is_replayed(op_times, ids) else COMPILED if _is_compiled(op_times, ids) else ""
    return machine.kind, PYTORCH, launched, "" if launches_singly else HOST


def _launching(op_times: OpTimes, ids: Sequence[int], recording: Recording, clock: Clock) -> Launching:
    """How the host launches the program; a step that is one XLA program has none that could be compiled together."""
    is_torch, steps = recording.format == TORCH, len(recording.steps)
    programs = programs_per_step(values_at(op_times.ops, ids), steps) if clock.per and not is_torch else 0.0
    is_one = bool(clock.per) and not is_torch and programs < FEW_PROGRAMS
    is_recorded = (
        bool(clock.per) and not is_one and recording.format == XSPACE and any(device.hardware.vendor for device in recording.devices)
    )
    kernels = sum(values_at(op_times.launches, ids)) / max(steps, 1)
    recorded_s = (RECORDED_PROGRAM_S * programs + RECORDED_KERNEL_S * kernels) / max(len(recording.devices), 1)
    return Launching(
        eager=is_torch,
        one_program=is_one,
        recorded_s=recorded_s if is_recorded else 0.0,
        loops=loops_of(op_times, ids, steps) if is_torch and not recording.is_on_host else Loops(),
        callbacks=_callbacks(op_times, ids),
    )


def _fitting_a_tpu(fault: Evidence, op_times: OpTimes, ids: Sequence[int], memory: PeakMemory | None, machine: Machine) -> Evidence:
    """The evidence with the levers that the chip has, and that a compiled program does not use up."""
    if tuple(fault.levers) != LEVERS:
        return fault
    if fault.kind == MEMORY and not _crosses_hbm_once(op_times, ids, memory):
        return replace(fault, levers=(IN_VMEM, *LEVERS))
    if fault.kind == COMPUTE and _is_faster(machine, "vector/bf16", "vector/fp32"):
        return replace(fault, levers=(*LEVERS, NARROW))
    if fault.kind != PRODUCTS:
        return fault
    faster = (FASTER,) if any(_is_faster(machine, f"matrix/{name}", "matrix/bf16") for name in ("int8", "fp8")) else ()
    return replace(fault, levers=(*(() if fills_the_unit(op_times, ids, machine) else (FILL,)), *faster, *LEVERS))


def _is_faster(machine: Machine, resource: str, other: str) -> bool:
    """Whether a chip has a rate of its own for a resource, above that of another."""
    ceiling, usual = machine.ceiling(resource), machine.ceiling(other)
    return ceiling is not None and usual is not None and ceiling.rate > usual.rate


def _crosses_hbm_once(op_times: OpTimes, ids: Sequence[int], memory: PeakMemory | None) -> bool:
    """Whether a compiled program moves no more than its arguments and results: there is no intermediate to keep in VMEM."""
    if memory is None or memory.method == RECORDED_ALLOCATIONS:
        return False
    return sum(float(op_times.ops[id].cost.known(HBM)) for id in ids) <= memory.arguments + memory.outputs


def _without(ids: Sequence[int], explained: Set[int]) -> Sequence[int]:
    """The ids of ops that no finding explains yet."""
    return [id for id in ids if id not in explained] if explained else ids


def _counted(op_times: OpTimes, ids: Sequence[int], machine: Machine, corrections: Corrections, clock: Clock) -> list[Evidence]:
    """What counters show of the ops that have any."""
    having = [id for id, op in enumerate(op_times.ops) if op.counted]
    if not having:
        return []
    from .counted import Good, counted_evidence  # needed by few profiles

    left = set(ids)
    good = Good(MinimumTimes(machine, corrections), machine.launch_latency_s)
    return counted_evidence(op_times, [id for id in having if id in left], good, clock)


def _is_compiled(op_times: OpTimes, ids: Sequence[int]) -> bool:
    """Whether compiled graphs of PyTorch launch most kernels."""
    modules = op_times.words("module")
    launches = [(op_times.launches[id], modules[id].startswith(COMPILED_GRAPH)) for id in ids] if any(modules) else []
    return 2 * sum(count for count, is_compiled in launches if is_compiled) > sum(count for count, _ in launches)


def _is_replayed(op_times: OpTimes, ids: Sequence[int]) -> bool:
    """Whether most of the time is that of kernels which graphs launched."""
    if GRAPH_REPLAY not in op_times.category:
        return False
    replayed = [id for id in ids if op_times.category[id] == GRAPH_REPLAY]
    return sum(values_at(op_times.spent_s, replayed)) > sum(values_at(op_times.spent_s, ids)) / 2


def _callbacks(op_times: OpTimes, ids: Sequence[int]) -> list[str]:
    """The source lines of the ops that call back to the host."""
    if CALLBACK not in op_times.category:
        return []
    location = op_times.words("location")
    return list(dict.fromkeys(location[id] for id in ids if op_times.category[id] == CALLBACK and location[id]))
