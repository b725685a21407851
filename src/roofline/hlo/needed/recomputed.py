"""Work that is done again in the backward pass, by the author's order (``jax.checkpoint``) or the compiler's."""

import re
from collections.abc import Iterator

from ...cost import NOTHING
from ...workload import Avoidable
from .kernels import Kernels

KIND, CLASS = "recomputation", "recomputed"
_BY_ORDER = "rematted_computation"  # how JAX names it
_BY_COMPILER = re.compile(r"\.remat\d*(\.|$)")


def recomputed(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of a computation that do again what was done before."""
    for index in kernels.costs:
        instruction = kernels.computation[index]
        if _BY_ORDER in instruction.op_name or _BY_COMPILER.search(instruction.name):
            yield (
                index,
                Avoidable(kind=KIND, instead=NOTHING, why="computes again in the backward pass what the forward pass did", unneeded=CLASS),
            )
