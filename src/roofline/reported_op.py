"""An op of a report: its fields are part of the JSON contract, in base units; unknown is ``None``.

An op keeps amounts and seconds; ratios and differences of them are computed when they are read, and written with it.
"""

from collections.abc import Iterable
from operator import attrgetter

from msgspec import Struct, field
from msgspec.structs import replace

from .cost import moves, sum_or_unknown
from .operation import Compiled, Label, Operation
from .resource import HBM, XLU, named
from .workload import Row

ROUNDING = 1e-9  # relative: two ways of adding up the same seconds differ by less

# Whole numbers stay whole when a report is read and written again.
Number = int | float
Amounts = dict[str, Number | None]


EXPECTED_SECONDS = ("time_s", "low_s", "high_s", "floor_s")


class Expected(Row, frozen=True, kw_only=True):
    """A prediction: the seconds that such work is expected to take, and its 90% interval.

    ``terms`` are the seconds that each part would take alone; the parts overlap. ``evidence`` is what the prediction was fitted on.
    ``family`` is the kind of work that was fitted, empty where only sustained rates are known; ``borrowed`` is whether the calibration is
    another chip's. ``floor_s`` is the minimum time.
    """

    time_s: Number
    low_s: Number
    high_s: Number
    terms: dict[str, Number] = field(default_factory=dict)
    evidence: str = ""
    family: str = ""
    borrowed: bool = False
    floor_s: Number = 0.0

    def scaled(self, share: float) -> "Expected":
        """The prediction of a share of the executions."""
        terms: dict[str, Number] = {name: seconds * share for name, seconds in self.terms.items()}
        seconds = {name: getattr(self, name) * share for name in EXPECTED_SECONDS}
        return replace(self, terms=terms, **seconds)


class LedgerRow(Row, frozen=True, kw_only=True):
    """One tensor of an op's ledger."""

    tensor: str
    shape: tuple[Number, ...]
    dtype: str
    access: str
    level: str
    bytes: Number
    note: str = ""


class CounterInfo(Row, frozen=True, kw_only=True):
    """What hardware counters measured, as totals over all launches of an op; ``launches`` of its ``of`` launches were counted.

    ``time_s`` is measured with one kernel at a time and cold caches, so it differs from the op's own; ``rate`` and ``bandwidth`` use the
    op's own time. ``intensities`` are counted FLOP over the counted bytes of each level. ``ratio`` is counted over modelled, by ``matrix``
    and ``vector`` (FLOP in floating-point formats) and by memory level, where both are known.
    """

    work: Amounts = field(default_factory=dict)
    bytes: Amounts = field(default_factory=dict)
    time_s: Number | None = None
    flops: Number | None = None
    launches: int | None = None
    of: int | None = None
    rate: Number | None = None
    bandwidth: dict[str, Number] = field(default_factory=dict)
    intensities: dict[str, Number] = field(default_factory=dict)
    ratio: dict[str, Number] = field(default_factory=dict)


class AvoidableInfo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Work of an op that writing the program differently would avoid, as the rules about programs found it.

    ``kind`` is that of the finding about it, empty where nothing can be done, and ``group`` that of what one change removes. ``instead`` is
    the cost of one execution without the work, ``besides`` that of kernels that would run in addition. ``facts`` are what the words of the
    kind are written with: those of its ``cause``, where it has several; ``why`` is what is said otherwise. ``unneeded`` is the class of
    work that the model did not need, ``factor`` the executed work over the needed work. ``saves`` is how the saving follows from minimum
    times, ``usual`` whether good programs have such work too, ``extra`` whether the op does only what another did, ``share`` the part of
    the op's executions that have it.
    """

    kind: str
    group: str = ""
    cause: str = ""
    facts: dict[str, str | Number] = field(default_factory=dict)
    why: str = ""
    instead: dict[str, Number] = field(default_factory=dict)
    besides: dict[str, Number] = field(default_factory=dict)
    unneeded: str = ""
    factor: Number | None = None
    saves: str = ""
    usual: str = ""
    extra: bool = False
    share: Number = 1


class OpInfo(Row, frozen=True, kw_only=True, gc=False):
    """One operation on the machine: totals over all executions. Ratios and differences of them are properties, and written by `WrittenOp`.

    An amount that is not wholly known is ``None``; its known part, which the minimum time counts, is in ``known``. ``label`` is a name that
    a person recognises, made of ``where`` it was written, what it ``does`` in a word, its ``sizes``, their number ``format``, and
    into how many parts its depth is ``split``.
    ``operation`` describes one execution by its sizes, ``shapes`` those of the first arrays, where a recording without programs has them.
    ``needed`` is the work that the model needed, where that is less than ``work``, and ``needed_s`` its minimum time;
    ``unneeded`` is the rest by class (``recomputed``, ``masked``, ``dense``, ``layout``, …), in FLOP where there are any, else in bytes.
    ``dma_stall_s`` is the part of its self time in which the core of a TPU waited for DMA. ``expected`` is how long such an op takes on
    this chip, ``excess_s`` how much slower it ran (0 within the interval of the prediction).
    ``by_shape`` is computed from its shapes alone, to check its counts: the FLOP of a product in its number format, and its arrays read or
    written once. ``compiled`` is what a compiled program says of it besides its cost, ``avoidable`` the work that another way to write it
    would avoid.
    """

    id: int
    rank: int
    name: str
    category: str = ""
    module: str = ""
    scope: str = ""
    location: str = ""
    phase: str = ""
    label: str = ""
    where: str = ""
    does: str = ""
    sizes: str = ""
    format: str = ""
    split: int = 0
    count: Number = 1
    kernels: Number | None = None
    time_s: Number | None = None
    self_time_s: Number | None = None
    dma_stall_s: Number | None = None
    work: Amounts = field(default_factory=dict)
    unit: str | None = None
    dtype: str | None = None
    bytes: Amounts = field(default_factory=dict)
    hops: Amounts = field(default_factory=dict)
    known: dict[str, Number] = field(default_factory=dict)
    ridge: Number | None = None
    floor_s: Number | None = None
    serial_s: Number | None = None
    expected_s: Number | None = None
    bound: str | None = None
    times: dict[str, Number] = field(default_factory=dict)
    provenance: dict[str, str] = field(default_factory=dict)
    counters: CounterInfo | None = None
    needed: Amounts | None = None
    needed_s: Number | None = None
    unneeded: dict[str, Number] = field(default_factory=dict)
    expected: Expected | None = None
    excess_s: Number | None = None
    before_s: Number | None = None
    by_shape: dict[str, Number] = field(default_factory=dict)
    operation: Operation | None = None
    shapes: tuple[tuple[int, ...], ...] = ()
    compiled: Compiled | None = None
    avoidable: tuple[AvoidableInfo, ...] = ()
    roofs: tuple[str, ...] = ()
    unrated: tuple[str, ...] = ()
    ledger: tuple[LedgerRow, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        return WrittenOp.__struct_fields__

    @property
    def amounts(self) -> Amounts:
        """The amounts of all resources: work, bytes and hops."""
        return {**self.work, **self.bytes, **self.hops}

    @property
    def what(self) -> str:
        """What it does, without where: its operation, sizes and number format."""
        return self.label_in_parts.what

    @property
    def label_in_parts(self) -> Label:
        return Label(self.where, self.does, self.sizes, self.format, self.split)

    @property
    def own_s(self) -> Number | None:
        """The seconds that it kept its device busy: its self time, or its time where no ops are nested."""
        return self.time_s if self.self_time_s is None else self.self_time_s

    @property
    def weight_s(self) -> float:
        """The seconds by which its share of the program is computed: its self time, else its time, else its minimum time."""
        own_s = self.own_s
        return (self.floor_s or 0.0) if own_s is None else own_s

    @property
    def exposed_s(self) -> float:
        """How long the core waits for it in a played schedule: work beside the core, or an exchange over links that nothing hides."""
        is_beside = self.compiled is not None and self.compiled.beside
        return float(self.self_time_s or 0.0) if is_beside or any(named(name).is_link for name in self.times) else 0.0

    @property
    def flops(self) -> Number | None:
        """All FLOP, without transcendentals; ``None`` if any of them are unknown."""
        total: Number = 0
        for name, amount in self.work.items():
            if named(name).is_arithmetic:
                if amount is None:
                    return None
                total += amount
        return total

    @property
    def intensity(self) -> float | None:
        """FLOP per byte of main memory."""
        flops = self.flops
        moved = sum_or_unknown([amount for name, amount in self.bytes.items() if moves(named(name), HBM.unit)])
        return None if flops is None or not moved else flops / moved

    @property
    def intensities(self) -> dict[str, float]:
        """FLOP per byte of each memory level and link."""
        flops = self.flops
        return {level: flops / amount for level, amount in self._moved() if amount} if flops else {}

    @property
    def rate(self) -> float | None:
        """The FLOP/s by its own time."""
        flops = self.flops
        return None if flops is None or not self.time_s else flops / self.time_s

    @property
    def bandwidth(self) -> dict[str, float]:
        """The B/s over each memory level and link, by its own time."""
        time_s = self.time_s
        return {level: amount / time_s for level, amount in self._moved()} if time_s else {}

    def _moved(self) -> Iterable[tuple[str, Number]]:
        """The bytes over each memory level and link, where they are known."""
        return ((level, amount) for level, amount in self.bytes.items() if amount is not None and level != XLU.name)

    @property
    def attainable(self) -> float | None:
        """The best FLOP/s that its roofs allow."""
        return self.flops / self.floor_s if self.floor_s and self.bound and self.flops else None

    @property
    def efficiency(self) -> float | None:
        """Its minimum time over its time: 1 is on the roof."""
        return self.floor_s / self.time_s if self.floor_s and self.bound and self.time_s else None

    @property
    def utilization(self) -> dict[str, float]:
        """The share of its time for which each unit had to be busy."""
        time_s = self.time_s
        return {unit: seconds / time_s for unit, seconds in self.times.items()} if time_s else {}

    @property
    def lost_s(self) -> float | None:
        """Its self time above the minimum time of its needed work; ``None`` without a time or with a cost that is not wholly known."""
        own_s, floor_s = self.own_s, self.floor_s
        if own_s is None or floor_s is None or any(None in amounts.values() for amounts in (self.work, self.bytes, self.hops)):
            return None
        lost_s = own_s - (floor_s if self.needed_s is None else self.needed_s)
        return lost_s if lost_s > ROUNDING * own_s else 0.0

    @property
    def inherent_s(self) -> float | None:
        """What ops of its shape take beyond their minimum time on this chip: the rest of its self time, without the excess."""
        own_s = self.own_s
        return None if own_s is None or self.excess_s is None else max(own_s - (self.floor_s or 0.0) - self.excess_s, 0.0)


class WrittenOp(OpInfo, frozen=True, kw_only=True, gc=False):
    """An op as JSON and tables of data frames have it: with the ratios and differences that are properties of `OpInfo`.

    ``rate`` is its FLOP/s and ``bandwidth`` its B/s over each memory level and link, by its own time; ``intensities`` its FLOP over the
    bytes of each of them, of which ``intensity`` is that of main memory. ``attainable`` is the best rate that its roofs allow.
    ``lost_s`` is its self time above the minimum time of the needed work; ``None`` without a time or with a cost that is not wholly known.
    Its self time is the minimum time, plus ``inherent_s``, what ops of this shape take beyond it on this chip, plus ``excess_s``.
    """

    flops: Number | None = None
    intensity: Number | None = None
    intensities: dict[str, Number] = field(default_factory=dict)
    rate: Number | None = None
    bandwidth: dict[str, Number] = field(default_factory=dict)
    attainable: Number | None = None
    efficiency: Number | None = None
    utilization: dict[str, Number] = field(default_factory=dict)
    lost_s: Number | None = None
    inherent_s: Number | None = None


_WRITTEN = WrittenOp.__struct_fields__
_VALUES = attrgetter(*_WRITTEN)


def written_op(op: OpInfo) -> WrittenOp:
    """An op with all that is written of it."""
    return WrittenOp(**dict(zip(_WRITTEN, _VALUES(op), strict=True)))
