"""Chains of kernels that pass arrays through memory although one kernel could compute them all, row by row.

Each is elementwise or reduces rows that fit on chip, and all iterate over arrays of one size in the same order. A compiler fuses these by
itself, unless the program prevents it (an optimization barrier) or a reduction is the last step of a kernel. It recomputes a cheap value,
such as the exponentials of a softmax, in each kernel that needs it instead of storing it.
"""

from collections.abc import Collection, Sequence
from math import prod

from msgspec import Struct

from ..resource import TRANSCENDENTAL
from .fusion import ROW, SMALL, grouped
from .graph import NO_KERNEL, Graph, Node
from .node_axes import ELEMENTWISE
from .operators import RENAMING, Axes, Operator

ANY = -1  # the size of a kernel of smaller arrays, such as sums of rows: it belongs to the chain that makes them
MORE = 1.05  # times an array's bytes: the most that kernels read to recompute it
_OTHERS = (Operator.FILL, Operator.CONSTANT, Operator.IOTA, Operator.BROADCAST, Operator.VIEW, Operator.REAL, Operator.REDUCE)
_IN_ROWS = ELEMENTWISE.union(_OTHERS) - {Operator.COPY, Operator.TRIANGLE}


class Chain(Struct, frozen=True):
    """Kernels, the last of which writes the last large result, and the bytes that one kernel would move.

    ``least`` is the bytes if only that result were needed. ``sums`` is the number of reductions of a row that one kernel has to complete,
    one after the other, before it can complete the row itself. If one of the kernels already does this, it is 0, or 1 if the kernel would
    have to hold another row meanwhile: the residual around a norm.
    """

    kernels: tuple[int, ...]
    moved: int
    least: int
    sums: int = 0


def row_chains(graph: Graph) -> list[Chain]:
    """The chains of a program, each as long as it can be."""
    kernels = _Kernels(graph)
    groups = [[kernels.of[step] for step in group] for group in grouped(kernels.makers, kernels.are_alike) if len(group) > 1]
    return [kernels.chain(frozenset(group)) for group in groups]


class _Kernels:
    """The kernels of a program with what they read and write in memory.

    ``makers`` has the steps before each, kernels by their first nodes and what is between them without a kernel, such as a loop; ``of`` the
    kernels. ``sizes`` are the elements of the largest array of each elementwise or row-reducing kernel, or `ANY` if it is small.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.of: dict[int, int] = {}
        self.makers: dict[int, set[int]] = {}
        self._stored: dict[int, int] = {}  # of views, what they are a view of
        self._reads: dict[int, set[int]] = {}
        self._readers: dict[int, set[int]] = {}
        first: dict[int, int] = {}  # node of each kernel
        step_of: dict[int, int] = {}  # the step of each array
        for place, node in enumerate(graph.nodes):
            taken = [self._stored.get(array, array) for array in node.takes]
            if node.kernel == NO_KERNEL and node.operator in RENAMING:
                self._stored[node.gives[0]] = taken[0]
                continue
            step = place if node.kernel == NO_KERNEL else first.setdefault(node.kernel, place)
            self.of[step] = node.kernel
            read = {array for array in taken if step_of.get(array) != step}
            self.makers.setdefault(step, set()).update(step_of[array] for array in read if array in step_of)
            self._reads.setdefault(node.kernel, set()).update(read)
            for array in read:
                self._readers.setdefault(array, set()).add(node.kernel)
            step_of |= dict.fromkeys(node.gives, step)
        self._returned = {self._stored.get(array, array) for array in graph.results}
        self._returned.update(self._stored.get(array, array) for region in graph.regions for array in region.handed_on)
        self._written = {kernel: graph.written(kernel) for kernel in graph.inside}
        self.sizes = {kernel: size for kernel in graph.inside if (size := self._size(kernel))}
        self._sums = {kernel for kernel in self.sizes if any(node.operator == Operator.REDUCE for node in graph.inside[kernel])}

    def are_alike(self, first: Sequence[int], second: Sequence[int]) -> bool:
        """Whether two groups go through arrays of one size in one loop; a kernel of smaller ones joins those that make them."""
        kernels, others = ([self.of[step] for step in group] for group in (first, second))
        if any(kernel not in self.sizes for kernel in (*kernels, *others)):
            return False
        size = max(self.sizes[kernel] for kernel in kernels)
        if size == ANY or max(self.sizes[kernel] for kernel in others) not in (ANY, size):
            return False
        loops = [self._graph.region_of.get(self._graph.inside[kernel][0].gives[0]) for kernel in (kernels[0], others[0])]
        return loops[0] is loops[1]

    def _size(self, kernel: int) -> int:
        if kernel not in self._graph.kernels or not all(map(self._is_in_rows, self._graph.inside[kernel])):
            return 0
        arrays = [self._graph.arrays[array] for array in (*self._reads[kernel], *self._written[kernel])]
        largest = max(arrays, key=lambda array: array.elements, default=None)
        if largest is None or not self._written[kernel]:
            return 0
        return largest.elements if largest.bytes >= SMALL else ANY

    def _is_in_rows(self, node: Node) -> bool:
        """Whether a node is elementwise, or a reduction of the last dimensions of its operand, if these fit on chip."""
        if node.operator != Operator.REDUCE:
            return node.operator in _IN_ROWS
        whole = self._graph.arrays[node.takes[0]].shape
        axes = sorted(node.params.axes) if isinstance(node.params, Axes) else []
        is_last = axes == list(range(len(whole) - len(axes), len(whole)))
        return is_last and 4 * prod(whole[axis] for axis in axes) <= ROW

    def _is_cheap(self, kernel: int) -> bool:
        """Whether a compiler recomputes what a kernel makes: an exponential at most, and no reduction."""
        if kernel in self._sums or kernel not in self.sizes:
            return False
        is_costly = bool(self._graph.kernels[kernel].cost.known(TRANSCENDENTAL))
        functions = [node for node in self._graph.inside[kernel] if node.operator == Operator.ELEMENTWISE]
        return not (is_costly and any(self._graph.arrays[node.gives[0]].elements >= self.sizes[kernel] for node in functions))

    def _begun_from(self, array: int, group: Collection[int]) -> set[int] | None:
        """The arrays from outside a group that one in it is computed from; ``None`` if it costs more than compilers recompute."""
        begun, waiting, seen = set[int](), [array], set[int]()
        while waiting:
            kernel = self._graph.maker[waiting.pop()].kernel
            if not self._is_cheap(kernel):
                return None
            seen.add(kernel)
            inside = {read for read in self._reads[kernel] if self._maker(read) in group}
            begun |= self._reads[kernel] - inside
            waiting += [read for read in inside if self._maker(read) not in seen]
        return begun

    def _maker(self, array: int) -> int:
        maker = self._graph.maker.get(array)
        return maker.kernel if maker is not None else NO_KERNEL

    def _is_stored(self, array: int, group: Collection[int]) -> bool:
        """Whether an array of a group is written for kernels outside that cannot recompute it from arrays that are no larger."""
        if array in self._returned or not self.sizes.keys() >= self._readers.get(array, set()).difference(group):
            return True
        begun = self._begun_from(array, group)
        return begun is None or self._bytes(begun) > MORE * self._bytes([array])

    def chain(self, group: frozenset[int]) -> Chain:
        """A group as a chain, with the bytes that one kernel would move: arrays from outside, and those that others or the caller need."""
        arrays = self._graph.arrays
        read = {array for kernel in group for array in self._reads[kernel] if self._maker(array) not in group}
        results = {array for kernel in group for array in self._written[kernel]}
        needed = {array for array in results if array in self._returned or self._readers.get(array, set()) - group}
        written = {array for array in needed if self._is_stored(array, group)}
        sizes = {kernel: max(arrays[array].elements for array in self._written[kernel]) for kernel in group}
        last = max(group, key=lambda kernel: (sizes[kernel], kernel))
        kernels = (*sorted(group - {last}), last)
        return Chain(kernels, self._bytes(read | written), self._bytes({*read, *self._written[last]}), self._finished_sums(sizes))

    def _finished_sums(self, sizes: dict[int, int]) -> int:
        """How many reductions of a row one kernel completes one after the other before the last large result; see `Chain.sums`."""
        large, depths = {kernel for kernel, size in sizes.items() if size == max(sizes.values())}, dict[int, int]()
        if not large.isdisjoint(self._sums):
            return int(any(self._passes_by({*sizes}, large, kernel) for kernel in large & self._sums))
        for kernel in sorted(sizes):  # in the order in which they run
            before = max((depths[maker] for array in self._reads[kernel] if (maker := self._maker(array)) in sizes), default=0)
            depths[kernel] = before + (kernel in self._sums)
        return max(depths[kernel] for kernel in large)

    def _passes_by(self, group: set[int], large: set[int], summing: int) -> bool:
        """Whether a large array of a group that a kernel's sums are computed from is needed again after that kernel."""
        before, after = {summing}, {summing}
        reads = {kernel: {self._maker(array) for array in self._reads[kernel]} & group for kernel in group}
        for kernel in sorted(group, reverse=True):
            before |= reads[kernel] if kernel in before else set()
        for kernel in sorted(group):
            after |= {kernel} if reads[kernel] & after else set()
        return any(reads[kernel] & before & large - {summing} for kernel in after - {summing})

    def _bytes(self, arrays: Collection[int]) -> int:
        return sum(self._graph.arrays[array].bytes for array in arrays)
