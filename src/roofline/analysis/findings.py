"""Findings: what costs the program its time, what to do about it, and what would be left then.

A finding is about a decision of the program's author (attention is written out, a cache is not donated), with kernels as its evidence.
Doubts come first and promise nothing; then by the seconds that can really be won: what a change would spare, or the distance to what good
kernels reach, not to the roof. Like ops are merged before anything is left out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import compress
from operator import truediv
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from ..lazy_rows import at, column, take
from ..machine import LATENCY, Machine
from ..machines.architectures import capability_of
from ..op_columns import MANY
from ..placement import IDEAL, Corrections, MinimumTimes
from ..report import Finding
from ..resource import PCIE, named
from ..units import percent, rounded, show
from ..workload import BETWEEN_LAUNCHES, Avoidable, KernelUse, Op, Recording
from .awaited_copies import with_their_copies
from .chains import unfused_chains
from .excess_causes import Seen, causes
from .expectation import is_calibrated, slower_than_expected
from .finding_kinds import KINDS, ONE_PROGRAM, UNSEEN_CODE, Kind
from .finding_words import LISTED, at_place, count_and_longest, fitting, op_name, source_line, subject, title_of
from .idle_time import Waiting, waiting
from .judged_ops import JudgedOp, JudgedOps, share_in_steps
from .losses import COMMUNICATION, COMPUTE, MEMORY, UNPRICED
from .program_clock import NOTABLE, Clock, Saving
from .torch_finding_kinds import TORCH_GROUPS, kinds_for

Kinds = Mapping[str, Kind]
# What good kernels reach of each roof: the distance to that can be won, the rest is inherent.
REACHABLE = {"hbm": 0.9, "matrix": 0.8, "vector": 0.7}
# Fused attention waits for its softmax, a convolution gathers its windows, a sort passes over its keys many times, a Fourier transform
# several times; the steps of a factorisation or a solve wait for each other, whatever the chip could do meanwhile.
OF_CATEGORIES = {"attention": 0.55, "convolution": 0.6, "sort": 0.04, "fft": 0.12, "linear algebra": 0.001}
OTHERWISE = 0.85
GOOD_PART = 0.1  # of the longest: a place that is worth a look too
FEW_PROGRAMS = 2  # in a step: with fewer there is nothing to compile together
CLOSE = 1.7  # times the expected time: an upper bound below that says how good such an op gets
# Of the time: a few small kernels between large ones, or a layout that the compiler changes for a product, cost no less in another program.
INHERENT = 0.05
ODD = 0.6  # of the roof: a product above it does not suffer from its sizes
# What is said of one op, and of several.
WORDS = {
    "memory": ("is memory-bound", "are memory-bound"),
    "products": ("is compute-bound", "are compute-bound"),
    "compute": ("is compute-bound", "are compute-bound"),
    "communication": ("is communication-bound", "are communication-bound"),
    "latency": ("does less work than its launch takes", "do less work than their launches take"),
    "host-copies": ("moves data between host and device", "move data between host and device"),
}


class Case(Struct):
    """Ops with one reason, and what each of them could spare."""

    kind: str
    group: str = ""
    ops: list[tuple[JudgedOp, float, Avoidable | None]] = []

    def saving(self, clock: Clock) -> Saving:
        """What they could spare together."""
        return Saving.of([one.id for one, _, _ in self.ops], [saving for _, saving, _ in self.ops], clock)

    def is_worth_a_line(self, clock: Clock) -> bool:
        """Whether they could spare enough: more where the compiler changes layouts and no line of the program asks for it."""
        is_compilers = self.kind == "layout-copies" and not any(one.op.location for one, _, _ in self.ops)
        return self.saving(clock).steps_s >= clock.of_parts(INHERENT if is_compilers else NOTABLE)


def diagnose(judged: JudgedOps, recording: Recording, machine: Machine, clock: Clock, corrections: Corrections = IDEAL) -> list[Finding]:
    """What there is to win, by kind: work that could be avoided, idle time, and distance to what good kernels reach."""
    ids: Sequence[int] = range(len(judged))
    if clock.per:
        clock = replace(clock, shares={id: share_in_steps(op, clock.steps) for id, op in enumerate(judged.ops)})
        ids = [id for id in ids if clock.share(id)]
    if (share := clock.exposed(judged, ids)) < 1:
        judged = judged.exposed(share)
    cases = _avoidable(judged, ids, len(recording.steps), machine, corrections)
    kept = [case for case in cases if case.is_worth_a_line(clock)]
    taken = {one.id for case in kept for one, _, _ in case.ops}
    kinds = kinds_for(recording.format)
    found = [_told(case, judged, clock, kinds) for case in kept]
    idle = waiting(recording, clock.parts)
    is_few = clock.per and kinds is KINDS and programs_per_step(take(judged.ops, ids), len(recording.steps)) < FEW_PROGRAMS
    found += _idle(idle, clock, {**kinds, "idle-dispatch": ONE_PROGRAM} if is_few else kinds)
    left = [id for id in ids if id not in taken] if taken else ids
    between = _Between.of(idle, judged, ids, clock)
    found += _remaining(judged, left, clock, between, machine.launch_latency_s, kinds, recording.kernels, capability_of(machine))
    return with_their_copies(found, idle, judged, clock)


def _avoidable(judged: JudgedOps, ids: Sequence[int], steps: int, machine: Machine, corrections: Corrections) -> list[Case]:
    """Ops by what would spare the most of each. What takes its launch takes no less with less work."""
    chains = {one.id: reason for one, reason in unfused_chains(judged, ids, steps)}
    avoidable = column(judged.ops, "avoidable")
    minimum_s = MinimumTimes(machine, corrections)
    cases: dict[tuple[str, str], Case] = {}
    for one in [judged[id] for id in ids if avoidable[id] or id in chains] if chains or any(avoidable) else ():
        if one.cause == LATENCY:
            continue
        reasons = [reason for reason in one.op.avoidable if reason.kind] + ([chains[one.id]] if one.id in chains else [])
        if not reasons:
            continue
        options = [(_spared(one, reason, minimum_s), reason) for reason in reasons]
        saving, reason = max(options, key=lambda option: option[0])
        if saving > 0:
            cases.setdefault((reason.kind, reason.group), Case(reason.kind, reason.group, [])).ops.append((one, saving, reason))
    return list(cases.values())


def _spared(one: JudgedOp, reason: Avoidable, minimum_s: MinimumTimes) -> float:
    """The seconds of an op that would be spared: its time in proportion to the minimum times with and without."""
    if not one.floor_s:
        return one.spent_s
    if reason.kind == "odd-sizes":
        return max(one.spent_s - one.floor_s / REACHABLE["matrix"], 0.0) if one.floor_s < ODD * one.spent_s else 0.0
    if reason.kind == "repeated-operand":
        return max(one.spent_s - one.floor_s / REACHABLE["hbm"], 0.0) if one.floor_s < ODD * one.spent_s else 0.0
    if reason.kind == "low-batch" and one.cause != MEMORY:
        return 0.0
    floor = minimum_s(reason.instead if one.op.count == 1 else reason.instead * one.op.count)
    if reason.kind == "wide-format" and not any(resource.unit == "matrix" for resource, _ in one.op.cost.amounts):
        return max(one.spent_s - floor / REACHABLE["vector"], 0.0)  # its functions (tanh, exp) take many more FLOP than are counted
    return one.spent_s * max(1 - floor / one.floor_s, 0.0)


def _told(case: Case, judged: JudgedOps, clock: Clock, kinds: Kinds) -> Finding:
    """A finding about work that could be avoided."""
    kind = TORCH_GROUPS.get((case.kind, case.group), kinds[case.kind])
    case.ops.sort(key=lambda held: -held[1])
    ids = [one.id for one, _, _ in case.ops]
    reason = case.ops[0][2]
    why = kind.phrase or (reason.why if reason else "")
    factor = f", {reason.factor:.3g} times the needed work" if reason and reason.factor else ""
    saving = case.saving(clock)
    spent = clock.of(clock.spent(judged, ids))
    place = at_place(judged, ids)
    program = f"{place}the program" if place else "The program"
    seen = f"{program} {why}{factor}: {spent} in {count_and_longest(judged, ids)}."
    message = f"{seen} {kind.change}: {clock.after(saving.steps_s)}."
    return _finding(case.kind, kind, message, ids, saving, clock)


def _finding(name: str, kind: Kind, message: str, ids: Iterable[int], saving: Saving, clock: Clock) -> Finding:
    return Finding(
        kind=name,
        title=kind.title,
        message=message,
        ops=tuple(ids),
        saving_s=saving.whole_s,
        saving_per_step_s=saving.steps_s / clock.parts if clock.per else None,
        levers=kind.levers,
        after_s=max(clock.whole_s - saving.whole_s, 0.0),
    )


def programs_per_step(ops: Sequence[Op], steps: int) -> float:
    """How many programs a step runs: each runs as often as the op that it runs least often."""
    runs: dict[str, float] = {}
    for module, count in zip(column(ops, "module"), column(ops, "count"), strict=True):
        if module:
            runs[module] = min(count, runs.get(module, count))
    return sum(runs.values()) / max(steps, 1)


def _idle(idle: Iterable[Waiting], clock: Clock, kinds: Kinds) -> list[Finding]:
    """Findings about time in which the device waited, one for each kind of reason."""
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
        kind = UNSEEN_CODE if longest.activity.startswith(BETWEEN_LAUNCHES) else kinds[name]
        said = kind.phrase.format(activity=longest.activity or "code that the profile does not show")
        at = f" ({_lines(mine)})" if longest.location else ""
        profiler_s = sum(one.each_s * one.recording for one in mine)
        told = f"The device is idle {clock.of(each * clock.parts)}: {said}{at}. {_recording(mine, profiler_s, clock)}"
        won, whole = each - profiler_s, sum(one.whole_s * (1 - one.recording) for one in mine)
        if won < NOTABLE * clock.each_s:
            message = f"{told}Without the profiler next to nothing of it is left."
            found.append(Finding(kind=name, title=kind.title, message=message, levers=()))
            continue
        found.append(
            Finding(
                kind=name,
                title=kind.title,
                message=f"{told}{kind.change}: {clock.after(won * clock.parts)}.",
                saving_s=whole,
                saving_per_step_s=won if clock.per else None,
                levers=kind.levers,
                after_s=max(clock.whole_s - whole, 0.0),
            )
        )
    return found


def _lines(idle: Iterable[Waiting]) -> str:
    """Where the host was, by their time: the line of the longest reason first, and others that have a good part of it."""
    seconds: dict[str, float] = {}
    for one in idle:
        if one.reason.location:
            seconds[one.reason.location] = seconds.get(one.reason.location, 0.0) + one.each_s
    ordered = sorted(seconds, key=lambda line: -seconds[line])
    kept = [line for line in ordered if seconds[line] >= GOOD_PART * seconds[ordered[0]]]
    return ", ".join(map(source_line, kept[:LISTED]))


def _recording(idle: Sequence[Waiting], profiler_s: float, clock: Clock) -> str:
    """What the profiler took of some idle time itself, as a sentence."""
    if profiler_s < NOTABLE * clock.each_s:
        return ""
    events = sum(one.reason.recorded * one.each_s / one.reason.time_s for one in idle if one.reason.time_s)
    took = f"About {show(rounded(profiler_s, 2), 's')} of that is the profiler's own, which recorded {rounded(events, 2):,.0f} events"
    return f"{took} of the host{clock.per}. "


class _Between(Struct, frozen=True):
    """Idle time between kernels that follow each other closely, and the part of it next to those that take no longer than a launch."""

    seconds: float
    avoidable_s: float

    @classmethod
    def of(cls, idle: Iterable[Waiting], judged: JudgedOps, ids: Sequence[int], clock: Clock) -> Self:
        """Every kernel is followed by a gap: only small kernels could be fewer."""
        seconds = sum(one.each_s for one in idle if one.reason.kind == LATENCY) * clock.parts
        every = small = 0.0
        for id in ids if seconds else ():
            every += judged.launches[id]
            small += judged.launches[id] if judged.cause[id] == LATENCY else 0.0
        return cls(seconds, seconds * small / every if every else 0.0)


def _remaining(
    judged: JudgedOps,
    ids: Sequence[int],
    clock: Clock,
    between: _Between,
    launch_s: float,
    kinds: Kinds,
    kernels: Sequence[KernelUse],
    capability: str,
) -> list[Finding]:
    """What is lost in ops that do nothing needless, by cause, and between kernels."""
    predicted = [judged[id] for id in ids if id in judged.predicted] if judged.predicted else []
    slow = slower_than_expected(predicted) if clock.measured else {}
    alike = (judged.cause, judged.unit, judged.category, judged.multiplies)
    kind_of = {one: _kind(*one) for one in {*zip(*alike, strict=True)}}
    kind_of_each = list(map(kind_of.__getitem__, zip(*alike, strict=True)))
    usual = [id for id in ids if id not in slow] if slow else ids
    kind_of_usual = at(kind_of_each, usual)
    groups = {kind: list(compress(usual, map(kind.__eq__, kind_of_usual))) for kind in dict.fromkeys(kind_of_usual) if kind}
    why = partial(causes, judged=predicted, kernels=kernels, capability=capability)
    found = _excess(judged, [(one, slow[one.id]) for one in predicted if one.id in slow], clock, kinds, why)
    for kind, mine in groups.items():
        won = _won(kind, judged, mine, launch_s, clock)
        finding = _merged(kind, judged, mine, won, clock, between if kind == LATENCY else None, kinds)
        if finding is not None:
            found.append(finding)
    if LATENCY not in groups and clock.measured and between.seconds >= clock.notable_s:
        message = (
            f"Between kernels the device is idle {clock.of(between.seconds)}. That is as good as launches get; only fewer kernels help."
        )
        found.append(Finding(kind=LATENCY, title=kinds[LATENCY].title, message=message))
    return found


def _excess(
    judged: JudgedOps, slow: list[tuple[JudgedOp, float]], clock: Clock, kinds: Kinds, why: Callable[[Sequence[JudgedOp]], list[Seen]]
) -> list[Finding]:
    """Ops that take longer than such ops do on this chip, by the family of their prediction, the one with the most excess first."""
    families: dict[str, list[tuple[JudgedOp, float]]] = {}
    for one, seconds in slow:
        families.setdefault(one.prediction.family if one.prediction else "", []).append((one, seconds))
    found = []
    for held in families.values():
        saving = Saving.of([one.id for one, _ in held], [seconds for _, seconds in held], clock)
        if saving.steps_s < clock.notable_s:
            continue
        held.sort(key=lambda each: -each[1])
        ops = [one for one, _ in held]
        ids = [one.id for one in ops]
        kind = kinds["excess"]
        worst = f"{op_name(ops[0].op)}{f' and {len(ops) - 1} more' if len(ops) > 1 else ''}"
        times = f"{ops[0].spent_s / (ops[0].spent_s - held[0][1]):.2g} times"
        told = f"{at_place(judged, ids)}{worst} {'take' if len(ops) > 1 else 'takes'} {times}"
        left = clock.after(saving.steps_s)
        spent = clock.of(clock.spent(judged, ids))
        seen = why(ops)
        reasons = "".join(f"{one.sentence} " for one in seen)
        message = f"{told} what such ops take on this chip: {spent}. {reasons}{kind.change}: {left}."
        if seen:
            kind = replace(kind, levers=tuple(one.lever for one in seen))
        found.append(_finding("excess", kind, message, ids, saving, clock))
    return found


def _kind(cause: str, unit: str | None, category: str, multiplies: bool) -> str:
    if cause == UNPRICED or category == "autotuning":  # what a compiler tried is no work of the program
        return ""
    if cause == COMMUNICATION:
        return "host-copies" if unit and named(unit).unit.partition(".")[0] == PCIE.name else "communication"
    if cause == MEMORY:
        return "memory"
    if cause == COMPUTE:
        return "products" if unit == "matrix" or multiplies else "compute"
    return "latency"


def _won(kind: str, judged: JudgedOps, ids: Sequence[int], launch_s: float, clock: Clock) -> list[float]:
    """The seconds of ops that can really be won. Small kernels can join their neighbours, but a product keeps a launch of its own."""
    spent, floor = at(judged.spent_s, ids), at(judged.floor_s, ids)
    if kind == "host-copies":
        share = _hidden(judged, ids, clock)
        return [took * share for took in spent]
    if kind == "latency":
        launches = zip(at(judged.launches, ids), at(judged.multiplies, ids), strict=True)
        return _above(spent, map(max, floor, [number * launch_s if is_product else 0.0 for number, is_product in launches]))
    alike = at(judged.category, ids), at(judged.unit, ids)
    reachable = {(name, on): OF_CATEGORIES.get(name) or REACHABLE.get(on or "", OTHERWISE) for name, on in {*zip(*alike, strict=True)}}
    won = _above(spent, map(truediv, floor, map(reachable.__getitem__, zip(*alike, strict=True))))
    # What is within the bounds of such ops takes no less.
    fine = {id for id, one in judged.predicted.items() if is_calibrated(one) and one.high_s < CLOSE * one.time_s}
    return [0.0 if id in fine else seconds for id, seconds in zip(ids, won, strict=True)] if fine else won


def _above(spent: Iterable[float], least: Iterable[float]) -> list[float]:
    """What each takes above the least it could."""
    return [left if (left := took - needed) > 0 else 0.0 for took, needed in zip(spent, least, strict=True)]


def _hidden(judged: JudgedOps, ids: Sequence[int], clock: Clock) -> float:
    """The share of copies' time that could go: what they take above a good rate of their link, and what the rest of the time can hide."""
    spent, floor = _spent_and_floor(judged, ids, clock)
    least = min(floor / OTHERWISE, spent)
    rest = max(clock.each_s * clock.parts - spent, 0.0)
    return 1 - max(least - rest, 0.0) / spent if spent else 0.0


def _merged(
    kind_name: str,
    judged: JudgedOps,
    ids: list[int],
    won: list[float],
    clock: Clock,
    between: _Between | None,
    kinds: Kinds,
) -> Finding | None:
    """One finding for ops that lose time to the same cause, of which so much can be won."""
    kind = replace(kinds[kind_name], title=title_of(kind_name, kinds[kind_name], judged, ids))
    spent, floor = _spent_and_floor(judged, ids, clock)
    if not clock.measured:
        if spent < clock.notable_s:
            return None
        longest = _most_first(ids, at(judged.spent_s, ids))
        place = at_place(judged, longest[:LISTED])
        message = f"{place}{subject(judged, longest)} {_are(longest, kind_name)}: at least {clock.of(spent)}."
        return Finding(kind=kind_name, title=kind.title, message=message, ops=tuple(longest), levers=kind.levers)
    gap_s = between.seconds if between is not None else 0.0
    if spent + gap_s - floor < clock.notable_s:
        return None
    saving = Saving.of(ids, won, clock, between.avoidable_s if between is not None else 0.0)
    if any(won) and not all(won):
        ids, won = list(compress(ids, won)), list(compress(won, won))
        spent, floor = _spent_and_floor(judged, ids, clock)
    worst = _most_first(ids, won)
    efficiency = percent(floor / spent) if spent else ""
    reach = "" if kind_name in ("host-copies", "latency") else f" at {efficiency} of the roofline"
    gaps = ", with the gaps between kernels" if gap_s else ""
    told = f"{at_place(judged, worst)}{subject(judged, worst)} {_are(worst, kind_name)}{reach}: {clock.of(spent + gap_s)}{gaps}."
    if saving.steps_s < (clock.of_parts(INHERENT) if kind_name == LATENCY else clock.notable_s):
        message = f"{told} That is as good as such ops get; only less work helps."
        return Finding(kind=kind_name, title=kind.title, message=message, ops=tuple(worst), levers=())
    kind, left = fitting(kind_name, kind, judged, ids, won), clock.after(saving.steps_s)
    if kind_name == "host-copies":  # hidden behind other work: no less work
        without = f", {clock.left(spent)} without the copies" if saving.steps_s < spent - clock.notable_s else ""
        left = f"{clock.left(saving.steps_s)} left{without}"
    return _finding(kind_name, kind, f"{told} {kind.change}: {left}.", worst, saving, clock)


def _spent_and_floor(judged: JudgedOps, ids: Sequence[int], clock: Clock) -> tuple[float, float]:
    """The seconds of some ops, and how much of them their work needs."""
    spent, floor = at(judged.spent_s, ids), at(judged.floor_s, ids)
    if clock.shares:
        shares = [clock.share(id) for id in ids]
        spent, floor = ([seconds * share for seconds, share in zip(each, shares, strict=True)] for each in (spent, floor))
    return sum(spent), sum(map(min, floor, spent))


def _most_first(ids: Sequence[int], seconds: Sequence[float]) -> list[int]:
    """Ops by their seconds, the most first, those of equal time as they came."""
    if len(ids) > MANY:
        from ..many_rows import longest_first  # numpy, which only very many ops need

        return list(at(ids, longest_first(seconds)))
    return [ids[place] for place in sorted(range(len(ids)), key=seconds.__getitem__, reverse=True)]


def _are(ids: Sequence[int], kind: str) -> str:
    one, several = WORDS[kind]
    return one if len(ids) == 1 else several
