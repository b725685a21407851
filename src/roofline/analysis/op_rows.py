"""The rows of a report, one per op, longest first: a few ops get their rows at once, very many get each row when it is read."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from ..columns.lazy_rows import ABSENT, Entries, LazyRows, column, take, values_at
from ..columns.op_columns import MANY, OpColumns, amounts_of
from ..operation import UNSTATED
from ..report import Expected, OpInfo
from ..resource import Resource
from .expected_times import expected_info, split_time, with_expected_time
from .needed_work import Needed
from .op_info import needed_amounts, op_info, plain_label, time_above, unneeded_info
from .op_info_columns import plain_rows
from .op_times import OpTimes
from .placed_ops import PlacedOps
from .program_points import known_parts, number

Value = TypeVar("Value")
OWN = ("name", "category", "module", "scope", "location", "phase", "count", "kernels", "self_time_s", "dma_stall_s", "notes")
MEASURES = {"amounts": ("FLOP", "B", "hop"), "work": ("FLOP",), "bytes": ("B",), "hops": ("hop",)}


def rows_of(placed: PlacedOps, op_times: OpTimes) -> Sequence[OpInfo]:
    """The ops of the report, longest first: by measured time, else by minimum time; equal ones keep their order."""
    weights = [floor if time_s is None else time_s for floor, time_s in zip(placed.floor_s, placed.time_s, strict=True)]
    order, ranks = _ranked(weights)

    def row(id: int) -> OpInfo:
        return with_expected_time(op_info(placed[id], ranks[id], op_times.needed.get(id)), op_times.predicted.get(id))

    if len(order) <= MANY:
        return tuple(map(row, order))
    fields = _Fields(placed, op_times, ranks)

    def rows(ids: Sequence[int]) -> Iterable[OpInfo]:
        plain = [id for id in placed.plain(ids) if id not in op_times.needed]
        made = dict(zip(plain, plain_rows(placed, plain, partial(fields, ids=plain)), strict=True))
        return (with_expected_time(made[id], op_times.predicted.get(id)) if id in made else row(id) for id in ids)

    return LazyRows(order, row, fields, rows)


def _ranked(weights: Sequence[float]) -> tuple[list[int], list[int]]:
    """The ids of ops by their weights, largest first, and the rank of each."""
    order = sorted(range(len(weights)), key=weights.__getitem__, reverse=True)
    ranks = [0] * len(order)
    for rank, id in enumerate(order, start=1):
        ranks[id] = rank
    return order, ranks


class _Fields:
    """The fields of rows that are available without making the rows, by op id; `op_info` has the same for one row."""

    def __init__(self, placed: PlacedOps, op_times: OpTimes, ranks: list[int]) -> None:
        self._placed, self._op_times = placed, op_times
        self._last: tuple[Sequence[int], dict[Resource, list[Any]]] | None = None
        self._known: dict[str, Sequence[Any]] = {
            "rank": ranks,
            "weight_s": op_times.spent_s,
            "bound": placed.bound,
            "roofs": placed.roofs,
            "time_s": placed.time_s,
        }
        self._computed: dict[str, Callable[[Sequence[int]], Iterator[Any]]] = {
            "label": self._label,
            "flops": self._flops,
            "lost_s": self._lost_s,
            "serial_s": self._serial_s,
            "expected_s": self._expected_s,
            "expected": self._expected,
            "inherent_s": lambda ids: (parts[0] for parts in self._above_minimum(ids)),
            "excess_s": lambda ids: (parts[1] for parts in self._above_minimum(ids)),
        }

    def __call__(self, name: str, ids: Sequence[int]) -> list[Any] | Entries | None:
        if name == "id":
            return list(ids)
        if name in MEASURES:
            mine = {resource: each for resource, each in self._amounts(ids).items() if resource.measure in MEASURES[name]}
            return {resource.name: _numbers(each) for resource, each in mine.items()}
        if name == "times":
            return {unit: [seconds[id] or ABSENT for id in ids] for unit, seconds in self._placed.times.items()}
        if name in self._computed:
            return list(self._computed[name](ids))
        if name not in self._known and (made := self._whole(name)) is not None:
            self._known[name] = made
        values = self._known.get(name)
        return None if values is None else list(values_at(values, ids))

    def _whole(self, name: str) -> Sequence[Any] | None:
        """A field of all rows."""
        placed, ops = self._placed, self._placed.ops
        if name in OWN or name == "own_label":
            return column(ops, name.removeprefix("own_"))
        if name == "floor_s":
            return [None if id in placed.blank else floor for id, floor in enumerate(placed.floor_s)] if placed.blank else placed.floor_s
        if name == "dtype":
            return [one.kind if one else None for one in placed.compute]
        if name == "needed":
            return self._of_needed(needed_amounts, None)
        if name == "unneeded":
            return self._of_needed(unneeded_info, {})
        if name == "compiled":
            return None if any(stated != UNSTATED for stated in column(ops, name)) else [None] * len(ops)
        if name == "counters":
            return None if any(column(ops, name)) else [None] * len(ops)
        if name == "known":
            return None if any(known_parts(op.cost) for op in take(ops, self._unpriced())) else [{}] * len(ops)
        return None

    def _amounts(self, ids: Sequence[int]) -> dict[Resource, list[Any]]:
        """The amounts of some ops, cached, because several fields of the same rows are read one after another."""
        if self._last is None or self._last[0] is not ids:
            self._last = (ids, amounts_of(self._placed.ops, ids))
        return self._last[1]

    def _unpriced(self) -> list[int]:
        """The ops that may have partly known amounts; ops in columns have none."""
        return [] if isinstance(self._placed.ops, OpColumns) else [id for id, priced in enumerate(self._placed.priced) if not priced]

    def _label(self, ids: Sequence[int]) -> Iterator[str]:
        words = zip(*(self(name, ids) or () for name in ("own_label", "scope", "location", "name")), strict=True)
        return (label or plain_label(scope, location, name) for label, scope, location, name in words)

    def _flops(self, ids: Sequence[int]) -> Iterator[float | None]:
        arithmetic = [mine for resource, mine in self._amounts(ids).items() if resource.is_arithmetic]
        each = [[0 if one is ABSENT else one for one in mine] for mine in arithmetic]
        for parts in zip(*each, strict=True) if each else [()] * len(ids):
            yield None if None in parts else number(sum([part for part in parts if part]))

    def _lost_s(self, ids: Sequence[int]) -> Iterator[float | None]:
        placed, needed, owns = self._placed, self._op_times.needed, self._op_times.own_s
        selfs = column(placed.ops, "self_time_s")
        for id in ids:
            if (placed.time_s[id] is None and selfs[id] is None) or not placed.priced[id] or id in placed.blank:
                yield None
            else:
                yield time_above(owns[id], needed[id].floor_s if id in needed else placed.floor_s[id])

    def _serial_s(self, ids: Sequence[int]) -> Iterator[float | None]:
        times = self._placed.times.values()
        for id in ids:
            yield None if id in self._placed.blank else sum(sorted([each[id] for each in times if each[id]], reverse=True))

    def _expected(self, ids: Sequence[int]) -> Iterator[Expected | None]:
        predicted = self._op_times.predicted
        return (expected_info(predicted[id]) if id in predicted else None for id in ids)

    def _above_minimum(self, ids: Sequence[int]) -> Iterator[tuple[float | None, float | None]]:
        """The inherent time and the excess of ops with a prediction and a time of their own."""
        predicted, times = self._op_times.predicted, self._op_times.own_s
        for id, time_s in zip(ids, self._whole_times(ids), strict=True):
            known = id in predicted and time_s is not None
            yield split_time(times[id], self._placed.floor_s[id], predicted[id]) if known else (None, None)

    def _whole_times(self, ids: Sequence[int]) -> Sequence[float | None]:
        """The time of each op, its own or whole; ``None`` where neither was measured."""
        own, whole = (values_at(column(self._placed.ops, name), ids) for name in ("self_time_s", "time_s"))
        return [time_s if own_s is None else own_s for own_s, time_s in zip(own, whole, strict=True)]

    def _expected_s(self, ids: Sequence[int]) -> Iterator[float | None]:
        for id, serial_s in zip(ids, self._serial_s(ids), strict=True):
            yield None if serial_s is None else self._placed.expected_s(self._placed.floor_s[id], serial_s)

    def _of_needed(self, get: Callable[[Needed], Value], otherwise: Value) -> list[Value]:
        """``get`` applied to the needed work of each op, computed once for ops of equal layers; ``otherwise`` for ops without."""
        needed = self._op_times.needed
        once = {id(one): get(one) for one in {id(one): one for one in needed.values()}.values()}
        made = [otherwise] * len(self._placed.ops)
        for place, one in needed.items():
            made[place] = once[id(one)]
        return made


def _numbers(amounts: list[Any]) -> list[Any]:
    """Amounts as JSON can carry them."""
    kinds = {*map(type, amounts)}
    if kinds <= {float, type(ABSENT)}:
        return amounts
    if kinds <= {int, type(ABSENT)}:  # as in programs, whose layers repeat few amounts
        known = {one: one if one is ABSENT else number(one) for one in {*amounts}}
        return list(map(known.__getitem__, amounts))
    return [one if type(one) is float or one is ABSENT else number(one) for one in amounts]
