"""Findings: where the program loses time, what to do about it, and how long it takes after that.

A finding is about a decision of the program's author (attention is written out, a cache is not donated), with kernels as its evidence.
They come by the seconds that a change saves: avoided work, or the distance to what good kernels reach, not to the roof. Suspect figures
have no saving and come by the time of their ops. Ops of one kind are merged before small savings are left out.
"""

from collections.abc import Mapping, Sequence, Set

from msgspec.structs import replace

from ..columns.lazy_rows import column, take, values_at
from ..machine import Machine
from ..machines.architectures import capability_of
from ..placement import IDEAL, Corrections, MinimumTimes
from ..report import Finding
from ..resource import HBM
from ..workload import RECORDED_ALLOCATIONS, Recording
from .avoidable_work import avoidable_cases, avoidable_draft, worth_a_line
from .awaited_copies import COPIES, with_their_copies
from .finding_kinds import Kind
from .idle_findings import idle_findings, with_autotuning
from .idle_time import waiting
from .kernel_findings import RECORDED_GAPS, KernelGaps, Limits, kernel_findings
from .looped_calls import loop_around, with_optimizer
from .matrix_fill import fills_the_unit, matrix_fill
from .op_times import OpTimes, share_in_steps
from .platform_kinds import FASTER, FILL, IN_VMEM, TORCH, kinds_for, without
from .program_chains import programs_per_step
from .program_clock import Clock
from .removed_launches import with_removed_launches

CALLBACK, GRAPH_REPLAY = "host callback", "graph replay"
JAX, PYTORCH = "jax", "pytorch"  # frameworks, as `words.toml` names them
COMPILED_GRAPH = "## Call CompiledFxGraph"  # the prefix of a compiled graph's name in PyTorch's traces
OF_BYTES = ("tile-padding", "layout-copies")  # kinds of avoidable work that leave the products of an op as they are
FEW_PROGRAMS = 2  # least number of programs in a step that could be compiled together


def diagnose(op_times: OpTimes, recording: Recording, machine: Machine, clock: Clock, corrections: Corrections = IDEAL) -> list[Finding]:
    """The findings with savings: avoidable work, idle time, and the distance to what good kernels reach."""
    clock, ids = _in_averaged_steps(op_times, clock)
    if (share := clock.exposed(op_times, ids)) < 1:
        op_times = op_times.exposed(share)
    kinds = _kinds(op_times, ids, recording, machine)
    idle = waiting(recording, clock.parts)
    waits = idle_findings(
        idle, clock, kinds, one_program=_is_one_program(op_times, ids, recording, clock), callbacks=_callbacks(op_times, ids)
    )
    if not machine.ceilings:  # no op has a minimum time, so none has a saving
        return [one.finding(clock) for one in waits]
    # An op is in one finding: first for avoidable work, then for what counters show, then for the speed of its kernel.
    cases = avoidable_cases(op_times, ids, recording, machine, corrections, launched_singly=recording.format == TORCH)
    cases = worth_a_line(cases, clock)
    terms = (machine.kind, PYTORCH if recording.format == TORCH else JAX)
    found = [*(avoidable_draft(case, op_times, clock, kinds, terms) for case in cases), *waits]
    left = _without(ids, {one.id for case in cases for one, _, _ in case.ops})
    multiplying = _without(ids, {one.id for case in cases if case.kind not in OF_BYTES for one, _, _ in case.ops})
    found += matrix_fill(op_times, multiplying, machine, clock, kinds)
    found = with_autotuning(found, op_times, ids, clock)
    counted = _counted(op_times, left, machine, corrections, clock, kinds)
    left = _without(left, {id for one in counted for id in one.ops})
    gaps = KernelGaps.of(idle, op_times, ids, clock, _profiler_share(recording, machine))
    limits = Limits(machine.launch_latency_s, MinimumTimes(machine, corrections) if machine.kind == "gpu" else None)
    kernels = kernel_findings(op_times, left, clock, gaps, limits, kinds, recording.kernels, capability_of(machine))
    copies = next((one for one in kernels if one.kind == COPIES and one.saving_s), None)
    if (joined := with_their_copies(found, copies, idle, op_times, clock)) is not None:
        found, kernels = joined, [one for one in kernels if one is not copies]
    if _is_launched_singly(recording):
        found = with_removed_launches(found, op_times, ids, clock)
    return [*(one.finding(clock) for one in found), *counted, *kernels]


def _in_averaged_steps(op_times: OpTimes, clock: Clock) -> tuple[Clock, Sequence[int]]:
    """The clock with each op's share in the averaged steps, and the ids of the ops that run in them; without steps, of all ops."""
    if not clock.per:
        return clock, range(len(op_times))
    clock = replace(clock, shares={id: share_in_steps(op, clock.steps) for id, op in enumerate(op_times.ops)})
    return clock, [id for id in range(len(op_times)) if clock.share(id)]


def _kinds(op_times: OpTimes, ids: Sequence[int], recording: Recording, machine: Machine) -> dict[str, Kind]:
    """The kinds of findings in the terms of the program's framework and hardware, and of how it launches its kernels."""
    replayed, compiled = _is_replayed(op_times, ids), _is_compiled(op_times, ids)
    kinds = kinds_for(recording.format, on_tpu=machine.kind == "tpu", on_cpu=recording.is_on_host, replayed=replayed, compiled=compiled)
    if machine.kind == "tpu":
        kinds = _fitting_a_tpu(kinds, op_times, ids, recording, machine)
    if not _is_launched_singly(recording):
        return kinds
    launching = loop_around(op_times, ids, len(recording.steps)) or kinds["idle-dispatch"]
    return {**kinds, "idle-dispatch": with_optimizer(launching, op_times, ids)}


def _fitting_a_tpu(
    kinds: dict[str, Kind], op_times: OpTimes, ids: Sequence[int], recording: Recording, machine: Machine
) -> dict[str, Kind]:
    """The kinds without levers that the chip lacks, or that a compiled program uses up."""
    half, narrow = machine.ceiling("matrix/bf16"), [machine.ceiling(f"matrix/{name}") for name in ("int8", "fp8")]
    if half is None or all(ceiling is None or ceiling.rate <= half.rate for ceiling in narrow):
        kinds = without(kinds, "products", FASTER)
    if fills_the_unit(op_times, ids, machine):
        kinds = without(kinds, "products", FILL)
    if _crosses_hbm_once(op_times, ids, recording):
        kinds = without(kinds, "memory", IN_VMEM)
    return kinds


def _crosses_hbm_once(op_times: OpTimes, ids: Sequence[int], recording: Recording) -> bool:
    """Whether a compiled program moves no more than its arguments and results: there is no intermediate to keep in VMEM."""
    memory = recording.memory
    if memory is None or memory.method == RECORDED_ALLOCATIONS:
        return False
    return sum(float(op_times.ops[id].cost.known(HBM)) for id in ids) <= memory.arguments + memory.outputs


def _is_launched_singly(recording: Recording) -> bool:
    """Whether the host launches kernels one by one: PyTorch, on an accelerator."""
    return recording.format == TORCH and not recording.is_on_host


def _is_one_program(op_times: OpTimes, ids: Sequence[int], recording: Recording, clock: Clock) -> bool:
    """Whether a step is one XLA program, so that none could be compiled together."""
    has_programs = bool(clock.per) and recording.format != TORCH
    return has_programs and programs_per_step(take(op_times.ops, ids), len(recording.steps)) < FEW_PROGRAMS


def _profiler_share(recording: Recording, machine: Machine) -> float:
    """The share of the gaps between kernels that is the profiler's overhead."""
    return RECORDED_GAPS if recording.format == "xspace" and machine.kind == "gpu" else 0.0


def _without(ids: Sequence[int], explained: Set[int]) -> Sequence[int]:
    """The ids of ops that no finding explains yet."""
    return [id for id in ids if id not in explained] if explained else ids


def _counted(
    op_times: OpTimes, ids: Sequence[int], machine: Machine, corrections: Corrections, clock: Clock, kinds: Mapping[str, Kind]
) -> list[Finding]:
    """What counters show of the ops that have any."""
    having = [id for id, launches in enumerate(column(op_times.ops, "counted")) if launches]
    if not having:
        return []
    from .counted_findings import Good, counted_findings  # needed by few profiles

    mine = set(ids)
    good = Good(MinimumTimes(machine, corrections), machine.launch_latency_s)
    return counted_findings(op_times, [id for id in having if id in mine], good, clock, kinds)


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
