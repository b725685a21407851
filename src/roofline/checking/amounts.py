"""The amounts of `quantities` in a report: per step and device, or of the whole program if it has no steps."""

from collections.abc import Sequence

from msgspec import Struct

from ..grouping.op_filter import filtered
from ..quantities import REPORT
from ..report import Number, OpInfo, Report
from ..resource import Resource
from ..selection import chosen_devices, per_device, per_step
from .conditions import Quantity


class Amount(Struct, frozen=True, kw_only=True):
    """The value of a quantity in a report (``None`` if not available), the part of each op, and how many ops have an unknown part."""

    value: Number | None
    by_op: tuple[tuple[OpInfo, Number], ...] = ()
    unknown: int = 0
    why: str = ""


def counted_ops(report: Report) -> Sequence[OpInfo]:
    """The ops of a report as they are in one step on one device."""
    return per_step(report) or per_device(report.ops, chosen_devices(report))


def amount_of(report: Report, quantity: Quantity, ops: Sequence[OpInfo] | None = None) -> Amount:
    """The value of a quantity in a report; ``ops`` are its `counted_ops`, if already computed."""
    rows = counted_ops(report) if ops is None else ops
    if quantity.of:
        rows = filtered(rows, quantity.of)
        if not rows:
            return Amount(value=None, why=f"no op matches {quantity.of!r}")
    if quantity.is_throughput:
        return _throughput(report, quantity.name.removesuffix("/s"))
    if quantity.name == "expected step" and report.changes and (point := report.main_point) and point.time_s is not None:
        return Amount(value=point.time_s, by_op=_summed(rows, "time").by_op)  # a prediction of the whole step, including idle time
    declared = REPORT.get(quantity.name)
    if declared is not None and declared.ratio and (quantity.of or declared.of is None):
        above, below = (_summed(rows, one) for one in declared.ratio)
        why = below.why or above.why
        return Amount(value=above.value / below.value if above.value is not None and below.value else None, by_op=below.by_op, why=why)
    if declared is None or declared.of is None:
        return _summed(rows, quantity.name)
    value = declared.of(report)
    is_timed = report.main_point is not None and report.main_point.time_s is not None
    why = f"no {quantity.name} in this report" if declared.measured and is_timed else declared.missing
    by_op = _summed(rows, declared.explained_by).by_op if declared.explained_by else ()
    return Amount(value=value, by_op=by_op, why="" if value is not None else why)


def whole_of(report: Report, quantity: Quantity, ops: Sequence[OpInfo]) -> Number | None:
    """The total to which a percentage of a quantity refers."""
    if quantity.is_of_step:
        return report.main_point.time_s if report.main_point else None
    return amount_of(report, Quantity(name=quantity.name), ops).value


def part_of_op(op: OpInfo, name: str) -> Number | None:
    """The amount of a quantity in one op; the known part if not all is known, ``None`` if nothing is."""
    if name in REPORT and (part := REPORT[name].part):
        return part(op)
    return sum((_known(op, key, amount) for key, amount in _amounts(op, name).items()), 0)


def _amounts(op: OpInfo, name: str) -> dict[str, Number | None]:
    """The amounts of a resource, or of all kinds of a unit."""
    everything = {**op.work, **op.bytes, **op.hops}
    if name in everything or "/" in name or not Resource(name).is_compute:
        return {name: everything.get(name, 0)}
    return {key: amount for key, amount in everything.items() if key.partition("/")[0] == name}


def _known(op: OpInfo, key: str, amount: Number | None) -> Number:
    return op.known.get(key, 0) if amount is None else amount


def _summed(ops: Sequence[OpInfo], name: str) -> Amount:
    parts = [(op, part) for op in ops if (part := part_of_op(op, name)) is not None]
    if ops and not parts:
        return Amount(value=None, why=REPORT[name].missing if name in REPORT else "not known for any op")
    if name == "flops":
        unknown = sum(op.flops is None for op in ops)
    else:
        unknown = len(ops) - len(parts) if name in REPORT else sum(None in _amounts(op, name).values() for op in ops)
    largest = tuple(sorted((one for one in parts if one[1]), key=lambda one: -one[1]))
    return Amount(value=sum(part for _, part in parts), by_op=largest, unknown=unknown)


def _throughput(report: Report, word: str) -> Amount:
    point = report.main_point
    found = point.throughput.get(word) if point else None
    why = "" if found else f"no throughput in {word}; give how many one step handles: --per-step {word}=N"
    return Amount(value=found.per_s if found else None, why=why)
