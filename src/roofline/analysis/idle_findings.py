"""Findings about idle time, by its reason."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ..columns.lazy_rows import values_at
from ..machine import LATENCY
from ..units import parse, rounded, show
from ..workload import AUTOTUNING, FETCHES, READS_VALUES, source_line
from .finding_drafts import FindingDraft, StepSaving
from .finding_kinds import KINDS, Kind, Kinds
from .finding_words import LISTED
from .idle_kinds import BOTH_WAYS, BY_CAUSE, MANY_ARRAYS, ONE_PROGRAM, READ_ONE_BY_ONE
from .idle_time import Waiting
from .op_times import OpTimes
from .program_clock import NOTABLE, Clock, Saving

GOOD_PART = 0.1  # of the longest idle time: further source lines with this much are named too (a choice)
DISPATCH, CALLBACK, COMPILE, SYNC, TRANSFER = "idle-dispatch", "idle-callback", "idle-compile", "idle-sync", "idle-transfer"
SEVERAL_READS = 4  # gaps of a step in which values are read: one or two may be a loss and its norm
# Overhead of JAX's profiler per launch of a program: eight launch-bound programs took 60 to 100 µs longer than without it.
RECORDED_LAUNCH_S = parse("60 us", "s")
# On an H200's host, JAX launched a program of 20 arrays in 0.1 ms, and one of 6,000 arrays and 1,500 kernels in 31 ms.
LONG_LAUNCH_S = parse("5 ms", "s")
MOST_RECORDED = 0.5  # of such a gap at most, because the overhead varies with the host
LAUNCH_RECORDED = "About {seconds} of that is profiler overhead, which slows every launch."


def idle_findings(
    idle: Iterable[Waiting], clock: Clock, kinds: Kinds, *, one_program: bool = False, callbacks: Sequence[str] = ()
) -> list[FindingDraft]:
    """Findings about idle time, one for each kind of reason.

    ``one_program`` is whether a step is one program; ``callbacks`` are the source lines that call back to the host.
    """
    idle, is_torch = list(idle), kinds[SYNC] is not KINDS[SYNC]
    if one_program:
        kinds = {**kinds, DISPATCH: ONE_PROGRAM}
    by_kind: dict[str, list[Waiting]] = {}
    for one in idle:
        if one.reason.kind != LATENCY:
            by_kind.setdefault(one.reason.kind, []).append(one)
    found = []
    for kind_name, mine in by_kind.items():
        each = sum(one.each_s for one in mine)
        if each < NOTABLE * clock.each_s:
            continue
        longest = max(mine, key=lambda one: one.each_s).reason
        name = f"idle-{kind_name}" if f"idle-{kind_name}" in kinds else "idle"
        kind = _kind(name, mine, kinds, clock)
        phrase = kind.phrase.format(activity=longest.activity or "code that the profile does not show")
        at = f" ({_lines(mine)})" if longest.location else ""
        at += f", called at {', '.join(map(source_line, callbacks[:LISTED]))}" if name == CALLBACK and callbacks else ""
        of_launch = min(RECORDED_LAUNCH_S / each, MOST_RECORDED) if one_program and name == DISPATCH else 0.0
        profiler_s = sum(one.each_s * max(one.recording, of_launch) for one in mine)
        note = LAUNCH_RECORDED.format(seconds=show(rounded(profiler_s, 2), "s")) if of_launch else _recording(mine, profiler_s, clock)
        observations = tuple(filter(None, (f"The device is idle {clock.of(each * clock.parts)}: {phrase}{at}.", note)))
        won, whole = each - profiler_s, sum(one.whole_s * (1 - max(one.recording, of_launch)) for one in mine)
        if won < NOTABLE * clock.each_s:
            observations = (*observations, "Without the profiler almost none of it would remain.")
            found.append(FindingDraft(kind=name, title=kind.title, observations=observations))
            continue
        saved = StepSaving(whole, won if clock.per else whole)
        found.append(
            FindingDraft(kind=name, title=kind.title, observations=observations, change=kind.change, levers=kind.levers, saved=saved)
        )
    return _with_reads(found, idle, clock) if is_torch else found


def _kind(name: str, mine: Sequence[Waiting], kinds: Kinds, clock: Clock) -> Kind:
    """The words for idle time of one kind: those of the cause of its longest reason, where that is known."""
    longest = max(mine, key=lambda one: one.each_s).reason
    if name == TRANSFER and _goes_both_ways(mine):
        return BOTH_WAYS
    kind = BY_CAUSE.get(longest.cause, kinds[name])
    if kind is ONE_PROGRAM and sum(one.each_s for one in mine) >= LONG_LAUNCH_S:
        return MANY_ARRAYS
    if kind is KINDS[SYNC] and longest.cause == READS_VALUES and _gaps_per_step(mine, clock) >= SEVERAL_READS:
        return READ_ONE_BY_ONE
    return kind


def _with_reads(found: Sequence[FindingDraft], idle: Iterable[Waiting], clock: Clock) -> list[FindingDraft]:
    """The findings; that on launches names the values that are read back in every step, if several are."""
    reads = [one for one in idle if f"idle-{one.reason.kind}" == SYNC and one.reason.cause == READS_VALUES]
    if _gaps_per_step(reads, clock) < SEVERAL_READS:
        return list(found)
    where = f" ({_lines(reads)})" if any(one.reason.location for one in reads) else ""
    note = f"Values are read back in every step{where}: a graph cannot contain that, so remove it first."
    return [replace(one, observations=(*one.observations, note)) if one.kind == DISPATCH and one.saved else one for one in found]


def with_autotuning(found: Sequence[FindingDraft], op_times: OpTimes, ids: Sequence[int], clock: Clock) -> list[FindingDraft]:
    """The findings, with the autotuning on the device in that about compilation: one change saves both."""
    tuned = [id for id in ids if op_times.cause[id] == AUTOTUNING]
    spent = Saving.of(tuned, values_at(op_times.spent_s, tuned), clock)
    if spent.steps_s < clock.notable_s:
        return list(found)
    took = f"Autotuning takes another {clock.of(spent.steps_s)} on the device."
    more = StepSaving(spent.whole_s, spent.steps_s / clock.parts if clock.per else spent.whole_s)
    return [
        replace(one.saving(one.saved.plus(more), took), ops=tuple(tuned)) if one.kind == COMPILE and one.saved else one for one in found
    ]


def _goes_both_ways(idle: Sequence[Waiting]) -> bool:
    """Whether a good part of the time of copies goes to the device, and another comes from it."""
    fetched = sum(one.each_s for one in idle if one.reason.cause == FETCHES)
    return min(fetched, sum(one.each_s for one in idle) - fetched) >= GOOD_PART * max(one.each_s for one in idle)


def _gaps_per_step(idle: Iterable[Waiting], clock: Clock) -> float:
    gaps = sum(share.count for one in idle for share in one.reason.by_step if share.key in clock.steps)
    return gaps / len(clock.steps) if clock.steps else 0.0


def _lines(idle: Iterable[Waiting]) -> str:
    """The source line of the host with the most idle time, and others with a notable part of it."""
    seconds: dict[str, float] = {}
    for one in idle:
        if one.reason.location:
            seconds[one.reason.location] = seconds.get(one.reason.location, 0.0) + one.each_s
    ordered = sorted(seconds, key=lambda line: -seconds[line])
    kept = [line for line in ordered if seconds[line] >= GOOD_PART * seconds[ordered[0]]]
    return ", ".join(map(source_line, kept[:LISTED]))


def _recording(idle: Sequence[Waiting], profiler_s: float, clock: Clock) -> str:
    """The profiler overhead in some idle time, as a sentence."""
    if profiler_s < NOTABLE * clock.each_s:
        return ""
    events = sum(one.reason.recorded * one.each_s / one.reason.time_s for one in idle if one.reason.time_s)
    took = f"About {show(rounded(profiler_s, 2), 's')} of that is profiler overhead: it recorded {rounded(events, 2):,.0f} host events"
    return f"{took}{clock.per}."
