"""One device of a trace: executions summed up by operation, steps, and busy intervals.

Times of queues may overlap. Self times do not: overlapping time belongs to the earliest event, and to communication only if nothing else
runs. So self times add up to busy time, and those of collectives are exposed time.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from ...cost import Cost
from ...operation import UNLABELLED, Streamed
from ...resource import PCIE
from ...rule_failures import RuleFailures
from ...torch_prices.call import RECORD_SHAPES
from ...torch_prices.elementwise import ELEMENTWISE
from ...torch_prices.inductor import FUSED
from ...workload import UNPRICED
from ..parts import AUTOTUNED, UNKNOWN, DevicePart, Extent, Lane, Launched, Mark, PartGraph, Share, Subject, Tally
from ..timeline import Span, busy_in, lane
from .context import Contexts
from .conversions import converted_shares
from .executions import Execution, Executions
from .intervals import covered, merged, uncovered
from .linking import Work
from .lower.graph import graph_of
from .lower.recorded import Recorded
from .lower.used_tensors import UsedTensors
from .pricing import PricedOp, Prices
from .read.arrays import Flags, Integers, distinct
from .read.columns import KERNEL, MEMCPY, NONE, Numbered
from .read.op_arguments import first_shapes, label
from .second_passes import LEAST, MULTIPLY, second_passes

PS = 1000  # in a nanosecond
ORDERED_STEPS = 2  # first steps whose launches are kept in order
MOST_SHOWN = 2  # lines that call torch.utils.checkpoint
MOST_IN_ORDER = 100_000  # executions that are searched for avoidable work
MOST_IN_STEP = 500  # launches of one kernel by one operation in a step that are counted separately
GRAPH = "graph replay"
NO_CAPTURE = f"{UNPRICED}also record the step that captures the graph, here or in a trace beside this one with 'capture' in its name"
NO_LAUNCH = "its launch was not recorded, and no recorded kernel matches it"
EAGER = Streamed(kind="eager")
NO_OP = "no PyTorch op launched it"
_COLLECTIVE = re.compile(r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|sendrecv|cross_device")


class Row(Struct):
    """The sums of one operation.

    ``kernels`` has the first start and the number of launches of each kernel, by name, grid and number of the launch in a step; ``in_step``
    counts the launches so far, by name, grid and step.
    """

    tally: Tally
    kernels: dict[tuple[int, int, int], list[int]] = field(default_factory=dict)
    in_step: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def add_launches(self, prices: Prices, events: Sequence[int], mark: int, starts: memoryview) -> None:
        """Adds the launches of an execution in a step, in order."""
        for event in events:
            name, _, grid, _ = prices.kernel(event)
            nth = self.in_step.get((name, grid, mark), 0)
            self.in_step[name, grid, mark] = min(nth + 1, MOST_IN_STEP)
            self.kernels.setdefault((name, grid, nth), [starts[event], 0])[1] += 1

    def add_repeated(self, prices: Prices, events: Sequence[int], starts: memoryview, count: int) -> None:
        """Adds the launches of ``count`` executions that are all like the one with these events."""
        for event in events:
            name, _, grid, _ = prices.kernel(event)
            self.kernels.setdefault((name, grid, 0), [starts[event], 0])[1] += count

    def launched(self, prices: Prices) -> list[Launched]:
        """The kernels of the row, with counts over all executions."""
        return [
            Launched(str(prices.names[name]), first * PS, blocks, count, nth, block)
            for (name, grid, nth), (first, count) in self.kernels.items()
            for blocks, block in [prices.grid(grid)]
        ]


class DeviceRows:
    """One device: its events, and the executions on it."""

    def __init__(
        self,
        number: int,
        work: Work,
        executions: Executions,
        priced: Integers,
        prices: Prices,
        contexts: Contexts,
        tried: Flags,
        tensors: UsedTensors | None,
    ) -> None:
        self.number, self._work, self._prices, self._contexts = number, work, prices, contexts
        events = np.flatnonzero(executions.device == number)
        self._executions, self._priced = executions.take(events), priced[events]
        self._tried = tried[self._executions.events[self._executions.bounds[:-1]]]
        self._context = contexts.of(self._executions.op)
        self._context[self._tried] = contexts.autotuning
        if contexts.has_backward:
            self._mark_second_passes()
            self._mark_second_gradients()
        self.events = np.flatnonzero(work.device == number)
        self.start, self.end = work.start[self.events], work.end[self.events]
        self.busy = merged(self.start, self.end)
        self._self = self._self_times()
        time = (work.end - work.start).data.__getitem__
        self._failures = RuleFailures("this trace")
        self._graph = self._failures.attempt("graphs", graph_of, self._recorded(time), tensors)

    def graph(self, name: str) -> PartGraph | None:
        """The graph of the first steps, and the operation of each of its kernels."""
        graph, (subjects, rows) = self._graph, self._subjects
        if graph is None:
            return None
        return PartGraph(name, graph, tuple([(subjects[row],) for row in rows[self._in_order].tolist()]))

    def _recorded(self, time: Callable[[int], int]) -> Recorded:
        """The executions of the first steps in order; ``time`` gives the duration of an event."""
        executions, prices, contexts = list(self._with_prices(self._in_order)), self._prices, self._contexts

        def kernel_name(event: int) -> str:
            return str(prices.names[prices.kernel(event)[0]])

        return Recorded(
            ordered=executions,
            accumulated=prices.gradients,
            has_shards=(prices.world or 1) > 1,
            sequence=lambda execution: contexts.sequence(execution.op),
            checkpoints=[line.rpartition("/")[2] for line in islice(contexts.checkpoints, MOST_SHOWN)],
            on_host=any(kernel_name(execution.events[0]) == op.name for execution, op in executions[:1] if len(execution.events)),
            converted=converted_shares(executions, kernel_name, time),
        )

    @property
    def failures(self) -> tuple[str, ...]:
        """Notes on rules that failed."""
        return self._failures.notes

    def _mark_second_passes(self) -> None:
        """Sets other contexts for the executions of forward passes that repeat others."""
        multiplying = [number for number, op in enumerate(self._prices.ops) if op.priced.category in MULTIPLY]
        ops, marks = self._executions.op, self._executions.mark
        products = np.flatnonzero(np.isin(self._priced, multiplying) & (ops != NONE) & ~self._tried)
        graded = self._contexts.sequences(ops[products]) != NONE
        both = np.intersect1d(distinct(marks[products[graded]]), distinct(marks[products[~graded]]), assume_unique=True)
        kept = np.isin(marks[products], both)
        priced_products = list(self._with_prices(products[kept]))
        for begin, end, caller in {self._contexts.call_around(op) for op in second_passes(priced_products, graded[kept].tolist())}:
            inside = np.flatnonzero((ops >= begin) & (ops < end))
            self._context[inside] = [self._contexts.repeated(number, caller) for number in self._context[inside].tolist()]

    def _mark_second_gradients(self) -> None:
        """Sets other contexts for the executions of backward passes that run again through the same ops."""
        places, nodes = self._contexts.gradients_again(self._executions.op, self._executions.mark)
        if len(distinct(nodes)) < LEAST:
            return
        caller = self._contexts.caller_at(int(nodes[0]))
        self._context[places] = [self._contexts.repeated(number, caller) for number in self._context[places].tolist()]

    @cached_property
    def _in_order(self) -> Integers:
        """The executions of the first steps, in the order in which they ran."""
        places = np.flatnonzero(np.isin(self._executions.mark, self._ordered_steps) & ~self._tried)
        order = np.argsort(self._executions.events[self._executions.bounds[places]], kind="stable")
        return places[order][:MOST_IN_ORDER]

    def _with_prices(self, places: Integers) -> Iterator[tuple[Execution, PricedOp]]:
        """Some executions with their contexts and prices."""
        priced, contexts = self._priced[places].tolist(), self._context[places].tolist()
        for execution, number, context in zip(self._executions.take(places), priced, contexts, strict=True):
            execution.context = self._contexts.all[context]
            yield execution, self._prices.ops[number]

    @cached_property
    def _ordered_steps(self) -> Integers:
        """The steps whose launches are kept in order: the first ones; if there are no steps, `NONE`, which is all launches."""
        marks = distinct(self._executions.mark[self._executions.mark != NONE])
        return marks[:ORDERED_STEPS] if len(marks) else np.array([NONE])

    def part(self, plane: str, name: str, hardware: object, complete: Mapping[Mark, bool], marks: Integers) -> DevicePart:
        """The device's operations, steps and times."""
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
        exchange = np.isin(names, exchanges)
        own = np.zeros(len(self.events), np.int64)
        own[~exchange] = uncovered(self.start[~exchange], self.end[~exchange])
        rest = merged(self.start[~exchange], self.end[~exchange])
        alone = uncovered(self.start[exchange], self.end[exchange])
        own[exchange] = alone - covered(rest, self.end[exchange] - alone, self.end[exchange])
        every = np.zeros(len(self._work), np.int64)
        every[self.events] = own
        return every

    @cached_property
    def _kinds(self) -> tuple[Integers, Integers]:
        """A number for each execution, the same for those that are equal in all that a row shows; and the first execution of each."""
        executions = self._executions
        unknown = (executions.launch == NONE) | (executions.replayed & (executions.op == NONE))
        keys = (self._priced * len(self._contexts.all) + self._context) * 2 + unknown
        _, firsts, kinds = np.unique(keys, return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        return np.argsort(order)[kinds], firsts[order]

    @cached_property
    def _subjects(self) -> tuple[list[Subject], Integers]:
        """The operations of the rows, and the row of each execution."""
        kinds, firsts = self._kinds
        subjects = Numbered()
        rows = np.array([subjects[self._subject(execution, priced)] for execution, priced in self._with_prices(firsts)], np.int64)
        return list(subjects), rows[kinds]

    def _rows(self) -> dict[Subject, Tally]:
        (subjects, numbers), marks = self._subjects, self._executions.mark
        times, own = self._durations()
        rows = [Row(Tally()) for _ in subjects]
        columns = (self._executions.whole.astype(np.int64), self._executions.counts, times, own)
        sums = (_sums(numbers, values, len(rows)).tolist() for values in columns)
        for row, executions, kernels, time, alone in zip(rows, *sums, strict=True):
            row.tally.executions, row.tally.kernels = max(executions, 1), kernels
            row.tally.time_ps, row.tally.self_ps = time * PS, alone * PS
        for number, mark, count, time in _by_mark(numbers, marks, times):
            rows[number].tally.steps[mark] = Share(count, time * PS)
        self._launches(rows)
        return {subject: row.tally for subject, row in zip(subjects, rows, strict=True)}

    def _durations(self) -> tuple[Integers, Integers]:
        """The time and self time of each execution."""
        executions, firsts = self._executions, self._executions.bounds[:-1]
        times = np.add.reduceat((self._work.end - self._work.start)[executions.events], firsts)
        own = np.add.reduceat(self._self[executions.events], firsts)
        for place in np.flatnonzero((executions.counts > 1) & (times != own)).tolist():  # some of its events overlap
            events = executions.events_of(place)
            times[place] = _union_length(self._work.start[events].tolist(), self._work.end[events].tolist())
        return times, own

    def _launches(self, rows: Sequence[Row]) -> None:
        """Adds kernels to rows: for executions of the first steps one by one in order, for the others in groups of equal ones."""
        executions, numbers, counts = self._executions, self._subjects[1], self._executions.counts
        starts = self._work.start.data  # a memoryview, which is indexed as fast as a list
        in_order = np.isin(executions.mark, self._ordered_steps)
        for place in np.flatnonzero(in_order).tolist():
            rows[numbers[place]].add_launches(self._prices, executions.events_of(place), int(executions.mark[place]), starts)
        others = np.flatnonzero(~in_order)
        alike = self._kinds[0][others] * (int(counts.max()) + 1) + counts[others]
        _, firsts, often = np.unique(alike, return_index=True, return_counts=True)
        for first, count in sorted(zip(others[firsts].tolist(), often.tolist(), strict=True)):
            rows[numbers[first]].add_repeated(self._prices, executions.events_of(first), starts, count)
        for row in rows:
            row.tally.launched = row.launched(self._prices)

    def _subject(self, execution: Execution, priced: PricedOp) -> Subject:
        price, context, lost = priced.priced, execution.context, execution.launch == NONE
        if context.autotuned:
            return AUTOTUNED
        name, kind, _, _ = self._prices.kernel(execution.events[0])
        if execution.replayed and execution.op == NONE and not price.is_priced:
            return Subject(name=priced.name, category=GRAPH, module=context.region, cost=UNKNOWN, notes=(NO_CAPTURE,))
        notes = list(price.notes)
        if execution.op == NONE and kind == KERNEL and not price.is_priced:
            notes.append(NO_LAUNCH if lost else NO_OP)
        missing = price.missing or (RECORD_SHAPES if execution.op != NONE and not priced.args and price.category != FUSED else "")
        if missing and not price.is_priced:
            notes.append(f"{UNPRICED}record with {missing}")
        return Subject(
            name=priced.name,
            label=label(priced.name, priced.args) if execution.op != NONE else UNLABELLED,
            module=context.region,
            category=price.category or ("kernel" if execution.op == NONE else "unknown"),
            scope="/".join(context.scope),
            location=context.location,
            phase=self._contexts.phase(context) if execution.op != NONE else "",
            towards=_towards(price.cost, self._prices.names[name], kind),
            cost=UNKNOWN if price.cost is None else price.cost,
            avoidable=priced.priced.recomputed,
            operation=price.operation or (EAGER if price.category == ELEMENTWISE else None),
            work_provenance="shape",
            bytes_provenance="profile" if execution.op == NONE else "shape",
            notes=tuple(dict.fromkeys(notes)),
            conventions=tuple(sorted(price.by_convention.items())),
            found=not (lost and kind == KERNEL),
            shapes=first_shapes(priced.args),
        )

    def lanes(self, shown: Sequence[Span]) -> tuple[Lane, ...]:
        """The device's timeline in some spans; operations are given by their row."""
        owner = np.empty(len(self._work), np.int64)
        owner[self._executions.events] = np.repeat(self._subjects[1], self._executions.counts)
        owners = owner[self.events].tolist()
        own = self._self[self.events] * PS
        begins = self.end * PS - own  # an event's self time is taken to be at its end, as earlier events cover its begin
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
        """The extent of each step, from its first event on the main queue to its last on any, with the busy time of its own events."""
        extents: dict[Mark, Extent] = {}
        own_marks = marks[self.events]
        order = np.argsort(own_marks, kind="stable")
        distinct, firsts = np.unique(own_marks[order], return_index=True)
        parts = {mark: places for mark, places in zip(distinct.tolist(), np.split(order, firsts[1:]), strict=True) if mark != NONE}
        main = self._on_main_queue(list(parts.values()))
        for mark, places in parts.items():
            start, end = self.start[places], self.end[places]
            busy = int(uncovered(start, end).sum())
            begin = int(start[main[places]].min())
            extents[mark] = Extent(begin * PS, int(end.max()) * PS, busy * PS, complete.get(mark, True))
        return self._within(extents)

    def _within(self, steps: dict[Mark, Extent]) -> dict[Mark, Extent]:
        """Steps that are busy no longer than the device is while they last: their work may overlap that of others."""
        ordered = sorted(steps.items(), key=lambda step: step[1].begin_ps)
        begins = np.array([extent.begin_ps // PS for _, extent in ordered], np.int64)
        ends = np.append(begins[1:], [extent.end_ps // PS for _, extent in ordered[-1:]])
        most = (covered(self.busy, begins, ends) * PS).tolist()
        return {mark: replace(extent, busy_ps=min(extent.busy_ps, time_ps)) for (mark, extent), time_ps in zip(ordered, most, strict=True)}

    def _on_main_queue(self, parts: Sequence[Integers]) -> Flags:
        """Whether each event is on the main queue, on which steps begin: the busiest queue with work in every step; all, if there is none.

        Work on other queues, such as a copy of the next batch, runs when the host launches it, long before the rest of its step.
        """
        queues, numbers = np.unique(self._work.queue[self.events], return_inverse=True)
        spent = _sums(numbers, self.end - self.start, len(queues))
        common = set(range(len(queues))).intersection(*(distinct(numbers[places]).tolist() for places in parts))
        if not common:
            return np.ones(len(numbers), bool)
        return np.asarray(numbers == max(sorted(common), key=lambda queue: int(spent[queue])))


def _sums(numbers: Integers, values: Integers, size: int) -> Integers:
    """The sum of the values with each number."""
    sums = np.zeros(size, np.int64)
    np.add.at(sums, numbers, values)
    return sums


def _by_mark(numbers: Integers, marks: Integers, times: Integers) -> Iterator[tuple[int, int, int, int]]:
    """Row, step, number of executions and their time, for each pair of row and step."""
    places = np.flatnonzero(marks != NONE)
    if not len(places):
        return
    span = int(marks.max()) + 1
    pairs, inverse = np.unique(numbers[places] * span + marks[places], return_inverse=True)
    counts, sums = _sums(inverse, np.ones(len(places), np.int64), len(pairs)), _sums(inverse, times[places], len(pairs))
    yield from zip((pairs // span).tolist(), (pairs % span).tolist(), counts.tolist(), sums.tolist(), strict=True)


def _union_length(begins: list[int], ends: list[int]) -> int:
    """The length of the union of events, which are sorted by begin."""
    if len(begins) == 1:
        return ends[0] - begins[0]
    total, reach = 0, begins[0]
    for begin, end in zip(begins, ends, strict=True):
        total += max(0, end - max(begin, reach))
        reach = max(reach, end)
    return total


def _towards(cost: Cost | None, name: object, kind: int) -> str:
    """The direction of a copy over PCIe: ``in`` to the device, ``out`` of it, or empty for other work."""
    if kind != MEMCPY or cost is None or not cost.known(PCIE):
        return ""
    return "out" if "DtoH" in str(name) or "DeviceToHost" in str(name) else "in"
