"""Updates of a whole table, such as an embedding, although a step uses only a few rows: the gradient of all others is zero."""

from collections.abc import Iterator

from msgspec import Struct

from ...cost import NOTHING
from ...graph import NO_KERNEL, Array, Graph, Node, Operator, Phase
from ...units import parse
from ...workload import Avoidable

KIND = "dense-gradient"
MOST_ROWS = 1 / 8  # of a table: from a sixth on, a sparse update moves as much as one of all rows
SPARSE = 6  # a sparse update moves this many times the bytes per row: SparseAdam has many operators (PyTorch 2.11: 3.5 GB for 0.59 GB)
LEAST = parse("64 MB", "B")  # of a table: for a smaller one, launching a sparse update takes longer than the dense update
_ONE_ARRAY = 3  # operands of a scatter to one array: the array, the positions, the updates
_MULTIPLYING = frozenset((Operator.DOT, Operator.CONVOLUTION, Operator.LOOP, Operator.BRANCH))
_TAKING = frozenset((Operator.GATHER, Operator.SLICE))
_SCATTERS = (Operator.SCATTER_ADD, Operator.SCATTER)


class Gradient(Struct, frozen=True):
    """The gradient of a table: its array, the zeros that it begins with, and the elements added to them."""

    array: int
    zeros: int
    added: int


def dense_gradients(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that update a table from the gradient of a few of its rows, and those that fill the rest of the gradient with zeros."""
    spared, largest = dict[int, float](), dict[int, float]()
    gradients = {gradient.array: gradient for gradient in (*_scattered(graph), *_accumulated(graph))}
    for gradient in gradients.values():
        share = gradient.added / graph.arrays[gradient.array].elements
        if not 0 < share <= MOST_ROWS or _bytes(graph.arrays[gradient.array]) < LEAST:
            continue
        parts = _Update(graph, gradient).parts()
        for kernel, part in parts.items():
            spared[kernel] = spared.get(kernel, 0.0) + part * (1 - SPARSE * share)
            largest[kernel] = max(largest.get(kernel, 0.0), share)
        zeros, maker = graph.made_by(gradient.zeros, Operator.FILL), graph.maker.get(gradient.array)
        if parts and zeros is not None and zeros.kernel != NO_KERNEL and (maker is None or zeros.kernel != maker.kernel):
            spared[zeros.kernel], largest[zeros.kernel] = 1.0, share
    for kernel, part in spared.items():
        instead = graph.kernels[kernel].cost * (1 - part) if part < 1 else NOTHING
        yield kernel, Avoidable(kind=KIND, instead=instead, facts={"share": largest[kernel]})


def _bytes(array: Array) -> int:
    return array.dtype.bytes(array.elements) if array.dtype is not None else 0


def _scattered(graph: Graph) -> Iterator[Gradient]:
    """The gradients that a kernel scatters into an array of zeros."""
    for scatter in graph.of(*_SCATTERS):
        is_outside = scatter.kernel != NO_KERNEL and scatter.gives[0] not in graph.region_of
        if is_outside and len(scatter.takes) == _ONE_ARRAY and graph.value(scatter.takes[0]) is not None:
            yield Gradient(scatter.gives[0], scatter.takes[0], _added(graph, scatter))


def _added(graph: Graph, scatter: Node) -> int:
    """The elements that a scatter adds in rows; 0 if each has a position of its own, as in a loss that takes one of each row."""
    _, positions, rows = (graph.arrays[array].elements for array in scatter.takes)
    return rows if rows > positions else 0


def _accumulated(graph: Graph) -> Iterator[Gradient]:
    """The gradients that a loop sums: each iteration scatters into the sum of the ones before, as for microbatches."""
    for region in graph.regions:
        for start, carried, handed_on, final in zip(region.initial, region.carried, region.handed_on, region.final, strict=True):
            if region.trips and final not in graph.region_of and graph.value(start) is not None:
                yield Gradient(final, start, region.trips * _added_in(graph, carried, handed_on))


def _added_in(graph: Graph, carried: int, handed_on: int) -> int:
    """The elements that an iteration adds to a carried array, by a scatter to it or to zeros; 0 if it does anything else."""
    addition = graph.made_by(handed_on, *_SCATTERS, Operator.ADD)
    scatter, before = addition, addition.takes[0] if addition is not None else carried
    if addition is not None and addition.operator == Operator.ADD:
        sides = [(graph.made_by(side, *_SCATTERS), other) for side, other in (addition.takes, addition.takes[::-1])]
        scatter, before = next(((side, other) for side, other in sides if side is not None), (None, carried))
        if scatter is None or graph.value(scatter.takes[0]) is None:
            return 0
    if scatter is None or len(scatter.takes) != _ONE_ARRAY or graph.origin(before) != carried or len(list(graph.uses(carried))) != 1:
        return 0
    return _added(graph, scatter)


class _Update:
    """What computes from the gradient of a table and arguments of its size alone, up to new values of these."""

    def __init__(self, graph: Graph, gradient: Gradient) -> None:
        self._graph, self._gradient = graph, gradient
        self._elements = graph.arrays[gradient.array].elements
        self._computed = {gradient.array}
        self._moved: dict[int, set[int]] = {}  # by kernel, the arrays as large as the table

    def parts(self) -> dict[int, float]:
        """The kernels of the update, and the part that is for this table of what each moves; none if the gradient has another use."""
        waiting, is_update = [self._gradient.array], False
        while waiting:
            array = waiting.pop()
            is_update |= array in self._graph.results and array != self._gradient.array
            for user in self._graph.users.get(array, ()):
                if user.operator in _TAKING:
                    continue
                if not self._is_of_table(user):
                    return {}
                large = [given for given in user.gives if self._is_large(given) and given not in self._computed]
                self._computed.update(large)
                waiting += large
                is_update |= user.phase == Phase.UPDATE
        maker = self._graph.maker.get(self._gradient.array)
        makes = {NO_KERNEL} if maker is None else {NO_KERNEL, maker.kernel}
        return {kernel: self._part(kernel) for kernel in self._moved if kernel not in makes} if is_update else {}

    def _is_of_table(self, node: Node) -> bool:
        """Whether a node computes elements of an array as large as the table, or fewer, of such arrays that the program gets."""
        if node.operator in _MULTIPLYING or any(self._graph.arrays[array].elements > self._elements for array in node.gives):
            return False
        self._move(node)
        waiting, seen = [array for array in node.takes if self._is_large(array)], set[int]()
        while waiting:
            array = waiting.pop()
            maker = self._graph.maker.get(array)
            if maker is None or array in self._computed or array in seen or self._graph.value(array) is not None:
                continue
            if maker.operator in (*_MULTIPLYING, *_SCATTERS) or maker.phase == Phase.BACKWARD:
                return False
            seen.add(array)
            self._move(maker)
            waiting += [taken for taken in maker.takes if self._is_large(taken)]
        return True

    def _is_large(self, array: int) -> bool:
        return self._graph.arrays[array].elements >= self._elements

    def _move(self, node: Node) -> None:
        if node.kernel != NO_KERNEL:
            self._moved.setdefault(node.kernel, set()).update(array for array in (*node.takes, *node.gives) if self._is_large(array))

    def _part(self, kernel: int) -> float:
        """The part of the elements that a kernel reads and writes that is of arrays as large as the table."""
        arrays = [*self._graph.read(kernel), *self._graph.written(kernel)]
        every = sum(self._graph.arrays[array].elements for array in arrays)
        return sum(self._graph.arrays[array].elements for array in arrays if array in self._moved[kernel]) / every if every else 0.0
