"""Products of one shape that run one by one, though none needs another's result: members of an ensemble, or heads, in a Python loop.

The level of a product is the number of products on the longest way to it. Those of one level do not depend on each other. On an H200, an
ensemble of 32 networks of four layers takes 1.37 ms per step in a Python loop, 0.32 ms with ``jax.vmap`` (predicted: 0.66 ms saved for its
matmuls, and 0.25 ms for other small kernels).
"""

from collections.abc import Iterator

from ...workload import Avoidable, Saves
from .kernels import Kernels
from .low_batch import KIND

GROUP = "one by one"
_LEAST = 8  # products: a program has a few of one level and shape anyway, such as queries, keys and values


def parallel_products(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The products that could be one batched product, whose work is the same."""
    alike: dict[tuple[int, str, str], list[int]] = {}
    for index, level in _levels(kernels).items():
        found = kernels.products[index]
        alike.setdefault((level, str(found), found.left.shape.dtype), []).append(index)
    for mine in alike.values():
        if len(mine) >= _LEAST:
            for index in mine:
                yield (
                    index,
                    Avoidable(kind=KIND, instead=kernels.costs[index], facts={"matmuls": len(mine)}, group=GROUP, saves=Saves.ONE_KERNEL),
                )


def _levels(kernels: Kernels) -> dict[int, int]:
    """The level of each product of a computation, whose instructions follow their operands."""
    levels: list[int] = []
    for index, instruction in enumerate(kernels.computation.instructions):
        before = max([levels[operand] for operand in instruction.operands], default=0)
        levels.append(before + (index in kernels.products))
    return {index: levels[index] for index in kernels.products}
