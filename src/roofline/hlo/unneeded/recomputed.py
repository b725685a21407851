"""Work that is done again in the backward pass, by the author's order (``jax.checkpoint``) or the compiler's."""

import re
from collections import Counter
from collections.abc import Iterator

from ...cost import NOTHING, Cost
from ...resource import HBM
from ...workload import Avoidable
from .axes import axis_behind
from .kernels import Kernels, Product
from .values import RENAMED

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
    ordered = [index for index in kernels.costs if _BY_ORDER in kernels.computation[index].op_name]
    once = _computed_once(kernels, ordered)
    by_compiler = [index for index in kernels.costs if _is_compilers_copy(kernels.computation[index].name)]
    for index in sorted({*ordered, *by_compiler} - once):
        instruction = kernels.computation[index]
        results = [leaf.bytes for leaf in instruction.shape.leaves if leaf.is_array]
        if instruction.opcode == "custom-call":
            results = results[:1]  # the others are its workspace
        stored = 0 if kernels.are_in_entry else _PASSES * sum(results)
        instead = Cost.of({HBM: stored}) if stored else NOTHING
        why = "recomputes the forward pass in the backward pass"
        yield index, Avoidable(kind=KIND, instead=instead, why=why, unneeded=CLASS)


def _is_compilers_copy(name: str) -> bool:
    return ".remat" in name and _BY_COMPILER.search(name) is not None


def _computed_once(kernels: Kernels, ordered: list[int]) -> set[int]:
    """Those of the kernels ordered to compute again that are the only ones which compute it.

    A compiler for a CPU joins the two, and nothing else may need what the forward pass computed. A product with an argument is the only one
    if no other multiplies that argument along the same dimension; the kernels around such products go with them.
    """
    if not ordered or not kernels.are_in_entry or kernels.is_shortened:
        return set()
    factors = {index: found for index, one in kernels.products.items() if (found := _argument_factors(kernels, one))}
    times = Counter(each for found in factors.values() for each in found)
    known = [index for index in ordered if index in factors]
    once = {index for index in known if all(times[each] == 1 for each in factors[index])}
    return set(ordered) if known and len(once) == len(known) else once


def _argument_factors(kernels: Kernels, product: Product) -> frozenset[tuple[int, int]]:
    """The arguments of the program that a product multiplies, each with its dimension that is summed over."""
    found = set()
    for side, axes in ((product.left, product.dims.lhs_contracting), (product.right, product.dims.rhs_contracting)):
        made = kernels.values.origin(side)
        if made.opcode != "parameter" or made.inside or len(axes) != 1:
            continue
        axis = axis_behind(kernels.values, side, axes[0], RENAMED)
        if axis is not None:
            found.add((made.index, axis))
    return frozenset(found)
