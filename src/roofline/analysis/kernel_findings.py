"""Findings about kernels without avoidable work: their distance to what good kernels reach, by cause, and the gaps between them."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import compress
from operator import truediv
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from ..columns.lazy_rows import values_at
from ..cost import Cost
from ..machine import LATENCY
from ..operation import Product, Streamed, width
from ..placement import MinimumTimes
from ..prediction import Prediction
from ..report import Finding
from ..resource import HBM, PCIE, TRANSCENDENTAL, named
from ..units import percent
from ..workload import AUTOTUNING, LOWER_BOUND, KernelUse, Op
from .excess_causes import causes
from .excess_findings import excess_findings
from .expected_times import SLOW, is_calibrated, slower_than_expected
from .finding_kinds import FACTORISE_LESS, Kinds
from .finding_words import LISTED, at_place, categories_of, fitting, replacements, subject, title_of, with_saving
from .idle_time import Waiting
from .losses import COMMUNICATION, COMPUTE, MEMORY, UNPRICED
from .op_times import OpTime, OpTimes
from .program_clock import INHERENT, Clock, Saving
from .reachable import GOOD, OF_CATEGORIES, OF_STREAMED, OTHERWISE, REACHABLE, SEVERAL_KERNELS, SORT_LAUNCHES, reachable, slow_instructions

LINEAR_ALGEBRA = "linear algebra"  # factorisations and solves: their FLOP are those of matmuls, but their kernels are not
# Times the expected time: a calibrated prediction with a lower upper bound is precise, and the finding excess uses it. In 47
# recordings on H200s the upper bound is either at most 1.6 or at least 2.2 times the expected time.
CLOSE = 1.7
REPLACED = ("scatter", "sort", "top-k")  # run far below the roof on every chip; another op in their place helps
REPLACED_BELOW = 0.25  # of the roof: most of them reach less (`OF_CATEGORIES`: sorts at most 12%, scatters 13% at the median)
IN_SEQUENCE = (LINEAR_ALGEBRA, "recurrent")  # ops that run many small kernels in sequence
FEWER_KERNELS = "Launches get no faster on this chip; only fewer, larger kernels help."
LESS_WORK = "Such ops get no faster on this chip; only less work helps."
# The share of JAX's profiler of the gaps between kernels: on an H200 fourteen programs whose gaps take a tenth of the step or more were
# faster without it by 32% to all of these gaps, most of them by 70% to 90%.
RECORDED_GAPS = 0.7
# Predicates for one op, and for several.
WORDS = {
    "memory": ("is memory-bound", "are memory-bound"),
    "products": ("is compute-bound", "are compute-bound"),
    "compute": ("is compute-bound", "are compute-bound"),
    "communication": ("is communication-bound", "are communication-bound"),
    "latency": ("is latency-bound (less work than a launch takes)", "are latency-bound (less work than a launch takes)"),
    "host-copies": ("moves data between host and device", "move data between host and device"),
}


class KernelGaps(Struct, frozen=True):
    """Idle time between kernels that follow each other closely, and the part of it after latency-bound kernels.

    ``recorded`` is the share of it that is profiler overhead.
    """

    seconds: float
    avoidable_s: float
    recorded: float = 0.0

    @classmethod
    def of(cls, idle: Iterable[Waiting], op_times: OpTimes, ids: Sequence[int], clock: Clock, recorded: float = 0.0) -> Self:
        """Each kernel is followed by a gap; only the number of small kernels could be reduced."""
        seconds = sum(one.each_s for one in idle if one.reason.kind == LATENCY) * clock.parts
        every = small = 0.0
        for id in ids if seconds else ():
            every += op_times.launches[id]
            small += op_times.launches[id] if op_times.cause[id] == LATENCY else 0.0
        return cls(seconds, (1 - recorded) * seconds * small / every if every else 0.0, recorded)


class Limits(Struct, frozen=True):
    """What keeps a kernel from its roof whatever its code: its launch, and on a GPU instructions that take longer than a FLOP."""

    launch_s: float
    minimum_s: MinimumTimes | None

    def instructions_s(self, op: Op) -> float:
        """The least time of an op's integer and transcendental instructions."""
        return self.minimum_s(slow_instructions(op.cost)) if self.minimum_s is not None else 0.0

    def are_functions(self, one: OpTime, excess_s: float) -> bool:
        """Whether a product takes longer than expected because its kernel also computes functions of its operands or its result, such as
        tanh: a kernel of their own would read and write as many elements in that time.
        """
        functions, product = one.op.cost.known(TRANSCENDENTAL), one.op.operation
        if not functions or not isinstance(product, Product) or self.minimum_s is None:
            return False
        apart = Cost.of({HBM: 2 * width(product.left) * functions})
        return excess_s < SLOW * self.minimum_s(apart) / REACHABLE["hbm"]


def kernel_findings(
    op_times: OpTimes,
    ids: Sequence[int],
    clock: Clock,
    between: KernelGaps,
    limits: Limits,
    kinds: Kinds,
    kernels: Sequence[KernelUse],
    capability: str,
) -> list[Finding]:
    """Time lost in ops without avoidable work, by cause, and between kernels."""
    predicted = [op_times[id] for id in ids if id in op_times.predicted] if op_times.predicted else []
    slow = slower_than_expected(predicted) if clock.measured else {}
    slow = {id: excess for id, excess in slow.items() if not limits.are_functions(op_times[id], excess)}
    alike = (op_times.cause, op_times.unit, op_times.category, op_times.multiplies)
    kind_of = {one: _kind(*one) for one in {*zip(*alike, strict=True)}}
    kind_of_each = list(map(kind_of.__getitem__, zip(*alike, strict=True)))
    usual = [id for id in ids if id not in slow] if slow else ids
    kind_of_usual = values_at(kind_of_each, usual)
    groups = {kind: list(compress(usual, map(kind.__eq__, kind_of_usual))) for kind in dict.fromkeys(kind_of_usual) if kind}
    why = partial(causes, op_times=predicted, kernels=kernels, capability=capability)
    found = excess_findings(op_times, [(one, slow[one.id]) for one in predicted if one.id in slow], clock, kinds, why)
    parts = [(kind, part) for kind, every in groups.items() for part in _separate_findings(kind, op_times, every, clock)]
    for place, (kind, mine) in enumerate(parts):
        won = _savings(kind, op_times, mine, limits, clock)
        is_first = kind == LATENCY and not any(other == LATENCY for other, _ in parts[:place])  # the gaps count once
        finding = _merged(kind, op_times, mine, won, clock, between if is_first else None, kinds)
        if finding is not None:
            found.append(finding)
    if LATENCY not in groups and clock.measured and between.seconds >= clock.notable_s:
        message = f"Between kernels the device is idle {clock.of(between.seconds)}. {FEWER_KERNELS}"
        found.append(Finding(kind=LATENCY, title=kinds[LATENCY].title, message=message))
    return found


def _kind(cause: str, unit: str | None, category: str, multiplies: bool) -> str:
    if cause in (UNPRICED, AUTOTUNING):  # kernels that a compiler tried are not work of the program
        return ""
    if cause == COMMUNICATION:
        return "host-copies" if unit and named(unit).unit.partition(".")[0] == PCIE.name else "communication"
    if cause == MEMORY:
        return "memory"
    if cause == COMPUTE:
        return "products" if (unit == "matrix" or multiplies) and category != LINEAR_ALGEBRA else "compute"
    return "latency"


def _separate_findings(kind: str, op_times: OpTimes, ids: list[int], clock: Clock) -> list[list[int]]:
    """Groups of ops, one finding each: scatters, sorts and top-k with much of the time get their own, where another op helps; and so do ops
    of many small kernels in sequence, which cannot be fused with others.
    """
    if not clock.measured or kind not in ("memory", LATENCY):
        return [ids]
    slow = [id for id in ids if op_times.floor_s[id] < REPLACED_BELOW * op_times.spent_s[id]] if kind == "memory" else ids
    apart = [
        category
        for category in (REPLACED if kind == "memory" else IN_SEQUENCE)
        if _lost_s(op_times, _of_category(op_times, slow, category), clock) >= clock.of_parts(INHERENT)
    ]
    parts = [_of_category(op_times, ids, category) for category in apart]
    separate = {id for part in parts for id in part}
    return [part for part in ([id for id in ids if id not in separate], *parts) if part]


def _of_category(op_times: OpTimes, ids: Sequence[int], category: str) -> list[int]:
    return [id for id, each in zip(ids, categories_of(op_times, ids), strict=True) if each == category]


def _lost_s(op_times: OpTimes, ids: Sequence[int], clock: Clock) -> float:
    spent, floor = _spent_and_floor(op_times, ids, clock)
    return spent - floor


def _savings(kind: str, op_times: OpTimes, ids: Sequence[int], limits: Limits, clock: Clock) -> list[float]:
    """The seconds of each op that can be saved. Small kernels can be fused with neighbours; others keep their launches."""
    spent, floor = values_at(op_times.spent_s, ids), values_at(op_times.floor_s, ids)
    if kind == "host-copies":
        share = _avoidable_share(op_times, ids, clock)
        return [took * share for took in spent]
    if kind == "latency":
        return _excess(spent, _launched_anyway(op_times, ids, limits.launch_s))
    alike = values_at(op_times.category, ids), values_at(op_times.unit, ids)
    shares = {one: reachable(*one) for one in {*zip(*alike, strict=True)}}
    won = _excess(spent, map(truediv, floor, map(shares.__getitem__, zip(*alike, strict=True))))
    return _within_reach(op_times, ids, won, limits)


def _launched_anyway(op_times: OpTimes, ids: Sequence[int], launch_s: float) -> list[float]:
    """The least time of small ops: products keep their launches, ops of some categories all of their kernels, others can be fused."""
    floor, launches, categories = values_at(op_times.floor_s, ids), values_at(op_times.launches, ids), values_at(op_times.category, ids)
    least = [
        max(floor_s, count * launch_s) if multiplies else floor_s
        for floor_s, count, multiplies in zip(floor, launches, values_at(op_times.multiplies, ids), strict=True)
    ]
    if not SEVERAL_KERNELS.isdisjoint(categories):
        for place in [place for place, category in enumerate(categories) if category in SEVERAL_KERNELS]:
            waiting_s = launches[place] * launch_s + floor[place] / OF_CATEGORIES[categories[place]]
            least[place] = max(floor[place], waiting_s)
    return least


def _within_reach(op_times: OpTimes, ids: Sequence[int], won: Sequence[float], limits: Limits) -> list[float]:
    """The part of the seconds above good kernels that can be saved: launches remain, and some ops are as fast as such ops get."""
    spent_s, floor_s, launches, operations = op_times.spent_s, op_times.floor_s, op_times.launches, op_times.operations
    each = zip(won, values_at(floor_s, ids), values_at(spent_s, ids), strict=True)
    slow = [place for place, (left, floor, spent) in enumerate(each) if left and floor < GOOD * spent]
    if op_times.predicted:
        slow = [place for place in slow if not _is_usual(op_times.predicted.get(ids[place]))]
    found = [0.0] * len(ids)
    for place, category in zip(slow, categories_of(op_times, values_at(ids, slow)), strict=True):
        id, left = ids[place], won[place]
        operation = operations[id]
        if isinstance(operation, Streamed) and operation.kind in OF_STREAMED:
            left = min(left, spent_s[id] - floor_s[id] / OF_STREAMED[operation.kind])
        if category in OF_CATEGORIES:
            left = min(left, spent_s[id] - floor_s[id] / reachable(category, op_times.unit[id]))
        left = min(left, spent_s[id] - limits.instructions_s(op_times.ops[id]))
        left -= launches[id] * limits.launch_s * (SORT_LAUNCHES if category == "sort" else 1)
        if left > 0:
            found[place] = left
    return found


def _is_usual(expected: Prediction | None) -> bool:
    """Whether a calibrated prediction has narrow bounds: the op's excess is then reported by the finding excess instead."""
    return expected is not None and is_calibrated(expected) and expected.high_s < CLOSE * expected.time_s


def _excess(spent: Iterable[float], least: Iterable[float]) -> list[float]:
    """The time of each op above its minimum."""
    return [left if (left := took - needed) > 0 else 0.0 for took, needed in zip(spent, least, strict=True)]


def _avoidable_share(op_times: OpTimes, ids: Sequence[int], clock: Clock) -> float:
    """The share of the copies' time that can be saved: time above a good rate of their link, and time that other work can hide."""
    spent, floor = _spent_and_floor(op_times, ids, clock)
    least = min(floor / OTHERWISE, spent)
    rest = max(clock.each_s * clock.parts - spent, 0.0)
    return 1 - max(least - rest, 0.0) / spent if spent else 0.0


def _merged(
    kind_name: str,
    op_times: OpTimes,
    ids: list[int],
    won: list[float],
    clock: Clock,
    between: KernelGaps | None,
    kinds: Kinds,
) -> Finding | None:
    """One finding for ops that lose time to the same cause, each with the seconds that can be saved."""
    if not clock.measured:
        return _without_times(kind_name, op_times, ids, clock, kinds)
    kind = replace(kinds[kind_name], title=title_of(kind_name, kinds[kind_name], op_times, ids))
    spent, floor = _spent_and_floor(op_times, ids, clock)
    gap_s = between.seconds if between is not None else 0.0
    if spent + gap_s - floor < clock.notable_s:
        return None
    saving = Saving.of(ids, won, clock, between.avoidable_s if between is not None else 0.0)
    is_little = saving.steps_s <= (clock.of_parts(INHERENT) if kind_name == LATENCY else clock.notable_s)
    if not is_little and any(won) and not all(won):
        ids, won = list(compress(ids, won)), list(compress(won, won))
        spent, floor = _spent_and_floor(op_times, ids, clock)
    worst = _most_first(ids, won)
    efficiency = percent(floor / spent) if spent else ""
    reach = "" if kind_name in ("host-copies", "latency") else f" at {efficiency} of the roofline"
    gaps = ", including the gaps between kernels" if gap_s else ""
    gaps += f" (about {percent(between.recorded)} of them profiler overhead)" if gaps and between is not None and between.recorded else ""
    kind, advised = (kind, ()) if is_little else fitting(kind_name, kind, op_times, ids, won)
    told = f"{at_place(op_times, worst)}{subject(op_times, worst, advised)} {_predicate(worst, kind_name)}{reach}"
    loss = f"{told}: {clock.of(spent + gap_s)}{gaps}."
    if is_little:
        message = f"{loss} {FEWER_KERNELS if kind_name == LATENCY else LESS_WORK}"
        slowest = max(worst, key=op_times.spent_s.__getitem__)
        return Finding(
            kind=kind_name, title=kind.title, message=message, ops=tuple(worst), levers=_less_work(kind_name, op_times, slowest, kinds)
        )
    then = clock.after(saving.steps_s)
    if kind_name == "host-copies":  # overlapped with other work, not removed
        without = f", {clock.without(spent)} without the copies" if saving.steps_s < spent - clock.notable_s else ""
        then = f"{clock.then(saving.steps_s)}{without}"
    return with_saving(kind_name, kind, f"{loss} {kind.change}: {then}.{_less_certain(op_times, worst[0])}", worst, saving, clock)


def _without_times(kind_name: str, op_times: OpTimes, ids: list[int], clock: Clock, kinds: Kinds) -> Finding | None:
    """The same for a program that was not run, by the minimum time of its ops."""
    minimum_s, _ = _spent_and_floor(op_times, ids, clock)
    if minimum_s < clock.notable_s:
        return None
    longest = _most_first(ids, values_at(op_times.spent_s, ids))
    place = at_place(op_times, longest[:LISTED])
    message = f"{place}{subject(op_times, longest)} {_predicate(longest, kind_name)}: minimum time {clock.of(minimum_s)} in total."
    title = title_of(kind_name, kinds[kind_name], op_times, ids)
    return Finding(kind=kind_name, title=title, message=message, ops=tuple(longest), levers=kinds[kind_name].levers)


def _less_certain(op_times: OpTimes, id: int) -> str:
    """Why less may be saved than was found, if the cost of the op with the largest saving is only a lower bound."""
    note = next((note for note in op_times.ops[id].notes if note.startswith(LOWER_BOUND)), "")
    return f" It may save less: {note.removeprefix(LOWER_BOUND)}." if note else ""


def _less_work(kind: str, op_times: OpTimes, slowest: int, kinds: Kinds) -> tuple[str, ...]:
    """What takes less time than the longest of the ops that run no faster, where it is known."""
    category = categories_of(op_times, [slowest])[0]
    if kind == "memory" and category in REPLACED:
        return replacements(op_times, slowest, kinds[kind])
    return FACTORISE_LESS if kind in ("memory", "compute", LATENCY) and category == LINEAR_ALGEBRA else ()


def _spent_and_floor(op_times: OpTimes, ids: Sequence[int], clock: Clock) -> tuple[float, float]:
    """The seconds of some ops, and their minimum time."""
    spent, floor = values_at(op_times.spent_s, ids), values_at(op_times.floor_s, ids)
    if clock.shares:
        shares = [clock.share(id) for id in ids]
        spent, floor = ([seconds * share for seconds, share in zip(each, shares, strict=True)] for each in (spent, floor))
    return sum(spent), sum(map(min, floor, spent))


def _most_first(ids: Sequence[int], seconds: Sequence[float]) -> list[int]:
    """Ops sorted by seconds, longest first; equal ones keep their order."""
    return [ids[place] for place in sorted(range(len(ids)), key=seconds.__getitem__, reverse=True)]


def _predicate(ids: Sequence[int], kind: str) -> str:
    one, several = WORDS[kind]
    return one if len(ids) == 1 else several
