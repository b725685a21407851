"""Fused attention with a causal mask given as a tensor: the kernel reads it, and also computes the half of the scores that it removes.

The mask is recognised by how the step made it: as a triangle (``triu``, ``tril``), or by comparing positions, with as many rows and columns
as there are queries and keys. The operators that build it are not needed either: a kernel computes masks, and biases that depend on
positions alone, from the positions.
"""

from collections.abc import Iterator, Sequence

from ....cost import NOTHING, Cost, less_traffic
from ....resource import HBM
from ....torch_prices import Tensor
from ....torch_prices.attention import mask_of
from ....workload import Avoidable
from ..pricing import PricedOp
from .recorded import PricedExecution, Recorded, tensors_of
from .unfused import result_of
from .written_attention import MASKED, TRIANGLES

_COMPARISONS = ("aten::lt", "aten::le", "aten::gt", "aten::ge")
LEAST = 64  # queries: with fewer, other tensors may have the same shape
BEFORE = 32  # executions in front of attention among which those that build its mask are searched
# The group and the words for masks that the step builds: the same for all heads, or a bias of each head with them.
BUILT, BIAS = "built", "bias"  # groups

Shape = tuple[int, ...]


def causal_masks(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """Attention with a triangular mask, its cost without the scores that the mask removes, and the operators that build the mask."""
    triangles: set[Shape] = set()
    built: set[Shape] = set()
    last = 0  # the place behind the last attention
    for place, held in enumerate(recorded.ordered):
        triangles |= _triangles(held)
        cost, mask = held[1].priced.needed or held[1].priced.cost, mask_of(held[1].name, held[1].args)
        if cost is None or mask is None or mask.shape[-2:] not in triangles:
            continue
        builders = _builders(mask, recorded.ordered[max(last, place - BEFORE) : place]) if not held[0].context.backward else []
        last = place + 1
        if builders:
            built.add(mask.shape)
        group = ""
        if mask.shape in built:
            group = BIAS if mask.distinct > _pairs(mask) else BUILT
        for one in builders:
            yield one, Avoidable(kind=MASKED, instead=NOTHING, group=group)
        amounts = {resource: amount if resource == HBM else amount / 2 for resource, amount in cost.amounts}
        instead = less_traffic(Cost.of(amounts), mask.bytes or 0)
        yield held, Avoidable(kind=MASKED, instead=instead, unneeded="masked", group=group)


def _pairs(mask: Tensor) -> int:
    return mask.shape[-2] * mask.shape[-1]


def _builders(mask: Tensor, before: Sequence[PricedExecution]) -> list[PricedExecution]:
    """The operators that build a mask: the last that makes a tensor of its size, those that make what this one reads, and so on."""
    wanted = {mask.distinct}
    found: list[PricedExecution] = []
    for held in reversed(before):
        made = _made(held[1])
        if made is not None and made.shape[-2:] == mask.shape[-2:] and made.elements in wanted:
            found.append(held)
            wanted |= {one.elements for one in tensors_of(held[1]) if one.shape[-2:] == mask.shape[-2:]}
    return found


def _made(priced: PricedOp) -> Tensor | None:
    """The result of an elementwise operator, or of one that makes a triangle."""
    return next(iter(tensors_of(priced)), None) if priced.name in TRIANGLES else result_of(priced)


def _triangles(held: PricedExecution) -> set[Shape]:
    """The shape of the triangle that an op makes; empty if it makes none."""
    tensors = tensors_of(held[1])
    if held[1].name in TRIANGLES:
        return {one.shape[-2:] for one in tensors[:1] if len(one.shape) > 1 and one.shape[-2] >= LEAST}
    if held[1].name not in _COMPARISONS or len(tensors) != 2:
        return set()
    rows = next((one.shape[-2] for one in tensors if _is_column(one)), 0)
    columns = next((one.shape[-1] for one in tensors if not _is_column(one) and one.shape and one.elements == one.shape[-1]), 0)
    return {(rows, columns)} if rows >= LEAST and columns else set()


def _is_column(one: Tensor) -> bool:
    """Whether a tensor is a column of integers, as positions of queries are: only its last axis but one is longer than 1."""
    whole = one.dtype is not None and one.dtype.name.startswith("int")
    return whole and len(one.shape) > 1 and one.elements == one.shape[-2] > 1
