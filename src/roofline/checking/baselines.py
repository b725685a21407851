"""Baselines: the figures of an earlier report that budgets compare with, small enough to review in a diff.

Counts are exact and times have six digits, so that the same program gives the same file on every machine. Ops are summed by scope,
operation, shape and number format, without compiler-generated names and source locations.
"""

from collections.abc import Iterable

from msgspec import Struct, field

from ..quantities import REPORT
from ..report import Number, OpInfo, Report
from ..selection import stem
from ..units import rounded
from .amounts import amount_of, counted_ops, part_of_op
from .conditions import Condition, Quantity

SCHEMA = "roofline.baseline/1"
DIGITS = 6  # significant digits of times and ratios
ROUNDING = 1e-5  # relative rounding error of a stored time
MEMORY_PARTS = ("peak_bytes", "arguments", "outputs", "donated", "constants", "temporaries")


class BaselineOp(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ops of one kind, summed; with their measured time where a condition compares times.

    ``executions`` is how often they ran, if that differs from the number of their kernels; ``does`` says what they do, in a word, and
    ``sizes`` of what.
    """

    op: str
    does: str = ""
    sizes: str = ""
    launches: Number = 0
    executions: Number | None = None
    flops: Number = 0
    bytes: dict[str, Number] = field(default_factory=dict)
    minimum_s: Number = 0
    time_s: Number = 0


class Baseline(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The quantities of a report by their names, its work by resource, its memory by part, its findings and its ops.

    ``file`` is its file, for messages.
    """

    schema: str = SCHEMA
    chip: str
    quantities: dict[str, Number]
    work: dict[str, Number] = field(default_factory=dict)
    memory: dict[str, Number] = field(default_factory=dict)
    findings: tuple[str, ...] = ()
    ops: tuple[BaselineOp, ...] = ()
    file: str = ""


def baseline_of(report: Report, conditions: Iterable[Condition] = ()) -> Baseline:
    """The baseline of a report: all quantities that need no device, and the measured ones that ``conditions`` compare."""
    ops = counted_ops(report)
    static = [Quantity(name=name) for name, one in REPORT.items() if not one.measured and name != "findings"]
    levels = sorted({level for op in ops for level in op.bytes})
    asked = [one.quantity for one in conditions if one.quantity and one.of_baseline and not one.quantity.on]
    wanted = {one.text: one for one in (*static, *(Quantity(name=level) for level in levels), *asked)}
    amounts = {text: amount_of(report, one, ops).value for text, one in wanted.items()}
    work: dict[str, Number] = {}
    for op in ops:
        for resource, amount in op.work.items():
            work[resource] = work.get(resource, 0) + (op.known.get(resource, 0) if amount is None else amount)
    return Baseline(
        chip=report.machine.name,
        quantities={text: stable(amount) for text, amount in amounts.items() if amount is not None},
        work={resource: stable(work[resource]) for resource in sorted(work)},
        memory={part: getattr(report.memory, part) for part in MEMORY_PARTS} if report.memory else {},
        findings=tuple(sorted({finding.kind for finding in report.findings})),
        ops=tuple(sorted(summed_ops(ops, timed=any(one.is_measured for one in asked)).values(), key=lambda one: one.op)),
    )


def summed_ops(ops: Iterable[OpInfo], *, timed: bool = False) -> dict[str, BaselineOp]:
    """Ops summed by kind, with their measured times if ``timed``."""
    members: dict[str, list[OpInfo]] = {}
    for op in ops:
        members.setdefault(kind_of(op), []).append(op)
    return {
        key: BaselineOp(
            op=key,
            does=stem(mine[0].does) if mine[0].what == mine[0].name else mine[0].does,
            sizes=mine[0].sizes,
            launches=_sum(mine, "launches"),
            executions=None if _sum(mine, "executions") == _sum(mine, "launches") else _sum(mine, "executions"),
            flops=_sum(mine, "flops"),
            bytes={level: _sum(mine, level) for level in sorted({level for op in mine for level in op.bytes})},
            minimum_s=_sum(mine, "minimum time"),
            time_s=_sum(mine, "time") if timed else 0,
        )
        for key, mine in members.items()
    }


def kind_of(op: OpInfo) -> str:
    """The kind of an op: its scope, operation, shape and number format, else its name without numbering."""
    return f"{op.scope}: {operation_of(op)}" if op.scope else operation_of(op)


def operation_of(op: OpInfo) -> str:
    """What an op does: its operation, shape and number format, else its name without numbering."""
    what = op.what or op.name
    return stem(what) if what == op.name else what


def _sum(ops: list[OpInfo], name: str) -> Number:
    return stable(sum(part_of_op(op, name) or 0 for op in ops))


def stable(amount: Number) -> Number:
    """Whole numbers as they are, others with six digits."""
    if float(amount).is_integer():
        return int(amount)
    return rounded(amount, DIGITS) or 0.0
