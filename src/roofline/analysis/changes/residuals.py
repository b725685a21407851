"""Loops over layers that store only the inputs of each layer for their gradients instead of all residuals, or the other way round."""

from collections import Counter
from collections.abc import Iterator, Mapping

from ...cost import NOTHING, Cost
from ...hlo.ir.module import HloModule
from ...hlo.ir.shapes import Shape
from ...hlo.price.traffic import part_of
from ...operation import Streamed
from ...resource import HBM
from ...rules.recomputation.recomputed import KIND as RECOMPUTED
from ...workload import Op
from .fuse import Indexed
from .kept_between_loops import (
    CUTS,
    NAMES,
    Between,
    Flow,
    Key,
    Residual,
    arrays_read,
    kept_between_loops,
    only_moves,
    source_array,
    source_kernel,
)
from .state import State

STORED, LOADED = "stored", "loaded"
INPUTS = {STORED: 3, LOADED: 2}  # passes over a stored array: filled, written and read; written and read
# The same for one array that gradients need, including elementwise values stored with it and copies into other layouts (XLA: 6 in programs
# without changes of layout, 8 to 10 in a Llama on H200), and bounds as shares of it.
PASSES, FEWEST, MOST = {STORED: 4, LOADED: 4}, 5 / 8, 11 / 8


def with_residuals(state: State, shorter: float) -> tuple[Indexed, set[int]]:
    """Store the residuals of loops instead of computing them again.

    ``shorter`` is the share of the removed time by which others may speed up.

    Returns the removed ops, as they were, and all ops of such loops: an op that also computes gradients stays.
    """
    gone, inside = [], set[int]()
    for loops in _all_layers(state):
        ops = loops.recomputed()
        gone += [(index, state.ops[index]) for index in ops.values()]
        inside |= {index for (number, _), index in loops.places.items() if number == loops.pair.second.number}
        for maker, shape in loops.needed_of(ops):
            _keep(state, state.ops[maker], shape, PASSES, FEWEST, MOST)
        for index in ops.values():
            state.remove(index, shorter=shorter)
    return gone, inside


def without_residuals(state: State) -> Indexed | None:
    """Remove the residuals that loops store for the loops of their gradients, except for the inputs of layers.

    Returns the ops that compute them, which have to run again; ``None`` for a program without such loops.
    """
    layers = _all_layers(state)
    again = []
    for loops in layers:
        ops = loops.computing_residuals()
        if ops:
            loops.remove_residuals()
        again += ops
    if layers and not again:
        state.notes.append("remat on: the loop over layers keeps only their inputs for the gradients already")
    return again if layers else None


def _all_layers(state: State) -> "list[_Loops]":
    """The loops over layers, each with the loop of its gradients."""
    found = []
    for name, module in state.programs.items():
        places = {place: index for index, op in state if op.module == name and (place := module.place(op.name))}
        found += [_Loops(state, module, pair, places) for pair in kept_between_loops(state.review(module).values)]
    return [loops for loops in found if loops.are_layers()]


class _Loops:
    """Two loops, of which the first stores arrays for the second, and the ops in and around them."""

    def __init__(self, state: State, module: HloModule, pair: Between, places: dict[tuple[int, int], int]) -> None:
        self.state, self.module, self.pair, self.places = state, module, pair, places
        self.around = module.computations[pair.computation]
        self.values = state.review(module).values

    def op(self, number: int, place: int) -> int | None:
        """The index of an instruction's op."""
        return self.places.get((number, place))

    def phases(self, number: int) -> set[str]:
        return {self.state.ops[index].phase for (each, _), index in self.places.items() if each == number}

    def are_layers(self) -> bool:
        """Whether the first loop is a forward pass and the second its gradients; false for a loop whose inner loops store the arrays."""
        body = self.pair.first.body
        first, second = self.phases(self.pair.first.number), self.phases(self.pair.second.number)
        kept = {body[source_kernel(body, made)].opcode for one in self.pair.residuals for made, _ in one.sources}
        return "forward" in first and "backward" not in first and "backward" in second and "while" not in kept

    def computing_residuals(self) -> Indexed:
        """The ops of the first loop that compute its residuals, except for slicing weights that the second loop slices as well.

        If the second loop already recomputes some of them, only the ops whose results are stored.
        """
        body, flow = self.pair.first.body, Flow(self.pair.first.body)
        kept = {source_kernel(body, made) for one in self.pair.residuals for made, _ in one.sources}
        waiting, seen = [] if self.recomputed() else list(kept), set(kept)
        while waiting:
            for made, _ in flow.reads.get(waiting.pop(), ()):
                maker = source_kernel(body, made)
                if maker not in seen:
                    seen.add(maker)
                    waiting.append(maker)
        places = sorted(place for place in seen if not self._is_available_slice(place))
        found = [index for place in places for index in self._ops_of(self.pair.first.number, place)]
        return [(index, self.state.ops[index]) for index in found if self.state.ops[index].cost != NOTHING]

    def _ops_of(self, number: int, place: int) -> list[int]:
        """An instruction's op, or those of the computations that it calls."""
        index = self.op(number, place)
        if index is not None:
            return [index]
        called = {call.computation for call in self.module.computations[number][place].calls}
        return [index for each, inner in self.places if each in called for index in self._ops_of(each, inner)]

    def recomputed(self) -> dict[int, int]:
        """The kernels of the second loop that recompute results of the first, and those that only serve them: positions and op indices."""
        body, number = self.pair.second.body, self.pair.second.number
        mine = {place: index for (each, place), index in self.places.items() if each == number}
        flow = Flow(body)
        again = {place for place, index in mine.items() if any(one.kind == RECOMPUTED for one in self.state.ops[index].avoidable)}
        again -= self._depending_on_gradients(flow)
        for place in sorted(mine, reverse=True):
            if flow.takers.get(place) and again.issuperset(flow.takers[place]):
                again.add(place)
        return {place: index for place, index in mine.items() if place in again and self.state.ops[index].cost != NOTHING}

    def _depending_on_gradients(self, flow: Flow) -> set[int]:
        """The kernels of the second loop that depend on a value carried from iteration to iteration."""
        loop, found = self.pair.second, set[int]()
        handed = {loop.key(part) for part in range(len(loop.start.operands)) if not loop.hands_on(part)}
        for place, keys in flow.reads.items():
            if handed & keys or any(source_kernel(loop.body, made) in found for made, _ in keys):
                found.add(place)
        return found

    def needed_of(self, ops: dict[int, int]) -> Iterator[tuple[int, Shape]]:
        """The arrays that these ops of the second loop compute for its remaining ops, each with the op that computes it."""
        body, number = self.pair.second.body, self.pair.second.number
        gone = {place for (each, place), index in self.places.items() if each == number and self.state.ops[index].cost == NOTHING}
        read = {key for place, keys in Flow(body).reads.items() if place not in ops and place not in gone for key in keys}
        for place, path in sorted(read):
            maker = ops.get(source_kernel(body, place))
            if maker is not None:
                yield maker, part_of(body[place].shape, path)

    def _is_available_slice(self, place: int) -> bool:
        """Whether an op only slices arrays that the second loop has as well."""
        first, second = self.pair.first, self.pair.second
        theirs = {source_array(self.around, operand) for operand in second.start.operands}
        parts = {part for part in range(len(first.start.operands)) if first.hands_on(part)}
        parts = {part for part in parts if source_array(self.around, first.start.operands[part]) in theirs}
        read = arrays_read(first.body, first.body[place])
        return bool(read) and only_moves(self.values, first.body[place], CUTS) and read <= {first.key(part) for part in parts}

    def remove_residuals(self) -> None:
        """Remove the kernels that write, fill, move or only read residuals; add those for the inputs of layers."""
        first = self.pair.first
        writers = [self.state.ops[index] for one in self.pair.residuals if (index := self.op(first.number, one.writer)) is not None]
        runs_with = max(writers, key=lambda op: op.time_s or 0.0, default=None)
        if runs_with is None:
            return
        for shape in self.pair.carried:
            _keep(self.state, runs_with, shape, INPUTS)
        for place in {one.writer for one in self.pair.residuals}:
            kept = [one.part for one in self.pair.residuals if one.writer == place]
            self._remove_parts(first.number, place, kept, len(kept) >= _results(first.body[place].shape))
        for place in frozenset[int]().union(*[one.readers for one in self.pair.residuals]):
            self._read_recomputed(place, [one for one in self.pair.residuals if place in one.readers])
        self._remove_around()

    def _remove_parts(self, number: int, place: int, parts: list[Shape], whole: bool) -> None:
        """Remove an op (``whole``), or only the arrays ``parts`` that it no longer returns."""
        index = self.op(number, place)
        if index is None:
            return
        if whole:
            self.state.remove(index)
        else:
            self._put_bytes(index, sum(one.bytes for one in parts))

    def _put_bytes(self, index: int, fewer: float) -> None:
        """Reduce the bytes of an op by ``fewer`` per execution."""
        op = self.state.ops[index]
        if op.cost == NOTHING or not fewer:
            return
        amounts = dict(op.cost.amounts)
        amounts[HBM] = max(float(amounts.get(HBM, 0)) - fewer * op.count, 0.0)
        self.state.put(index, Cost.of(amounts), op.operation, 1.0)

    def _read_recomputed(self, place: int, residuals: list[Residual]) -> None:
        """Let an op of the second loop read recomputed values instead of stored ones; an op that only slices stored ones is removed.

        Values computed element by element need not be stored: the op computes them itself.
        """
        index = self.op(self.pair.second.number, place)
        if index is None:
            return
        parts = sum(one.part.bytes for one in residuals)
        if only_moves(self.values, self.pair.second.body[place], CUTS):
            self.state.remove(index)
            return
        self._remove_layouts(place)
        sources = frozenset[Key]().union(*[one.sources for one in residuals])
        self._put_bytes(index, max(parts - sum(map(self._bytes, sources)), 0))

    def _remove_layouts(self, place: int) -> None:
        """Remove copies of an op's result into another layout, which was that of the stored arrays.

        The compiler may still need such copies, so the upper bound includes their time.
        """
        body, number = self.pair.second.body, self.pair.second.number
        for user in self.values.users(body, place):
            if body[user].opcode in NAMES:
                self._remove_layouts(user)
            elif only_moves(self.values, body[user]) and (index := self.op(number, user)) is not None:
                self.state.remove(index, longer=1.0)

    def _bytes(self, key: Key) -> int:
        """The bytes that one layer reads of an array in the first loop's body."""
        first = self.pair.first
        shape = part_of(first.body[key[0]].shape, key[1])
        is_cut = key[0] == first.body.parameters[0] and first.hands_on(key[1][0])  # weights of all layers
        return shape.bytes // shape.dims[0] if is_cut else shape.bytes

    def _remove_around(self) -> None:
        """Remove the kernels around the loops that only fill or move residuals."""
        number, flow = self.pair.computation, Flow(self.around)
        for place in {place for one in self.pair.residuals for place in one.moved}:
            self._remove_parts(number, place, [], True)
        filled = [place for one in self.pair.residuals for place in one.filled]
        for place, used in Counter(filled).items():
            if flow.takers.get(place, set()) <= {*filled, self.pair.first.index}:
                shapes = [leaf for leaf in self.around[place].shape.leaves if leaf.is_array]
                self._remove_parts(number, place, shapes[:used], used >= len(shapes))


def _keep(state: State, runs_with: Op, shape: Shape, passes: Mapping[str, int], least: float = 1.0, most: float = 1.0) -> None:
    """Add the kernels that store an array in each iteration of a loop; they run as often as the op ``runs_with``."""
    for word, times in passes.items():
        state.add(runs_with, Cost.of({HBM: times * shape.bytes}), Streamed(kind="fusion"), word, least, most)


def _results(shape: Shape) -> int:
    """How many arrays a kernel returns."""
    if shape.is_tuple and shape.parts and shape.parts[0].is_tuple:  # an asynchronous one also returns its operands
        shape = shape.parts[1]
    return len([leaf for leaf in shape.leaves if leaf.is_array])
