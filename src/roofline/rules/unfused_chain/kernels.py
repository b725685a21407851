"""Kernels that a compiler would compute in one: each reads from memory what one before it wrote.

One kernel does not read what it made itself, or has read before, and only writes what is needed elsewhere. A compiled backward pass
computes results of the forward pass again from what that keeps, so that they are not written for it. What needs a number for all of an
array, such as its maximum, comes in another kernel, and so does what reads sums by index, whose terms are computed in one kernel with them.
A forward pass is compiled with its own backward pass: gradients that several passes add up are stored. Scores of attention have rules of
their own.

Where edges were matched by size, kernels are only linked if no other kind of kernel ran in between; a sum at the beginning of a chain of
the forward pass is taken to be stored, as the next layer of a residual network adds to it; and an optimizer that does the same again is
taken to do it to other parameters.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from math import prod

from ...cost import less_traffic
from ...graph import MULTIPLYING, NO_KERNEL, Axes, Graph, Node, Operator, Phase
from ...graph.facts.scores import attention_scores
from ...graph.fusion import ROW, SMALL, grouped
from ...resource import HBM
from ...workload import Avoidable

KIND, LOSS, OPTIMIZER, MESSAGES = "unfused-chain", "loss", "optimizer", "messages"
NEAR = 256  # kernels between two that are fused: a choice, more than a layer has
_PARTS = (Operator.VIEW, Operator.TRANSPOSE, Operator.SLICE, Operator.BROADCAST)  # read in place, where no kernel runs
_FULL = 4  # bytes of each number of a row on chip


def unfused_kernels(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of chains, and the cost of each as a part of one kernel. What a compiler left apart, it could not fuse."""
    if graph.is_fused:
        return
    chains = _Chains(graph)
    for chain in grouped(chains.makers, chains.may_fuse):
        if len(chain) > 1:
            yield from chains.evidence(chain)


class _Chains:
    """Which kernel reads what other kernels wrote: the bytes that each reads of every stored array, and the kernels that read one."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._phases = {kernel: nodes[0].phase for kernel, nodes in graph.inside.items()}
        self._stored: dict[int, int] = {}  # of parts, what they are read in
        self._kept: set[int] = set()
        self._read: dict[int, dict[int, int]] = {}
        self._readers: dict[int, list[int]] = {}
        self._written: dict[int, list[int]] = {}
        self.makers: dict[int, set[int]] = {}
        self._apart: set[tuple[int, int]] = set()  # kernels that pass an array, but not within one kernel
        self._passes = list(_later_passes(graph))
        self._breaks = [kernel for kernel in graph.inside if not self._fuses(kernel) or self._adds_up(kernel)]
        self._scores = frozenset[int]().union(*(scores.arrays for scores in graph.fact(attention_scores)))
        for node in graph.nodes:
            self._add(node)
        self._kept.update(self._stored.get(array, array) for array in graph.results)
        self._is_trained = Phase.BACKWARD in self._phases.values()

    def _add(self, node: Node) -> None:
        taken = [self._stored.get(array, array) for array in node.takes]
        if node.kernel == NO_KERNEL:
            self._stored |= dict.fromkeys(node.gives, taken[0]) if node.operator in _PARTS else {}
            self._kept.update(taken if node.operator not in _PARTS else ())
            return
        self._written.setdefault(node.kernel, []).extend(node.gives)
        makers, read = self.makers.setdefault(node.kernel, set()), self._read.setdefault(node.kernel, {})
        for array, stored in zip(node.takes, taken, strict=True):
            maker = self._graph.maker.get(stored)
            if maker is not None and (maker.kernel == node.kernel or self._is_doubtful(maker, node, stored)):
                continue
            self._readers.setdefault(stored, []).append(node.kernel)
            read[stored] = max(read.get(stored, 0), self._bytes(array))
            if maker is not None and maker.kernel != NO_KERNEL:
                makers.add(maker.kernel)
                if self._is_needed_whole(maker, node, stored) or stored in self._scores or node.kernel - maker.kernel > NEAR:
                    self._apart.add((maker.kernel, node.kernel))

    def _fuses(self, kernel: int) -> bool:
        return kernel in self._graph.kernels and (self._graph.kernels[kernel].fuses or self._adds_up(kernel))

    def _adds_up(self, kernel: int) -> bool:
        return any(node.operator == Operator.SCATTER_ADD for node in self._graph.inside[kernel])

    def _is_doubtful(self, maker: Node, user: Node, array: int) -> bool:
        """Whether an array that was matched by size may be another one: after a kernel of another kind, or of another parameter."""
        if self._graph.arrays[array].sure:
            return False
        are_updates = maker.phase == user.phase == Phase.UPDATE and maker.operator == user.operator != Operator.OTHER
        end = (bisect_left if user.operator == Operator.SCATTER_ADD else bisect_right)(self._breaks, user.kernel)
        return are_updates or bisect_right(self._breaks, maker.kernel) != end

    def _is_needed_whole(self, maker: Node, user: Node, array: int) -> bool:
        """Whether an array is a number for all of another one, or of sums by index, or what those begin with."""
        is_begin = user.operator == Operator.SCATTER_ADD and self._stored.get(user.takes[0], user.takes[0]) == array
        if maker.operator == Operator.SCATTER_ADD or is_begin:
            return True
        return self._graph.arrays[array].elements == 1 and any(self._graph.arrays[taken].elements > 1 for taken in maker.takes)

    def _pass(self, kernel: int) -> int:
        """The number of the forward pass that a kernel is of, with its backward pass."""
        return bisect_right(self._passes, kernel)

    def may_fuse(self, first: Sequence[int], second: Sequence[int]) -> bool:
        """Whether two groups, of which the second takes results of the first, could be one kernel."""
        if self._phases[first[0]] != self._phases[second[0]] or self._pass(first[0]) != self._pass(second[0]):
            return False
        if not (self._fuses(first[0]) and self._fuses(second[0])):
            return False
        return not any((maker, kernel) in self._apart for kernel in second for maker in self.makers[kernel].intersection(first))

    def evidence(self, chain: Sequence[int]) -> Iterator[tuple[int, Avoidable]]:
        """The kernels of a chain that would move less."""
        group, inside = self._group(chain), frozenset(chain)
        spared = {kernel: self._spared(kernel, inside) for kernel in chain if kernel not in self._graph.forced}
        worth = [kernel for kernel, size in spared.items() if size >= SMALL and self._graph.kernels[kernel].cost.known(HBM)]
        for kernel in worth:
            cost = self._graph.kernels[kernel].cost
            moved = cost.known(HBM)
            instead = less_traffic(cost, spared[kernel] * moved / (moved + self._read_again(kernel)))
            cause, removed = "" if group else "operators", (len(chain) - 1) / len(worth)
            yield kernel, Avoidable(kind=KIND, instead=instead, cause=cause, group=group, removed=removed)

    def _group(self, chain: Sequence[int]) -> str:
        if self._phases[chain[0]] == Phase.UPDATE:
            return OPTIMIZER
        nodes = [node for kernel in chain for node in self._graph.inside[kernel]]
        if {Operator.GATHER, Operator.SCATTER_ADD} <= {node.operator for node in nodes}:
            return MESSAGES
        forward = (other for node in nodes for other in (node, *self._graph.differentiated(node)))
        return LOSS if any(node.operator == Operator.LOG_SOFTMAX for node in forward) else ""

    def _spared(self, kernel: int, inside: Collection[int]) -> int:
        """The bytes that a kernel would neither read nor write in a kernel with others."""
        spared = sum(size for stored, size in self._read[kernel].items() if self._is_there(kernel, stored, inside))
        if self._begins_with_stored_sum(kernel, inside):
            return spared
        return spared + sum(self._bytes(array) for array in self._written[kernel] if self._is_passed(kernel, array, inside))

    def _is_there(self, kernel: int, array: int, inside: Collection[int]) -> bool:
        """Whether a kernel of a chain reads an array that one before it made or read."""
        maker = self._graph.maker.get(array)
        if maker is not None and maker.kernel in inside:
            return True
        return any(array in self._read[before] for before in inside if before < kernel)

    def _is_passed(self, kernel: int, array: int, inside: Collection[int]) -> bool:
        """Whether only kernels in this one read an array, or those of the backward pass one of the forward pass."""
        readers = self._readers.get(array, [])
        is_forward = self._phases[kernel] == Phase.FORWARD
        outside = [reader for reader in readers if reader not in inside and not (is_forward and self._phases[reader] == Phase.BACKWARD)]
        return array not in self._kept and not outside and any(reader in inside for reader in readers)

    def _begins_with_stored_sum(self, kernel: int, inside: Collection[int]) -> bool:
        if not self._is_trained or self._phases[kernel] != Phase.FORWARD or not self.makers[kernel].isdisjoint(inside):
            return False
        nodes = self._graph.inside[kernel]
        return any(node.operator == Operator.ADD and not self._graph.arrays[array].sure for node in nodes for array in node.gives)

    def _read_again(self, kernel: int) -> int:
        """The bytes that a norm reads twice, fused or not: of rows that are too long for on-chip memory."""
        norms = [node for node in self._graph.inside[kernel] if node.operator == Operator.NORM and isinstance(node.params, Axes)]
        again = 0
        for node in norms:
            shape = self._graph.arrays[node.takes[0]].shape
            axes = node.params.axes if isinstance(node.params, Axes) else ()
            if prod(shape[axis] for axis in axes) * _FULL > ROW:
                again += sum(self._bytes(array) for array in node.takes if self._graph.arrays[array].elements == prod(shape))
        return again

    def _bytes(self, array: int) -> int:
        """The bytes of an array in memory."""
        whole = self._graph.arrays[array]
        return whole.dtype.bytes(whole.distinct) if whole.dtype is not None else 0


def _later_passes(graph: Graph) -> Iterator[int]:
    """The kernels after a backward pass with which a forward pass begins that has products."""
    begin, is_after = NO_KERNEL, False
    for kernel, nodes in graph.inside.items():
        if nodes[0].phase in (Phase.BACKWARD, Phase.RECOMPUTED):
            begin, is_after = NO_KERNEL, True
        elif is_after and begin == NO_KERNEL:
            begin = kernel
        if begin != NO_KERNEL and any(node.operator in MULTIPLYING for node in nodes):
            yield begin
            begin, is_after = NO_KERNEL, False
