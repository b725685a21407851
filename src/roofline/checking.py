"""Checking: whether a report keeps its budget, and the ops and causes behind a broken condition.

A condition is compared with what the report has per step on one device. What breaks one is looked for among the ops that have the most
of the quantity, or that grew since the baseline, and the findings about them.
"""

from collections.abc import Callable, Iterable, Sequence
from math import isclose

from msgspec import Struct
from msgspec.structs import replace

from .baselines import ROUNDING, Baseline, BaselineOp, kind_of
from .conditions import Condition, Quantity, parse_conditions
from .errors import MachineError, UsageError
from .finding_causes import explaining
from .op_filter import COMPARE
from .quantities import amount_of, counted_ops, whole_of
from .regression_causes import changes_since, more_idle
from .report import Number, OpInfo, Report
from .units import percent, plain, show

MOST_OPS = 10  # of those that broke a condition
MOST_CAUSES = 3
EXACT = 1e-9  # what rounding makes of equal amounts
_TIMED = ("step", "run", "time", "mfu", "hfu")  # quantities whose parts are the measured times of ops


class OpPart(Struct, frozen=True, kw_only=True):
    """What ``count`` ops with one label have of a quantity, the first of them ``id``; ``before`` is what they had in the baseline.

    Ops that are only in the baseline have no id.

    Of a ratio it is what the ratio is over: seconds of an efficiency, bytes of an intensity.
    """

    id: int | None
    label: str
    amount: Number
    before: Number | None = None
    count: int = 1


class Check(Struct, frozen=True, kw_only=True):
    """One condition and its result on a report.

    ``holds`` is ``None`` where the report cannot tell, and ``why`` says why, or why it holds all the same. ``found`` and ``allowed`` are in
    base units of ``unit``; ``baseline`` is the baseline's figure. ``ops`` broke the condition, the worst first; ``causes`` say why in
    words. ``unknown`` ops have parts that are not known and not counted.
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
    """All conditions of a budget; ``holds`` is whether all hold, ``None`` where none is broken and some are not known."""

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
    report: Report,
    ops: tuple[OpInfo, ...],
    condition: Condition,
    baseline: Baseline | None,
    on_chip: Callable[[str], Report] | None,
) -> Check:
    quantity = condition.quantity
    if quantity is None:
        return _absence(report, condition)
    if quantity.on:
        if on_chip is None:
            raise UsageError(f"condition {condition.text!r}: this report cannot be analysed for another chip")
        try:
            report = on_chip(quantity.on)
        except MachineError as error:
            raise UsageError(f"condition {condition.text!r}, at {quantity.on!r}: {error}") from None
        ops = counted_ops(report)
    amount = amount_of(report, quantity, ops)
    measured = quantity.is_measured
    said = Check(condition=condition.text, holds=None, unit=quantity.dimension, operator=condition.operator, measured=measured)
    if amount.value is None:
        return replace(said, why=amount.why)
    before = {**baseline.work, **baseline.quantities}.get(quantity.text) if baseline and condition.of_baseline else None
    file = baseline.file if baseline else ""
    if condition.of_baseline and before is None:
        named = f"the baseline {file}" if file else "the baseline"
        raise UsageError(f"condition {condition.text!r}: {named} has no {quantity.text!r}; write it again with --update")
    whole = whole_of(report, quantity, ops) if condition.of_whole else 1
    if whole is None:
        return replace(said, found=amount.value, why="the total that the percentage refers to is not known")
    allowed = condition.number * (before if before is not None else 1) * whole
    holds = _holds(condition, amount.value, allowed)
    parts: tuple[OpPart, ...] = ()
    causes: tuple[str, ...] = ()
    if not holds:
        parts = _parts(amount.by_op, quantity, baseline, fell=amount.value < allowed)
        shown = {part.label for part in parts}
        ids = [op.id for op, _ in amount.by_op if shown & {kind_of(op), op.label or op.name}]
        causes = _causes(report, quantity, baseline, ops, ids)
        if baseline and before is not None and quantity.name == "step" and (waits := more_idle(amount.value, before, ops, baseline)):
            parts, causes = (), (waits, *_causes(report, Quantity(name="idle"), baseline, ops, ()))[:MOST_CAUSES]
    return replace(
        said,
        holds=holds,
        found=amount.value,
        allowed=allowed,
        baseline=before,
        baseline_file=file if before is not None else "",
        ops=parts,
        causes=causes,
        unknown=amount.unknown,
    )


def _holds(condition: Condition, found: float, allowed: float) -> bool:
    """Whether a comparison holds; amounts that differ by rounding are equal."""
    dimension = condition.quantity.dimension if condition.quantity else ""
    tolerance = ROUNDING if condition.of_baseline and dimension in ("s", "1", "FLOP/B") else EXACT
    if isclose(found, allowed, rel_tol=tolerance):
        return "=" in condition.operator and condition.operator != "!="
    return COMPARE[condition.operator](found, allowed)


def _absence(report: Report, condition: Condition) -> Check:
    """The check of a condition that no finding, or none of a kind, is there."""
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
    """The parts of ops, those with the same label as one: layers repeat, and their names say nothing more."""
    found: dict[str, OpPart] = {}
    for op, part in by_op:
        label = op.label or op.name
        one = found.get(label)
        found[label] = replace(one, amount=one.amount + part, count=one.count + 1) if one else OpPart(id=op.id, label=label, amount=part)
    return tuple(sorted(found.values(), key=lambda one: -one.amount)[:MOST_OPS])


def _parts(by_op: Sequence[tuple[OpInfo, Number]], quantity: Quantity, baseline: Baseline | None, *, fell: bool) -> tuple[OpPart, ...]:
    """The ops that have the most of a quantity; with a baseline those that grew, or ``fell``, if it knows what they had."""
    before = _before(quantity, baseline)
    if before is None:
        return _by_label(by_op)
    now: dict[str, Number] = {}
    for op, part in by_op:
        now[kind_of(op)] = now.get(kind_of(op), 0) + part
    ids = {kind_of(op): op.id for op, _ in reversed(by_op)}
    kinds = [*reversed(ids), *(kind for kind in before if kind not in ids and not quantity.of)]  # of a part, what is gone is not known
    changed = [OpPart(id=ids.get(kind), label=kind, amount=now.get(kind, 0), before=before.get(kind, 0)) for kind in kinds]
    sign = -1 if fell else 1
    moved = [one for one in changed if sign * _change(one) > ROUNDING * max(one.amount, one.before or 0)]
    return tuple(sorted(moved, key=lambda one: -sign * _change(one))[:MOST_OPS]) or _by_label(by_op)


def _change(part: OpPart) -> Number:
    return part.amount - (part.before or 0)


def _before(quantity: Quantity, baseline: Baseline | None) -> dict[str, Number] | None:
    """What each kind of op had of a quantity in the baseline; ``None`` where it does not keep that."""
    if baseline is None:
        return None
    if not baseline.ops or (quantity.name in _TIMED and not any(row.time_s for row in baseline.ops)):
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
        **dict.fromkeys(_TIMED, lambda row: row.time_s),
    }
    return kept.get(name)


def _causes(report: Report, quantity: Quantity, baseline: Baseline | None, ops: tuple[OpInfo, ...], ids: Iterable[int]) -> tuple[str, ...]:
    """Causes in words: findings about the ops with these ids, and what changed since the baseline."""
    changed = changes_since(report, baseline, ops) if baseline and quantity.name != "idle" else []
    told = explaining(report.findings, quantity, ids)
    new = [one for one in told if not baseline or one.kind not in baseline.findings]
    found = [f"{finding.kind}: {finding.message.partition('. ')[0].rstrip('.')}" for finding in new]  # without its advice
    if quantity.name in ("peak memory", "donated memory") and not changed:
        found = [_memory(report), *found]
    return tuple(one for one in (*changed, *found) if one)[:MOST_CAUSES]


def _memory(report: Report) -> str:
    memory = report.memory
    if memory is None:
        return ""
    parts = ((name, getattr(memory, name)) for name in ("arguments", "outputs", "donated", "constants", "temporaries"))
    said = ", ".join(f"{name} {show(size, 'B')}" for name, size in parts if size)
    return f"{said}{'; no argument is donated' if memory.outputs and not memory.donated and not _is_torch(report) else ''}"


def _is_torch(report: Report) -> bool:
    """Whether it is on a program of PyTorch, which has no donation."""
    return "torch" in report.input.format


def without_repeated_causes(checks: Iterable[Check]) -> list[Check]:
    """The same checks without causes that an earlier one already gives, for texts that list them one after the other."""
    told: set[str] = set()
    found = []
    for one in checks:
        new = tuple(cause for cause in one.causes if cause not in told)
        told.update(new)
        found.append(replace(one, causes=new or ("as above",)) if one.causes else one)
    return found


def check_text(one: Check) -> str:
    """A condition on one line: what was allowed and found, which ops, why, since which baseline.

    >>> check_text(Check(condition="launches <= 3", holds=False, found=4, allowed=3, operator="<="))
    'launches <= 3: found 4, allowed at most 3'
    """
    ops = "" if one.holds or not one.ops else "; ops: " + ", ".join(_part_text(part, one) for part in one.ops[:MOST_CAUSES])
    more = f" and {len(one.ops) - MOST_CAUSES} more" if ops and len(one.ops) > MOST_CAUSES else ""
    why = "" if one.holds or not one.causes else "; why: " + "; ".join(one.causes)
    return f"{found_text(one)}{ops}{more}{why}"


def found_text(one: Check) -> str:
    """What was found and allowed, since which baseline."""
    if one.holds is None:
        return f"{one.condition}: not known: {one.why}"
    if not one.operator or (one.unit == "" and one.condition.lower().startswith("no")):
        said = f"{one.condition}: found {plain(one.found or 0)}" if not one.holds else f"{one.condition}: none found"
    else:
        found, allowed = _told_apart(one)
        said = f"{one.condition}: found {found}, allowed {_WORDS[one.operator]} {allowed}"
    if one.baseline is not None:
        said += f" (baseline {amount_text(one.baseline, one.unit)}{f', {one.baseline_file}' if one.baseline_file else ''})"
    said += f", without unknown parts of {one.unknown} ops" if one.unknown else ""
    return f"{said}; {one.why}" if one.why else said


_OVER = {"1": "s", "FLOP/B": "B"}  # what ratios of these dimensions are over
_WORDS = {"<": "less than", "<=": "at most", ">": "more than", ">=": "at least", "==": "exactly", "!=": "anything but"}


def _told_apart(one: Check) -> tuple[str, str]:
    """What was found and allowed; with all digits where a broken condition would show the same twice."""
    short = amount_text(one.found, one.unit), amount_text(one.allowed, one.unit)
    if one.holds is not False or short[0] != short[1] or one.found == one.allowed:
        return short
    unit = one.unit.replace("1", "")
    found, allowed = (f"{amount or 0:,.16g}{f' {unit}' if unit else ''}" for amount in (one.found, one.allowed))
    return found, allowed


def _part_text(part: OpPart, one: Check) -> str:
    if part.before is None:
        among = f"{part.count} ops" if part.count > 1 and (one.ops_unit or part.amount != part.count) else ""
        amount = "" if one.operator == "==" and one.unit == "" else amount_text(part.amount, one.ops_unit)
        said = " in ".join(filter(None, (amount, among)))
        return f"{part.label} ({said})" if said else part.label
    word = "new, " if not part.before else "gone, " if not part.amount else ""
    return f"{part.label} ({word}{change_text(part, one.ops_unit)})"


def change_text(part: OpPart, unit: str) -> str:
    """What an op has more or less of than in the baseline."""
    change = _change(part)
    return f"{'+' if change > 0 else '−'}{amount_text(abs(change), unit)}"


def amount_text(amount: Number | None, unit: str) -> str:
    """An amount in its unit, ``1`` for a ratio and nothing for a number."""
    if amount is None:
        return "–"
    return percent(amount) if unit == "1" else plain(amount) if unit == "" else show(amount, unit)
