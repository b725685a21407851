"""The row of one op in a report."""

from collections.abc import Iterable
from functools import lru_cache

from ..cost import Amount, Cost
from ..ledger import Ledger
from ..operation import UNSTATED, Convolution, Product, width
from ..report import Amounts, AvoidableInfo, CounterInfo, LedgerRow, Number, OpInfo
from ..resource import HBM, XLU, matrix
from ..selection import ROUNDING
from ..workload import Avoidable, Op, Saves, Usual, source_line
from .counters import LaunchCounters, model_against_counters
from .findings.single_ops import Placed
from .needed_work import Needed
from .program_points import amounts, known_parts, number


def op_info(one: Placed, rank: int, needed: Needed | None = None) -> OpInfo:
    """The row of a placed op with its rank by time and its needed work."""
    op, placement = one.op, one.placement
    flops, compute = op.cost.flops, placement.compute
    return OpInfo(
        id=one.id,
        rank=rank,
        name=op.name,
        category=op.category,
        module=op.module,
        scope=op.scope,
        location=op.location,
        phase=op.phase,
        label=op.label or plain_label(op.scope, op.location, op.name),
        count=op.count,
        kernels=op.kernels,
        time_s=op.time_s,
        self_time_s=op.self_time_s,
        dma_stall_s=op.dma_stall_s,
        work=amounts(op.cost, "FLOP"),
        flops=number(flops),
        unit=compute.unit if compute else None,
        dtype=compute.kind if compute else None,
        bytes=amounts(op.cost, "B"),
        hops=amounts(op.cost, "hop"),
        known=known_parts(op.cost),
        intensity=placement.intensity(),
        intensities=_intensities(op.cost, flops),
        rate=placement.achieved,
        bandwidth=_bandwidth(op.cost, op.time_s),
        ridge=placement.ridge(),
        attainable=placement.attainable,
        floor_s=None if placement.is_unknown else placement.floor_s,
        serial_s=None if placement.is_unknown else placement.serial_s,
        expected_s=None if placement.is_unknown else placement.expected_s,
        bound=placement.bound,
        efficiency=placement.efficiency,
        times=dict(placement.times),
        utilization=placement.utilization,
        provenance={"work": op.work_provenance, "bytes": op.bytes_provenance},
        counters=_counters(op),
        needed=needed_amounts(needed) if needed else None,
        needed_s=needed.floor_s if needed and not needed.beyond else None,
        unneeded=unneeded_info(needed) if needed else {},
        lost_s=_lost(one, needed),
        by_shape=by_shape(op),
        compiled=op.compiled if op.compiled != UNSTATED else None,
        avoidable=tuple([avoidable_info(reason) for reason in op.avoidable]) if op.avoidable else (),
        roofs=tuple(resource.name for resource in placement.roofs),
        unrated=tuple(resource.name for resource in placement.unrated),
        ledger=tuple(_ledger_rows(op.ledger)),
        notes=op.notes,
    )


def by_shape(op: Op) -> dict[str, Number]:
    """FLOP of a product or convolution and bytes of its arrays, from its sizes; for other ops the arrays they read and write."""
    if isinstance(op.operation, Product):
        product, count = op.operation, float(op.count)
        moved = product.bytes - float(product.widened)
        if product.m == product.n and product.left == product.right and not product.groups:  # both operands may be one array
            moved -= width(product.right) * float(product.batch * product.k * product.n)
        return {matrix(product.compute).name: product.flops * count, HBM.name: moved * count}
    if isinstance(op.operation, Convolution):
        found = {matrix(op.operation.compute).name: op.operation.flops * float(op.count)}
        return found if op.operation.bytes is None else {**found, HBM.name: float(op.operation.bytes) * float(op.count)}
    if op.takes and op.gives:
        return {HBM.name: sum(array.bytes for array in (*op.takes, *op.gives)) * op.count}
    return {}


@lru_cache(maxsize=1000)  # equal layers have equal avoidable work
def avoidable_info(reason: Avoidable) -> AvoidableInfo:
    """Avoidable work as a report has it."""
    return AvoidableInfo(
        kind=reason.kind,
        group=reason.group,
        cause=reason.cause,
        facts=dict(reason.facts),
        why=reason.why,
        instead=known_amounts(reason.instead),
        besides=known_amounts(reason.besides),
        unneeded=reason.unneeded,
        factor=reason.factor,
        saves="" if reason.saves == Saves.IN_PROPORTION else reason.saves.value,
        usual="" if reason.usual == Usual.NO else reason.usual.value,
        extra=reason.extra,
        share=reason.share,
    )


def known_amounts(cost: Cost) -> dict[str, Number]:
    """The known amounts of a cost."""
    return {resource.name: number(amount) or 0 for resource, amount in cost.amounts}


def needed_amounts(needed: Needed) -> Amounts | None:
    """The needed work, where it is less than the counted work."""
    return None if needed.beyond else amounts(needed.cost, "FLOP")


def unneeded_info(needed: Needed) -> dict[str, float]:
    """The work that was not needed, by class."""
    return {kind: number(amount) or 0 for kind, amount in needed.unneeded.items()}


def _lost(one: Placed, needed: Needed | None) -> float | None:
    """The self time of an op above the minimum time of its needed work."""
    own_s = one.op.time_s if one.op.self_time_s is None else one.op.self_time_s
    if own_s is None or not one.op.priced or one.placement.is_unknown:
        return None
    return time_above(own_s, needed.floor_s if needed else one.placement.floor_s)


def time_above(own_s: float, floor_s: float) -> float:
    """The part of a time above a minimum, if it is more than rounding."""
    above_s = own_s - floor_s
    return above_s if above_s > ROUNDING * own_s else 0.0


def plain_label(scope: str, location: str, name: str) -> str:
    """The label of an op that its source did not label: where it was written, and its name."""
    where = scope or source_line(location)
    return f"{where}  {name}" if where else name


def _intensities(cost: Cost, flops: Amount | None) -> dict[str, float]:
    """FLOP over the bytes of each memory level and link, where both are known."""
    return {level: float(flops / amount) for level, amount in _moved(cost)} if flops else {}


def _bandwidth(cost: Cost, time_s: float | None) -> dict[str, float]:
    """Bytes a second over each memory level and link."""
    return {level: float(amount) / time_s for level, amount in _moved(cost)} if time_s else {}


def _moved(cost: Cost) -> Iterable[tuple[str, Amount]]:
    return ((level.name, amount) for level, amount in cost.amounts if level.measure == "B" and level != XLU and level not in cost.unknown)


def _counters(op: Op) -> CounterInfo | None:
    if op.counters is None:
        return None
    counters, cost = op.counters, op.counters.cost
    launches, of = (counters.launches, counters.of) if isinstance(counters, LaunchCounters) else (None, None)
    return CounterInfo(
        work=amounts(cost, "FLOP"),
        bytes=amounts(cost, "B"),
        time_s=counters.time_s,
        flops=number(cost.flops),
        launches=launches,
        of=of,
        rate=float(cost.flops) / op.time_s if cost.flops is not None and op.time_s else None,
        bandwidth=_bandwidth(cost, op.time_s),
        intensities=_intensities(cost, cost.flops),
        ratio={row.quantity: row.ratio for row in model_against_counters([op]) if row.ratio is not None},
    )


def _ledger_rows(ledger: Ledger | None) -> Iterable[LedgerRow]:
    for row in ledger.rows if ledger else ():
        yield LedgerRow(
            tensor=row.tensor,
            shape=tuple(number(size) or 0 for size in row.shape),
            dtype=row.dtype.name,
            access=row.access,
            level=row.level.name,
            bytes=number(row.bytes) or 0,
            note=row.note,
        )
