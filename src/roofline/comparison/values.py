"""What a comparison of two reports consists of: totals, rows of ops, and quantities with their changes."""

from collections.abc import Iterable

from msgspec import Struct, field

from ..cost import sum_of_known, sum_or_unknown
from ..operation import Label
from ..quantities import ROUNDING
from ..report import Number
from ..resource import main_bound
from .promises import Kept

SCHEMA = "roofline.comparison/1"
TIME, MINIMUM = "time", "minimum time"  # the quantity whose changes are reported
STEP = "step"


class Side(Struct, frozen=True, kw_only=True):
    """Totals of some ops of one report: their time, their minimum time, and the bound that holds for most of it.

    ``time_s`` is ``None`` when one of them was not timed, ``floor_s`` when no op has a minimum time. Without ops the time is 0. FLOP and
    bytes (by memory level and link) sum the known amounts; ``launches`` counts kernels, or executions where kernels are not known.
    """

    ops: tuple[int, ...]
    names: tuple[str, ...]
    count: float
    time_s: float | None
    floor_s: float | None
    efficiency: float | None
    bound: str | None
    flops: Number = 0
    bytes: dict[str, Number] = field(default_factory=dict)
    launches: Number = 0


class Delta(Struct, frozen=True, kw_only=True):
    """One op, or the ops of one category, before and after, and the change in seconds.

    ``matched`` is how they were paired: ``module and name``, ``label``, ``kind``, ``number format``, ``name``, ``category``, ``new`` or
    ``vanished``. ``floor_change_s`` is the change of the minimum time. ``share`` is this row's fraction of the total change of the time or,
    where nothing was timed on both sides, of the minimum time; it is negative when the row changes in the opposite direction. ``label`` is
    a name that a person recognises, made of ``where`` the op is (its ``scope``, else its source line or program), ``what`` it does, and
    what it ``was`` before if that is something else.
    """

    name: str
    module: str
    category: str
    matched: str
    before: Side
    after: Side
    change_s: float | None
    share: float | None = None
    floor_change_s: float | None = None
    label: str = ""
    scope: str = ""
    where: str = ""
    what: str = ""
    was: str = ""


def label_of_change(where: str, what: str, was: str) -> str:
    """The label of a pair of ops: that of the op after, and what it was before where operation, shape or format changed."""
    return str(Label(where, f"{what} (before: {was})" if was else what))


class Totals(Struct, frozen=True, kw_only=True):
    """Totals of a report: the ops' summed times, their summed minimum times, and the efficiency, which is the ratio of the two.

    ``wall_s`` is the wall clock of the run, ``step_s`` the mean time of a step, ``peak_bytes`` the peak memory; ``None`` where a report has
    none. FLOP and bytes sum the known amounts; ``unknown`` is the number of ops with an unknown one. ``throughput`` is in tokens (samples,
    requests) per second.
    """

    time_s: float | None
    floor_s: float | None
    efficiency: float | None
    wall_s: float | None
    ops: int
    step_s: float | None = None
    flops: Number = 0
    bytes: dict[str, Number] = field(default_factory=dict)
    launches: Number = 0
    peak_bytes: Number | None = None
    unknown: int = 0
    throughput: dict[str, Number] = field(default_factory=dict)


class Figure(Struct, frozen=True, kw_only=True):
    """One quantity of both reports. ``unit`` is ``s``, ``FLOP``, ``B``, or empty for a plain number; ``ratio`` is before over after."""

    quantity: str
    unit: str
    before: Number
    after: Number
    change: Number
    ratio: float | None


class Change(Struct, frozen=True, kw_only=True):
    """One quantity before and after, in its unit; ``interval`` is that of the difference, if both sides have several runs."""

    quantity: str
    unit: str
    before: Number
    after: Number
    interval: tuple[float, float] | None = None

    @property
    def change(self) -> Number:
        return change(self.before, self.after)

    @property
    def ratio(self) -> float | None:
        """The change relative to the value before."""
        return self.change / self.before if self.before else None

    @property
    def is_noise(self) -> bool:
        """Whether the change is within the variation between runs."""
        return self.interval is not None and self.interval[0] <= 0 <= self.interval[1]


class OpChange(Struct, frozen=True, kw_only=True):
    """Ops of one kind before and after: their time, or minimum time where nothing was measured; ``reasons`` are what changed about them."""

    op: str
    seconds: Change
    launches: Change
    reasons: tuple[str, ...] = ()
    matched: str = "both"  # or new, gone


class ReportChanges(Struct, frozen=True, kw_only=True):
    """Two versions of a program: the time in ``headline``, every other quantity in ``figures``, and the ops, the largest change first."""

    schema: str = "roofline.changes/1"
    files: tuple[str, str]
    runs: tuple[int, int]
    headline: Change | None
    figures: tuple[Change, ...]
    ops: tuple[OpChange, ...]

    @property
    def slower(self) -> tuple[OpChange, ...]:
        return tuple(op for op in self.ops if op.matched == "both" and op.seconds.change > 0 and not op.seconds.is_noise)

    @property
    def faster(self) -> tuple[OpChange, ...]:
        return tuple(op for op in self.ops if op.matched == "both" and op.seconds.change < 0 and not op.seconds.is_noise)

    def unmatched(self, matched: str) -> tuple[OpChange, ...]:
        return tuple(op for op in self.ops if op.matched == matched)


class Comparison(Struct, frozen=True, kw_only=True):
    """Two reports compared: totals, every op's change with the largest first, and differences between the machines.

    ``basis`` is the quantity whose changes are reported: ``time``, or ``minimum time`` where nothing was timed on both sides. ``figures``
    are the quantities that both reports have. ``speedup`` is time before over time after (above 1 is faster): of a step where both have
    steps, else of the run's wall clock, else of the ops. ``speedup_of`` names which of the three it is. ``per`` is ``step`` where times and
    amounts of ops are those of one step on one device, else they are those of the run on one device. ``changes`` are the same ones summed
    by kind of op, for reviewing a change, over all runs of both versions. ``promises`` has what the findings of the report before promised
    and what arrived, where both have measured times.
    """

    schema: str = SCHEMA
    files: tuple[str, str]
    before: Totals
    after: Totals
    change_s: float | None
    speedup: float | None
    deltas: tuple[Delta, ...]
    notes: tuple[str, ...] = ()
    basis: str = TIME
    floor_change_s: float | None = None
    speedup_of: str | None = None
    figures: tuple[Figure, ...] = ()
    per: str = ""
    changes: ReportChanges
    promises: Kept | None = None


def change(before: Number, after: Number) -> Number:
    """After minus before; 0 where the two differ only by rounding."""
    return 0 if abs(after - before) <= ROUNDING * max(abs(before), abs(after)) else after - before


def summed(sides: Iterable[Side]) -> Side:
    """One side for several; nothing for none."""
    parts = list(sides)
    if len(parts) == 1:
        return parts[0]
    time_s, floor_s = sum_or_unknown(part.time_s for part in parts), sum_of_known(part.floor_s for part in parts)
    levels = dict.fromkeys(level for part in parts for level in part.bytes)
    return Side(
        ops=tuple(op for part in parts for op in part.ops),
        names=tuple(name for part in parts for name in part.names),
        count=sum(part.count for part in parts),
        time_s=time_s,
        floor_s=floor_s,
        efficiency=efficiency_of(floor_s, time_s),
        bound=main_bound((part.bound, part.time_s or part.floor_s or 0.0) for part in parts),
        flops=sum(part.flops for part in parts),
        bytes={level: sum(part.bytes.get(level, 0) for part in parts) for level in levels},
        launches=sum(part.launches for part in parts),
    )


def efficiency_of(floor_s: float | None, time_s: float | None) -> float | None:
    """The efficiency of ops with this minimum time."""
    return floor_s / time_s if floor_s and time_s else None
