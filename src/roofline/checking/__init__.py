"""Checking: whether a report meets its budget, and the ops and causes of a broken condition.

Conditions apply to amounts per step on one device. The causes of a broken one are searched among the ops with the most of the quantity, or
with growth since the baseline, and the findings about them.
"""

from collections.abc import Callable, Iterable, Sequence
from math import isclose

from msgspec import Struct
from msgspec.structs import replace

from ..errors import MachineError, UsageError
from ..grouping.op_filter import COMPARE
from ..quantities import REPORT
from ..quantities import ROUNDING as EXACT
from ..report import Number, OpInfo, Report
from ..units import show
from .amounts import Amount, amount_of, counted_ops, whole_of
from .baselines import ROUNDING, Baseline, BaselineOp, kind_of
from .conditions import Condition, Quantity, parse_conditions
from .finding_causes import explaining
from .regression_causes import changes_since, more_idle

MOST_OPS = 10  # ops listed for a broken condition
MOST_CAUSES = 3
_OVER = {"1": "s", "FLOP/B": "B"}  # unit of the denominator of ratios with these dimensions


class OpPart(Struct, frozen=True, kw_only=True):
    """The amount of a quantity in ``count`` ops with one label, the first of which is ``id``; ``before`` is the amount in the baseline.

    Ops that are only in the baseline have no id. For a ratio it is the denominator: seconds of an efficiency, bytes of an intensity.
    """

    id: int | None
    label: str
    amount: Number
    before: Number | None = None
    count: int = 1

    @property
    def change(self) -> Number:
        return self.amount - (self.before or 0)


class Check(Struct, frozen=True, kw_only=True):
    """One condition and its result on a report.

    ``holds`` is ``None`` where the report cannot decide it, and ``why`` is the reason, also for a condition that holds within the noise.
    ``found`` and ``allowed`` are in base units of ``unit``; ``baseline`` is the baseline's figure. ``ops`` broke the condition, the worst
    first; ``causes`` explain it. ``unknown`` is the number of ops with unknown amounts, which are not counted.
    """

    condition: str
    holds: bool | None
    found: Number | None = None
    allowed: Number | None = None
    unit: str = ""
    operator: str = ""
    measured: bool = False
    baseline: Number | None = None
    baseline_file: str = ""
    ops: tuple[OpPart, ...] = ()
    causes: tuple[str, ...] = ()
    unknown: int = 0
    why: str = ""

    @property
    def ops_unit(self) -> str:
        """The unit of the ops' amounts."""
        return _OVER.get(self.unit, self.unit)


class BudgetCheck(Struct, frozen=True, kw_only=True):
    """All conditions of a budget; ``holds`` is whether all hold, ``None`` where none is broken and some cannot be decided."""

    checks: tuple[Check, ...]

    @property
    def broken(self) -> tuple[Check, ...]:
        return tuple(one for one in self.checks if one.holds is False)

    @property
    def not_known(self) -> tuple[Check, ...]:
        return tuple(one for one in self.checks if one.holds is None)

    @property
    def holds(self) -> bool | None:
        return False if self.broken else None if self.not_known else True


def check_conditions(
    report: Report,
    conditions: str | Iterable[str | Condition],
    baseline: Baseline | None = None,
    on_chip: Callable[[str], Report] | None = None,
) -> BudgetCheck:
    """Compare a report with conditions; ``on_chip`` gives the report on another chip. A condition without its baseline is an error."""
    given = [conditions] if isinstance(conditions, str) else conditions
    parsed = [one for text in given for one in ([text] if isinstance(text, Condition) else parse_conditions(text))]
    for one in parsed:
        if one.of_baseline and baseline is None:
            raise UsageError(f"condition {one.text!r} needs a baseline; write one with --update, or pass baseline=")
    ops = counted_ops(report)
    return BudgetCheck(checks=tuple(_check(report, ops, one, baseline, on_chip) for one in parsed))


def _check(
    report: Report, ops: Sequence[OpInfo], condition: Condition, baseline: Baseline | None, on_chip: Callable[[str], Report] | None
) -> Check:
    """The result of one condition."""
    quantity = condition.quantity
    if quantity is None:
        return _absence(report, condition)
    if quantity.on:
        report = _other_chip(condition, quantity, on_chip)
        ops = counted_ops(report)
    amount = amount_of(report, quantity, ops)
    check = Check(condition=condition.text, holds=None, unit=quantity.dimension, operator=condition.operator, measured=quantity.is_measured)
    if amount.value is None:
        return replace(check, why=amount.why)
    before = _figure_of(baseline, condition, quantity) if baseline and condition.of_baseline else None
    whole = whole_of(report, quantity, ops) if condition.of_whole else 1
    if whole is None:
        return replace(check, found=amount.value, why="the total that the percentage refers to is not known")
    allowed = condition.number * (before if before is not None else 1) * whole
    holds = _holds(condition, amount.value, allowed)
    check = replace(check, holds=holds, found=amount.value, allowed=allowed, unknown=amount.unknown)
    if baseline and before is not None:
        check = replace(check, baseline=before, baseline_file=baseline.file)
    return check if holds else _explained(check, report, ops, quantity, amount, baseline)


def _other_chip(condition: Condition, quantity: Quantity, on_chip: Callable[[str], Report] | None) -> Report:
    """The report on the chip that a condition names."""
    if on_chip is None:
        raise UsageError(f"condition {condition.text!r}: this report cannot be analyzed for another chip")
    try:
        return on_chip(quantity.on)
    except MachineError as error:
        raise UsageError(f"condition {condition.text!r}, at {quantity.on!r}: {error}") from None


def _figure_of(baseline: Baseline, condition: Condition, quantity: Quantity) -> Number:
    """The baseline's value of a quantity."""
    found = {**baseline.work, **baseline.quantities}.get(quantity.text)
    if found is None:
        named = f"the baseline {baseline.file}" if baseline.file else "the baseline"
        raise UsageError(f"condition {condition.text!r}: {named} has no {quantity.text!r}; write it again with --update")
    return found


def _explained(check: Check, report: Report, ops: Sequence[OpInfo], quantity: Quantity, amount: Amount, baseline: Baseline | None) -> Check:
    """A broken condition with the ops that broke it, and why."""
    found, allowed = check.found or 0, check.allowed or 0
    if baseline and check.baseline is not None and quantity.name == "step" and (waits := more_idle(found, check.baseline, ops, baseline)):
        return replace(check, causes=(waits, *_causes(report, Quantity(name="idle"), baseline, ops, ()))[:MOST_CAUSES])
    parts = _parts(amount.by_op, quantity, baseline, fell=found < allowed)
    shown = {part.label for part in parts}
    ids = [op.id for op, _ in amount.by_op if shown & {kind_of(op), op.label or op.name}]
    return replace(check, ops=parts, causes=_causes(report, quantity, baseline, ops, ids))


def _holds(condition: Condition, found: float, allowed: float) -> bool:
    """Whether a comparison holds; amounts that differ by rounding are equal."""
    dimension = condition.quantity.dimension if condition.quantity else ""
    tolerance = ROUNDING if condition.of_baseline and dimension in ("s", "1", "FLOP/B") else EXACT
    if isclose(found, allowed, rel_tol=tolerance):
        return "=" in condition.operator and condition.operator != "!="
    return COMPARE[condition.operator](found, allowed)


def _absence(report: Report, condition: Condition) -> Check:
    """The check of a condition that there is no finding, or none of a kind."""
    found = [finding for finding in report.findings if not condition.absent or finding.kind == condition.absent]
    labels = {op.id: op for op in report.ops}
    ids = dict.fromkeys(id for finding in found for id in finding.ops if id in labels)
    return Check(
        condition=condition.text,
        holds=not found,
        found=len(found),
        allowed=0,
        operator="==",
        ops=_by_label((labels[id], 1) for id in ids),
        causes=tuple(f"{finding.kind}: {finding.message}" for finding in found[:MOST_CAUSES]),
    )


def _by_label(by_op: Iterable[tuple[OpInfo, Number]]) -> tuple[OpPart, ...]:
    """The parts of ops, merged by label, because layers repeat."""
    found: dict[str, OpPart] = {}
    for op, part in by_op:
        label = op.label or op.name
        one = found.get(label)
        found[label] = replace(one, amount=one.amount + part, count=one.count + 1) if one else OpPart(id=op.id, label=label, amount=part)
    return tuple(sorted(found.values(), key=lambda one: -one.amount)[:MOST_OPS])


def _parts(by_op: Sequence[tuple[OpInfo, Number]], quantity: Quantity, baseline: Baseline | None, *, fell: bool) -> tuple[OpPart, ...]:
    """The ops with the most of a quantity; with a baseline that has their amounts, those that grew, or ``fell``."""
    before = _before(quantity, baseline)
    if before is None:
        return _by_label(by_op)
    now: dict[str, Number] = {}
    for op, part in by_op:
        now[kind_of(op)] = now.get(kind_of(op), 0) + part
    ids = {kind_of(op): op.id for op, _ in reversed(by_op)}
    kinds = [*reversed(ids), *(kind for kind in before if kind not in ids and not quantity.of)]  # of some ops, removed ones are unknown
    changed = [OpPart(id=ids.get(kind), label=kind, amount=now.get(kind, 0), before=before.get(kind, 0)) for kind in kinds]
    sign = -1 if fell else 1
    moved = [one for one in changed if sign * one.change > ROUNDING * max(one.amount, one.before or 0)]
    return tuple(sorted(moved, key=lambda one: -sign * one.change)[:MOST_OPS]) or _by_label(by_op)


def _before(quantity: Quantity, baseline: Baseline | None) -> dict[str, Number] | None:
    """The amount of a quantity by kind of op in the baseline; ``None`` where the baseline does not contain it."""
    if baseline is None:
        return None
    if not baseline.ops or (_is_timed(quantity.name) and not any(row.time_s for row in baseline.ops)):
        return None
    of_row = _of_row(quantity.name, {level for row in baseline.ops for level in row.bytes})
    return None if of_row is None else {row.op: of_row(row) for row in baseline.ops}


def _of_row(name: str, levels: set[str]) -> Callable[[BaselineOp], Number] | None:
    if name in levels:
        return lambda row: row.bytes.get(name, 0)
    kept: dict[str, Callable[[BaselineOp], Number]] = {
        "flops": lambda row: row.flops,
        "launches": lambda row: row.launches,
        "executions": lambda row: row.launches,
        "ops": lambda row: row.launches,
        "minimum time": lambda row: row.minimum_s,
    }
    return (lambda row: row.time_s) if _is_timed(name) else kept.get(name)


def _is_timed(name: str) -> bool:
    """Whether a quantity is a sum of measured times of ops, or explained by them."""
    return name in REPORT and REPORT[name].explained_by == "time"


def _causes(report: Report, quantity: Quantity, baseline: Baseline | None, ops: Sequence[OpInfo], ids: Iterable[int]) -> tuple[str, ...]:
    """Causes as text: findings about the ops with these ids, and changes since the baseline."""
    changed = changes_since(report, baseline, ops) if baseline and quantity.name != "idle" else []
    explaining_findings = explaining(report.findings, quantity, ids, changed=baseline is not None)
    new = [one for one in explaining_findings if not baseline or one.kind not in baseline.findings]
    found = [f"{finding.kind}: {finding.message.partition('. ')[0].rstrip('.')}" for finding in new]  # without its advice
    if quantity.name in ("peak memory", "donated memory") and not changed:
        found = [_memory(report), *found]
    return tuple(one for one in (*changed, *found) if one)[:MOST_CAUSES]


def _memory(report: Report) -> str:
    memory = report.memory
    if memory is None:
        return ""
    parts = ((name, getattr(memory, name)) for name in ("arguments", "outputs", "donated", "constants", "temporaries"))
    text = ", ".join(f"{name} {show(size, 'B')}" for name, size in parts if size)
    return f"{text}{'; no argument is donated' if memory.outputs and not memory.donated and not _is_torch(report) else ''}"


def _is_torch(report: Report) -> bool:
    """Whether the report is about PyTorch, which has no donation."""
    return "torch" in report.input.format
