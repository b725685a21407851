"""Fused attention with a causal mask given as a tensor: the kernel reads it, and also computes the half of the scores that it removes.

The mask is recognised by how the step made it: as a triangle (``triu``, ``tril``), or by comparing positions, with as many rows and columns
as there are queries and keys.
"""

from collections.abc import Iterator

from ....cost import Cost
from ....resource import HBM
from ....torch_prices import Tensor
from ....torch_prices.attention import mask_of
from ....workload import Avoidable
from .recorded import PricedExecution, Recorded, tensors_of
from .written_attention import MASKED, TRIANGLES, WHY_MASKED

_COMPARISONS = ("aten::lt", "aten::le", "aten::gt", "aten::ge")
LEAST = 64  # queries: with fewer, other tensors may have the same shape


def causal_masks(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """Attention with a triangular mask, and its cost without the scores that the mask removes."""
    triangles: set[tuple[int, ...]] = set()
    for held in recorded.ordered:
        triangles |= _triangles(held)
        cost, mask = held[1].priced.needed or held[1].priced.cost, mask_of(held[1].name, held[1].args)
        if cost is None or mask is None or mask.shape[-2:] not in triangles:
            continue
        amounts = {resource: amount if resource == HBM else amount / 2 for resource, amount in cost.amounts}
        amounts[HBM] = max(amounts.get(HBM, 0) - (mask.bytes or 0), 0)
        yield held, Avoidable(kind=MASKED, instead=Cost.of(amounts), why=WHY_MASKED, unneeded="masked")


def _triangles(held: PricedExecution) -> set[tuple[int, ...]]:
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
