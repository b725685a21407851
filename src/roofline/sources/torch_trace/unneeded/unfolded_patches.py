"""Patches of images that are stored for a matmul (``F.unfold``), where a convolution reads overlapping patches in place.

Each element of the image is stored as often as windows overlap it. Whatever takes or makes a tensor of the size of the patches works on
them: copies into another layout, and in the backward pass the sum of the patches' gradients.
"""

from collections.abc import Iterator
from math import prod

from msgspec import Struct

from ....cost import NOTHING, Cost
from ....resource import HBM
from ....torch_prices import Tensor
from ....units import parse
from ....workload import Avoidable
from ..pricing import PricedOp
from .recorded import PricedExecution, Recorded, tensors_of

KIND, GROUP = "repeated-operand", "unfolded"
UNFOLD, FOLD, WEIGHTED = "aten::im2col", "aten::col2im", ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
MOVES = ("copy", "cast", "data movement")
LEAST = parse("1 MB", "B")  # of the patches
WORTH = 2  # times that each element must be stored


class Patches(Struct, frozen=True):
    """Patches of ``depth`` elements each, ``elements`` in all, of an image whose elements they have ``times`` times."""

    elements: int
    depth: int
    times: float


def unfolded_patches(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The ops that store, copy and add up patches, and the products with them, as a convolution would do them, in order of time."""
    found = {one.elements: one for _, priced in recorded.ordered if (one := _patches(priced)) is not None}
    multiplied = {
        one.elements
        for _, priced in recorded.ordered
        if priced.name in WEIGHTED
        for one in tensors_of(priced)
        if one.elements in found and found[one.elements].depth in one.shape
    }
    for held in recorded.ordered:
        mine = _handled(held[1], found) if multiplied else None
        if mine is None or mine.elements not in multiplied:
            continue
        yield held, Avoidable(kind=KIND, instead=_by_convolution(held[1], mine), facts={"times": mine.times}, group=GROUP)


def _patches(priced: PricedOp) -> Patches | None:
    """The patches that an op stores, if windows overlap."""
    image, window = next(iter(tensors_of(priced)), None), priced.args[1] if len(priced.args) > 1 else None
    if priced.name != UNFOLD or image is None or not image.bytes or len(image.shape) != 4 or priced.priced.cost is None:
        return None
    stored = float(priced.priced.cost.known(HBM)) - image.bytes
    times = stored / image.bytes
    sizes = [size for size in window if isinstance(size, int)] if isinstance(window, tuple) else []
    if len(sizes) != 2 or stored < LEAST or times < WORTH:
        return None
    return Patches(round(image.elements * times), image.shape[1] * prod(sizes), times)


def _handled(priced: PricedOp, found: dict[int, Patches]) -> Patches | None:
    """The patches that an op stores, copies, adds up or multiplies."""
    if (own := _patches(priced)) is not None:
        return found.get(own.elements)
    if priced.name not in (*WEIGHTED, FOLD) and priced.priced.category not in MOVES:
        return None
    sizes = [one.elements for one in tensors_of(priced)]
    operands = [one for one in tensors_of(priced) if len(one.shape) > 1]
    if priced.name in WEIGHTED and len(operands) > 1:
        sizes.append(_made(operands[-2], operands[-1]))
    return next((found[size] for size in sizes if size in found), None)


def _made(left: Tensor, right: Tensor) -> int:
    """The elements of the product of two matrices, or of a batch of them."""
    return left.elements // max(left.shape[-1], 1) * right.shape[-1]


def _by_convolution(priced: PricedOp, patches: Patches) -> Cost:
    """The cost of an op without patches: products read or write the image instead, all others are not needed."""
    if priced.name not in WEIGHTED:
        return NOTHING
    cost = priced.priced.cost or NOTHING
    bits = next((one.dtype.bits for one in tensors_of(priced) if one.dtype is not None), 0)
    less = patches.elements * (1 - 1 / patches.times) * bits / 8
    return Cost.of({resource: max(float(amount) - less, 0.0) if resource == HBM else amount for resource, amount in cost.amounts})
