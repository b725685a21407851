"""Work that is recomputed in the backward pass, because of ``jax.checkpoint`` or by the compiler's choice."""

import re
from collections import Counter
from collections.abc import Iterator

from ...cost import NOTHING, Cost
from ...resource import HBM
from ...workload import Avoidable, Usual
from .axes import source_axis
from .kernels import Kernels, Product
from .values import RENAMED

KIND, CLASS = "recomputation", "recomputed"
LOOP = "loop"  # the group of what a loop over layers recomputes
MOST_TRIPS = 100  # of a loop that can be unrolled: one over layers, not over positions or time
_BY_AUTHOR = "rematted_computation"  # JAX's name for it
_BY_COMPILER = re.compile(r"\.remat\d*(\.|$)")
# Times that a loop would move a result to keep it instead: it is copied into an array of all iterations and out again (four), elementwise
# results between products are kept too (four more), and such copies reach two thirds of the bandwidth. Four layers of a transformer in a
# loop on an H200 took as long with jax.checkpoint as without; twelve took 96.3 ms with and 99.6 without, but 80.5 in a Python loop without.
_PASSES = 12


def recomputed(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of a computation that recompute earlier results.

    A loop would have to keep the results in arrays of all iterations, and writing and reading these often takes as long as recomputing. A
    loop of few iterations can be unrolled, and then stores them where they are.
    """
    is_short = kernels.trips is not None and 1 < kernels.trips <= MOST_TRIPS
    ordered = [index for index in kernels.costs if _BY_AUTHOR in kernels.computation[index].op_name]
    once = _computed_once(kernels, ordered)
    by_compiler = [index for index in kernels.costs if _BY_COMPILER.search(kernels.computation[index].name)]
    for index in sorted({*ordered, *by_compiler} - once):
        instruction = kernels.computation[index]
        results = [leaf.bytes for leaf in instruction.shape.leaves if leaf.is_array]
        if instruction.opcode == "custom-call":
            results = results[:1]  # the rest is workspace
        stored = 0 if kernels.are_in_entry else _PASSES * sum(results)
        instead = Cost.of({HBM: stored}) if stored else NOTHING
        yield index, Avoidable(kind=KIND, instead=instead, unneeded=CLASS, extra=True)
        if is_short:
            yield index, Avoidable(kind=KIND, instead=NOTHING, group=LOOP, usual=Usual.YES, extra=True)


def _computed_once(kernels: Kernels, ordered: list[int]) -> set[int]:
    """Those of the kernels of a checkpoint that are not a second computation.

    A CPU compiler may merge both computations, or the forward pass may not need the result. A product with an argument is computed once if
    no other product contracts the same dimension of that argument; the kernels around such products count with them.
    """
    if not ordered or not kernels.are_in_entry or kernels.is_shortened:
        return set()
    factors = {index: found for index, one in kernels.products.items() if (found := _argument_factors(kernels, one))}
    times = Counter(each for found in factors.values() for each in found)
    known = [index for index in ordered if index in factors]
    once = {index for index in known if all(times[each] == 1 for each in factors[index])}
    return set(ordered) if known and len(once) == len(known) else once


def _argument_factors(kernels: Kernels, product: Product) -> frozenset[tuple[int, int]]:
    """The arguments of the program that a product multiplies, each with its contracted dimension."""
    found = set()
    for side, axes in ((product.left, product.dims.lhs_contracting), (product.right, product.dims.rhs_contracting)):
        made = kernels.values.origin(side)
        if made.opcode != "parameter" or made.inside or len(axes) != 1:
            continue
        axis = source_axis(kernels.values, side, axes[0], RENAMED)
        if axis is not None:
            found.add((made.index, axis))
    return frozenset(found)
