"""Reading XSpace profiles: the events of a line as columns, or summed up while reading. The work is done by the native scanner.

    with open_space("run/host0.xplane.pb") as space:
        device = next(plane for plane in space.planes if plane.name.startswith("/device:"))
        (totals,) = read_totals(space, [TotalsOf(line=line) for line in device.lines if line.name == "XLA Ops"])

What callers need, and how to get it:

- Planes, lines and metadata; peaks and versions (plane stats); embedded HLO (a ``Slice`` of event metadata in ``/host:metadata``); a TPU
  op's category, FLOP and bytes (stats of its event metadata): `open_space`, which reads no events.
- Steps and launches, the few host events that have ``_r``, ``correlation_id``, ``run_id`` or ``num_commands``: `read_rows` with
  ``having``. Runs of modules on a TPU: `read_rows` of "XLA Modules".
- TPU ops (millions of events, a few thousand ops): `read_totals` by the device's own clock (``device_clock``: the events' own offsets and
  durations are distorted on TPUs), ``nested`` (a while loop spans its body), per step or run (``steps``), with async pairs joined
  (``pairs``: start and done by metadata id, one group per link and direction, bytes as weight).
- GPU kernels: `read_totals` by ``program_id``, ``hlo_op``, ``unique_hlo_op_id``, ``cuda_graph_id`` and ``cuda_graph_node_id``, which
  together with the metadata id name an instruction or a graph node; ``distinct`` over ``correlation_id`` and ``scope_range_id`` counts
  executions; ``first_ps`` gives the order of nodes in time; ``overlaps`` is the time for which kernels of one execution overlap. Steps are
  looked up by ``correlation_id``.
- CPU thunks: `read_totals` with ``having=("hlo_op",)``, ``nested``, over the lines of the host's threads.
- Timelines: `read_totals` with ``buckets``, spans of time in which the self time of each key is given per bucket (``spread``).
- Busy time: ``busy_ps`` of a line; of several lines, `union` of their ``intervals``.

Memory grows with distinct keys, steps and merged intervals (`read_totals`) or with the rows kept (`read_rows`); mapped pages of the file
are released after they are read. Lines, and parts of long ones, are read in parallel, without the GIL (`reading`). Times are picoseconds.
Damage is a `SourceError`; with ``salvage`` it is a note, and everything before the damage is returned.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...errors import SourceError, UsageError
from ..cores import cores
from ..timeline import Buckets
from .reading import Job, Progress, in_parts, part_counts, read_all, whole
from .space import NOT_BUILT, EventMetadata, Line, Plane, Slice, Space, Value, open_bytes, open_space, unpacked_limit
from .tables import NO_STEP, Cells, Integers, Overlaps, Pair, Pairs, Rows, RowsOf, Spread, StatColumn, Steps, Totals, TotalsOf

if NOT_BUILT is None:
    from . import _scan

__all__ = [
    "NO_STEP",
    "Buckets",
    "Cells",
    "EventMetadata",
    "Line",
    "Overlaps",
    "Pair",
    "Pairs",
    "Plane",
    "Progress",
    "Rows",
    "RowsOf",
    "Slice",
    "Space",
    "StatColumn",
    "Steps",
    "Totals",
    "TotalsOf",
    "Value",
    "gaps",
    "open_bytes",
    "open_space",
    "read_rows",
    "read_totals",
    "union",
    "unpacked_limit",
]

DEVICE_CLOCK = ("device_offset_ps", "device_duration_ps")
MOST_STATS = 24  # that one request can read
CLOCKS = {"event": -1, "device": -2}  # the scanner's ``step_slot`` if steps are looked up by a time, not by a stat
_KEY_HEAD = 2  # a key's row: metadata id, kinds of its values (4 bits each), the values
_KIND_BITS, _KIND_MASK = 4, 0xF


def union(intervals: Iterable[Integers]) -> tuple[Integers, int]:
    """The union of several lines' intervals (begin, end, begin, end, …) and its length."""
    merged, length = _scan.merge(list(intervals))
    return memoryview(merged), length


def gaps(intervals: Integers, edges: Iterable[int], most: int) -> list[tuple[int, int, int, int, int]]:
    """The gaps between sorted, disjoint intervals (begin, end, begin, end, …), as begin, end, weight, count and since of each.

    A gap shorter than 1 / ``most`` of all gaps together is grouped with the next short ones until the group is as long; a group never
    spans one of the edges, which are sorted. A group has the begin and end of its last gap; ``weight`` is the sum and ``count`` the number
    of its gaps, and ``since`` the begin of the first.

    >>> gaps(memoryview(array("q", [0, 10, 11, 20, 21, 30, 130, 140])), [], 10)
    [(30, 130, 100, 1, 30), (20, 21, 2, 2, 10)]
    """
    if NOT_BUILT:
        raise SourceError(NOT_BUILT)
    found = memoryview(_scan.gaps(intervals, array("q", edges), most))
    return list(zip(*(found[place::5] for place in range(5)), strict=True))


def read_rows(space: Space, requests: Sequence[RowsOf], *, threads: int | None = None, progress: Progress | None = None) -> list[Rows]:
    """The requested events, one table per request. ``progress`` is called with the bytes read and the bytes to read."""

    def start(request: RowsOf) -> Job:
        slots = _Slots(space.plane_of(request.line))
        slots.places(request.stats)
        having = slots.places(request.having)
        return _scan.Rows(space.index, request.line.row, slots.ids, having, _ids(request.only), request.at)

    def table(request: RowsOf, found: Mapping[str, Any], notes: tuple[str, ...]) -> Rows:
        plane = space.plane_of(request.line)
        columns = [
            StatColumn(memoryview(values), memoryview(kinds), found["texts"], plane.stat_names)
            for values, kinds in zip(found["values"], found["kinds"], strict=True)
        ]
        return Rows(
            line=request.line,
            metadata_id=memoryview(found["metadata_id"]),
            start_ps=memoryview(found["start_ps"]),
            duration_ps=memoryview(found["duration_ps"]),
            stats=dict(zip(dict.fromkeys(request.stats), columns, strict=False)),  # not the columns after them, which are for ``having``
            events=found["events"],
            notes=notes,
        )

    return read_all(space, requests, [whole(request.line) for request in requests], start, table, threads or cores(), progress)


def read_totals(
    space: Space,
    requests: Sequence[TotalsOf],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> list[Totals]:
    """The requested sums, one table per request. ``progress`` is called with the bytes read and the bytes to read.

    ``meanwhile`` is called while other threads read, but only if there is much to read: it may only do work that is done later anyway.
    """

    def start(request: TotalsOf) -> Job:
        slots = _Slots(space.plane_of(request.line))
        roles = {
            "keys": slots.places(request.by),
            "distinct": slots.places(request.distinct),
            "sums": slots.places(request.sums),
            "clock": slots.places(DEVICE_CLOCK if request.device_clock else ()),
            "having": slots.places(request.having),
        }
        by = request.steps.by if request.steps else "event"
        step_slot = CLOCKS[by] if by in CLOCKS else slots.places((by,))[0]
        return _scan.Totals(
            space.index,
            request.line.row,
            slots.ids,
            **roles,
            only=_ids(request.only),
            step_slot=step_slot,
            steps=request.steps.triples if request.steps else None,
            pairs=[(pair.start, pair.done, pair.group, pair.weight) for pair in request.pairs],
            nested=request.nested,
            intervals=request.intervals,
            buckets=array("q", [number for one in request.buckets for number in (one.begin_ps, one.end_ps, one.width_ps)]),
        )

    def table(request: TotalsOf, found: Mapping[str, Any], notes: tuple[str, ...]) -> Totals:
        return _totals(request, space.plane_of(request.line), found, notes)

    threads = threads or cores()
    counts = part_counts([request.line for request in requests], threads)
    lines = [
        # In parts, sums of fractions would depend on the parts, the halves of a pair may be in different parts, and buckets are not merged.
        whole(request.line) if request.sums or request.pairs or request.buckets else in_parts(space, request.line, count)
        for request, count in zip(requests, counts, strict=True)
    ]
    return read_all(space, requests, lines, start, table, threads, progress, meanwhile)


class _Slots:
    """The stats that a request reads, each with its slot number; a plane may have several ids for a name, or none."""

    def __init__(self, plane: Plane) -> None:
        self.plane = plane
        self.names: list[str] = []
        self.ids: list[tuple[int, ...]] = []

    def places(self, names: Iterable[str]) -> bytes:
        """The slots of these stats, one byte each."""
        places = []
        for name in names:
            if name not in self.names:
                self.names.append(name)
                self.ids.append(self.plane.stat_ids.get(name, ()))
            places.append(self.names.index(name))
        if len(self.names) > MOST_STATS:
            raise UsageError(f"{len(self.names)} stats requested at once; {MOST_STATS} at most")
        return bytes(places)


def _ids(only: Iterable[int] | None) -> array[int] | None:
    return None if only is None else array("q", only)


def _totals(request: TotalsOf, plane: Plane, found: Mapping[str, Any], notes: tuple[str, ...]) -> Totals:
    """The scanner's result as `Totals`."""
    views = {name: memoryview(column) for name, column in found.items() if isinstance(column, _scan.Column)}
    keys, width = views["keys"], _KEY_HEAD + len(request.by)
    kinds = keys[1::width]
    by = {
        name: StatColumn(
            keys[_KEY_HEAD + place :: width],
            bytes(kind >> _KIND_BITS * place & _KIND_MASK for kind in kinds),
            found["texts"],
            plane.stat_names,
        )
        for place, name in enumerate(request.by)
    }
    placed = found["end_ps"] >= found["start_ps"]
    rewinds = found["rewinds"]
    if rewinds:
        notes = (*notes, f"plane {plane.name!r}, line {request.line.name!r}: the clock goes backwards {rewinds:,} times")
    return Totals(
        line=request.line,
        metadata_id=keys[0::width],
        by=by,
        count=views["count"],
        time_ps=views["time_ps"],
        self_ps=views["self_ps"],
        first_ps=views["first_ps"],
        last_ps=views["last_ps"],
        distinct={name: memoryview(column) for name, column in zip(request.distinct, found["distinct"], strict=True)},
        sums={name: memoryview(column) for name, column in zip(request.sums, found["sums"], strict=True)},
        cells=Cells(
            key=views["cell_keys"][0::2],
            label=views["cell_keys"][1::2],
            count=views["cell_count"],
            time_ps=views["cell_time_ps"],
            self_ps=views["cell_self_ps"],
            first_ps=views["cell_first_ps"],
            last_ps=views["cell_last_ps"],
        ),
        overlaps=Overlaps(
            covering=views["overlap_keys"][0::2],
            covered=views["overlap_keys"][1::2],
            count=views["overlap_count"],
            time_ps=views["overlap_time_ps"],
        ),
        spread=Spread(key=views["bucket_keys"][0::2], bucket=views["bucket_keys"][1::2], self_ps=views["bucket_ps"]),
        pairs=_pairs(views, found) if request.pairs else None,
        intervals=views["intervals"],
        busy_ps=found["busy_ps"],
        start_ps=found["start_ps"] if placed else None,
        end_ps=found["end_ps"] if placed else None,
        rewinds=rewinds,
        aggregated=found["aggregated"],
        events=found["events"],
        notes=notes,
    )


def _pairs(views: Mapping[str, Integers], found: Mapping[str, Any]) -> Pairs:
    return Pairs(
        pair=views["pair_keys"][0::2],
        label=views["pair_keys"][1::2],
        count=views["pair_count"],
        time_ps=views["pair_time_ps"],
        share_ps=views["pair_share_ps"],
        unpaired=found["unpaired"],
    )
