"""Arrays beside products of fp32 numbers that would have half the bytes with these in bf16, and the kernels that read and write them.

What a product makes or takes would be bf16, and what is computed from one product for another. Arguments and results of the program, such
as weights and the state of an optimizer, may have to stay as they are. Rows that a scatter adds stay fp32: that is several times as fast,
and so does all that is computed for it after a product, or from it before the next one.

On an H200, with products alone and with these kernels, of what bf16 saved: 83% and 94% in the forward pass of a transformer, 82% and 98% in
a vision transformer, 85% and 94% in an MLP; 43% and 54% in training, 63% and 71% in that of a Llama, where stored attention is told apart.
"""

from collections.abc import Collection, Iterator

from msgspec import Struct

from ...cost import Cost, less_traffic
from ...graph import NO_KERNEL, Graph, Node, Operator, Rows
from ...graph.facts.flow import reached, reaching
from ...resource import HBM

_WIDE = "fp32"
_NAMES = (Operator.VIEW, Operator.TRANSPOSE)  # of the same array, where no kernel runs them
_APART = frozenset(  # whose arrays stay as they are
    (
        Operator.SCATTER,
        Operator.SCATTER_ADD,
        Operator.SORT,
        Operator.TOP_K,
        Operator.FOURIER,
        Operator.FACTOR,
        Operator.DECOMPOSE,
        Operator.SOLVE,
        Operator.INVERSE,
        Operator.ATTENTION,
        Operator.ATTENTION_GRADIENT,
        Operator.CONVOLUTION_GRADIENT,
        Operator.RANDOM,
        Operator.OTHER,
    )
)


class NarrowArrays(Struct, frozen=True):
    """The arrays that would be narrow with some products, and those that have to stay ``wide``."""

    graph: Graph
    narrow: frozenset[int]
    wide: frozenset[int]

    @classmethod
    def beside(cls, graph: Graph, products: Collection[int]) -> "NarrowArrays":
        """The arrays of the products that these kernels run, and those in between."""
        adding = [node for node in graph.of(Operator.SCATTER_ADD) if _adds_rows(graph, node)]
        wide = reached(graph, adding, products) | reaching(graph, adding, products)
        running = [node for kernel in products for node in graph.inside.get(kernel, ())]
        between = reached(graph, running) & reaching(graph, running)
        own = {array for node in running for array in (*node.takes, *node.gives)}
        stored, returned = ({_stored(graph, array) for array in arrays} for arrays in (between | own, graph.results))
        narrow = {array for array in stored - wide - returned if array in graph.maker and _is_wide(graph, array)}
        return cls(graph, frozenset(narrow), frozenset(wide))

    def kept(self, kernel: int) -> int:
        """Bytes of the arrays that a kernel reads and writes and that have to stay wide."""
        arrays = self.graph.arrays
        return sum(arrays[array].bytes for array in (*self.graph.read(kernel), *self.graph.written(kernel)) if array in self.wide)

    def neighbours(self, products: Collection[int], functions: Collection[int]) -> Iterator[tuple[int, Cost]]:
        """The kernels other than products that read or write narrow arrays, and their cost with these in half the bytes.

        What reads the result of one of ``functions`` would compute these functions again, which takes about the time that the bytes save.
        """
        graph = self.graph
        kernels = {node.kernel for array in self.narrow for node in (graph.maker[array], *_users(graph, array))}
        for kernel in sorted(kernels - {NO_KERNEL, *products}):
            if any(node.operator in _APART for node in graph.inside[kernel]):
                continue
            read = [_stored(graph, array) for array in graph.read(kernel)]
            if any(array in graph.maker and graph.maker[array].kernel in functions for array in read):
                continue
            less = sum(graph.arrays[array].bytes // 2 for array in (*read, *graph.written(kernel)) if array in self.narrow)
            cost = graph.kernels[kernel].cost
            if less:
                yield kernel, less_traffic(cost, min(less, int(cost.known(HBM)) // 2))


def _is_wide(graph: Graph, array: int) -> bool:
    stored = graph.arrays[array]
    return stored.dtype is not None and stored.dtype.name == _WIDE and stored.space == 0


def _adds_rows(graph: Graph, scatter: Node) -> bool:
    """Whether a scatter adds rows: the gradient of the elements that a loss picks adds single ones."""
    if len(scatter.takes) < 3:
        return False
    positions, rows = (graph.arrays[array].elements for array in scatter.takes[1:3])
    axes = len(scatter.params.axes) if isinstance(scatter.params, Rows) else 1
    return rows > positions // max(axes, 1)


def _stored(graph: Graph, array: int) -> int:
    """The array in memory that one is, or is a view of."""
    while (node := graph.maker.get(array)) is not None and node.kernel == NO_KERNEL and node.operator in _NAMES:
        array = node.takes[0]
    return array


def _users(graph: Graph, array: int) -> Iterator[Node]:
    """The nodes that take an array in memory, or a view of it."""
    for node in graph.users.get(array, ()):
        if node.kernel == NO_KERNEL and node.operator in _NAMES:
            yield from _users(graph, node.gives[0])
        else:
            yield node
