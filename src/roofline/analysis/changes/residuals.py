"""Loops over layers that store only the inputs of each layer for their gradients instead of all residuals, or the other way round.

A residual is an array that a loop over layers fills slice by slice, and that the loop of its gradients reads; it is made before the first
loop, and may be copied to another layout between the two.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from ...cost import NOTHING, Cost
from ...graph import NO_KERNEL, RENAMING, Array, Graph, Operator, Region
from ...graph.facts.kernels import consists_of, kernel_before, kernels_after
from ...graph.facts.loops import Iteration, Stack, stacks
from ...operation import Streamed
from ...resource import HBM
from ...rules.recomputation.recomputed import KIND as RECOMPUTED
from ...workload import Op
from .fuse import Indexed
from .state import State

STORED, LOADED = "stored", "loaded"
INPUTS = {STORED: 3, LOADED: 2}  # passes over a stored array: filled, written and read; written and read
# The same for one array that gradients need, including elementwise values stored with it and copies into other layouts (XLA: 6 in programs
# without changes of layout, 8 to 10 in a Llama on H200), and bounds as shares of it.
PASSES, FEWEST, MOST = {STORED: 4, LOADED: 4}, 5 / 8, 11 / 8
_LAYOUT = RENAMING - {Operator.CAST}
_CUTS = RENAMING | {Operator.SLICE}


def with_residuals(state: State, shorter: float) -> tuple[Indexed, set[int]]:
    """Store the residuals of loops instead of computing them again.

    ``shorter`` is the share of the removed time by which others may speed up.

    Returns the removed ops, as they were, and all ops of such loops: an op that also computes gradients stays.
    """
    gone, inside = [], set[int]()
    for loops in _all_layers(state):
        kernels = loops.recomputed()
        ops = loops.ops(kernels)
        gone += [(op, state.ops[op]) for op in ops]
        inside.update(loops.ops(loops.backward))
        for maker, array in loops.needed_of(kernels):
            _keep(state, state.ops[maker], array, PASSES, FEWEST, MOST)
        for op in ops:
            state.remove(op, shorter=shorter)
    return gone, inside


def without_residuals(state: State) -> Indexed | None:
    """Remove the residuals that loops store for the loops of their gradients, except for the inputs of layers.

    Returns the ops that compute them, which have to run again; ``None`` for a program without such loops.
    """
    layers = _all_layers(state)
    again = []
    for loops in layers:
        ops = [(op, state.ops[op]) for op in loops.ops(loops.computing_residuals()) if state.ops[op].cost != NOTHING]
        if ops:
            loops.remove_residuals()
        again += ops
    if layers and not again:
        state.notes.append("remat on: the loop over layers keeps only their inputs for the gradients already")
    return again if layers else None


class Residual(Struct, frozen=True):
    """What one loop stacks for another: the kernels of the latter that read it, and those that copy it between the two."""

    stack: Stack
    readers: frozenset[int]
    moved: frozenset[int]


def _all_layers(state: State) -> "list[_Loops]":
    """The loops over layers, each with the loop of its gradients."""
    layers = []
    for program in map(state.graph, state.programs.values()):
        if program is None:
            continue
        filled = list(stacks(program.graph))
        for place, first in enumerate(program.graph.regions):
            own = [stack for stack in filled if stack.region is first]
            for second in program.graph.regions[place + 1 :] if own else ():
                residuals = [residual for stack in own if (residual := _residual(program.graph, stack, second)) is not None]
                loops = _Loops(state, program.graph, program.ops, (first, second), residuals)
                layers += [loops] if residuals and loops.are_layers() else []
    return layers


def _residual(graph: Graph, stack: Stack, reading: Region) -> Residual | None:
    """A stack that a loop reads, and nothing else does."""
    inside = _made(graph, reading)
    readers, moved, waiting = set[int](), set[int](), [stack.final]
    while waiting:
        array = waiting.pop()
        if graph.is_handed_on(array):
            return None
        for node in graph.users.get(array, ()):
            is_inside = not inside.isdisjoint(node.gives)
            if node.kernel != NO_KERNEL and is_inside:
                readers.add(node.kernel)
            elif node.operator in _LAYOUT and (node.kernel == NO_KERNEL or consists_of(graph, node.kernel, _LAYOUT)):
                moved.add(node.kernel)
                waiting += node.gives
            else:
                return None
    return Residual(stack, frozenset(readers), frozenset(moved - {NO_KERNEL})) if readers else None


def _made(graph: Graph, region: Region) -> set[int]:
    """The arrays that a loop makes."""
    return {array for place in region.nodes for array in graph.nodes[place].gives}


class _Loops:
    """Two loops, of which the first stacks arrays for the second, and the kernels in and around them."""

    def __init__(
        self, state: State, graph: Graph, ops: tuple[tuple[int, ...], ...], loops: tuple[Region, Region], residuals: list[Residual]
    ) -> None:
        self._state, self._graph, self._ops, self._residuals = state, graph, ops, residuals
        self._first, self._second = loops
        self._forward, self.backward = map(self._kernels, loops)

    def _kernels(self, region: Region) -> list[int]:
        kernels = {self._graph.nodes[place].kernel for place in region.nodes}
        return sorted(kernels - {NO_KERNEL})

    def ops(self, kernels: Iterable[int]) -> list[int]:
        """The ops of kernels."""
        return list(dict.fromkeys([op for kernel in kernels for op in self._ops[kernel]]))

    def _phases(self, kernels: Iterable[int]) -> set[str]:
        return {self._state.ops[op].phase for op in self.ops(kernels)}

    def _sources(self, stack: Stack) -> list[int]:
        """The arrays that a residual is computed from by the kernel that writes it."""
        carried = {stack.carried for stack in stacks(self._graph)}
        read = self._graph.read(stack.writer.kernel)
        return [array for array in read if self._graph.arrays[array].shape and array not in carried]

    def _sources_of_all(self) -> list[int]:
        return [array for residual in self._residuals for array in self._sources(residual.stack)]

    def are_layers(self) -> bool:
        """Whether the first loop is a forward pass and the second its gradients; false for a loop whose inner loops make what it stores."""
        first = self._phases(self._forward)
        inner = [self._graph.made_by(array, Operator.LOOP) for array in self._sources_of_all()]
        return "forward" in first and "backward" not in first and "backward" in self._phases(self.backward) and not any(inner)

    def computing_residuals(self) -> list[int]:
        """The kernels of the first loop that compute its residuals, except for slicing weights that the second loop slices as well.

        If the second loop already recomputes some of them, only the kernels whose results are stored.
        """
        kept = set().union(*map(self._makers, self._sources_of_all()))
        waiting, seen = [] if self.recomputed() else list(kept), set(kept)
        while waiting:
            before = set().union(*map(self._makers, self._graph.read(waiting.pop()))) - seen
            seen |= before
            waiting += before
        return [kernel for kernel in sorted(seen) if not self._is_available_slice(kernel)]

    def _makers(self, array: int) -> set[int]:
        """The kernels of the first loop that make an array: one, or those of a loop inside."""
        loops = [self._kernels(region) for region in self._graph.regions if self._graph.origin(array) in region.final]
        return {kernel_before(self._graph, array), *(kernel for kernels in loops for kernel in kernels)}.intersection(self._forward)

    def recomputed(self) -> list[int]:
        """The kernels of the second loop that recompute results of the first, and those that only serve them."""
        graph, iteration, again = self._graph, Iteration(self._graph, self._second), set[int]()
        for kernel in reversed(self.backward):
            is_again = any(avoidable.kind == RECOMPUTED for op in self._ops[kernel] for avoidable in self._state.ops[op].avoidable)
            made = graph.written(kernel)
            takers = {taker for array in made for taker in kernels_after(graph, array)}
            if (is_again and all(map(iteration.is_free, made))) or (takers and takers <= again):
                again.add(kernel)
        return [kernel for kernel in sorted(again) if any(self._state.ops[op].cost != NOTHING for op in self._ops[kernel])]

    def needed_of(self, kernels: list[int]) -> Iterator[tuple[int, Array]]:
        """The arrays that these kernels of the second loop compute for its remaining ones, each with the op that computes it."""
        gone = {kernel for kernel in self.backward if all(self._state.ops[op].cost == NOTHING for op in self._ops[kernel])}
        left = {*self.backward} - gone - {*kernels}
        for kernel in kernels:
            for array in self._graph.written(kernel):
                if self._graph.arrays[array].shape and not left.isdisjoint(kernels_after(self._graph, array)):
                    yield from ((op, self._graph.arrays[array]) for op in self._ops[kernel])

    def _is_available_slice(self, kernel: int) -> bool:
        """Whether a kernel only slices arrays that the second loop has as well."""
        made, read = _made(self._graph, self._first), [array for array in self._graph.read(kernel) if self._graph.arrays[array].shape]
        theirs = {array for other in self.backward for array in self._graph.read(other)}
        return bool(read) and consists_of(self._graph, kernel, _CUTS) and made.isdisjoint(read) and theirs.issuperset(read)

    def remove_residuals(self) -> None:
        """Remove the kernels that write, fill, move or only read residuals; add those for the inputs of layers."""
        graph, first = self._graph, self._first
        writers = [self._state.ops[op] for op in self.ops(residual.stack.writer.kernel for residual in self._residuals)]
        runs_with = max(writers, key=lambda op: op.time_s or 0.0, default=None)
        if runs_with is None:
            return
        filled = {stack.carried for stack in stacks(graph)}
        for carried in first.carried:
            if graph.arrays[carried].shape and carried not in filled:
                _keep(self._state, runs_with, graph.arrays[carried], INPUTS)
        for kernel in {residual.stack.writer.kernel for residual in self._residuals}:
            slices = [graph.arrays[residual.stack.slice] for residual in self._residuals if residual.stack.writer.kernel == kernel]
            self._remove_arrays(kernel, slices)
        for kernel in frozenset[int]().union(*(residual.readers for residual in self._residuals)):
            self._read_recomputed(kernel, [residual.stack for residual in self._residuals if kernel in residual.readers])
        self._remove_around()

    def _remove(self, kernel: int, longer: float = 0.0) -> None:
        for op in self._ops[kernel]:
            self._state.remove(op, longer=longer)

    def _remove_arrays(self, kernel: int, arrays: list[Array]) -> None:
        """Remove a kernel, or only some arrays that it no longer returns."""
        if len(arrays) >= len(self._graph.written(kernel)):
            self._remove(kernel)
        else:
            self._put_bytes(kernel, sum(array.bytes for array in arrays))

    def _put_bytes(self, kernel: int, fewer: float) -> None:
        """Reduce the bytes of a kernel by ``fewer`` per execution."""
        for index in self._ops[kernel]:
            op = self._state.ops[index]
            if op.cost != NOTHING and fewer:
                amounts = dict(op.cost.amounts)
                amounts[HBM] = max(float(amounts.get(HBM, 0)) - fewer * op.count, 0.0)
                self._state.put(index, Cost.of(amounts), op.operation, 1.0)

    def _read_recomputed(self, kernel: int, read: list[Stack]) -> None:
        """Let a kernel of the second loop read recomputed values instead of stored ones; one that only slices stored ones is removed.

        Values computed element by element need not be stored: the kernel computes them itself.
        """
        if consists_of(self._graph, kernel, _CUTS):
            self._remove(kernel)
            return
        self._remove_layouts(kernel)
        sources = {array for stack in read for array in self._sources(stack)}
        stored = sum(self._graph.arrays[stack.slice].bytes for stack in read)
        self._put_bytes(kernel, max(stored - sum(map(self._bytes, sources)), 0))

    def _remove_layouts(self, kernel: int) -> None:
        """Remove copies of a kernel's result into another layout, which was that of the stored arrays.

        The compiler may still need such copies, so the upper bound includes their time.
        """
        for array in self._graph.written(kernel):
            for user in kernels_after(self._graph, array):
                if consists_of(self._graph, user, _LAYOUT):
                    self._remove(user, longer=1.0)

    def _bytes(self, array: int) -> int:
        """The bytes that one layer reads of an array in the first loop: a slice of the weights of all layers."""
        whole = self._graph.arrays[array]
        is_outside = self._graph.region_of.get(array) is None
        return whole.bytes // whole.shape[0] if is_outside else whole.bytes

    def _remove_around(self) -> None:
        """Remove the kernels around the loops that only fill or move residuals."""
        graph = self._graph
        for kernel in {kernel for residual in self._residuals for kernel in residual.moved}:
            self._remove(kernel)
        fillers = Counter(residual.stack.filler(graph) for residual in self._residuals)
        for kernel, used in fillers.items():
            made = graph.written(kernel)
            takers = {taker for array in made for taker in kernels_after(graph, array)}
            if kernel != NO_KERNEL and takers <= {NO_KERNEL, *fillers}:
                self._remove_arrays(kernel, [graph.arrays[array] for array in made][:used])


def _keep(state: State, runs_with: Op, array: Array, passes: Mapping[str, int], least: float = 1.0, most: float = 1.0) -> None:
    """Add the kernels that store an array in each iteration of a loop; they run as often as the op ``runs_with``."""
    for word, times in passes.items():
        state.add(runs_with, Cost.of({HBM: times * array.bytes}), Streamed(kind="fusion"), word, least, most)
