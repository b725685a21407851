"""Products, factorisations and stencils with so few elements each that elementwise code is faster: it moves the same bytes, and fuses with
what is around it. Kernels for matrices pad each of them to a tile.
"""

from collections.abc import Iterator
from math import prod

from ...graph import NO_KERNEL, Graph, Operator, Windows
from ...graph.facts.products import largest_products
from ...workload import Avoidable, Fact, Saves

KIND, TINY, STENCIL, SOLVED = "odd-sizes", "tiny", "stencil", "tiny solves"
# Two of the three sizes of a tiny product: on an H200, a compiled sum takes 1/8 to 1/165 of the time of a batched matmul for matrices of 2
# to 6 rows and columns, 2/5 to 3/5 for 8, and longer for 12 and more.
MOST_TINY = 6
MOST_TAPS = 27  # of a stencil: 3 × 3 × 3
# Factorisations that a compiler can unroll, of so many matrices that each thread has its own: on an H200, 100,000 systems of 8 × 8 took
# 0.64 ms with the library, and 0.10 ms as elementwise operations on arrays over the batch.
MOST_ROWS, LEAST_MATRICES = 8, 1_000
_CHANNEL = (1, 1)


def tiny_products(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The products of which two sizes are tiny; those of two vectors are sums."""
    for kernel, product in largest_products(graph).items():
        sizes = product.sizes
        least, between, _ = sorted((sizes.rows, sizes.depth, sizes.columns))
        if least > 0 and between <= MOST_TINY and not sizes.rows == sizes.columns == 1:
            yield kernel, _avoidable(graph, kernel, TINY, product=str(sizes))


def stencils(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The convolutions of one channel with small windows."""
    for node in graph.of(Operator.CONVOLUTION):
        windows = node.params
        if isinstance(windows, Windows) and windows.channels == _CHANNEL and prod(windows.sizes) <= MOST_TAPS and node.kernel != NO_KERNEL:
            yield node.kernel, _avoidable(graph, node.kernel, STENCIL, window="×".join(map(str, windows.sizes)))


def tiny_solves(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The factorisations and solves of many tiny matrices."""
    for node in graph.of(Operator.FACTOR, Operator.SOLVE):
        *batch, rows, columns = (0, 0, *graph.arrays[node.takes[0]].shape) if node.takes else (0, 0)
        count = prod(batch[2:])
        if 0 < max(rows, columns) <= MOST_ROWS and count >= LEAST_MATRICES and node.kernel != NO_KERNEL:
            yield node.kernel, _avoidable(graph, node.kernel, SOLVED, matrices=count, rows=rows, columns=columns)


def _avoidable(graph: Graph, kernel: int, group: str, **facts: Fact) -> Avoidable:
    return Avoidable(kind=KIND, instead=graph.kernels[kernel].cost, facts=facts, group=group, saves=Saves.GOOD_STREAM)
