"""Quantized weights that are made wide again for every product, and quantized caches for every token: a cast from 8 bits, scales and zero
points, and then the matmul or attention.

Each pass writes them in 16 bits or more and reads them again, so that the product takes longer than one with wide weights. A kernel that
takes quantized weights or caches, or those that stay wide, need none of these.
"""

from collections.abc import Iterator

from ....cost import NOTHING
from ....torch_prices import Tensor
from ....units import parse
from ....workload import Avoidable
from ..pricing import PricedOp
from .recorded import PricedExecution, Recorded, tensors_of
from .weight_casts import WEIGHTS

KIND, CLASS = "wide-format", "wide"
# The group and the words for weights, and for keys and values.
WEIGHTS_AGAIN, CACHE_AGAIN = "dequantized", "dequantized cache"  # groups
PASSES = ("elementwise", "copy", "cast")
AHEAD = 8  # executions from the cast to the product
NARROW_BITS = 8
LEAST = parse("1 MB", "B")  # of quantized weights


def dequantized_weights(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The casts of quantized weights and caches, and what is done to them before they are multiplied, in order of time."""
    for place, held in enumerate(recorded.ordered):
        weights = _quantized(held[1])
        if weights is None or held[0].context.backward:
            continue
        passes = [held]
        for later in recorded.ordered[place + 1 : place + 1 + AHEAD]:
            if (group := _multiplies(later[1], weights)) is not None:
                for one in passes:
                    yield one, Avoidable(kind=KIND, instead=NOTHING, unneeded=CLASS, group=group)
                break
            is_pass = later[1].priced.category in PASSES and any(one.elements == weights.elements for one in tensors_of(later[1]))
            passes += [later] if is_pass else []


def _quantized(priced: PricedOp) -> Tensor | None:
    """The weights that an op casts from 8 bits to a wider float, if it does."""
    pair = tensors_of(priced)[:2] if priced.name == "aten::copy_" else []
    if len(pair) < 2 or pair[0].dtype is None or pair[1].dtype is None or (pair[1].bytes or 0) < LEAST:
        return None
    is_wider = pair[0].dtype.bits > NARROW_BITS == pair[1].dtype.bits and not pair[0].dtype.name.startswith(("int", "uint"))
    return pair[1] if is_wider and len(pair[1].shape) > 1 and pair[1].dtype.name != "bool" else None


def _multiplies(priced: PricedOp, weights: Tensor) -> str | None:
    """Which of both an op multiplies by that is of this size: weights, or keys or values, or both of these in one tensor; else ``None``."""
    operands = [priced.args[place] for place in WEIGHTS.get(priced.name, ()) if place < len(priced.args)]
    if any(isinstance(one, Tensor) and one.elements == weights.elements for one in operands):
        return WEIGHTS_AGAIN
    cached = tensors_of(priced)[1:3] if priced.priced.category == "attention" else []
    sizes = {one.elements for one in cached} | {sum(one.elements for one in cached)}
    return CACHE_AGAIN if cached and weights.elements in sizes else None
