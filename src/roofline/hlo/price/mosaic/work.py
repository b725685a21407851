"""The work of a kernel's code: each operation times how often it runs, over the grid, loops and conditions.

How often is exact where conditions and bounds follow from the step of the grid and from tables of the program; where they depend on data,
each amount has a lower and an upper bound.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np
from msgspec import Struct, field

from ....cost import Cost
from ....resource import Resource
from ...ir.platforms import Platform
from ..calls.estimates import ICI
from .code import Block, Kernel, Misread, Operation
from .operations import arithmetic, number
from .ranges import GREATEST, MOST_POINTS, Range, bounded, computed, constant, fitted, implied, joined, known, unknown
from .scalars import Scalars, steps_of

_MOST_STEPS = 2**12  # of a loop that is run on its numbers to count its steps
_MOST_AXIS = 2**16  # steps of a loop that are kept apart
_MOST_RUNS = 2**42  # of anything in one step, or bytes that they copy: so that sums over steps fit 64 bits
_NESTING = ("scf.if", "scf.for", "scf.while", "scf.index_switch", "tpu.enqueue_dma")
Levels = Mapping[int, Mapping[str, Resource | None]]  # of a memref: the memory that it is read from (``read``) and written to (``write``)


class Bounds(Struct, frozen=True):
    """The least and the greatest amount of something."""

    low: int = 0
    high: int = 0


class Tally(Struct):
    """Amounts of resources with their bounds, and notes."""

    low: dict[Resource, int] = field(default_factory=dict)
    high: dict[Resource, int] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)

    def add(self, resource: Resource, amount: Bounds) -> None:
        self.low[resource] = self.low.get(resource, 0) + amount.low
        self.high[resource] = self.high.get(resource, 0) + amount.high

    def merge(self, other: "Tally") -> None:
        for resource, amount in other.high.items():
            self.add(resource, Bounds(other.low.get(resource, 0), amount))
        self.notes |= other.notes

    @property
    def costs(self) -> tuple[Cost, Cost]:
        """The least and the greatest cost."""
        return Cost.of(self.low), Cost.of(self.high)


class Walk(Struct):
    """A pass over the code of a kernel; ``skips`` is whether a block behind a condition runs only where that holds."""

    kernel: Kernel
    scalars: Scalars
    platform: Platform
    levels: Levels
    skips: bool = True

    def block(self, block: Block, runs: Range) -> Tally:
        """The work of a block that runs so often in each step."""
        tally, times = Tally(), self.total(runs)
        if not times.high:
            return tally
        for operation in block.operations:
            if operation.name == "tpu.enqueue_dma":
                self._copy(operation, runs, tally)
            elif operation.regions:
                tally.merge(self._nested(operation, runs))
            else:
                cost, notes = arithmetic(self.kernel, operation, self.platform)
                for resource, amount in cost.amounts:
                    tally.add(resource, Bounds(times.low * int(amount), times.high * int(amount)))
                tally.notes |= dict.fromkeys(notes)
        return tally

    def total(self, runs: Range) -> Bounds:
        """How often something runs in all steps together."""
        low, high = (
            int(end.sum()) * (prod(self.scalars.shape) // max(1, _covered(end.shape, self.scalars.shape))) for end in (runs.low, runs.high)
        )
        return Bounds(low, high)

    def _nested(self, operation: Operation, runs: Range) -> Tally:
        if operation.name == "scf.if":
            return self._branches(operation, runs)
        if operation.name == "scf.for":
            return self._loop(operation, runs)
        if operation.name == "scf.while":
            return self._while(operation, runs)
        if operation.name == "scf.index_switch":
            return self._switch(operation, runs)
        if operation.name in ("tpu.region", "tpu.trace", "scf.execute_region"):
            return self.block(operation.body(), runs)
        if operation.name in ("vector.multi_reduction", "tpu.internal_scratch"):
            return Tally()
        raise Misread(f"the kernel runs {operation.name}, whose cost is unknown")

    def _branches(self, operation: Operation, runs: Range) -> Tally:
        """Either of two blocks: where the condition depends on data, the cheaper or the dearer of each amount."""
        if not self.skips:
            tally = Tally()
            for region in range(len(operation.regions)):
                if operation.regions[region]:
                    tally.merge(self.block(operation.body(region), runs))
            return tally
        condition = self.scalars.value(operation.operands[0])
        runs, condition = fitted(runs, condition)
        otherwise = Range(1 - condition.high, 1 - condition.low)
        yes, no = _product(runs, condition), _product(runs, otherwise)
        tallies = [self.block(operation.body(0), yes)]
        tallies += [self.block(operation.body(1), no)] if len(operation.regions) > 1 and operation.regions[1] else [Tally()]
        if condition.is_known or not all(tally.high for tally in tallies):
            tallies[0].merge(tallies[1])
            return tallies[0]
        is_open = condition.high - condition.low
        return _either(tallies, [self.total(yes).high, self.total(no).high], self.total(Range(runs.low * is_open, runs.high * is_open)))

    def _switch(self, operation: Operation, runs: Range) -> Tally:
        """One of several blocks, by a number; the first region is for all other numbers."""
        chosen, total = self.scalars.value(operation.operands[0]), Tally()
        cases = operation.numbers("cases")
        rest = constant(1)
        for place, case in enumerate(cases, 1):
            matches = bounded(
                ((chosen.low == case) & (chosen.high == case)).astype(np.int64),
                ((chosen.low <= case) & (case <= chosen.high)).astype(np.int64),
            )
            total.merge(self.block(operation.body(place), _product(*fitted(runs, matches))))
            rest = _product(*fitted(rest, Range(1 - matches.high, 1 - matches.low)))
        total.merge(self.block(operation.body(0), _product(*fitted(runs, rest))))
        return total

    def _loop(self, operation: Operation, runs: Range) -> Tally:
        """A loop with a counter. Its steps become an axis of their own where what it runs may depend on them."""
        if len(operation.operands) < 3 or not operation.body().arguments:
            raise Misread("a loop without bounds")
        first, _, step = operation.operands[:3]
        trips = self.scalars.trips(*operation.operands[:3])
        body = operation.body()
        inner = list(body.everything())
        most = int(trips.high.max(initial=0))
        if not trips.is_known:
            trips, most = self._limited(trips, operation)
        if not most:
            self._finish(operation, trips, {})
            return Tally()
        start, by = self.scalars.value(first), self.scalars.value(step)
        apart = most <= _MOST_AXIS and any(operation.name in _NESTING for operation in inner)
        if not apart or most * prod(_shape(runs, trips)) > MOST_POINTS:
            last = computed("addi", start, computed("muli", computed("subi", trips, constant(1)), by))
            self.scalars.values[body.arguments[0]] = bounded(*np.broadcast_arrays(start.low, np.maximum(start.low, last.high)))
            self._finish(operation, trips, {})
            return self.block(body, _product(*fitted(runs, trips)))
        steps, going = steps_of(trips, most, len(self.scalars.shape))
        count = known(steps)
        self.scalars.values[body.arguments[0]] = computed("addi", computed("muli", count, by), start)
        self._finish(operation, trips, self._carry(operation, count))
        outer = self.scalars.shape
        self.scalars.shape = (most, *outer)
        tally = self.block(body, _product(runs, going))
        self.scalars.shape = outer
        return tally

    def _limited(self, trips: Range, operation: Operation) -> tuple[Range, int]:
        """The trips of a loop whose bound is data, limited by the arrays that it accesses along its counter or a number it carries."""
        body = operation.body()
        room = self.scalars.room(body.arguments[0], body)
        if room is None:
            growths = [self._growth(argument, after) for argument, after in zip(body.arguments[1:], body.yielded, strict=False)]
            room = min((limit for limit, _, _ in self._inside(body, body.arguments[1:], operation.operands[3:], growths)), default=None)
        if room is not None:
            trips = bounded(np.minimum(trips.low, room), np.minimum(trips.high, room))
        most = int(trips.high.max(initial=0))
        if most > _MOST_AXIS:
            raise Misread("the kernel has a loop whose number of steps depends on data")
        return trips, most

    def _is_number(self, value: int) -> bool:
        kind = self.kernel.type(value)
        return not (kind.is_vector or kind.space or kind.shape) and kind.element[:1] == "i"

    def _growth(self, argument: int, after: int) -> int | None:
        """By how much a carried number grows in each step of a loop; ``None`` unless it is a constant."""
        if after == argument:
            return 0
        definition = self.kernel.definitions.get(after)
        if definition is None or definition[0].name != "arith.addi":
            return None
        others = [operand for operand in definition[0].operands if operand != argument]
        if len(others) != 1 or others[0] not in self.kernel.definitions:
            return None
        return self.scalars.value(others[0]).constant

    def _carry(self, operation: Operation, count: Range) -> dict[int, Range]:
        """Sets the numbers that a loop carries in each of its steps; those that it has at its end, by the argument, where they are known.

        Some grow by a constant. Others, such as the indices of blocks and of buffers, are found by running the loop on its numbers alone.
        """
        body, carried = operation.body(), self._carried(operation)
        after = dict(zip(body.arguments[1:], body.yielded, strict=False))
        others = {}
        for argument, init in carried.items():
            growth = self._growth(argument, after[argument])
            if growth is None:
                others[argument] = init
            else:
                self.scalars.values[argument] = computed("addi", init, computed("muli", count, constant(growth)))
        steps = count.low.size
        if not others or steps * len(others) > _MOST_STEPS or steps * prod(_shape(*others.values())) > MOST_POINTS:
            return {}
        fixed, seen, current = self.scalars.fixed, {argument: [init] for argument, init in others.items()}, others
        counters = {number: self.scalars.values[number] for number in (*body.arguments[:1], *carried.keys() - others.keys())}
        moving = {number: value for number, value in counters.items() if value.low.ndim == count.low.ndim}
        for step in range(steps):
            trial = self.scalars.trial({**fixed, **{number: _at(value, step) for number, value in moving.items()}, **current})
            current = {argument: trial.value(after[argument]) for argument in others}
            for argument, value in current.items():
                seen[argument].append(value)
        for argument, values in seen.items():
            self.scalars.values[argument] = _stacked(values[:-1], len(self.scalars.shape))
        return current

    def _carried(self, operation: Operation) -> dict[int, Range]:
        """The whole numbers that a loop carries, by its arguments, before its first step."""
        arguments = operation.body().arguments[1:]
        pairs = zip(arguments, operation.operands[3:], strict=False)
        return {argument: self.scalars.value(init) for argument, init in pairs if self._is_number(init)}

    def _finish(self, operation: Operation, trips: Range, last: Mapping[int, Range]) -> None:
        """Sets the numbers that a loop has at its end."""
        body, carried = operation.body(), self._carried(operation)
        for result, argument, after in zip(operation.results, body.arguments[1:], body.yielded, strict=False):
            growth = self._growth(argument, after) if argument in carried else None
            if argument in carried and trips.constant == 0:
                self.scalars.values[result] = carried[argument]
            elif growth is not None:
                self.scalars.values[result] = computed("addi", carried[argument], computed("muli", trips, constant(growth)))
            elif trips.constant is not None and argument in last:
                self.scalars.values[result] = last[argument]

    def _while(self, operation: Operation, runs: Range) -> Tally:
        """A loop that runs while a condition holds.

        If that depends on numbers alone, the loop is run on those to count its steps; else the arrays that it accesses along a number that
        grows in each step limit them.
        """
        before, body = operation.body(0), operation.body(1)
        trips = self._counted(operation, before, body)
        if trips is None:
            trips = self._along_arrays(operation, body)
        if trips is None:
            raise Misread("the kernel has a loop whose number of steps depends on data")
        tally = self.block(before, _product(*fitted(runs, computed("addi", trips, constant(1)))))
        tally.merge(self.block(body, _product(*fitted(runs, trips))))
        return tally

    def _along_arrays(self, operation: Operation, body: Block) -> Range | None:
        """The steps of a loop for which the numbers that grow by a constant in each stay inside of the arrays that they index."""
        before = operation.body(0)
        if before.yielded[1:] != before.arguments:  # its condition passes on other numbers
            return None
        growths = [self._growth_until_end(operation, place) for place in range(min(len(body.arguments), len(body.yielded)))]
        limits = list(self._inside(body, body.arguments, operation.operands, growths))
        for _, argument, numbers in limits:
            self.scalars.values[argument] = numbers
        most = min((limit for limit, _, _ in limits), default=GREATEST)
        return unknown((), 0, most) if most <= _MOST_AXIS else None

    def _inside(
        self, body: Block, arguments: Sequence[int], starts: Sequence[int], growths: Sequence[int | None]
    ) -> Iterator[tuple[int, int, Range]]:
        """For each number of a loop that grows along an array: the steps for which it stays inside, the number, and its bounds in them."""
        for argument, start, growth in zip(arguments, starts, growths, strict=False):
            room = self.scalars.room(argument, body) if growth and growth > 0 and self._is_number(start) else None
            if growth and room is not None:
                first = self.scalars.value(start)
                least = int(first.low.min(initial=GREATEST))
                least = least if first.is_known else max(least, 0)  # as an index of an array
                yield max(0, -(-(room - least) // growth)), argument, unknown((), least, max(least, room - 1))

    def _growth_until_end(self, operation: Operation, place: int) -> int | None:
        """By how much a number of a loop with a condition grows in each step, except in one that ends the loop."""
        body = operation.body(1)
        argument, after = body.arguments[place], body.yielded[place]
        growth, definition = self._growth(argument, after), self.kernel.definitions.get(after)
        if growth is not None or definition is None or definition[0].name != "arith.select":
            return growth
        condition, yes, no = definition[0].operands
        for holds, stays, grows in ((True, yes, no), (False, no, yes)):
            if stays == argument and self._ends(operation, condition, holds):
                return self._growth(argument, grows)
        return None

    def _ends(self, operation: Operation, flag: int, holds: bool) -> bool:
        """Whether a step in which a flag holds, or does not, is the last of a loop with a condition."""
        before, body = operation.body(0), operation.body(1)
        fixed, flags = self.scalars.fixed, {flag: constant(int(holds))}
        definition = self.kernel.definitions.get(flag)
        if definition is not None and definition[0].name == "arith.cmpi":
            for comparison in body.operations:
                if comparison.name == "arith.cmpi" and comparison.operands == definition[0].operands:
                    follows = implied(definition[0].number("predicate") or 0, holds, comparison.number("predicate") or 0)
                    flags |= dict.fromkeys(comparison.results, constant(int(follows))) if follows is not None else {}
        step = self.scalars.trial({**fixed, **flags})
        after = {
            argument: step.value(value) for argument, value in zip(before.arguments, body.yielded, strict=False) if self._is_number(value)
        }
        goes_on = self.scalars.trial({**fixed, **after}).value(before.yielded[0])
        return not goes_on.high.any()

    def _counted(self, operation: Operation, before: Block, body: Block) -> Range | None:
        condition = before.operations[-1] if before.operations else None
        if condition is None or condition.name != "scf.condition" or not condition.operands:
            return None
        carried = {
            place: self.scalars.value(value)
            for place, value in enumerate(operation.operands)
            if self._is_number(value) and place < len(before.arguments)
        }
        trips = constant(0)
        going = constant(1)
        for _ in range(_MOST_STEPS):
            values = {**self.scalars.fixed, **{before.arguments[place]: value for place, value in carried.items()}}
            trial = self.scalars.trial(values)
            goes_on = computed("andi", going, trial.value(condition.operands[0]))
            if not goes_on.is_known:
                return None
            if not goes_on.high.any():
                return trips
            trips, going = computed("addi", trips, goes_on), goes_on
            for place, value in enumerate(condition.operands[1:]):
                if place < len(body.arguments) and self._is_number(value):
                    trial.values[body.arguments[place]] = trial.value(value)
            carried = {place: joined(goes_on, trial.value(body.yielded[place]), value) for place, value in carried.items()}
        return None

    def _copy(self, operation: Operation, runs: Range, tally: Tally) -> None:
        """A copy that the kernel starts itself: it reads one memory and writes another, across a link if it names another device."""
        groups = operation.segments()
        if len(groups) < 5 or not groups[0] or not groups[2]:
            raise Misread("a copy without a source and a target")
        source, target = groups[0][0], groups[2][0]
        size = self._bytes(source)
        amount = self.total(_product(*fitted(runs, size)))
        places = [self._level(source, "read"), self._level(target, "write"), ICI if groups[4] else None]
        for place in places:
            if place is not None:
                tally.add(place, amount)

    def _level(self, memref: int, access: str) -> Resource | None:
        return self.levels.get(self.kernel.source(memref), {}).get(access)

    def _bytes(self, memref: int) -> Range:
        """The bytes of a view; sizes that are not constant are between 0 and those of the memref that it is a part of."""
        kind, total = self.kernel.type(memref), constant(1)
        bits = number(kind.element).bits if not kind.element.startswith("!") else 0
        for size in self._sizes(memref):
            total = _product(*fitted(total, size))
        return known(total.low * bits // 8) if total.is_known else bounded(total.low * bits // 8, total.high * bits // 8)

    def _sizes(self, memref: int) -> Iterator[Range]:
        kind = self.kernel.type(memref)
        definition = self.kernel.definitions.get(memref)
        if all(size >= 0 for size in kind.shape) or definition is None:
            yield constant(kind.elements)
            return
        operation = definition[0]
        if operation.name == "tpu.memref_squeeze":
            yield from self._sizes(operation.operands[0])
            return
        groups = operation.segments()
        whole = self.kernel.type(operation.operands[0]).shape
        if operation.name != "tpu.memref_slice" or len(groups) < 3 or len(whole) != len(kind.shape):
            raise Misread("a copy of unknown size")
        given = iter(groups[2])
        for size, limit in zip(kind.shape, whole, strict=True):
            if size >= 0:
                yield constant(size)
                continue
            wanted = next(given, None)
            if wanted is None:
                raise Misread("a copy of unknown size")
            most = constant(limit if limit >= 0 else GREATEST)
            yield computed("minsi", computed("maxsi", self.scalars.value(wanted), constant(0)), most)


def _at(value: Range, step: int) -> Range:
    """A value in one step of a loop."""
    low = value.low[step]
    return Range(low, low) if value.is_known else Range(low, value.high[step], value.coarse)


def _stacked(values: Sequence[Range], rank: int) -> Range:
    """The values in the steps of a loop as one, with the loop as its first axis."""
    low, high = (
        np.stack(np.broadcast_arrays(*[end.reshape((1,) * (rank - end.ndim) + end.shape) for end in ends]))
        for ends in ([value.low for value in values], [value.high for value in values])
    )
    return known(low) if all(value.is_known for value in values) else bounded(low, high, coarse=any(value.coarse for value in values))


def _covered(shape: tuple[int, ...], full: tuple[int, ...]) -> int:
    """The steps that an array tells apart, of all those along axes where it has more than one."""
    return prod(whole for size, whole in zip(reversed(shape), reversed(full), strict=False) if size > 1)


def _shape(*ranges: Range) -> tuple[int, ...]:
    return np.broadcast_shapes(*[factor.shape for factor in ranges])


def _product(left: Range, right: Range) -> Range:
    """Two counts multiplied; neither is negative."""
    low = np.minimum(left.low * right.low, _MOST_RUNS)
    return Range(low, low) if left.is_known and right.is_known else Range(low, np.minimum(left.high * right.high, _MOST_RUNS))


def _either(tallies: Sequence[Tally], runs: Sequence[int], open_runs: Bounds) -> Tally:
    """Two alternatives, of which ``open_runs`` executions may be either: each is counted in both, so the smaller share is taken off."""
    total = Tally()
    for tally in tallies:
        total.merge(tally)
    for resource in total.high:
        amounts = [(tally.high.get(resource, 0), max(1, times)) for tally, times in zip(tallies, runs, strict=True)]
        total.high[resource] -= min(amount * open_runs.high // times for amount, times in amounts)
        total.low[resource] += min(amount * open_runs.low // times for amount, times in amounts)
    return total
