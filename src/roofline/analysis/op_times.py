"""The times of ops: measured, minimum and expected, and the cause to which the time above the minimum is lost."""

from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import TypeVar

from msgspec import Struct

from ..cost import Cost
from ..operation import Operation
from ..placement import MinimumTimes
from ..prediction import Expected
from ..workload import Op
from .link_directions import busier_way, directed
from .needed_work import Needed

Value = TypeVar("Value")


class OpTime(Struct, frozen=True):
    """An op with its measured, minimum and expected time, the cause of its lost time, its bound unit, and its needed work."""

    id: int
    op: Op
    floor_s: float
    cause: str
    unit: str | None = None
    needed: Needed | None = None
    prediction: Expected | None = None
    own_s: float = 0.0
    spent_s: float = 0.0


class OpTimes:
    """The times of all ops, in columns, by id; ``needed`` and ``predicted`` have entries only for some ops.

    ``own_s`` is the seconds that an op kept its device busy: its self time, where the source has nested ops. ``waited_s`` is its minimum,
    of ops that run beside others as far as these wait for them. ``spent_s`` is the own time, or without times the one waited for, scaled
    by `exposed` where ops overlap.
    """

    def __init__(
        self,
        ops: Sequence[Op],
        floor_s: Sequence[float],
        cause: Sequence[str],
        unit: Sequence[str | None],
        needed: Mapping[int, Needed],
        predicted: Mapping[int, Expected],
        waited_share: float = 1.0,
    ) -> None:
        self.ops, self.floor_s, self.cause, self.unit, self.needed, self.predicted = ops, floor_s, cause, unit, needed, predicted
        self._words: dict[str, list[str]] = {}
        selfs, times = [op.self_time_s for op in ops], [op.time_s for op in ops]
        if selfs.count(None) == len(selfs):
            selfs = times
        else:
            selfs = [time_s if self_s is None else self_s for self_s, time_s in zip(selfs, times, strict=True)]
        self.own_s = [seconds or 0.0 for seconds in selfs]
        self.waited_s = floor_s
        if waited_share < 1:
            self.waited_s = [floor * waited_share if beside else floor for floor, beside in zip(floor_s, runs_beside(ops), strict=True)]
        self.spent_s = [waited if seconds is None else seconds for seconds, waited in zip(selfs, self.waited_s, strict=True)]

    def exposed(self, share: float) -> "OpTimes":
        """The same ops with ``spent_s`` scaled to the share of self times that is visible on the wall clock."""
        found = OpTimes(self.ops, self.floor_s, self.cause, self.unit, self.needed, self.predicted)
        found.waited_s, found.spent_s = self.waited_s, [seconds * share for seconds in self.spent_s]
        return found

    def __len__(self) -> int:
        return len(self.ops)

    def __getitem__(self, id: int) -> OpTime:
        return OpTime(
            id,
            self.ops[id],
            self.floor_s[id],
            self.cause[id],
            self.unit[id],
            self.needed.get(id),
            self.predicted.get(id),
            self.own_s[id],
            self.spent_s[id],
        )

    def __iter__(self) -> Iterator[OpTime]:
        return map(self.__getitem__, range(len(self)))

    def words(self, name: str) -> list[str]:
        """A text field of each op."""
        if name not in self._words:
            self._words[name] = list(map(attrgetter(name), self.ops))
        return self._words[name]

    @cached_property
    def category(self) -> list[str]:
        return [op.category for op in self.ops]

    @cached_property
    def operations(self) -> list[Operation | None]:
        """Each op described by its sizes, where known."""
        return [op.operation for op in self.ops]

    @cached_property
    def launches(self) -> list[float]:
        """The number of launches of each op."""
        return [op.launches for op in self.ops]

    @cached_property
    def multiplies(self) -> list[bool]:
        """Whether each op is a product, which on a chip without a matrix unit runs on the vector unit."""
        return [any(resource.unit == "matrix" for resource, _ in op.cost.amounts) for op in self.ops]


def runs_beside(ops: Sequence[Op]) -> list[bool]:
    """Whether each op runs beside the ops after it."""
    return [op.compiled.beside for op in ops]


def share_waited_for(ops: Sequence[Op], floor_s: Sequence[float], minimum_s: MinimumTimes) -> float:
    """The share of the minimum times of ops that run beside others for which those wait: as far as a memory or link is busy for longer
    than the ops that run one after another. 1 if no op runs beside others.
    """
    beside_s = sum([floor for floor, beside in zip(floor_s, runs_beside(ops), strict=True) if beside])
    if not beside_s:
        return 1.0
    in_turn_s = sum(floor_s) - beside_s
    return min(max((minimum_s(busier_way(Cost.total(map(directed, ops)))) - in_turn_s) / beside_s, 0.0), 1.0)


def share_in_steps(op: Op, steps: Container[int | None]) -> float:
    """The share of an op's time in these steps."""
    return min(sum([share.time_s for share in op.by_step if share.key in steps]) / op.time_s, 1.0) if op.time_s else 0.0


def values_at(values: Sequence[Value], ids: Sequence[int]) -> Sequence[Value]:
    """The values of some ops by their ids; the sequence itself if those are all, in order.

    >>> values_at("roof", [0, 3]), values_at("roof", range(4))
    (['r', 'f'], 'roof')
    """
    return values if ids == range(len(values)) else [values[id] for id in ids]
