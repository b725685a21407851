"""Caches of keys and values of which all positions are shifted by one to append another, before attention reads them."""

from collections.abc import Iterator

from ....cost import NOTHING
from ....torch_prices import Tensor
from ....units import parse
from ....workload import Avoidable
from ..pricing import PricedOp
from .recorded import PricedExecution, Recorded, tensors_of

SHIFTED = Avoidable(kind="missing-donation", instead=NOTHING, cause="shifted", unneeded="copied", extra=True)
LEAST = parse("1 MB", "B")  # of what is copied
ROLL = "aten::roll"
_MULTIPLIES = ("aten::bmm", "aten::baddbmm")

Size = tuple[int, tuple[int, ...]]  # the elements and the last two sizes of a tensor: batches and heads may be merged


def shifted_caches(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The copies of whole caches that are shifted, in order of time."""
    read = {_size(tensor) for _, priced in recorded.ordered for tensor in _keys_and_values(priced)}
    for execution, priced in recorded.ordered:
        cache = next(iter(tensors_of(priced)), None) if priced.name == ROLL and not execution.context.backward else None
        if cache is not None and len(cache.shape) > 2 and (cache.bytes or 0) >= LEAST and _size(cache) in read:
            yield (execution, priced), SHIFTED


def _size(tensor: Tensor) -> Size:
    return tensor.elements, tuple(sorted(tensor.shape[-2:]))


def _keys_and_values(priced: PricedOp) -> list[Tensor]:
    if priced.priced.category == "attention":
        return tensors_of(priced)[1:3]
    return tensors_of(priced)[-1:] if priced.name in _MULTIPLIES else []
