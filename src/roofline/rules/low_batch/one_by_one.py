"""Products of one shape that run one by one, though none needs another's result: members of an ensemble, or heads, in a Python loop.

On an H200, an ensemble of 32 networks of four layers takes 1.37 ms per step in a Python loop, 0.32 ms with ``jax.vmap`` (predicted: 0.66 ms
saved for its matmuls, and 0.25 ms for other small kernels).
"""

from collections.abc import Iterator

from ...graph import NO_KERNEL, Graph, Node, Operator
from ...graph.facts.levels import levels
from ...workload import Avoidable, Facts, Saves

KIND, GROUP = "low-batch", "one by one"
_LEAST = 8  # products: a program has a few of one level and shape anyway, such as queries, keys and values


def parallel_products(graph: Graph) -> Iterator[tuple[int, Avoidable]]:
    """The products that could be one batched product, whose work is the same. Edges that are not sure do not tell what depends on what."""
    alike: dict[tuple[object, ...], dict[int, Node]] = {}
    level = graph.fact(levels)
    for product in graph.of(Operator.DOT):
        left, sizes = graph.arrays[product.takes[0]], product.sizes
        if product.kernel != NO_KERNEL and left.sure:
            shape = (sizes.batch, sizes.rows, sizes.depth, sizes.columns, sizes.groups, left.dtype)
            loop = id(graph.region_of.get(product.gives[0]))
            alike.setdefault((loop, level[product.gives[0]], *shape), {})[product.kernel] = product
    for products in alike.values():
        if len(products) >= _LEAST:
            facts = Facts(matmuls=len(products))
            for kernel, product in products.items():
                yield kernel, Avoidable(kind=KIND, instead=graph.cost(product), facts=facts, group=GROUP, saves=Saves.ONE_KERNEL)
