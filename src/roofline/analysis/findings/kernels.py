"""Findings about kernels without avoidable work: their distance to what good kernels reach, by cause, and the gaps between them."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import compress
from operator import truediv
from typing import Self

from msgspec import Struct

from ...causes import COMMUNICATION, COMPUTE, MEMORY, UNPRICED
from ...cost import Cost
from ...machine import LATENCY
from ...operation import Product, Streamed, width
from ...placement import MinimumTimes
from ...prediction import Expected
from ...resource import HBM, PCIE, TRANSCENDENTAL, named
from ...workload import AUTOTUNING, LOWER_BOUND, KernelUse, Op
from ..expected_times import SLOW, is_calibrated, slower_than_expected
from ..idle_time import Waiting
from ..op_times import OpTime, OpTimes, values_at
from .clock import INHERENT, Clock
from .evidence import Evidence, Note, Saving
from .excess import causes, excess_evidence
from .levers import FACTORISE_LESS, cases_of, categories_of, matrix_work, replacements
from .reachable import GOOD, OF_CATEGORIES, OF_STREAMED, OTHERWISE, REACHABLE, SEVERAL_KERNELS, SORT_LAUNCHES, reachable, slow_instructions
from .writing import LISTED, Writer

LINEAR_ALGEBRA = "linear algebra"  # factorisations and solves: their FLOP are those of matmuls, but their kernels are not
# Times the expected time: a calibrated prediction with a lower upper bound is precise, and the finding excess uses it. In 47
# recordings on H200s the upper bound is either at most 1.6 or at least 2.2 times the expected time.
CLOSE = 1.7
REPLACED = ("scatter", "sort", "top-k")  # run far below the roof on every chip; another op in their place helps
REPLACED_BELOW = 0.25  # of the roof: most of them reach less (`OF_CATEGORIES`: sorts at most 12%, scatters 13% at the median)
IN_SEQUENCE = (LINEAR_ALGEBRA, "recurrent")  # ops that run many small kernels in sequence
FEWER_KERNELS, LESS_WORK = Note("fewer-kernels"), Note("less-work")
# The share of JAX's profiler of the gaps between kernels: on an H200 fourteen programs whose gaps take a tenth of the step or more were
# faster without it by 32% to all of these gaps, most of them by 70% to 90%.
RECORDED_GAPS = 0.7
HOST_COPIES, PRODUCTS = "host-copies", "products"
BY_CAUSE = (MEMORY, PRODUCTS, COMPUTE, COMMUNICATION, LATENCY, HOST_COPIES)  # kinds of findings about what binds ops


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


def kernel_evidence(
    op_times: OpTimes,
    ids: Sequence[int],
    clock: Clock,
    between: KernelGaps,
    limits: Limits,
    writer: Writer,
    kernels: Sequence[KernelUse],
    capability: str,
) -> list[Evidence]:
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
    found = excess_evidence([(one, slow[one.id]) for one in predicted if one.id in slow], clock, why)
    parts = [(kind, part) for kind, every in groups.items() for part in _separate_findings(kind, op_times, every, clock)]
    for place, (kind, mine) in enumerate(parts):
        is_first = kind == LATENCY and not any(other == LATENCY for other, _ in parts[:place])  # the gaps count once
        gaps = between if is_first else KernelGaps(0.0, 0.0)
        evidence = (
            _of_cause(kind, op_times, mine, clock, gaps, limits, writer) if clock.measured else _without_times(kind, op_times, mine, clock)
        )
        if evidence is not None:
            found.append(evidence)
    if LATENCY not in groups and clock.measured and between.seconds >= clock.notable_s:
        found.append(Evidence(kind=LATENCY, group="gaps", facts={"gaps_s": between.seconds}, notes=(FEWER_KERNELS,)))
    return found


def _kind(cause: str, unit: str | None, category: str, multiplies: bool) -> str:
    if cause in (UNPRICED, AUTOTUNING):  # kernels that a compiler tried are not work of the program
        return ""
    if cause == COMMUNICATION:
        return HOST_COPIES if unit and named(unit).unit.partition(".")[0] == PCIE.name else COMMUNICATION
    if cause == MEMORY:
        return MEMORY
    if cause == COMPUTE:
        return PRODUCTS if (unit == "matrix" or multiplies) and category != LINEAR_ALGEBRA else COMPUTE
    return LATENCY


def _separate_findings(kind: str, op_times: OpTimes, ids: list[int], clock: Clock) -> list[list[int]]:
    """Groups of ops, one finding each: scatters, sorts and top-k with much of the time get their own, where another op helps; and so do ops
    of many small kernels in sequence, which cannot be fused with others.
    """
    if not clock.measured or kind not in (MEMORY, LATENCY):
        return [ids]
    slow = [id for id in ids if op_times.floor_s[id] < REPLACED_BELOW * op_times.spent_s[id]] if kind == MEMORY else ids
    apart = [
        category
        for category in (REPLACED if kind == MEMORY else IN_SEQUENCE)
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
    if kind == HOST_COPIES:
        share = _avoidable_share(op_times, ids, clock)
        return [took * share for took in spent]
    if kind == LATENCY:
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


def _is_usual(expected: Expected | None) -> bool:
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


def _of_cause(
    kind: str, op_times: OpTimes, ids: list[int], clock: Clock, between: KernelGaps, limits: Limits, writer: Writer
) -> Evidence | None:
    """The evidence of ops that lose time to the same cause, each with the seconds that can be saved."""
    won = _savings(kind, op_times, ids, limits, clock)
    spent, floor = _spent_and_floor(op_times, ids, clock)
    if spent + between.seconds - floor < clock.notable_s:
        return None
    saving = Saving.of(ids, won, clock, between.avoidable_s)
    is_little = saving.steps_s <= (clock.of_parts(INHERENT) if kind == LATENCY else clock.notable_s)
    work = matrix_work(op_times, ids) if kind == PRODUCTS else ""
    if not is_little and any(won) and not all(won):
        ids, won = list(compress(ids, won)), list(compress(won, won))
        spent, floor = _spent_and_floor(op_times, ids, clock)
    worst = _most_first(ids, won)
    facts = {
        "work": work,
        "reached": floor / spent if spent else None,
        "spent": spent + between.seconds,
        "gaps": bool(between.seconds),
        "recorded": between.recorded if between.seconds and between.recorded else None,
    }
    if is_little:
        slowest = max(worst, key=op_times.spent_s.__getitem__)
        note = FEWER_KERNELS if kind == LATENCY else LESS_WORK
        return Evidence(kind=kind, ops=worst, facts=facts, notes=(note,), levers=_less_work(kind, op_times, slowest))
    cases, advised = cases_of(kind, writer, op_times, ids, won)
    facts["uncertain"] = _less_certain(op_times, worst[0])
    facts["copied"] = spent if saving.steps_s < spent - clock.notable_s else None
    return Evidence(kind=kind, ops=worst, facts=facts, saved=saving, levers=cases, advised=advised)


def _without_times(kind: str, op_times: OpTimes, ids: list[int], clock: Clock) -> Evidence | None:
    """The same for a program that was not run, by the minimum time of its ops."""
    minimum_s, _ = _spent_and_floor(op_times, ids, clock)
    if minimum_s < clock.notable_s:
        return None
    longest = _most_first(ids, values_at(op_times.spent_s, ids))
    facts = {"work": matrix_work(op_times, ids) if kind == PRODUCTS else "", "spent": None, "least": minimum_s}
    return Evidence(kind=kind, ops=longest, facts=facts, located=LISTED)


def _less_certain(op_times: OpTimes, id: int) -> str:
    """Why less may be saved than was found, if the cost of the op with the largest saving is only a lower bound."""
    note = next((note for note in op_times.ops[id].notes if note.startswith(LOWER_BOUND)), "")
    return note.removeprefix(LOWER_BOUND)


def _less_work(kind: str, op_times: OpTimes, slowest: int) -> Sequence[str]:
    """The cases of what takes less time than the longest of the ops that run no faster; none where that is not known."""
    category = categories_of(op_times, [slowest])[0]
    if kind == MEMORY and category in REPLACED:
        return replacements(op_times, slowest)
    return (FACTORISE_LESS,) if kind in (MEMORY, COMPUTE, LATENCY) and category == LINEAR_ALGEBRA else ()


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
