"""Parts and sums of ops: an op reduced to some of its executions, and one row for several ops.

Seconds, counts and amounts are cut or added; ratios follow from them, because they are computed when they are read.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from .cost import sum_or_unknown
from .operation import Label
from .report import Amounts, CounterInfo, Expected, OpInfo
from .reported_op import EXPECTED_SECONDS

_ADDED = ("kernels", "time_s", "self_time_s", "dma_stall_s", "floor_s", "serial_s", "expected_s", "excess_s", "before_s")
_AMOUNTS = ("work", "bytes", "hops")


def part(op: OpInfo, count: float, time_s: float | None) -> OpInfo:
    """An op reduced to ``count`` of its executions, which took ``time_s``; ``None`` where their time does not matter."""
    if count == op.count and time_s == op.time_s:
        return op
    share = count / op.count if op.count else 0.0
    own_s = _cut_time(op.self_time_s, op, time_s)
    return replace(
        op,
        count=count,
        kernels=_cut(op.kernels, count, op.count),
        time_s=time_s,
        self_time_s=own_s,
        dma_stall_s=_cut_time(op.dma_stall_s, op, time_s),
        **{name: _cut_all(getattr(op, name), count, op.count) for name in _AMOUNTS},
        known=_scaled_all(op.known, share),
        floor_s=_scaled(op.floor_s, share),
        serial_s=_scaled(op.serial_s, share),
        expected_s=_scaled(op.expected_s, share),
        expected=None if op.expected is None else op.expected.scaled(share),
        excess_s=_excess(op, share, time_s if own_s is None else own_s),
        before_s=_scaled(op.before_s, share),
        times=_scaled_all(op.times, share),
        counters=_part_of_counters(op.counters, count, op.count, time_s),
        needed=None if op.needed is None else _cut_all(op.needed, count, op.count),
        needed_s=_scaled(op.needed_s, share),
        unneeded=_scaled_all(op.unneeded, share),
        by_shape=_scaled_all(op.by_shape, share),
    )


def _cut_time(seconds: float | None, op: OpInfo, time_s: float | None) -> float | None:
    """Seconds of an op in the part of it that took ``time_s``."""
    return seconds * time_s / op.time_s if seconds is not None and time_s is not None and op.time_s else None


def _excess(op: OpInfo, share: float, own_s: float | None) -> float | None:
    """The excess of a part: its self time above its share of what the whole op was expected to take."""
    if not op.excess_s or op.own_s is None:
        return op.excess_s
    return None if own_s is None else max(own_s - (op.own_s - op.excess_s) * share, 0.0)


def _part_of_counters(counters: CounterInfo | None, count: float, of: float, time_s: float | None) -> CounterInfo | None:
    if counters is None:
        return None
    cut = replace(
        counters,
        work=_cut_all(counters.work, count, of),
        bytes=_cut_all(counters.bytes, count, of),
        flops=_cut(counters.flops, count, of),
        time_s=_scaled(counters.time_s, count / of),
    )
    return with_rates(cut, time_s)


def with_rates(counters: CounterInfo, time_s: float | None) -> CounterInfo:
    """Counters of an op with their rates by the op's own time, and the intensities."""
    flops, moved = counters.flops, {level: amount for level, amount in counters.bytes.items() if amount is not None}
    return replace(
        counters,
        rate=flops / time_s if flops is not None and time_s else None,
        bandwidth={level: amount / time_s for level, amount in moved.items()} if time_s else {},
        intensities={level: flops / amount for level, amount in moved.items() if amount} if flops else {},
    )


def _scaled(amount: float | None, share: float) -> float | None:
    return None if amount is None else amount * share


def _scaled_all(amounts: Mapping[str, float], share: float) -> dict[str, float]:
    return {name: amount * share for name, amount in amounts.items()}


def _cut(amount: float | None, count: float, of: float) -> float | None:
    """An amount's share; whole numbers stay whole where they can."""
    if isinstance(amount, int) and isinstance(count, int) and isinstance(of, int) and of and not amount * count % of:
        return amount * count // of
    return None if amount is None else amount * (count / of if of else 0.0)


def _cut_all(amounts: Amounts, count: float, of: float) -> Amounts:
    return {name: _cut(amount, count, of) for name, amount in amounts.items()}


def summed(ops: Sequence[OpInfo], *, name: str, label: Label, scope: str) -> OpInfo:
    """One row for ops that do the same work: the longest of them with the seconds and amounts of all, and their notes."""
    longest = max(ops, key=_weight)
    times = _added(op.times for op in ops)
    needs_less = any(op.needed is not None for op in ops)
    added: dict[str, Any] = {field: sum_or_unknown([getattr(op, field) for op in ops]) for field in _ADDED}
    time_s = added["time_s"]
    return replace(
        longest,
        name=name,
        label=str(label),
        where=label.where,
        does=label.does,
        sizes=label.sizes,
        format=label.format,
        split=label.split,
        scope=scope,
        rank=min(op.rank for op in ops),
        count=sum(op.count for op in ops),
        **added,
        **{field: _added(getattr(op, field) for op in ops) for field in _AMOUNTS},
        known=_known(_added(op.known for op in ops)),
        expected=_expected([op.expected for op in ops]),
        times={unit: times[unit] or 0.0 for unit in longest.times},
        counters=_counters([op.counters for op in ops], time_s),
        needed=_added(op.work if op.needed is None else op.needed for op in ops) if needs_less else None,
        needed_s=sum_or_unknown([op.floor_s if op.needed_s is None else op.needed_s for op in ops]) if needs_less else None,
        unneeded=_known(_added(op.unneeded for op in ops)),
        by_shape=_known(_added(op.by_shape for op in ops)),
        ledger=(),
        notes=tuple(dict.fromkeys(note for op in ops for note in op.notes)),
    )


def _weight(op: OpInfo) -> float:
    return op.weight_s


def _expected(predictions: Sequence[Expected | None]) -> Expected | None:
    """The prediction of all executions of some ops; ``None`` where one of them has none."""
    known = [expected for expected in predictions if expected is not None]
    if len(known) < len(predictions):
        return None
    return replace(
        known[0],
        **{name: sum(getattr(expected, name) for expected in known) for name in EXPECTED_SECONDS},
        terms=_known(_added(expected.terms for expected in known)),
    )


def _counters(op_counters: Sequence[CounterInfo | None], time_s: float | None) -> CounterInfo | None:
    """The sum of the ops' hardware counters; ``None`` if one of them was not counted."""
    counted = [counters for counters in op_counters if counters is not None]
    if len(counted) < len(op_counters):
        return None
    total = CounterInfo(
        work=_added(counters.work for counters in counted),
        bytes=_added(counters.bytes for counters in counted),
        time_s=sum_or_unknown([counters.time_s for counters in counted]),
        flops=sum_or_unknown([counters.flops for counters in counted]),
        launches=sum_or_unknown([counters.launches for counters in counted]),
        of=sum_or_unknown([counters.of for counters in counted]),
    )
    return with_rates(total, time_s)


def _added(rows: Iterable[Mapping[str, float | None]]) -> Amounts:
    """The sum of each entry over the rows, unknown where one of them is; a missing entry counts as 0."""
    total: Amounts = {}
    for row in rows:
        for name, amount in row.items():
            had = total.get(name, 0)
            total[name] = None if had is None or amount is None else had + amount
    return total


def _known(amounts: Amounts) -> dict[str, float]:
    return {name: amount or 0 for name, amount in amounts.items()}
