"""Quantities of a report that budgets check: per step and device, or of the whole program if it has no steps."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from ..report import Number, OpInfo, Point, Report
from ..resource import Resource
from ..selection import chosen_devices, per_device, per_step
from .conditions import Quantity
from .op_filter import filtered


class Amount(Struct, frozen=True, kw_only=True):
    """The value of a quantity in a report (``None`` if not available), the part of each op, and how many ops have an unknown part."""

    value: Number | None
    by_op: tuple[tuple[OpInfo, Number], ...] = ()
    unknown: int = 0
    why: str = ""


NO_MEMORY = "peak memory is known only for programs, functions and PyTorch traces with profile_memory=True"
NOT_MEASURED = "no measured times in this report"


def counted_ops(report: Report) -> Sequence[OpInfo]:
    """The ops of a report as they are in one step on one device."""
    return per_step(report) or per_device(report.ops, chosen_devices(report))


def main_point(report: Report) -> Point | None:
    """The average step, or the whole program."""
    points = {point.scope: point for point in reversed(report.points) if point.infeed_outfeed}
    return points.get("average") or points.get("total")


def amount_of(report: Report, quantity: Quantity, ops: Sequence[OpInfo] | None = None) -> Amount:
    """The value of a quantity in a report; ``ops`` are its `counted_ops`, if already computed."""
    rows = counted_ops(report) if ops is None else ops
    if quantity.of:
        rows = filtered(rows, quantity.of)
        if not rows:
            return Amount(value=None, why=f"no op matches {quantity.of!r}")
    if quantity.name in _WHOLE:
        return _WHOLE[quantity.name](report)
    if quantity.is_throughput:
        return _throughput(report, quantity.name.removesuffix("/s"))
    if quantity.name == "expected step" and report.changes and (point := main_point(report)) and point.time_s is not None:
        return Amount(value=point.time_s, by_op=_summed(rows, "time").by_op)  # a prediction of the whole step, including idle time
    if quantity.name in _RATIOS and (quantity.of or quantity.name == "intensity"):
        above, below = (_summed(rows, one) for one in _RATIOS[quantity.name])
        why = below.why or above.why
        return Amount(value=above.value / below.value if above.value is not None and below.value else None, by_op=below.by_op, why=why)
    if quantity.name == "efficiency":
        point = main_point(report)
        efficiency = point.efficiency if point else None
        return Amount(value=efficiency, by_op=_summed(rows, "lost").by_op, why="" if efficiency is not None else NOT_MEASURED)
    return _summed(rows, quantity.name)


def whole_of(report: Report, quantity: Quantity, ops: Sequence[OpInfo]) -> Number | None:
    """The total to which a percentage of a quantity refers."""
    if quantity.name in ("excess", "lost", "idle"):
        point = main_point(report)
        return point.time_s if point else None
    return amount_of(report, Quantity(name=quantity.name), ops).value


def part_of_op(op: OpInfo, name: str) -> Number | None:
    """The amount of a quantity in one op; the known part if not all is known, ``None`` if nothing is."""
    if name in _OF_OP:
        return _OF_OP[name](op)
    return sum((_known(op, key, amount) for key, amount in _amounts(op, name).items()), 0)


def _amounts(op: OpInfo, name: str) -> dict[str, Number | None]:
    """The amounts of a resource, or of all kinds of a unit."""
    everything = {**op.work, **op.bytes, **op.hops}
    if name in everything or "/" in name or not Resource(name).is_compute:
        return {name: everything.get(name, 0)}
    return {key: amount for key, amount in everything.items() if key.partition("/")[0] == name}


def _known(op: OpInfo, key: str, amount: Number | None) -> Number:
    return op.known.get(key, 0) if amount is None else amount


def _flops(op: OpInfo) -> Number:
    if op.flops is not None:
        return op.flops
    return sum(_known(op, key, amount) for key, amount in op.work.items() if Resource(key).is_arithmetic)


_OF_OP: dict[str, Callable[[OpInfo], Number | None]] = {
    "time": lambda op: None if op.time_s is None else op.weight_s,
    "minimum time": lambda op: op.floor_s,
    "expected time": lambda op: op.expected.time_s if op.expected else op.floor_s,
    "expected step": lambda op: op.expected.time_s if op.expected else op.floor_s,
    "excess": lambda op: op.excess_s,
    "lost": lambda op: op.lost_s,
    "flops": _flops,
    "launches": lambda op: op.kernels or op.count,
    "executions": lambda op: op.count,
    "ops": lambda op: 1,
    "fusions": lambda op: int("fusion" in f"{op.category} {op.name}"),
}
_RATIOS = {"intensity": ("flops", "hbm"), "efficiency": ("minimum time", "time")}
_NOTHING = {"time": NOT_MEASURED, "lost": NOT_MEASURED, "excess": "no measured times, or no predictions for this chip"}


def _summed(ops: Sequence[OpInfo], name: str) -> Amount:
    parts = [(op, part) for op in ops if (part := part_of_op(op, name)) is not None]
    if ops and not parts:
        return Amount(value=None, why=_NOTHING.get(name, "not known for any op"))
    if name == "flops":
        unknown = sum(op.flops is None for op in ops)
    else:
        unknown = len(ops) - len(parts) if name in _OF_OP else sum(None in _amounts(op, name).values() for op in ops)
    largest = tuple(sorted((one for one in parts if one[1]), key=lambda one: -one[1]))
    return Amount(value=sum(part for _, part in parts), by_op=largest, unknown=unknown)


def _of_point(field: str) -> Callable[[Report], Amount]:
    def found(report: Report) -> Amount:
        point = main_point(report)
        value = getattr(point, field) if point else None
        why = NOT_MEASURED if point is None or point.time_s is None else f"no {field} in this report"
        timed = _summed(counted_ops(report), "time").by_op
        return Amount(value=value, by_op=timed, why="" if value is not None else why)

    return found


def _idle(report: Report) -> Amount:
    point = main_point(report)
    value = point.lost.get("idle") if point and point.time_s is not None else None
    return Amount(value=value, why="" if value is not None else NOT_MEASURED)


def _run(report: Report) -> Amount:
    value = report.coverage.run_s if report.coverage.run_s is not None else report.total.time_s if report.total else None
    return Amount(value=value, why="" if value is not None else NOT_MEASURED)


def _memory(field: str) -> Callable[[Report], Amount]:
    def found(report: Report) -> Amount:
        value = getattr(report.memory, field) if report.memory else None
        return Amount(value=value, why="" if value is not None else NO_MEMORY)

    return found


_WHOLE: dict[str, Callable[[Report], Amount]] = {
    "step": _of_point("time_s"),
    "run": _run,
    "mfu": _of_point("mfu"),
    "hfu": _of_point("hfu"),
    "idle": _idle,
    "peak memory": _memory("peak_bytes"),
    "donated memory": _memory("donated"),
    "findings": lambda report: Amount(value=len(report.findings)),
}


def _throughput(report: Report, word: str) -> Amount:
    point = main_point(report)
    found = point.throughput.get(word) if point else None
    why = "" if found else f"no throughput in {word}; give how many one step handles: --per-step {word}=N"
    return Amount(value=found.per_s if found else None, why=why)
