"""The avoidable work that rules find on the graphs of a recording, as that of its ops. Rules run here, once."""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from itertools import chain
from statistics import fmean
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..cost import Cost
from ..rule_failures import RuleFailures
from ..rules.kernel_names import with_kernel_name
from ..workload import Avoidable, Op, ProgramGraph, Recording, Workload

if TYPE_CHECKING:
    from ..rules.order import Rule


def with_evidence(recording: Recording) -> Recording:
    """A recording whose ops have what rules find on its graphs as avoidable work, with notes on rules that failed."""
    if recording.is_reviewed or not recording.graphs:
        return recording
    ops, notes = list(recording.workload.ops), list(recording.notes)
    for program in recording.graphs:
        failures = RuleFailures(program.program)
        _Evidence(program, ops, failures).add()
        notes += failures.notes
    return replace(recording, workload=Workload(tuple(ops)), is_reviewed=True, notes=tuple(dict.fromkeys(notes)))


class _Evidence:
    """What rules say of each op of a program.

    A later rule adds nothing to an op of which an earlier one says the same, but replaces one of another kind that is about fewer of the
    op's executions.
    """

    def __init__(self, program: ProgramGraph, ops: list[Op], failures: RuleFailures) -> None:
        self._program, self._ops, self._failures = program, ops, failures
        self._executions = Counter(chain(*program.ops))
        self._is_sure = all(array.sure for array in program.graph.arrays)
        self._reasons: dict[int, list[tuple[Rule | None, Avoidable]]] = {}

    def add(self) -> None:
        """Adds what rules find to the ops, before what their source found."""
        from ..rules.order import COMPLETE, RULES  # a fifth of all modules, which only recordings with graphs need

        for rule in RULES:
            self._look(rule, rule in COMPLETE)
        for place in sorted({place for ops in self._program.ops for place in ops}):
            for avoidable in self._ops[place].avoidable:
                self._say(place, None, avoidable)
        equal: dict[tuple[int, ...], tuple[Avoidable, ...]] = {}  # ops of equal layers share one tuple
        for place, reasons in self._reasons.items():
            every = tuple([avoidable for _, avoidable in reasons])
            same = equal.setdefault(tuple(map(id, every)), every)
            self._ops[place] = replace(self._ops[place], avoidable=same)

    def _look(self, rule: "Rule", sees_all: bool) -> None:
        told: dict[tuple[int, str, str], list[Avoidable]] = {}
        for kernel, avoidable in self._failures.evidence((rule,), self._program.graph):
            for place in self._program.ops[kernel] if kernel >= 0 else ():
                told.setdefault((place, avoidable.kind, avoidable.group), []).append(avoidable)
        for (place, *_), reasons in told.items():
            # Of edges that were matched by size some are missed in some of the equal executions of an op.
            share = len(reasons) / max(self._executions[place], len(reasons)) if self._is_sure or sees_all else 1.0
            mean = reasons[0]
            if len(reasons) > 1:
                instead, removed = _mean([reason.instead for reason in reasons]), fmean(reason.removed for reason in reasons)
                mean = replace(mean, instead=instead, removed=removed)
            self._say(place, rule, self._named(place, replace(mean, share=share)))

    def _named(self, place: int, avoidable: Avoidable) -> Avoidable:
        return with_kernel_name(avoidable, partial(self._name, place))

    def _name(self, place: int, kernel: int) -> str:
        """What another kernel is called that an op refers to: of several in equal layers, the last one before it."""
        places = self._program.ops[kernel]
        if not places:
            return "another kernel"
        other = self._ops[max((before for before in places if before < place), default=places[0])]
        name = other.name.rpartition("::")[2]
        return f"{name} at {other.location}" if name != other.name and other.location else name

    def _say(self, place: int, rule: "Rule | None", avoidable: Avoidable) -> None:
        reasons = self._reasons.setdefault(place, [])
        same = [reason for reason in reasons if _excludes(reason[1], avoidable, is_same_rule=rule is reason[0])]
        if all(before.share < avoidable.share and before.kind != avoidable.kind for _, before in same):
            self._reasons[place] = [*(reason for reason in reasons if reason not in same), (rule, avoidable)]


def _mean(costs: Sequence[Cost]) -> Cost:
    """The mean of costs, of which most are equal."""
    return costs[0] if len(set(costs)) == 1 else Cost.total(costs) * Fraction(1, len(costs))


def _excludes(before: Avoidable, after: Avoidable, *, is_same_rule: bool) -> bool:
    """Whether two reasons are for the same work: one rule may name several groups of a kind.

    What no finding is about, such as scores that a fused kernel computes again, is beside anything else.
    """
    if not (before.kind and after.kind):
        return False
    is_same = before.kind == after.kind and (not is_same_rule or before.group == after.group)
    return is_same or bool(before.unneeded and after.unneeded)
