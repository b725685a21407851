"""The rows of a report, one per op, longest first."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from ..cost import Cost
from ..ledger import Ledger
from ..op_parts import with_rates
from ..operation import UNLABELLED, UNSTATED, Convolution, Label, Product, width
from ..placement import Placement
from ..report import AvoidableInfo, CounterInfo, LedgerRow, Number, OpInfo
from ..resource import HBM, Resource, matrix
from ..workload import Avoidable, Op, Saves, Usual, source_line
from .counters import LaunchCounters, model_against_counters
from .expected_times import excess_of
from .op_times import OpTimes
from .placed_ops import PlacedOps
from .program_points import amounts, known_parts, number


def op_infos(placed: PlacedOps, op_times: OpTimes) -> tuple[OpInfo, ...]:
    """The ops of the report, longest first: by measured time, else by minimum time; equal ones keep their order."""
    weights = [floor if time_s is None else time_s for floor, time_s in zip(placed.floor_s, placed.time_s, strict=True)]
    order = sorted(range(len(weights)), key=weights.__getitem__, reverse=True)
    rows = _Rows(placed, op_times)
    return tuple([rows.of(id, rank) for rank, id in enumerate(order, start=1)])


class _Rows:
    """Makes the rows of ops; what ops share, as those of equal layers do, is made once."""

    def __init__(self, placed: PlacedOps, op_times: OpTimes) -> None:
        self._placed, self._op_times = placed, op_times
        self._amounts: dict[int, dict[str, Mapping[str, float | None]]] = {}
        self._provenances: dict[tuple[str, str], dict[str, str]] = {}
        self._ridges: dict[Resource | None, float | None] = {}

    def of(self, id: int, rank: int) -> OpInfo:
        """The row of an op with its rank by time."""
        op, placement = self._placed.ops[id], self._placed.placements[id]
        compute, is_unknown = placement.compute, placement.is_unknown
        needed, predicted = self._op_times.needed.get(id), self._op_times.predicted.get(id)
        needs_less = needed is not None and not needed.beyond
        label = op.label if op.label != UNLABELLED else plain_label(op.scope, op.location, op.name)
        return OpInfo(
            id=id,
            rank=rank,
            name=op.name,
            category=op.category,
            module=op.module,
            scope=op.scope,
            location=op.location,
            phase=op.phase,
            label=str(label),
            where=label.where,
            does=label.does,
            sizes=label.sizes,
            format=label.format,
            split=label.split,
            count=op.count,
            kernels=op.kernels,
            time_s=op.time_s,
            self_time_s=op.self_time_s,
            dma_stall_s=op.dma_stall_s,
            **self._amounts_of(op.cost),  # type: ignore[arg-type]
            unit=compute.unit if compute else None,
            dtype=compute.kind if compute else None,
            ridge=self._ridge(placement),
            floor_s=None if is_unknown else placement.floor_s,
            serial_s=None if is_unknown else placement.serial_s,
            expected_s=None if is_unknown else placement.expected_s,
            bound=placement.bound,
            times=dict(placement.times),
            provenance=self._provenance(op),
            counters=_counters(op) if op.counters else None,
            needed=amounts(needed.cost, "FLOP") if needed and needs_less else None,
            needed_s=needed.floor_s if needed and needs_less else None,
            unneeded={kind: number(amount) or 0 for kind, amount in needed.unneeded.items()} if needed else {},
            expected=predicted,
            excess_s=excess_of(op, placement.floor_s, predicted) if predicted else None,
            by_shape=by_shape(op),
            operation=op.operation,
            shapes=op.shapes,
            compiled=op.compiled if op.compiled != UNSTATED else None,
            avoidable=tuple([avoidable_info(reason) for reason in op.avoidable]),
            roofs=tuple([resource.name for resource in placement.roofs]),
            unrated=tuple([resource.name for resource in placement.unrated]),
            ledger=tuple(_ledger_rows(op.ledger)) if op.ledger else (),
            notes=op.notes,
        )

    def _amounts_of(self, cost: Cost) -> dict[str, Mapping[str, float | None]]:
        key = id(cost)
        if key not in self._amounts:
            work, moved, hops = (amounts(cost, measure) for measure in ("FLOP", "B", "hop"))
            self._amounts[key] = {"work": work, "bytes": moved, "hops": hops, "known": known_parts(cost)}
        return self._amounts[key]

    def _provenance(self, op: Op) -> dict[str, str]:
        key = (op.work_provenance, op.bytes_provenance)
        if key not in self._provenances:
            self._provenances[key] = {"work": op.work_provenance, "bytes": op.bytes_provenance}
        return self._provenances[key]

    def _ridge(self, placement: Placement) -> float | None:
        if placement.compute not in self._ridges:
            self._ridges[placement.compute] = placement.ridge()
        return self._ridges[placement.compute]


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


def plain_label(scope: str, location: str, name: str) -> Label:
    """The label of an op that its source did not label: where it was written, and its name."""
    return Label(scope or source_line(location), name)


def _counters(op: Op) -> CounterInfo | None:
    if op.counters is None:
        return None
    counters, cost = op.counters, op.counters.cost
    launches, of = (counters.launches, counters.of) if isinstance(counters, LaunchCounters) else (None, None)
    measured = CounterInfo(
        work=amounts(cost, "FLOP"),
        bytes=amounts(cost, "B"),
        time_s=counters.time_s,
        flops=number(cost.flops),
        launches=launches,
        of=of,
        ratio={row.quantity: row.ratio for row in model_against_counters([op]) if row.ratio is not None},
    )
    return with_rates(measured, op.time_s)


def _ledger_rows(ledger: Ledger) -> Iterable[LedgerRow]:
    for row in ledger.rows:
        yield LedgerRow(
            tensor=row.tensor,
            shape=tuple(number(size) or 0 for size in row.shape),
            dtype=row.dtype.name,
            access=row.access,
            level=row.level.name,
            bytes=number(row.bytes) or 0,
            note=row.note,
        )
