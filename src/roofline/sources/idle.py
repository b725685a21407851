"""Reasons for idle time: for each gap between the work of a device, what the host did until it launched the next work.

The reason is the activity of the thread that launched the work after the gap; if that thread did nothing then (a worker that only passes
on a copy), that of the thread that runs the program's Python. Threads are sampled at a bounded number of instants, each of which counts for
its part of the gap, so memory grows with distinct reasons, and the times of all reasons add up to the idle time. Each source provides the
activities (`Threads`).
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from ..units import parse
from ..workload import (
    ALLOCATES,
    BY_A_MASK,
    BY_AN_OPERATOR,
    BY_REPEATS,
    CHECKS_GRADIENTS,
    CHECKS_RESULTS,
    COMPUTES,
    FETCHES,
    GRAPH_BREAK,
    PASSES_ARRAYS,
    READS_VALUES,
    SENDS,
    TRIES_KERNELS,
    UNSEEN,
    WAITS_FOR_LAUNCHES,
)
from .host_activity import ANOMALY, BLOCKING, INSIDE, MASK, MEMORY, NANS, OPERATOR, READ_BACK, SENT, TRIALS, Activity, loads_data
from .parts import Extent, IdleKey, IdleTally, Mark, Pause, Subject
from .xspace.scan import gaps
from .xspace.tables import Integers

MOST_LOOKS, LEAST_LOOKS = 1_000, 200  # gaps examined on all devices of a file together, and on each; shorter gaps are grouped
MOST_SAMPLES, SAMPLES_A_LOOK = 20, 2  # the most samples of one gap; and on average for each gap that may be examined
PARTS = 10  # of a sample, if several reasons share a gap
LEAST_SHARE = 0.2  # the share of a gap's samples that a reason needs to be listed
LARGE_COPY = int(parse("64 KiB", "B"))  # a copy of at least this size is data, not an argument or a value that is read back
SLOW_COPY_PS = round(parse("1 ns", "s") / parse("1 ps", "s"))  # per byte: the longest time of an unrecorded copy, staging included
SHORT_PS = round(parse("20 us", "s") / parse("1 ps", "s"))  # a gap up to this long before work that was already launched is launch latency
WAKE_UP_PS = round(parse("200 us", "s") / parse("1 ps", "s"))  # the longest time until a thread that waited for the device continues
_IN_RUNTIME = ("wait", "copy", "launch")  # kinds of activity inside the framework's runtime
LONG_CODE_PS = round(parse("1 ms", "s") / parse("1 ps", "s"))  # code of a module that takes longer does more than to launch
_INSTALLED = ("/site-packages/", "/dist-packages/", "/lib/python")
Reasons = dict[IdleKey, IdleTally]


class Gap(Struct):
    """A gap of a device, or a group of short gaps: begin and end of the (last) gap, their total time (``weight``) and number, the step in
    which the first began, and when that was (``since``).

    ``launched`` and ``line`` are when and on which line the host launched the work that ended the gap, ``before`` is the launch before that
    on the same line. ``copy`` is the larger of the copies between host and device on both sides of the gap, as a direction and bytes;
    ``fetched`` is whether the copy before the gap brought data to the host. ``silent`` is the time that the host spent in a function of the
    user that called nothing. ``recording`` is the time that the profiler took to record the ``recorded`` events of the host before the
    gap's end. ``read`` is when the host next reads a value back, if it does so repeatedly. ``by_reads`` is the share of late launches after
    a read that it causes: less than 1 if the host would launch late without reads too. ``in_loop`` is whether it does so in a loop.
    """

    begin: int
    end: int
    weight: int
    count: int
    mark: Mark | None
    since: int
    launched: int | None = None
    line: int | None = None
    before: int | None = None
    copy: tuple[str, int] = ("", 0)
    fetched: bool = False
    silent: int = 0
    recording: int = 0
    recorded: int = 0
    read: int | None = None
    by_reads: float = 1.0
    in_loop: bool = False
    samples: Sequence[int] = ()

    @property
    def length(self) -> int:
        return self.end - self.begin


class Threads(Protocol):
    """The activity of each host thread at given instants.

    ``driver`` is the thread that runs the program's Python; ``has_frames`` is whether Python calls were recorded, and ``with_frames`` the
    option that records them. ``changed`` returns the shapes in which the compiled programs of a function differ, in words.
    """

    driver: int | None
    has_frames: bool
    with_frames: str

    @property
    def changed(self) -> Callable[[str], str]: ...

    def at(self, line: int | None, instant: int) -> Activity: ...
    def running_since(self, line: int | None, instant: int | None) -> int | None: ...


class Idle(Struct):
    """The reasons for idle time of a device: the tally of each reason, and the reason of each sample of each gap."""

    reasons: Reasons = field(default_factory=dict)
    said: list[tuple[Gap, list[IdleKey]]] = field(default_factory=list)

    @property
    def pauses(self) -> list[Pause]:
        """When it was idle for which reason."""
        return [pause for gap, said in self.said for pause in _pauses(gap, said)]


def source_files(subjects: Iterable[Subject]) -> set[str]:
    """Base names of the user's files that operations come from; files in folders of installed packages are not the user's."""
    files = {subject.location.rpartition(":")[0].replace("\\", "/") for subject in subjects}
    return {file.rpartition("/")[2] for file in files if file and not any(part in file for part in _INSTALLED)}


def gaps_between(busy: Integers, steps: Mapping[Mark, Extent], devices: int = 1) -> list[Gap]:
    """The gaps between the busy intervals of a device (begin, end, begin, end, …): long gaps one by one, short ones in groups.

    Together they cover all of the idle time. The number of gaps is limited for all ``devices`` of a file together.
    """
    marks, most = _Marks(steps), max(LEAST_LOOKS, MOST_LOOKS // devices)
    found = [Gap(begin, end, weight, count, marks.at(since), since) for begin, end, weight, count, since in gaps(busy, marks.edges, most)]
    idle = sum(gap.weight for gap in found)
    for gap in found:
        length = gap.end - gap.begin
        count = min(MOST_SAMPLES, max(1, length * SAMPLES_A_LOOK * most // max(idle, 1)))
        gap.samples = [gap.begin + length * odd // (2 * count) for odd in range(1, 2 * count, 2)]
    return found


class _Marks:
    """Looks up the step of an instant on a device: a step lasts until the next begins, the last one until its own work ends."""

    def __init__(self, steps: Mapping[Mark, Extent]) -> None:
        ordered = sorted((extent.begin_ps, extent.end_ps, mark) for mark, extent in steps.items())
        self.edges = [begin for begin, _, _ in ordered] + [end for _, end, _ in ordered[-1:]]
        self._marks = [None, *(mark for _, _, mark in ordered), None]

    def at(self, instant: int) -> Mark | None:
        return self._marks[bisect_right(self.edges, instant)]


def unexplained(gaps: Iterable[Gap]) -> Idle:
    idle, unknown = Idle(), IdleKey("unknown", "")
    for gap in gaps:
        _add(idle.reasons, unknown, gap, gap.weight)
        idle.said.append((gap, [unknown]))
    return idle


def _add(reasons: Reasons, key: IdleKey, gap: Gap, time_ps: int) -> IdleTally:
    """Adds a gap, with some of its time, to a reason and returns the reason's tally."""
    tally = reasons.get(key)
    if tally is None:
        tally = reasons[key] = IdleTally()
    tally.gaps += gap.count
    tally.time_ps += time_ps
    if gap.mark is not None:
        gaps, before = tally.steps.get(gap.mark, (0, 0))
        tally.steps[gap.mark] = (gaps + gap.count, before + time_ps)
    return tally


def explained(gaps: Sequence[Gap], threads: Threads, *, several: bool) -> Idle:
    """The reasons for idle time in these gaps."""
    idle = Idle()
    for gap in gaps:
        said = _said(gap, threads, several=several)
        shares = [(said[0], len(said))] if _alike(said) else Counter(said).most_common()
        rest = gap.weight - sum([gap.weight * samples // len(said) for _, samples in shares])  # to the first reason
        for key, samples in shares:
            tally = _add(idle.reasons, key, gap, gap.weight * samples // len(said) + rest)
            rest = 0
            if key.kind != "compile":  # compilers call very many short functions, each of which takes less time to record
                tally.recording_ps += gap.recording * samples // len(said)
                tally.recorded += gap.recorded * samples // len(said)
        idle.said.append((gap, said))
    return idle


def _pauses(gap: Gap, said: Sequence[IdleKey]) -> Iterable[Pause]:
    """A gap split into pauses of one reason each, in the order of its samples."""
    length, begin = gap.end - gap.since, 0
    for place, key in enumerate(said, start=1):
        if place == len(said) or said[place] != key:
            yield Pause(
                gap.since + length * begin // len(said),
                gap.since + length * place // len(said),
                gap.weight * (place - begin) // len(said),
                key,
            )
            begin = place


def _said(gap: Gap, threads: Threads, *, several: bool) -> list[IdleKey]:
    """The reason of each sample of a gap; a reason with too few samples is replaced by the most frequent one."""
    seen = [_seen(gap, threads, instant) for instant in gap.samples]
    waited = _waited(gap, threads, seen)
    first = _kind(gap, seen[0], waited, threads, several=several)
    kinds = [first] * len(seen) if _alike(seen) else [_kind(gap, one, waited, threads, several=several) for one in seen]
    if gap.read is not None and "dispatch" in kinds:  # frequent reads keep the host from getting ahead of the device
        waited = _seen(gap, threads, gap.read)
        kinds = [_waiting(waited) if kind == "dispatch" else kind for kind in kinds]
    if gap.by_reads < 1 and "sync" in kinds and _reads_value(waited):
        seen, kinds = _split_reads(seen, kinds, gap.by_reads)
    if _alike(kinds):
        return [_key(kinds[0], gap, seen, waited, threads)] * len(kinds)
    counted = Counter(kinds).most_common()
    kept = [kind for kind, count in counted if count >= LEAST_SHARE * len(kinds)] or [counted[0][0]]
    keys = {kind: _key(kind, gap, [one for one, own in zip(seen, kinds, strict=True) if own == kind], waited, threads) for kind in kept}
    return [keys.get(kind, keys[kept[0]]) for kind in kinds]


def _split_reads(seen: Sequence[Activity], kinds: Sequence[str], share: float) -> tuple[list[Activity], list[str]]:
    """The samples of a gap, each in parts: of launches after a read, a share is attributed to the read."""
    parts, split = list[Activity](), list[str]()
    for one, kind in zip(seen, kinds, strict=True):
        late = PARTS - round(share * PARTS) if kind == "sync" and one.kind in ("launch", "copy") else 0
        parts += [one] * PARTS
        split += [kind] * (PARTS - late) + ["dispatch"] * late
    return parts, split


def _reads_value(one: Activity) -> bool:
    """Whether only a value is read: operators that read lengths, such as those of masks, launch late because of their own kernels too."""
    return not one.callee and one.detail in ("", *READ_BACK.values())


def _alike(values: Sequence[object]) -> bool:
    return values.count(values[0]) == len(values)


def _waited(gap: Gap, threads: Threads, seen: Sequence[Activity]) -> Activity:
    """The host's activity when the gap begins, or the search for NaN anywhere in the gap.

    ``block_until_ready`` of an array leaves no event. If Python calls were recorded, a function of the user that calls nothing when the gap
    begins, and launches the next work shortly after, is taken to have waited for the device.
    """
    then = _seen(gap, threads, gap.begin)
    if threads.has_frames and all(one.kind != "python" or _is_silent(one) for one in seen):
        gap.silent = gap.length * sum(map(_is_silent, seen)) // len(seen)
    if _is_silent(then) and SHORT_PS <= gap.silent <= WAKE_UP_PS:
        return Activity("wait", then.function, then.location)
    return next((one for one in seen if one.detail == NANS), then)


def _is_silent(one: Activity) -> bool:
    """Whether a function of the user calls nothing that was recorded, and does not load data, by its name."""
    return one.kind == "python" and bool(one.function) and not one.callee and not loads_data(one.function)


def _seen(gap: Gap, threads: Threads, instant: int) -> Activity:
    """The host's activity at an instant: that of the launching thread, with the user's function of the main Python thread."""
    own = threads.at(gap.line, instant)
    driver = own if gap.line == threads.driver else threads.at(threads.driver, instant)
    if not own.kind or (driver.kind == "compile" and own.kind != "compile"):
        return driver
    if own.location or not driver.location:
        return own
    detail, program = own.detail or driver.detail, own.program or driver.program
    return Activity(own.kind, driver.function, driver.location, own.callee, detail, driver.caller, program)


def _kind(gap: Gap, seen: Activity, waited: Activity, threads: Threads, *, several: bool) -> str:
    """The kind of reason of one sample of a gap: that of the first rule that applies."""
    if seen.kind in ("compile", "callback"):
        return seen.kind
    if gap.launched is not None and gap.launched <= gap.begin:
        return "device" if several and gap.length > SHORT_PS else "latency"
    if waited.kind == "callback" and seen.kind != "python":
        return "callback"  # the launching thread was busy with it, and so launches late
    if waited.detail == NANS and seen.kind in _IN_RUNTIME:
        return "sync"  # the check copies results, and keeps the host from launching ahead
    if _is_transfer(gap, seen):
        return "transfer"
    if seen.kind == "launch" and _is_within_program(gap, threads):
        return "latency"  # kernels of one program are launched one by one
    if seen.kind == "wait":
        return _waiting(seen)
    if _is_silent(seen) and waited.kind == "wait":
        return _waiting(waited)
    if _is_silent(seen) and waited.kind == "launch" and gap.length <= 2 * WAKE_UP_PS:
        return "sync" if gap.silent >= SHORT_PS else "dispatch"  # a wait between two launches, or Python code before the next launch
    if seen.kind == "python" and seen.caller and waited.kind not in ("wait", "copy") and gap.length <= LONG_CODE_PS:
        return "dispatch"  # code of a module, between its launches
    if seen.kind == "python" or (not seen.kind and not threads.has_frames):
        return _waiting(waited) if _handles_value(gap, seen, waited) else "input"
    if waited.kind == "wait":
        return _waiting(waited)
    if seen.kind in ("launch", "copy"):
        return "dispatch"
    return "input" if gap.line is not None or threads.driver is not None else "unknown"


def _is_transfer(gap: Gap, seen: Activity) -> bool:
    """Whether a large copy takes the gap: the host is in the runtime, or nothing is recorded of it for as long as the copy may take."""
    if gap.copy[1] < LARGE_COPY:
        return False
    return seen.kind in _IN_RUNTIME or (not seen.kind and gap.length <= gap.copy[1] * SLOW_COPY_PS)


def _is_within_program(gap: Gap, threads: Threads) -> bool:
    """Whether the work before and after the gap is of one run of a program."""
    since = threads.running_since(gap.line, gap.launched)
    return since is not None and gap.before is not None and gap.before >= since


def _handles_value(gap: Gap, seen: Activity, waited: Activity) -> bool:
    """Whether the host's code handles a value that it read from the device before, not data that it loads or sends."""
    if gap.copy[1] >= LARGE_COPY and gap.copy[0] == "in" and not gap.fetched:
        return False
    if loads_data(seen.function) and seen.function != waited.function:  # a function that read a value is handling that
        return False
    return waited.kind == "wait" or (waited.kind == "copy" and (gap.copy[0] == "out" or gap.fetched))


def _waiting(one: Activity) -> str:
    """The kind of reason of a wait for the device: a copy to it, or a value that is read back."""
    return "transfer" if one.detail == SENT else "sync"


def _key(kind: str, gap: Gap, seen: Sequence[Activity], waited: Activity, threads: Threads) -> IdleKey:
    """A reason with its words, and the line of the user's code in which most of its samples were."""
    if kind in _ANYWHERE:
        return IdleKey(kind, _ANYWHERE[kind])
    if kind == "latency" and (gap.launched is None or gap.launched <= gap.begin):
        return IdleKey(kind, "kernels that were already launched")
    waits = waited.kind in ("wait", "copy") if kind == "sync" else waited.detail == SENT and kind == "transfer"
    one = waited if waits else _most(seen)
    return IdleKey(kind, _WORDS[kind](one, gap, threads), one.location, _cause(kind, one, gap))


_READ = {
    MASK: BY_A_MASK,
    MEMORY: ALLOCATES,
    ANOMALY: CHECKS_GRADIENTS,
    NANS: CHECKS_RESULTS,
    BLOCKING: WAITS_FOR_LAUNCHES,
    "repeat_interleave": BY_REPEATS,
}


def _cause(kind: str, one: Activity, gap: Gap) -> str:
    """The cause of a reason, if more is known than its kind."""
    if kind == "sync" and one.detail in _READ:
        return _READ[one.detail]
    if kind == "sync" and one.callee:
        return BY_AN_OPERATOR
    if kind == "sync":
        return READS_VALUES if one.detail in READ_BACK.values() else ""
    if kind == "compile":
        return TRIES_KERNELS if one.detail.startswith(TRIALS) else ""
    if kind == "transfer" and one.detail == SENT and gap.copy[1] < LARGE_COPY:
        return SENDS
    if kind == "transfer" and gap.copy[0] == "in":
        return PASSES_ARRAYS if one.program else ""
    if kind == "transfer":
        return FETCHES if gap.copy[0] == "out" else ""
    if kind == "dispatch":
        return GRAPH_BREAK if one.function.endswith(GRAPH_BREAK) else ""
    if kind == "input" and one.detail == OPERATOR:
        return COMPUTES
    return UNSEEN if kind == "input" and not one.callee and not one.function else ""


def _most(seen: Sequence[Activity]) -> Activity:
    """The most frequent activity: the most frequent line of the user's code (in the callback, if there is one), and its callee there."""
    if len(seen) == 1:
        return seen[0]
    within = [one for one in seen if one.detail == INSIDE] or [one for one in seen if one.location] or list(seen)
    ((function, location), count), *_ = Counter((one.function, one.location) for one in within).most_common(1)
    mine = [one for one in within if (one.function, one.location) == (function, location)]
    (callee, calls), *_ = Counter(one.callee for one in mine).most_common(1)
    (detail, _), *_ = Counter(one.detail for one in mine).most_common(1)
    (program, _), *_ = Counter(one.program for one in mine).most_common(1)
    return Activity(mine[0].kind, function, location, callee if 2 * calls > count else "", detail, mine[0].caller, program)


def _input(one: Activity, gap: Gap, threads: Threads) -> str:
    if one.callee:
        return f"{one.callee}, called from {one.function}" if one.function else one.callee
    missing = "" if threads.has_frames else f" (Python not recorded: {threads.with_frames})"
    return one.function or f"code between launches{missing}"


def _sync(one: Activity, gap: Gap, threads: Threads) -> str:
    reads = f"calls {one.detail}() on a device value" if one.detail else "waits for the device"
    if one.detail == MASK:
        reads = "indexes with a boolean mask, whose length it reads from the device"
    elif one.detail == MEMORY:
        reads = "allocates or frees device memory"
    elif one.detail == ANOMALY:
        reads = "checks every gradient for NaN and keeps stack traces, as anomaly detection does"
    elif one.detail == BLOCKING:
        reads = "waits for each kernel before it launches the next, as with CUDA_LAUNCH_BLOCKING=1"
    elif one.detail == NANS:
        reads = "copies every result to the host to look for NaN, as jax_debug_nans does"
    elif one.callee:
        reads = f"calls {one.callee}, which waits for the device"
    return f"{one.function}, which {reads}" if one.function else f"code that {reads}"


def _compile(one: Activity, gap: Gap, threads: Threads) -> str:
    called = f", called from {one.function}" if one.function else ""
    return f"{one.detail or 'a program'}{called}{threads.changed(one.detail)}"


def _transfer(one: Activity, gap: Gap, threads: Threads) -> str:
    where = {"in": "to the device", "out": "from the device"}.get("in" if one.detail == SENT else gap.copy[0], "between host and device")
    passed = f" of host arrays that are passed to {one.program}" if one.program and gap.copy[0] == "in" else ""
    return f"copies {where}{passed}" + (f", called from {one.function}" if one.function else "")


# Words that follow "the host was in".
_WORDS: dict[str, Callable[[Activity, Gap, Threads], str]] = {
    "input": _input,
    "sync": _sync,
    "transfer": _transfer,
    "compile": _compile,
    "callback": lambda one, gap, threads: one.function,
    "dispatch": lambda one, gap, threads: f"{one.function}, called from {one.caller}" if one.caller else one.function,
    "latency": lambda one, gap, threads: "launches of the kernels of one program, one by one",
}
_ANYWHERE = {"device": "work that was already launched", "unknown": ""}
