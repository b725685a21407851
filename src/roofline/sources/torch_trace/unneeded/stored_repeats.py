"""Tensors that are stored several times over for a matmul: keys and values, repeated for each of the query heads that share them; and masks
of attention, repeated for each head or query.

A copy of an expanded tensor (an axis has stride 0) writes the repeats, and attention or a batched product reads them all; grouped-query
attention, and attention with a mask that is only expanded, would read the tensor once.
"""

from collections.abc import Iterator

from msgspec import Struct

from ....cost import NOTHING, less_traffic
from ....torch_prices import Tensor
from ....units import parse
from ....workload import Avoidable
from ..pricing import PricedOp
from .recorded import PricedExecution, Recorded, tensors_of

KIND, GROUP = "repeated-operand", "stored"
WHY = "stores a tensor several times over for a matmul"
MASK, WHY_MASK = "mask", "stores an attention mask several times over"
FIRST_MASK = 3  # the first operand of attention that may be a mask, after q, k and v
AHEAD = 24  # executions from the copy to the product
LEAST = parse("1 MB", "B")  # of the tensor that is repeated, or of a mask with its repeats
_MULTIPLY = frozenset(("matmul", "attention"))


class Repeats(Struct, frozen=True):
    """A tensor that a copy stores, in which each element occurs ``times`` times."""

    made: Tensor
    times: float

    def is_like(self, tensor: Tensor) -> bool:
        """Whether an operand may be this tensor: batches and heads may be merged, and the last two sizes transposed."""
        sizes = sorted(self.made.shape[-2:])
        return len(tensor.shape) > 2 and tensor.elements == self.made.elements and sorted(tensor.shape[-2:]) == sizes

    def is_mask_of(self, priced: PricedOp) -> bool:
        """Whether attention may take it as its mask: with a row for each query, and a column for each key."""
        keys = self.made.shape[-1]
        others = tensors_of(priced)[FIRST_MASK:] if priced.priced.category == "attention" else []
        return any(len(one.shape) == 4 and one.elements == self.made.elements and one.shape[-1] == keys for one in others)

    @property
    def spared(self) -> float:
        """Bytes that a product would not read."""
        return (self.made.bytes or 0) * (1 - 1 / self.times)


def stored_repeats(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The copies that store repeats of a tensor for a product, and those products, in order of time."""
    spared: dict[int, tuple[PricedExecution, float]] = {}  # of products, by their places
    for place, held in enumerate(recorded.ordered):
        repeats = _stored(held[1])
        if repeats is None:
            continue
        for later, (one, priced) in enumerate(recorded.ordered[place + 1 : place + 1 + AHEAD], start=place + 1):
            if priced.priced.category in _MULTIPLY and any(map(repeats.is_like, tensors_of(priced))):
                yield held, Avoidable(kind=KIND, instead=NOTHING, why=WHY, group=GROUP)
                spared[later] = (one, priced), spared.get(later, (held, 0.0))[1] + repeats.spared
                break
    for held, less in spared.values():
        instead = less_traffic(held[1].priced.cost or NOTHING, less)
        yield held, Avoidable(kind=KIND, instead=instead, why=WHY, group=GROUP)


def stored_masks(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The copies that store a mask several times over, and the attention that reads it, in all layers of the step."""
    for place, held in enumerate(recorded.ordered):
        source = _expanded(held[1])
        if source is None or _stored(held[1]) is not None:
            continue
        mask = Repeats(Tensor(source.shape, source.dtype), source.elements / source.distinct)
        if (mask.made.bytes or 0) < LEAST:
            continue
        readers = [one for one in recorded.ordered[place + 1 :] if one[0].mark == held[0].mark and mask.is_mask_of(one[1])]
        if readers:
            yield held, Avoidable(kind=KIND, instead=NOTHING, why=WHY_MASK, group=MASK)
        for reader in readers:
            instead = less_traffic(reader[1].priced.cost or NOTHING, mask.spared)
            yield reader, Avoidable(kind=KIND, instead=instead, why=WHY_MASK, group=MASK)


def _expanded(priced: PricedOp) -> Tensor | None:
    """The tensor that a copy stores, if each of its elements occurs at least twice in it; else ``None``."""
    tensors = tensors_of(priced)
    if priced.name not in ("aten::copy_", "aten::clone", "aten::contiguous") or not tensors:
        return None
    source = tensors[-1]
    if source.strides is None or len(source.strides) != len(source.shape) or len(source.shape) < 4:
        return None
    return source if source.elements >= 2 * source.distinct > 0 else None


def _stored(priced: PricedOp) -> Repeats | None:
    """The repeats that a copy stores, if an axis before the last two is expanded; else ``None``."""
    source = _expanded(priced)
    if source is None or source.strides is None:
        return None
    outer = zip(source.shape[:-2], source.strides[:-2], strict=True)
    times = max((size for size, stride in outer if stride == 0), default=1)
    if times < 2 or source.elements != times * source.distinct or (source.bytes or 0) < LEAST:
        return None
    return Repeats(Tensor(source.shape, source.dtype), times)
