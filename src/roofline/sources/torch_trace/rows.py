"""What ran on one device: executions summed up by operation, steps, and when it was busy.

Times overlap where queues do. Self times do not: time shared by several events counts for the earliest, and communication has only the
time that nothing else covers, so self times add up to busy time and those of collectives are exposed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct, field

from ...cost import Cost
from ...operation import Streamed
from ...resource import PCIE
from ...torch_prices.call import RECORD_SHAPES
from ...torch_prices.elementwise import ELEMENTWISE
from ...torch_prices.inductor import FUSED
from ...workload import UNPRICED
from ..parts import AUTOTUNING, UNKNOWN, DevicePart, Extent, Lane, Launched, Mark, Share, Subject, Tally
from ..timeline import Span, busy_in, lane
from .arrays import Flags, Integers, distinct
from .columns import KERNEL, MEMCPY, NONE, Numbered
from .context import Contexts
from .executions import Execution, Executions
from .intervals import covered, merged, uncovered
from .linking import Work
from .op_arguments import first_shapes, label, wide_share
from .pricing import PricedOp, Prices
from .unneeded import Patterns
from .unneeded.second_passes import LEAST, MULTIPLY, second_passes

PS = 1000  # in a nanosecond
FIRST_STEPS = 2  # whose launches tell the order of kernels
MOST_IN_ORDER = 100_000  # executions among which chains are looked for
MOST_IN_STEP = 500  # launches of one kernel by one operation in a step that are told apart
GRAPH = "graph replay"
NO_CAPTURE = f"{UNPRICED}profile the step that captures the graph, in this trace or another"
NO_LAUNCH = "its launch was not recorded, and no recorded kernel matches it"
EAGER = Streamed(kind="eager")
NO_OP = "no PyTorch op launched it"
_COLLECTIVE = re.compile(r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|sendrecv|cross_device")


class Row(Struct):
    """An operation while it is summed up.

    ``kernels`` has when each kernel was first launched and how often, by name, grid and which of those in a step it is; ``seen`` is how
    often a step had each so far.
    """

    tally: Tally
    kernels: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)
    seen: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def tell(self, prices: Prices, events: Sequence[int], mark: int, starts: memoryview) -> None:
        """The launches of an execution in a step, in their order."""
        for event in events:
            name, _, grid, _ = prices.kernel(event)
            nth = self.seen.get((name, grid, mark), 0)
            self.seen[name, grid, mark] = min(nth + 1, MOST_IN_STEP)
            self.kernels.setdefault((name, grid, nth), [starts[event], 0])[1] += 1

    def repeat(self, prices: Prices, events: Sequence[int], starts: memoryview, count: int) -> None:
        """The launches of some executions that are like one with these events."""
        for event in events:
            name, _, grid, _ = prices.kernel(event)
            self.kernels.setdefault((name, grid, 0), [starts[event], 0])[1] += count

    def launched(self, prices: Prices) -> list[Launched]:
        """The kernels of the row, with counts over all executions."""
        return [
            Launched(str(prices.names[name]), first * PS, prices.grid(grid), count, nth)
            for (name, grid, nth), (first, count) in self.kernels.items()
        ]


class DeviceRows:
    """One device: its events, and the executions on it."""

    def __init__(self, number: int, work: Work, executions: Executions, priced: Integers, prices: Prices, contexts: Contexts) -> None:
        self.number, self._work, self._prices, self._contexts = number, work, prices, contexts
        mine = np.flatnonzero(executions.device == number)
        self._executions, self._priced = executions.take(mine), priced[mine]
        self._context = contexts.of(self._executions.op)
        if contexts.has_backward:
            self._mark_second_passes()
            self._mark_second_gradients()
        self.events = np.flatnonzero(work.device == number)
        self.start, self.end = work.start[self.events], work.end[self.events]
        self.busy = merged(self.start, self.end)
        self._self = self._self_times()
        time = (work.end - work.start).data.__getitem__
        self._patterns = Patterns(self._in_order(), distinct(self._priced).tolist(), prices, contexts, time)

    def _mark_second_passes(self) -> None:
        """Gives the executions of passes that repeat others contexts of their own."""
        multiplying = [number for number, one in enumerate(self._prices.ops) if one.priced.category in MULTIPLY]
        ops, marks = self._executions.op, self._executions.mark
        products = np.flatnonzero(np.isin(self._priced, multiplying) & (ops != NONE))
        graded = self._contexts.sequences(ops[products]) != NONE
        both = np.intersect1d(distinct(marks[products[graded]]), distinct(marks[products[~graded]]), assume_unique=True)
        kept = np.isin(marks[products], both)
        held = list(self._held(products[kept]))
        for begin, end, caller in {self._contexts.call_around(op) for op in second_passes(held, graded[kept].tolist())}:
            inside = np.flatnonzero((ops >= begin) & (ops < end))
            self._context[inside] = [self._contexts.repeated(number, caller) for number in self._context[inside].tolist()]

    def _mark_second_gradients(self) -> None:
        """Gives the executions of backward passes that run again through the same ops contexts of their own."""
        places, nodes = self._contexts.gradients_again(self._executions.op, self._executions.mark)
        if len(distinct(nodes)) < LEAST:
            return
        caller = self._contexts.caller_at(int(nodes[0]))
        self._context[places] = [self._contexts.repeated(number, caller) for number in self._context[places].tolist()]

    def _in_order(self) -> list[tuple[Execution, PricedOp]]:
        """The executions of the first steps, as they ran."""
        places = np.flatnonzero(np.isin(self._executions.mark, self._told))
        order = np.argsort(self._executions.events[self._executions.bounds[places]], kind="stable")
        return list(self._held(places[order][:MOST_IN_ORDER]))

    def _held(self, places: Integers) -> Iterator[tuple[Execution, PricedOp]]:
        """Some executions with their contexts and prices."""
        priced, contexts = self._priced[places].tolist(), self._context[places].tolist()
        for one, number, context in zip(self._executions.take(places), priced, contexts, strict=True):
            one.context = self._contexts.all[context]
            yield one, self._prices.ops[number]

    @cached_property
    def _told(self) -> Integers:
        """The steps whose launches tell the order of kernels: the first ones; without steps, everything."""
        marks = distinct(self._executions.mark[self._executions.mark != NONE])
        return marks[:FIRST_STEPS] if len(marks) else np.array([NONE])

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
        """The self time of each event."""
        names = self._work.name[self.events]
        exchanges = [number for number in distinct(names).tolist() if _COLLECTIVE.search(str(self._prices.names[number]).lower())]
        apart = np.isin(names, exchanges)
        own = np.zeros(len(self.events), np.int64)
        own[~apart] = uncovered(self.start[~apart], self.end[~apart])
        rest = merged(self.start[~apart], self.end[~apart])
        alone = uncovered(self.start[apart], self.end[apart])
        own[apart] = alone - covered(rest, self.end[apart] - alone, self.end[apart])
        every = np.zeros(len(self._work), np.int64)
        every[self.events] = own
        return every

    @cached_property
    def _kinds(self) -> tuple[Integers, Integers]:
        """Numbers for executions, the same for those that are alike in all that a row tells; and the first of each kind."""
        one = self._executions
        unknown = (one.launch == NONE) | (one.replayed & (one.op == NONE))
        keys = (self._priced * len(self._contexts.all) + self._context) * 2 + unknown
        _, firsts, kinds = np.unique(keys, return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        return np.argsort(order)[kinds], firsts[order]

    @cached_property
    def _subjects(self) -> tuple[list[Subject], Integers]:
        """What the rows are about, and the row of each execution."""
        kinds, firsts = self._kinds
        subjects = Numbered()
        rows = np.array([subjects[self._made(one, priced)] for one, priced in self._held(firsts)], np.int64)
        return list(subjects), rows[kinds]

    def _rows(self) -> dict[Subject, Tally]:
        (subjects, numbers), marks = self._subjects, self._executions.mark
        times, own = self._durations()
        rows = [Row(Tally()) for _ in subjects]
        each = (self._executions.whole.astype(np.int64), self._executions.counts, times, own)
        sums = (_sums(numbers, values, len(rows)).tolist() for values in each)
        for row, executions, kernels, time, alone in zip(rows, *sums, strict=True):
            row.tally.executions, row.tally.kernels = max(executions, 1), kernels
            row.tally.time_ps, row.tally.self_ps = time * PS, alone * PS
        for number, mark, count, time in _by_mark(numbers, marks, times):
            rows[number].tally.steps[mark] = Share(count, time * PS)
        self._launches(rows)
        return {subject: row.tally for subject, row in zip(subjects, rows, strict=True)}

    def _durations(self) -> tuple[Integers, Integers]:
        """Of each execution how long its events last, and what of that they have to themselves."""
        one, firsts = self._executions, self._executions.bounds[:-1]
        times = np.add.reduceat((self._work.end - self._work.start)[one.events], firsts)
        own = np.add.reduceat(self._self[one.events], firsts)
        for place in np.flatnonzero((one.counts > 1) & (times != own)).tolist():  # some of them run at the same time as others
            mine = one.events_of(place)
            times[place] = _together(self._work.start[mine].tolist(), self._work.end[mine].tolist())
        return times, own

    def _launches(self, rows: Sequence[Row]) -> None:
        """The kernels of rows: in their order where executions are told one by one, else how often each."""
        one, numbers, counts = self._executions, self._subjects[1], self._executions.counts
        starts = self._work.start.data  # a view, which is indexed as fast as a list
        told = np.isin(one.mark, self._told)
        for place in np.flatnonzero(told).tolist():
            rows[numbers[place]].tell(self._prices, one.events_of(place), int(one.mark[place]), starts)
        others = np.flatnonzero(~told)
        alike = self._kinds[0][others] * (int(counts.max()) + 1) + counts[others]
        _, firsts, often = np.unique(alike, return_index=True, return_counts=True)
        for first, count in sorted(zip(others[firsts].tolist(), often.tolist(), strict=True)):
            rows[numbers[first]].repeat(self._prices, one.events_of(first), starts, count)
        for row in rows:
            row.tally.launched = row.launched(self._prices)

    def _made(self, one: Execution, priced: PricedOp) -> Subject:
        found, context, lost = priced.priced, one.context, one.launch == NONE
        if context.tried:
            return AUTOTUNING
        name, kind, _, _ = self._prices.kernel(one.events[0])
        if one.replayed and one.op == NONE:
            return Subject(name=GRAPH, category=GRAPH, module=context.region, cost=UNKNOWN, notes=(NO_CAPTURE,))
        notes = list(found.notes)
        if one.op == NONE and kind == KERNEL and not found.is_priced:
            notes.append(NO_LAUNCH if lost else NO_OP)
        missing = found.missing or (RECORD_SHAPES if one.op != NONE and not priced.args and found.category != FUSED else "")
        if missing and not found.is_priced:
            notes.append(f"{UNPRICED}record with {missing}")
        return Subject(
            name=priced.name,
            label=label(priced.name, priced.args) if one.op != NONE else "",
            module=context.region,
            category=found.category or ("kernel" if one.op == NONE else "unknown"),
            scope="/".join(context.scope),
            location=context.location,
            phase=self._contexts.phase(context) if one.op != NONE else "",
            towards=_towards(found.cost, self._prices.names[name], kind),
            cost=UNKNOWN if found.cost is None else found.cost,
            avoidable=self._patterns.avoidable(priced, context),
            operation=found.operation or (EAGER if found.category == ELEMENTWISE else None),
            work_provenance="shape",
            bytes_provenance="profile" if one.op == NONE else "shape",
            notes=tuple(dict.fromkeys(notes)),
            conventions=tuple(sorted(found.by_convention.items())),
            found=not (lost and kind == KERNEL),
            wide=wide_share(priced.args),
            shapes=first_shapes(priced.args),
        )

    def lanes(self, shown: Sequence[Span]) -> tuple[Lane, ...]:
        """What it did in each bucket of some spans of time, by the places of its rows."""
        owner = np.empty(len(self._work), np.int64)
        owner[self._executions.events] = np.repeat(self._subjects[1], self._executions.counts)
        owners = owner[self.events].tolist()
        own = self._self[self.events] * PS
        begins = self.end * PS - own  # the self time of an event is at its end: earlier events cover its begin
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
        """The work of each step: from its first event on the main queue to its last on any, whatever else ran then."""
        found: dict[Mark, Extent] = {}
        mine = marks[self.events]
        order = np.argsort(mine, kind="stable")
        each, firsts = np.unique(mine[order], return_index=True)
        parts = {mark: places for mark, places in zip(each.tolist(), np.split(order, firsts[1:]), strict=True) if mark != NONE}
        main = self._on_main_queue(list(parts.values()))
        for mark, places in parts.items():
            start, end = self.start[places], self.end[places]
            busy = int(uncovered(start, end).sum())
            begin = int(start[main[places]].min())
            found[mark] = Extent(begin * PS, int(end.max()) * PS, busy * PS, complete.get(mark, True))
        return found

    def _on_main_queue(self, parts: Sequence[Integers]) -> Flags:
        """Which events tell when steps begin: those of the busiest queue with work in all of them, else all.

        Work on other queues, such as a copy of the next batch, runs when the host launches it, long before the rest of its step.
        """
        queues, numbers = np.unique(self._work.queue[self.events], return_inverse=True)
        spent = _sums(numbers, self.end - self.start, len(queues))
        common = [queue for queue in range(len(queues)) if all((numbers[places] == queue).any() for places in parts)]
        if not common:
            return np.ones(len(numbers), bool)
        return np.asarray(numbers == max(common, key=lambda queue: int(spent[queue])))


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
