"""The times of ops: measured, minimum and expected, and what the time above the minimum is lost to."""

from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from ..columns.lazy_rows import column
from ..columns.op_columns import multiplies
from ..operation import Operation
from ..prediction import Prediction
from ..workload import Op
from .needed_work import Needed


class OpTime(Struct, frozen=True):
    """An op with its times: measured, minimum and expected, what the time above the minimum is lost to, what binds it, and what of it was
    needed."""

    id: int
    op: Op
    floor_s: float
    cause: str
    unit: str | None = None
    needed: Needed | None = None
    prediction: Prediction | None = None
    own_s: float = 0.0
    spent_s: float = 0.0


class OpTimes:
    """The times of all ops, in columns, by id; ``needed`` and ``predicted`` have only those of which something is known.

    ``own_s`` is the seconds that an op kept its device busy: its self time, where the source tells nested ops apart. ``spent_s`` is the
    same; without times, its minimum, and `exposed` to the clock where ops overlap.
    """

    def __init__(
        self,
        ops: Sequence[Op],
        floor_s: Sequence[float],
        cause: Sequence[str],
        unit: Sequence[str | None],
        needed: Mapping[int, Needed],
        predicted: Mapping[int, Prediction],
    ) -> None:
        self.ops, self.floor_s, self.cause, self.unit, self.needed, self.predicted = ops, floor_s, cause, unit, needed, predicted
        self._words: dict[str, list[str]] = {}
        selfs, times = column(ops, "self_time_s"), column(ops, "time_s")
        if selfs.count(None) == len(selfs):
            selfs = times
        else:
            selfs = [time_s if self_s is None else self_s for self_s, time_s in zip(selfs, times, strict=True)]
        self.own_s = [seconds or 0.0 for seconds in selfs]
        self.spent_s = [floor if seconds is None else seconds for seconds, floor in zip(selfs, floor_s, strict=True)]

    def exposed(self, share: float) -> "OpTimes":
        """The same ops, of whose self times the clock shows this share."""
        found = OpTimes(self.ops, self.floor_s, self.cause, self.unit, self.needed, self.predicted)
        found.spent_s = [seconds * share for seconds in self.spent_s]
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
        """A field of each op that is a word."""
        if name not in self._words:
            self._words[name] = column(self.ops, name)
        return self._words[name]

    @cached_property
    def category(self) -> list[str]:
        return column(self.ops, "category")

    @cached_property
    def operations(self) -> list[Operation | None]:
        """What each is by its sizes."""
        return column(self.ops, "operation")

    @cached_property
    def launches(self) -> list[float]:
        """How many launches the time of each is spread over."""
        return column(self.ops, "launches")

    @cached_property
    def multiplies(self) -> list[bool]:
        """Whether each is a product, which a chip without a matrix unit runs on its vector unit."""
        return multiplies(self.ops)


def share_in_steps(op: Op, steps: Container[int | None]) -> float:
    """The share of an op's time that lies in these steps."""
    return min(sum([share.time_s for share in op.by_step if share.key in steps]) / op.time_s, 1.0) if op.time_s else 0.0
