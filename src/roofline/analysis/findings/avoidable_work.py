"""Findings about avoidable work: the saving of each op without it, ops with the same reason merged."""

from collections.abc import Hashable, Mapping, Sequence

from msgspec import Struct

from ...causes import MEMORY
from ...cost import NOTHING
from ...machine import LATENCY, Machine
from ...placement import Corrections, MinimumTimes
from ...quantities import NOTABLE
from ...workload import Avoidable, IdleReason, Saves, Usual
from ..op_times import OpTime, OpTimes
from .clock import INHERENT, Clock
from .evidence import Evidence, Saving
from .program_chains import KIND as CHAIN
from .program_chains import unfused_chains
from .reachable import REACHABLE, reachable

NEARLY = 0.6  # of the largest saving that any reason has for an op: the reason that saves more of the whole program wins (a choice)
# On a CPU a callback is an op of its own, not time in which the device waits.
CALLED_BACK = Avoidable(kind="idle-callback", group="op", instead=NOTHING, saves=Saves.ALL)
ODD_SIZES = "odd-sizes"
# On an H200 a GRU of 768 units over 200 steps takes 19.9 ms, with the products of its inputs before the loop 14.3 ms (predicted: 4.4 ms
# saved).
MANY_IN_ONE = (Saves.ONE_KERNEL, Saves.SHARED_LOOP)
SLOWED_BELOW = 0.6  # of the roof: a faster op is not slowed down (as `GOOD` in `reachable`)
# The share of its roof that an op reaches without what slows it down, if that is not the share of its category. On an H200, transforms of
# lengths that are powers of 2 reach 33% to 70%, batch norms with stored statistics 51%.
REACHED_WITHOUT = {
    Saves.GOOD_PRODUCT: REACHABLE["matrix"],
    Saves.GOOD_STREAM: REACHABLE["hbm"],
    Saves.GOOD_VECTOR: REACHABLE["vector"],
    Saves.GOOD_TRANSFORM: 0.3,
    Saves.GOOD_NORM: 0.5,
}

Savings = Mapping[tuple[str, str], tuple[float, Avoidable]]  # the seconds of an op that each kind and group of reason would save


class Case(Struct):
    """Ops with one reason, and the seconds that each could save."""

    kind: str
    group: str = ""
    ops: list[tuple[OpTime, float, Avoidable]] = []

    def saving(self, clock: Clock) -> Saving:
        """The seconds that they could save together."""
        return Saving.of([one.id for one, _, _ in self.ops], [saving for _, saving, _ in self.ops], clock)

    def is_worth_a_line(self, clock: Clock) -> bool:
        """Whether the saving is large enough to show.

        The threshold is higher for layouts that the compiler or a backward pass changes by itself, for stacked weights and activations, and
        for what a loop recomputes: a loop compiles faster than its layers one by one.
        """
        is_asked = any(one.op.location and one.op.phase != "backward" for one, _, _ in self.ops)
        usual = self.ops[0][2].usual
        is_usual = usual == Usual.YES or (usual == Usual.UNLESS_ASKED and not is_asked)
        return self.saving(clock).steps_s >= clock.of_parts(INHERENT if is_usual else NOTABLE)


def worth_a_line(cases: Sequence[Case], clock: Clock) -> list[Case]:
    """The cases to show. Chains of a group that is too small for a finding of its own are merged with the other chains."""
    others = next((case for case in cases if case.kind == CHAIN and not case.group), None)
    small = [case for case in cases if case.kind == CHAIN and case.group and not case.is_worth_a_line(clock)]
    if others is not None:
        reason = others.ops[0][2]
        others.ops.extend((one, saving, reason) for case in small for one, saving, _ in case.ops)
    return [case for case in cases if case not in small and case.is_worth_a_line(clock)]


def avoidable_cases(
    op_times: OpTimes,
    ids: Sequence[int],
    steps: int,
    idle: Sequence[IdleReason],
    machine: Machine,
    corrections: Corrections,
    *,
    launched_singly: bool,
) -> list[Case]:
    """Ops grouped by why some of their work could be avoided. Less work does not shorten a latency-bound op, unless the op is removed.

    Odd sizes do not count on a CPU, whose libraries copy operands into blocks before they multiply.
    """
    others = {timed.id: reason for timed, reason in unfused_chains(op_times, ids, steps)}
    if not any(reason.kind == "callback" for reason in idle):
        others |= {id: CALLED_BACK for id in ids if op_times.category[id] == "host callback"}
    minimum_s = MinimumTimes(machine, corrections)
    options: list[tuple[OpTime, Savings]] = []
    known: dict[Hashable, Savings] = {}  # ops of equal layers share their costs and avoidable work
    for timed in [op_times[id] for id in ids if op_times.ops[id].avoidable or id in others]:
        other = others.get(timed.id)
        same = (id(timed.op.avoidable), id(other), id(timed.op.cost), timed.op.count, timed.floor_s, timed.spent_s, timed.cause)
        op_savings = known.get(same)
        if op_savings is None:
            reasons = [reason for reason in timed.op.avoidable if reason.kind] + ([] if other is None else [other])
            if machine.kind == "cpu":
                reasons = [reason for reason in reasons if reason.kind != ODD_SIZES]
            if timed.cause == LATENCY:
                reasons = [reason for reason in reasons if _helps_small(reason, launched_singly)]
            op_savings = known[same] = _savings(timed, reasons, minimum_s)
        if op_savings:
            options.append((timed, op_savings))
    return _by_reason(options)


def _helps_small(reason: Avoidable, launched_singly: bool) -> bool:
    """Whether a reason saves time of an op with less work than a launch takes: it is not run at all, or one kernel for many."""
    return reason.saves == Saves.ALL or reason.saves in MANY_IN_ONE or (launched_singly and reason.instead == NOTHING)


def _savings(one: OpTime, reasons: Sequence[Avoidable], minimum_s: MinimumTimes) -> Savings:
    """The largest saving of an op by each kind and group of reason."""
    mine: dict[tuple[str, str], tuple[float, Avoidable]] = {}
    for reason in reasons:
        saving = _saved_s(one, reason, minimum_s)
        if saving > mine.get((reason.kind, reason.group), (0.0, reason))[0]:
            mine[reason.kind, reason.group] = saving, reason
    return mine


def _by_reason(options: Sequence[tuple[OpTime, Savings]]) -> list[Case]:
    """Assign each op to one reason: of those with nearly its largest saving, the one that saves the most over all ops.

    An op that would not run at all without a reason, such as recomputation, is assigned to that reason. An op that can be removed is not
    counted as part of a chain.
    """
    alone: dict[tuple[str, str], float] = {}
    for _, mine in options:
        for key, (saving, _) in mine.items():
            alone[key] = alone.get(key, 0.0) + saving
    cases: dict[tuple[str, str], Case] = {}
    chosen = {number: _main_reason(mine, alone) for number, mine in {id(mine): mine for _, mine in options}.items()}
    for one, mine in options:
        key = chosen[id(mine)]  # ops of equal layers share their savings
        if key not in cases:
            cases[key] = Case(*key, [])
        cases[key].ops.append((one, *mine[key]))
    return list(cases.values())


def _main_reason(mine: Savings, alone: Mapping[tuple[str, str], float]) -> tuple[str, str]:
    """The reason that an op is assigned to; ``alone`` is what each reason would save over all ops."""
    most = max(saving for saving, _ in mine.values())
    near = [key for key, (saving, _) in mine.items() if saving >= NEARLY * most]
    if any(mine[key][1].instead == NOTHING for key in near):
        near = [key for key in near if key[0] != CHAIN] or near
    return max([key for key in near if mine[key][1].extra] or near, key=alone.__getitem__)


def _saved_s(one: OpTime, reason: Avoidable, minimum_s: MinimumTimes) -> float:
    """The seconds that an op would save, in the share of its executions that the reason is about."""
    return reason.share * _saved_in_all_s(one, reason, minimum_s)


def _saved_in_all_s(one: OpTime, reason: Avoidable, minimum_s: MinimumTimes) -> float:
    """The seconds that an op would save if a reason were about all of its executions."""
    if not one.floor_s or reason.saves == Saves.ALL:
        return one.spent_s
    floor_s = minimum_s(reason.instead if one.op.count == 1 else reason.instead * one.op.count)
    if reason.saves in MANY_IN_ONE and one.cause == LATENCY:
        return _beyond(one, floor_s, reachable(one.op.category, one.unit))
    if reason.saves == Saves.GOOD_KERNEL or reason.saves in REACHED_WITHOUT:
        good = REACHED_WITHOUT.get(reason.saves) or reachable(one.op.category, one.unit)
        return _beyond(one, floor_s, good) if floor_s < SLOWED_BELOW * one.spent_s else 0.0
    if reason.saves == Saves.ONE_KERNEL or (reason.saves in (Saves.SHARED_READS, Saves.SHARED_LOOP) and one.cause != MEMORY):
        return 0.0
    besides_s = minimum_s(reason.besides * one.op.count) / REACHABLE["hbm"] if reason.besides != NOTHING else 0.0
    return max(one.spent_s * (1 - floor_s / one.floor_s) - besides_s, 0.0)


def _beyond(one: OpTime, floor_s: float, good: float) -> float:
    """The time of an op beyond that of a kernel with this minimum time, which reaches the share ``good`` of its roof."""
    return max(one.spent_s - floor_s / good, 0.0)


def avoidable_evidence(case: Case, clock: Clock) -> Evidence:
    """The evidence of work that could be avoided."""
    case.ops.sort(key=lambda entry: -entry[1])
    reason = next((reason for _, _, reason in case.ops if reason.factor), case.ops[0][2])
    ids = tuple([one.id for one, _, _ in case.ops])
    return Evidence(kind=case.kind, group=case.group, ops=ids, saved=case.saving(clock), avoidable=reason)
