"""``grouped``: dense experts as grouped products, and the kernels between them with correspondingly fewer rows."""

from collections import Counter
from fractions import Fraction
from itertools import chain
from math import log2

from ...graph.facts.kernels import kernel_before, kernels_after
from ...rules.layout_copies.reordered import KIND as LAYOUT
from ...workload import ProgramGraph
from .avoided import remove_avoidable
from .change_words import Words
from .state import State

_SMALL = 8  # an operand with less than 1/8 of the bytes of the largest is not an array of rows


def grouped(state: State, words: Words) -> None:
    """Compute each token with its own experts only."""
    shares = remove_avoidable(state, "dense-experts", "grouped: this program does not compute every expert for every token")
    for program in state.recording.graphs if shares else ():
        _Between(state, program, shares).shrink()


class _Between:
    """The kernels between products of experts; ``shares`` are those of the rows that remain, by the op of each product."""

    def __init__(self, state: State, program: ProgramGraph, shares: dict[int, float]) -> None:
        self._state, self._graph, self._ops = state, program.graph, program.ops
        self._left = {kernel: shares[op] for kernel, ops in enumerate(program.ops) for op in ops if op in shares}
        self._products = frozenset(self._left)
        self._executions = Counter(chain(*program.ops))  # of each op, in the graph

    def shrink(self) -> None:
        """Reduces them to the remaining rows; grouped products need no copies into another row order."""
        copies = self._follow()
        between = self._before_products()
        copied = Counter(index for kernel in copies for index in self._ops[kernel])
        for index, executions in copied.items():
            if executions == self._executions[index]:
                self._state.remove(index, longer=max(self._left[kernel] for kernel in copies if index in self._ops[kernel]))
        for kernel in between - copies:
            for index in self._ops[kernel]:
                op, share = self._state.ops[index], 1 - (1 - self._left[kernel]) / self._executions[index]
                if op.cost.amounts:
                    self._state.put(index, op.cost * Fraction(share), op.operation, abs(log2(share)))

    def _follow(self) -> set[int]:
        """Follows the rows from the first product on. Returns the copies into another order."""
        graph, copies = self._graph, set[int]()
        for kernel in graph.inside:
            if kernel in self._products or not self._ops[kernel]:
                continue
            sizes = {array: graph.arrays[array].bytes for array in graph.read(kernel)}
            largest = max(sizes.values(), default=0)
            rows = [array for array, size in sizes.items() if size * _SMALL >= largest]
            share = max((self._left.get(kernel_before(graph, array), 1.0) for array in rows), default=1.0)
            users = self._users(kernel)
            if self._is_copy(kernel) and (share < 1 or (users and users <= self._products)):
                copies.add(kernel)
                self._left[kernel] = share
            elif share < 1 and 2 * sum(graph.arrays[array].bytes for array in graph.written(kernel)) >= largest:
                self._left[kernel] = share  # a smaller result is a sum over the experts
        return copies

    def _before_products(self) -> set[int]:
        """The kernels with fewer rows whose results are for products of experts alone."""
        between = set(self._products)
        for kernel in reversed(self._graph.inside):
            users = self._users(kernel)
            if kernel in self._left and users and users <= between:
                between.add(kernel)
        return between - self._products

    def _is_copy(self, kernel: int) -> bool:
        """Whether a kernel only changes the order of rows."""
        return any(avoidable.kind == LAYOUT for op in self._ops[kernel] for avoidable in self._state.ops[op].avoidable)

    def _users(self, kernel: int) -> set[int]:
        return {user for array in self._graph.written(kernel) for user in kernels_after(self._graph, array)}
