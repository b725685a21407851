"""Findings about idle time, by its reason."""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ...machine import LATENCY
from ...prediction.terms import joined
from ...quantities import NOTABLE
from ...rules.words import kinds, page
from ...units import parse, rounded
from ...workload import AUTOTUNING, FETCHES, READS_VALUES, Fact, source_line
from ..idle_time import Waiting
from ..op_times import OpTimes, values_at
from .clock import Clock
from .evidence import Evidence, Note, Saving
from .looped_calls import Loops
from .writing import LISTED

GOOD_PART = 0.1  # of the longest idle time: further source lines with this much are named too (a choice)
DISPATCH, CALLBACK, COMPILE, SYNC, TRANSFER = "idle-dispatch", "idle-callback", "idle-compile", "idle-sync", "idle-transfer"
SEVERAL_READS = 4  # gaps of a step in which values are read: one or two may be a loss and its norm
# Overhead of JAX's profiler per launch of a program: eight launch-bound programs took 60 to 100 µs longer than without it.
RECORDED_LAUNCH_S = parse("60 us", "s")
# The same where a step is many programs, per program and per kernel. On an H200's host steps of 19 programs with 1,157 kernels took 5.6 ms
# longer, of 400 programs with a kernel each 4.7 ms, and of 66 programs 3.9 ms.
RECORDED_PROGRAM_S, RECORDED_KERNEL_S = parse("10 us", "s"), parse("4 us", "s")
# On an H200's host, JAX launched a program of 20 arrays in 0.1 ms, and one of 6,000 arrays and 1,500 kernels in 31 ms.
LONG_LAUNCH_S = parse("5 ms", "s")
OVERLAP = 3.0  # exponent of the overlap of host and device, as of the math and the traffic of a kernel in predictions
MOST_RECORDED = 0.5  # of such a gap at most, because the overhead varies with the host
# Groups of words: a step that is one program, whose launch takes milliseconds, values that are read by a call each, copies to and fro.
ONE_PROGRAM, MANY_ARRAYS, ONE_BY_ONE, BOTH_WAYS = "one program", "many arrays", "one by one", "both ways"


class Launching(Struct, frozen=True):
    """How the host launches work: whether ``eager``, by PyTorch; whether a step is one program, or how long JAX's profiler takes to record
    the launches of a step; in what Python ``loops``; and the source lines of ops that call back to the host.
    """

    eager: bool = False
    one_program: bool = False
    recorded_s: float = 0.0
    loops: Loops = Loops()
    callbacks: Sequence[str] = ()


def idle_evidence(idle: Sequence[Waiting], clock: Clock, launching: Launching) -> list[Evidence]:
    """The evidence of idle time, for each kind of reason."""
    by_kind: dict[str, list[Waiting]] = {}
    for one in idle:
        if one.reason.kind != LATENCY:
            by_kind.setdefault(f"idle-{one.reason.kind}", []).append(one)
    found = []
    for kind, waits in by_kind.items():
        if sum(one.each_s for one in waits) >= NOTABLE * clock.each_s:
            found.append(_evidence(kind if kind in kinds() else "idle", waits, clock, launching))
    return _with_reads(found, idle, clock) if launching.eager else found


def _evidence(kind: str, waits: Sequence[Waiting], clock: Clock, launching: Launching) -> Evidence:
    """The evidence of the idle time of one kind, without what the profiler itself takes."""
    each = sum(one.each_s for one in waits)
    longest = max(waits, key=lambda one: one.each_s).reason
    recorded_s = RECORDED_LAUNCH_S if launching.one_program else launching.recorded_s
    of_launch = min(recorded_s / each, MOST_RECORDED) if kind == DISPATCH else 0.0
    profiler_s = sum(one.each_s * max(one.recording, of_launch) for one in waits)
    is_notable = launching.one_program or profiler_s >= NOTABLE * clock.each_s
    of_launches = (Note("profiler-launch", {"seconds": profiler_s}),) if is_notable else ()
    notes = of_launches if of_launch else _recording(waits, profiler_s, clock)
    group = _group(kind, waits, clock, launching)
    facts: dict[str, Fact] = {
        "spent": each * clock.parts,
        "activity": longest.activity or "code that the profile does not show",
        "lines": _lines(waits) if longest.location else "",
        "callers": ", ".join(map(source_line, launching.callbacks[:LISTED])) if kind == CALLBACK else "",
    }
    saved_s = each - profiler_s
    if saved_s < NOTABLE * clock.each_s:
        return Evidence(kind=kind, group=group, facts=facts, levers=(), notes=(*notes, Note("mostly-profiler")))
    whole_s = sum(one.whole_s * (1 - max(one.recording, of_launch)) for one in waits)
    saved = Saving(whole_s, saved_s * clock.parts if clock.per else whole_s)
    return Evidence(kind=kind, group=group, facts=facts, saved=saved, notes=notes)


def host_saving_s(clock: Clock, waited_s: float, share: float, worked_s: float = 0.0) -> float:
    """What is saved where the host launches a ``share`` less and the device, which waits ``waited_s`` for it, works ``worked_s`` less.

    The host takes the time of both for its launches; afterwards the device waits in a part of the step, and the host in another.
    """
    busy_s = clock.busy_s or 0.0
    host_s = busy_s + waited_s
    return min(host_s - joined(OVERLAP, host_s * (1 - share), busy_s - worked_s), waited_s + worked_s)


def _group(kind: str, waits: Sequence[Waiting], clock: Clock, launching: Launching) -> str:
    """The group of words for idle time of one kind: that of the cause of its longest reason, where it is known."""
    cause = max(waits, key=lambda one: one.each_s).reason.cause
    if kind == TRANSFER and _goes_both_ways(waits):
        return BOTH_WAYS
    if cause in page(kind).groups:
        return cause
    if kind == DISPATCH and launching.one_program:
        return MANY_ARRAYS if sum(one.each_s for one in waits) >= LONG_LAUNCH_S else ONE_PROGRAM
    if kind == DISPATCH:
        return launching.loops.around
    if kind == SYNC and not launching.eager and cause == READS_VALUES and _gaps_per_step(waits, clock) >= SEVERAL_READS:
        return ONE_BY_ONE
    return cause


def _with_reads(found: Sequence[Evidence], idle: Iterable[Waiting], clock: Clock) -> list[Evidence]:
    """The evidence; that on launches names the values that are read back in every step, if several are."""
    reads = [one for one in idle if f"idle-{one.reason.kind}" == SYNC and one.reason.cause == READS_VALUES]
    if _gaps_per_step(reads, clock) < SEVERAL_READS:
        return list(found)
    note = Note("reads", {"lines": _lines(reads) if any(one.reason.location for one in reads) else ""})
    return [one.saving(one.saved, note) if one.kind == DISPATCH and one.saved else one for one in found]


def with_autotuning(found: Sequence[Evidence], op_times: OpTimes, ids: Sequence[int], clock: Clock) -> list[Evidence]:
    """The evidence, with the autotuning on the device in that about compilation: one change saves both."""
    tuned = [id for id in ids if op_times.cause[id] == AUTOTUNING]
    spent = Saving.of(tuned, values_at(op_times.spent_s, tuned), clock)
    if spent.steps_s < clock.notable_s:
        return list(found)
    took = Note("autotuning", {"seconds": spent.steps_s})
    return [
        replace(one.saving(one.saved.plus(spent), took), ops=tuple(tuned)) if one.kind == COMPILE and one.saved else one for one in found
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


def _recording(idle: Sequence[Waiting], profiler_s: float, clock: Clock) -> tuple[Note, ...]:
    """The profiler overhead in some idle time."""
    if profiler_s < NOTABLE * clock.each_s:
        return ()
    events = sum(one.reason.recorded * one.each_s / one.reason.time_s for one in idle if one.reason.time_s)
    return (Note("profiler-events", {"seconds": profiler_s, "events": rounded(events, 2) or 0.0}),)
