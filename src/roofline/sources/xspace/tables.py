"""Requests to the scanner, and the tables it returns: columns that are views of its memory, without numpy.

A column is a `memoryview` of 64-bit integers (or doubles): it has a length, can be indexed and sliced, and can be used without a copy by
anything that accepts buffers (numpy, polars, `array`). Tables are too large to compare: they are equal only to themselves.
"""

import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from ...errors import UsageError
from ..timeline import Buckets
from .space import BLOB, DOUBLE, REF, STRING, UINT64, Line

MOST_KEYS, MOST_DISTINCT, MOST_SUMS = 14, 2, 4  # limits of the scanner
NO_STEP = -(2**63)  # the label of events outside of all steps
_UINT64 = 2**64

Integers = memoryview
StatValue = int | float | str | bytes | None


class Steps(Struct, frozen=True):
    """Intervals of values that belong to steps: ``low, high, label`` of each, sorted by low, in one array.

    A value belongs to the last interval that begins at or before it, if it is less than its high. ``by`` is the value to look up: an
    event's start by the clock of events ("event") or of the device ("device"), or a stat such as ``correlation_id``.
    """

    triples: "array[int]"
    by: str = "event"

    @classmethod
    def of(cls, intervals: Iterable[tuple[int, int, int]], by: str = "event") -> "Steps":
        """Steps from (low, high, label) in any order."""
        return cls(array("q", [number for interval in sorted(intervals) for number in interval]), by)


class Pair(Struct, frozen=True, kw_only=True):
    """An asynchronous op: the metadata ids of its start and done events. Ops of one group share a link, in proportion to weight (bytes)."""

    start: int
    done: int
    group: int = 0
    weight: float = 0.0


class RowsOf(Struct, frozen=True, kw_only=True):
    """Which events of a line to read, and which of their stats.

    With ``having`` or ``only``, an event is kept if it has one of those stats or one of those metadata ids. With ``at`` (sorted
    instants), an event is kept only if it covers one of them: start <= instant < end.
    """

    line: Line
    stats: tuple[str, ...] = ()
    having: tuple[str, ...] = ()
    only: Iterable[int] | None = None
    at: "array[int] | None" = None


class TotalsOf(Struct, frozen=True, kw_only=True):
    """Which events of a line to sum up, and how.

    Keys are (metadata id, values of the stats ``by``). ``distinct``: at most two stats whose changes are counted. ``sums``: at most four
    stats that are added up. ``nested``: the time of an event inside another is not self time of the outer one; otherwise overlapping time
    is self time of the earlier event. ``buckets``: spans of time in which self time is also given per bucket.
    """

    line: Line
    by: tuple[str, ...] = ()
    distinct: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()
    having: tuple[str, ...] = ()
    only: Iterable[int] | None = None
    device_clock: bool = False
    nested: bool = False
    steps: Steps | None = None
    pairs: tuple[Pair, ...] = ()
    intervals: bool = False
    buckets: tuple[Buckets, ...] = ()

    def __post_init__(self) -> None:
        for what, names, most in (("by", self.by, MOST_KEYS), ("distinct", self.distinct, MOST_DISTINCT), ("sums", self.sums, MOST_SUMS)):
            if len(names) > most:
                raise UsageError(f"{len(names)} stats in {what!r}; {most} at most")


class StatColumn(Struct, frozen=True, eq=False):
    """The values of a stat, row by row: ``column[row]`` is a number, a string, bytes, or ``None`` if it is absent.

    ``values`` are the raw 64-bit integers (a double's bits, a reference's id, a text's number), ``kinds`` how each was written.
    """

    values: Integers
    kinds: Sequence[int]
    texts: Sequence[bytes]
    names: Mapping[int, str]

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, row: int) -> StatValue:
        return self._decoded(self.values[row], self.kinds[row])

    def __iter__(self) -> Iterator[StatValue]:
        """Every row's value."""
        return map(self._decoded, self.values, self.kinds)

    def _decoded(self, value: int, kind: int) -> StatValue:
        if not kind:
            return None
        if kind == REF:
            return self.names.get(value, "")
        if kind == STRING:
            return self.texts[value].decode("utf-8", "replace")
        if kind == BLOB:
            return self.texts[value]
        if kind == DOUBLE:
            number: float = struct.unpack("d", struct.pack("q", value))[0]
            return number
        return int(value % _UINT64 if kind == UINT64 else value)


class Rows(Struct, frozen=True, kw_only=True, eq=False):
    """Events of a line, one per row, in the order of the file. ``events`` counts all events of the line, kept or not."""

    line: Line
    metadata_id: Integers
    start_ps: Integers
    duration_ps: Integers
    stats: Mapping[str, StatColumn]
    events: int
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.metadata_id)


class Cells(Struct, frozen=True, kw_only=True, eq=False):
    """The totals of a key (by row of the totals) in a step (by label), with its first start and last end there."""

    key: Integers
    label: Integers
    count: Integers
    time_ps: Integers
    self_ps: Integers
    first_ps: Integers
    last_ps: Integers


class Spread(Struct, frozen=True, kw_only=True, eq=False):
    """The self time of a key (by row of the totals) in a bucket; buckets are numbered through all spans."""

    key: Integers
    bucket: Integers
    self_ps: Integers


class Overlaps(Struct, frozen=True, kw_only=True, eq=False):
    """The time for which events of one key overlapped an earlier event of the same execution."""

    covering: Integers
    covered: Integers
    count: Integers
    time_ps: Integers


class Pairs(Struct, frozen=True, kw_only=True, eq=False):
    """Async pairs, from the begin of the start to the end of the done, by the step of the start (`NO_STEP` outside of all).

    ``share_ps`` divides the union of overlapping transfers of one group among them. ``unpaired`` counts starts and dones without the other.
    """

    pair: Integers
    label: Integers
    count: Integers
    time_ps: Integers
    share_ps: memoryview
    unpaired: int


class Totals(Struct, frozen=True, kw_only=True, eq=False):
    """Sums over the events of each key, one key per row.

    ``self_ps`` adds up to ``busy_ps``, the union of all events, unless the clock went backwards (``rewinds``): then the parts between
    rewinds are added up. ``distinct`` counts the changes of a stat from one event of the key to the next: executions, if it is an id of
    the execution. ``aggregated`` events have no start; they count only in ``count`` and ``time_ps``.
    """

    line: Line
    metadata_id: Integers
    by: Mapping[str, StatColumn]
    count: Integers
    time_ps: Integers
    self_ps: Integers
    first_ps: Integers
    last_ps: Integers
    distinct: Mapping[str, Integers]
    sums: Mapping[str, memoryview]
    cells: Cells
    overlaps: Overlaps
    spread: Spread
    pairs: Pairs | None
    intervals: Integers
    busy_ps: int
    start_ps: int | None
    end_ps: int | None
    rewinds: int
    aggregated: int
    events: int
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.metadata_id)
