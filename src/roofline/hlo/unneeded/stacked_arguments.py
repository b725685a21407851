"""Slices of an argument that are copied before a product reads them: the weights of one layer out of an array of all layers.

If the slice were an array of its own, the product could read it without a copy. A loop over stacked weights (`jax.lax.scan`) copies those
of one layer in every trip, and so does a program that indexes them layer by layer. A product may multiply by several of them at once,
concatenated in its own kernel. On an H200 a decoder of 16 layers takes 30.5 ms for 16 tokens, 18.1 ms with a list of weights
(predicted: 10.9 ms saved).
"""

from collections.abc import Iterator

from ...cost import NOTHING
from ...workload import Avoidable, Usual
from .kernels import Kernels
from .layout import KIND
from .values import LAYOUT, Value, Values

CLASS, GROUP = "copied", "stacked"
_CUTS = ("dynamic-slice", "slice")
_IN_PLACE = frozenset(("bitcast", "reshape"))  # opcodes that move no element
_MOST_LOOPS = 16  # nested loops through which a value is followed


def stacked_arguments(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that only copy a slice of an argument, which a product then reads."""
    for index, found in kernels.products.items():
        for cut in (piece for side in (found.left, found.right) for piece in kernels.values.pieces(side, _IN_PLACE)):
            maker = kernels.holding(cut)
            if (
                maker in (None, index)
                or cut.opcode not in _CUTS
                or not _only_cuts(kernels, maker)
                or not _is_one_piece(kernels.values, cut)
            ):
                continue
            if _is_of_argument(kernels.values, kernels.values.operand(cut, 0)):
                yield maker, Avoidable(kind=KIND, instead=NOTHING, unneeded=CLASS, group=GROUP, usual=Usual.YES)


def _only_cuts(kernels: Kernels, index: int) -> bool:
    """Whether a kernel only copies a slice, whose position it may compute."""
    if index not in kernels.costs:
        return False
    body = kernels.values.body(kernels.computation[index])
    arrays = [one for one in body or () if one.shape.is_array and one.shape.elements > 1]
    return all(one.opcode in ("parameter", *_CUTS, *_IN_PLACE) for one in arrays)


def _is_one_piece(values: Values, cut: Value) -> bool:
    """Whether a slice is contiguous in memory: dimensions after the first one with several elements are taken whole."""
    source = values.operand(cut, 0).shape
    outer = [axis for axis in source.major_to_minor if source.dims[axis] != 1]
    while outer and cut.shape.dims[outer[-1]] == source.dims[outer[-1]]:
        outer.pop()
    return all(cut.shape.dims[axis] == 1 for axis in outer[:-1])


def _is_of_argument(values: Values, value: Value) -> bool:
    """Whether a value is an argument of the program, which the loops around it leave unchanged."""
    for _ in range(_MOST_LOOPS):
        value = values.origin(value, LAYOUT)
        before = values.before_loop(value)
        if before is None:
            break
        value = before
    return value.opcode == "parameter" and value.computation is values.module.entry_computation
