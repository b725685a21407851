"""What ran on one device: executions summed up by operation, steps, and when it was busy.

Times overlap where queues do. Self times do not: of events that run at the same time the earlier has it, and communication only what
nothing else covers, so self times add up to busy time and those of collectives are exposed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from ...cost import NOTHING, Cost
from ...operation import Streamed
from ...resource import PCIE
from ...torch_prices import Call
from ...torch_prices.avoidable import RECOMPUTED, avoidable
from ...torch_prices.call import RECORD_SHAPES
from ...torch_prices.elementwise import ELEMENTWISE
from ...workload import Avoidable
from ..parts import UNKNOWN, DevicePart, Extent, Lane, Launched, Mark, Share, Subject, Tally
from ..timeline import Span, busy_in, lane
from .all_experts import all_experts
from .arrays import Integers
from .calls import label
from .channel_order import channels_first, converted_shares
from .columns import KERNEL, MEMCPY, NONE, Numbered
from .context import NOWHERE, Context, Contexts
from .executions import Execution
from .intervals import covered, merged, uncovered
from .linking import Work
from .one_hot import one_hot_products
from .pricing import PricedOp, Prices
from .unfused import spared_bytes, unfused
from .weight_casts import operand_casts, weight_cast, weight_shapes
from .written_attention import written_attention

PS = 1000  # in a nanosecond
FIRST_STEPS = 2  # whose launches tell the order of kernels
MOST_IN_ORDER = 100_000  # executions among which chains are looked for
MOST_IN_STEP = 500  # launches of one kernel by one operation in a step that are told apart
GRAPH = "graph replay"
NO_CAPTURE = "the capture of this graph was not recorded: profile the step that captures it, in this trace or another"
NO_LAUNCH = "its launch was not recorded, and no recorded kernel matches it"
UNPRICED = "unpriced: record with "
EAGER = Streamed(kind="eager")
NO_OP = "no PyTorch op launched it"
AGAIN = Avoidable(kind="recomputation", instead=NOTHING, why=RECOMPUTED, unneeded="recomputed")
_COLLECTIVE = re.compile(r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|sendrecv|cross_device", re.IGNORECASE)


class Row(Struct):
    """An operation while it is summed up.

    ``kernels`` has when each kernel was first launched and how often, by name, grid and which of those in a step it is; ``seen`` is how
    often a step had each so far.
    """

    tally: Tally
    kernels: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)
    seen: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def tell(self, prices: Prices, one: Execution, starts: memoryview) -> None:
        """The launches of an execution in their order."""
        for event in one.events:
            name, _, grid, _ = prices.kernel(event)
            nth = self.seen.get((name, grid, one.mark), 0)
            self.seen[name, grid, one.mark] = min(nth + 1, MOST_IN_STEP)
            self.kernels.setdefault((name, grid, nth), [starts[event], 0])[1] += 1

    def repeat(self, prices: Prices, one: Execution, starts: memoryview, count: int) -> None:
        """The launches of some executions that are like one."""
        for event in one.events:
            name, _, grid, _ = prices.kernel(event)
            self.kernels.setdefault((name, grid, 0), [starts[event], 0])[1] += count

    def launched(self, prices: Prices) -> list[Launched]:
        """Its kernels, with the counts of all executions."""
        return [
            Launched(str(prices.names[name]), first * PS, prices.grid(grid), count, nth)
            for (name, grid, nth), (first, count) in self.kernels.items()
        ]


class DeviceRows:
    """One device: its events, and the executions on it."""

    def __init__(
        self, number: int, work: Work, executions: Sequence[tuple[Execution, PricedOp]], prices: Prices, contexts: Contexts
    ) -> None:
        self.number, self._work, self._prices, self._contexts = number, work, prices, contexts
        self._executions = [held for held in executions if held[0].device == number]
        self.events = np.flatnonzero(work.device == number)
        self.start, self.end = work.start[self.events], work.end[self.events]
        self.busy = merged(self.start, self.end)
        self._self = self._self_times()
        self._kinds: dict[tuple[int, int, bool], int] = {}  # of executions: those that are alike in all that a row tells
        self._subjects = Numbered()
        self._row_of: list[int] = []  # each kind
        told = self._told()
        first = sorted((held for held in self._executions if held[0].mark in told), key=lambda held: held[0].events[0])
        in_order = first[:MOST_IN_ORDER]
        self._spared = spared_bytes(in_order, self._is_kept)
        self._scores = written_attention(in_order)
        self._lookups = {
            (id(priced), id(self._context(one))): reason for (one, priced), reason in one_hot_products(in_order, self._sequence)
        }
        self._experts = {
            (id(priced), id(self._context(one))): reason for (one, priced), reason in all_experts(in_order, self._context, self._sequence)
        }
        self._forward = {id(priced) for one, priced in in_order if self._is_kept(one)}
        lengths = (work.end - work.start).data
        self._turned = converted_shares(in_order, lambda event: str(prices.names[prices.kernel(event)[0]]), lengths.__getitem__)
        self._weights = weight_shapes({id(priced): priced for _, priced in self._executions}.values())
        self._operands = operand_casts(in_order, self._weights)

    def _is_kept(self, one: Execution) -> bool:
        """Whether a backward pass may need what an execution made."""
        return one.op != NONE and self._contexts.phase(self._contexts.of(one.op)) == "forward"

    def _context(self, one: Execution) -> Context:
        return self._contexts.of(one.op) if one.op != NONE else NOWHERE

    def _sequence(self, one: Execution) -> int:
        return self._contexts.sequence(one.op) if one.op != NONE else NONE

    def _avoidable(self, priced: PricedOp, context: Context) -> tuple[Avoidable, ...]:
        """What could be spared of an op, by itself and beside its neighbours."""
        alone = avoidable(Call(priced.name, args=priced.args), priced.priced)
        found = (self._lookups.get((id(priced), id(context))), self._experts.get((id(priced), id(context))))
        again = context.recomputed and id(priced) in self._forward
        return (
            *alone,
            *((AGAIN,) if again else ()),
            *weight_cast(priced, self._weights, self._operands),
            *channels_first(priced, self._turned.get(id(priced), 0.0)),
            *self._scores.get(id(priced), ()),
            *(reason for reason in found if reason),
            *unfused(priced, self._spared.get(id(priced), 0.0)),
        )

    def part(self, plane: str, name: str, hardware: object, complete: Mapping[Mark, bool], marks: Integers) -> DevicePart:
        """What ran, and when."""
        return DevicePart(
            plane=plane,
            ordinal=self.number,
            name=name,
            rates={},
            wall_ps=int(self.busy[-1] - self.busy[0]) * PS,
            busy_ps=int((self.busy[1::2] - self.busy[0::2]).sum()) * PS,
            rows=self._rows(),
            steps=self._extents(complete, marks),
            begin_ps=int(self.busy[0]) * PS,
            hardware=hardware,  # type: ignore[arg-type]
        )

    def _self_times(self) -> Integers:
        """Of each event the time that it has to itself."""
        names = self._work.name[self.events]
        exchanges = [number for number in np.unique(names).tolist() if _COLLECTIVE.search(str(self._prices.names[number]))]
        apart = np.isin(names, exchanges)
        own = np.zeros(len(self.events), np.int64)
        own[~apart] = uncovered(self.start[~apart], self.end[~apart])
        rest = merged(self.start[~apart], self.end[~apart])
        alone = uncovered(self.start[apart], self.end[apart])
        own[apart] = alone - covered(rest, self.end[apart] - alone, self.end[apart])
        every = np.zeros(len(self._work), np.int64)
        every[self.events] = own
        return every

    def _rows(self) -> dict[Subject, Tally]:
        kinds = np.fromiter((self._kind(one, priced) for one, priced in self._executions), np.int64, len(self._executions))
        marks = np.fromiter((one.mark for one, _ in self._executions), np.int64, len(self._executions))
        whole = np.fromiter((one.whole for one, _ in self._executions), np.int64, len(self._executions))
        counts, times, own = self._durations()
        rows = [Row(Tally()) for _ in self._subjects]
        numbers = np.array(self._row_of, np.int64)[kinds]
        sums = (_sums(numbers, values, len(rows)).tolist() for values in (whole, counts, times, own))
        for row, executions, kernels, time, alone in zip(rows, *sums, strict=True):
            row.tally.executions, row.tally.kernels = max(executions, 1), kernels
            row.tally.time_ps, row.tally.self_ps = time * PS, alone * PS
        for number, mark, count, time in _by_mark(numbers, marks, times):
            rows[number].tally.steps[mark] = Share(count, time * PS)
        self._launches(rows, numbers, kinds, counts, np.isin(marks, list(self._told())))
        return {subject: row.tally for subject, row in zip(self._subjects, rows, strict=True)}

    def _durations(self) -> tuple[Integers, Integers, Integers]:
        """Of each execution the number of its events, how long they last, and what of that they have to themselves."""
        counts = np.fromiter((len(one.events) for one, _ in self._executions), np.int64, len(self._executions))
        events = np.fromiter((event for one, _ in self._executions for event in one.events), np.int64, int(counts.sum()))
        firsts = np.cumsum(counts) - counts
        times = np.add.reduceat((self._work.end - self._work.start)[events], firsts)
        own = np.add.reduceat(self._self[events], firsts)
        for place in np.flatnonzero((counts > 1) & (times != own)).tolist():  # some of them run at the same time as others
            mine = self._executions[place][0].events
            times[place] = _together(self._work.start[mine].tolist(), self._work.end[mine].tolist())
        return counts, times, own

    def _launches(self, rows: Sequence[Row], numbers: Integers, kinds: Integers, counts: Integers, told: "NDArray[np.bool_]") -> None:
        """The kernels of rows: in their order where executions are ``told`` one by one, else how often each."""
        starts = self._work.start.data  # a view, which is indexed as fast as a list
        for place in np.flatnonzero(told).tolist():
            rows[numbers[place]].tell(self._prices, self._executions[place][0], starts)
        others = np.flatnonzero(~told)
        alike = kinds[others] * (int(counts.max()) + 1) + counts[others]
        _, firsts, often = np.unique(alike, return_index=True, return_counts=True)
        for first, count in sorted(zip(others[firsts].tolist(), often.tolist(), strict=True)):
            rows[numbers[first]].repeat(self._prices, self._executions[first][0], starts, count)
        for row in rows:
            row.tally.launched = row.launched(self._prices)

    def _told(self) -> set[int]:
        """The steps whose launches tell the order of kernels: the first ones; without steps, everything."""
        marks = sorted({one.mark for one, _ in self._executions if one.mark != NONE})
        return set(marks[:FIRST_STEPS]) or {NONE}

    def _kind(self, one: Execution, priced: PricedOp) -> int:
        """The number of what an execution is; `_row_of` has the number of its row."""
        context = self._context(one)
        lost = one.launch == NONE and not one.twins
        key = (id(priced), id(context), lost or (one.replayed and one.op == NONE))
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = len(self._kinds)
            self._row_of.append(self._subjects[self._made(one, priced, context, lost)])
        return found

    def _made(self, one: Execution, priced: PricedOp, context: Context, lost: bool) -> Subject:
        found, kind = priced.priced, self._prices.kernel(one.events[0])[1]
        if one.replayed and one.op == NONE:
            return Subject(name=GRAPH, category=GRAPH, module=context.region, cost=UNKNOWN, notes=(NO_CAPTURE,))
        notes = list(found.notes)
        if one.op == NONE and kind == KERNEL and not found.is_priced:
            notes.append(NO_LAUNCH if lost else NO_OP)
        missing = found.missing or (RECORD_SHAPES if one.op != NONE and not priced.args else "")
        if missing and not found.is_priced:
            notes.append(f"{UNPRICED}{missing}")
        return Subject(
            name=priced.name,
            label=label(priced.name, priced.args) if one.op != NONE else "",
            module=context.region,
            category=found.category or ("kernel" if one.op == NONE else "unknown"),
            scope="/".join(context.scope),
            location=context.location,
            phase=self._contexts.phase(context) if one.op != NONE else "",
            towards=_towards(found.cost, self._prices.names[self._prices.kernel(one.events[0])[0]], kind),
            cost=UNKNOWN if found.cost is None else found.cost,
            avoidable=self._avoidable(priced, context),
            operation=found.operation or (EAGER if found.category == ELEMENTWISE else None),
            work_provenance="shape",
            bytes_provenance="profile" if one.op == NONE else "shape",
            notes=tuple(dict.fromkeys(notes)),
            conventions=tuple(sorted(found.by_convention.items())),
            found=not (lost and kind == KERNEL),
        )

    def lanes(self, shown: Sequence[Span]) -> tuple[Lane, ...]:
        """What it did in each bucket of some spans of time, by the places of its rows."""
        owner = {event: self._row_of[self._kind(one, priced)] for one, priced in self._executions for event in one.events}
        owners = [owner[event] for event in self.events.tolist()]
        own = self._self[self.events] * PS
        begins = self.end * PS - own  # what an event has to itself is its end: earlier ones cover its begin
        return tuple(self._lane(span, begins, own, owners) for span in shown)

    def _lane(self, span: Span, begins: Integers, own: Integers, owners: Sequence[int]) -> Lane:
        buckets = span.buckets
        spent = [dict[int, int]() for _ in range(buckets.count)]
        first = np.searchsorted(self.start * PS, buckets.begin_ps - int(own.max(initial=0)), side="left")
        for event in range(int(first), len(owners)):
            begin, end = int(begins[event]), int(begins[event] + own[event])
            if begin >= buckets.end_ps and self.start[event] * PS >= buckets.end_ps:
                break
            begin, end = max(begin, buckets.begin_ps), min(end, buckets.end_ps)
            while begin < end:
                bucket = (begin - buckets.begin_ps) // buckets.width_ps
                until = min(end, buckets.begin_ps + (bucket + 1) * buckets.width_ps)
                spent[bucket][owners[event]] = spent[bucket].get(owners[event], 0) + until - begin
                begin = until
        return lane(span, spent, busy_in(buckets, (self.busy * PS).tolist()))

    def _extents(self, complete: Mapping[Mark, bool], marks: Integers) -> dict[Mark, Extent]:
        """The work of each step: from its first event to its last, whatever else ran then."""
        found: dict[Mark, Extent] = {}
        mine = marks[self.events]
        order = np.argsort(mine, kind="stable")
        each, firsts = np.unique(mine[order], return_index=True)
        for mark, places in zip(each.tolist(), np.split(order, firsts[1:]), strict=True):
            if mark == NONE:
                continue
            start, end = self.start[places], self.end[places]
            busy = int(uncovered(start, end).sum())
            found[mark] = Extent(int(start.min()) * PS, int(end.max()) * PS, busy * PS, complete.get(mark, True))
        return found


def _sums(numbers: Integers, values: Integers, size: int) -> Integers:
    """The sum of the values with each number."""
    found = np.zeros(size, np.int64)
    np.add.at(found, numbers, values)
    return found


def _by_mark(numbers: Integers, marks: Integers, times: Integers) -> Iterator[tuple[int, int, int, int]]:
    """Each row and step with the number of executions and their time."""
    places = np.flatnonzero(marks != NONE)
    if not len(places):
        return
    span = int(marks.max()) + 1
    pairs, inverse = np.unique(numbers[places] * span + marks[places], return_inverse=True)
    counts, sums = _sums(inverse, np.ones(len(places), np.int64), len(pairs)), _sums(inverse, times[places], len(pairs))
    yield from zip((pairs // span).tolist(), (pairs % span).tolist(), counts.tolist(), sums.tolist(), strict=True)


def _together(begins: list[int], ends: list[int]) -> int:
    """How long events of one execution last, those that overlap once."""
    if len(begins) == 1:
        return ends[0] - begins[0]
    total, reach = 0, begins[0]
    for begin, end in zip(begins, ends, strict=True):
        total += max(0, end - max(begin, reach))
        reach = max(reach, end)
    return total


def _towards(cost: Cost | None, name: object, kind: int) -> str:
    """Which way a copy crosses the bus to the host."""
    if kind != MEMCPY or cost is None or not cost.known(PCIE):
        return ""
    return "out" if "DtoH" in str(name) or "DeviceToHost" in str(name) else "in"
