"""Work that is done again in the backward pass, by the author's order (``jax.checkpoint``) or the compiler's."""

import re
from collections.abc import Iterator

from ...cost import NOTHING, Cost
from ...resource import HBM
from ...workload import Avoidable
from .kernels import Kernels

KIND, CLASS = "recomputation", "recomputed"
_BY_ORDER = "rematted_computation"  # how JAX names it
_BY_COMPILER = re.compile(r"\.remat\d*(\.|$)")
# Passes over a result that a loop would have to keep: it is copied into an array of all iterations and out again (four), what is
# elementwise between products is kept beside it (as much again), and such copies reach two thirds of the bandwidth. Four layers of a
# transformer in a loop on an H200 took as long with jax.checkpoint as without.
_PASSES = 12


def recomputed(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of a computation that do again what was done before.

    A loop keeps the results of its iterations in arrays of all of them, which it would have to write and read for that: often for as long
    as computing them again takes.
    """
    for index in kernels.costs:
        instruction = kernels.computation[index]
        if _BY_ORDER in instruction.op_name or (".remat" in instruction.name and _BY_COMPILER.search(instruction.name)):
            results = [leaf.bytes for leaf in instruction.shape.leaves if leaf.is_array]
            if instruction.opcode == "custom-call":
                results = results[:1]  # the others are its workspace
            stored = 0 if kernels.are_in_entry else _PASSES * sum(results)
            instead = Cost.of({HBM: stored}) if stored else NOTHING
            why = "recomputes the forward pass in the backward pass"
            yield index, Avoidable(kind=KIND, instead=instead, why=why, unneeded=CLASS)
