"""Fused attention with a mask of keys, one row for all queries and heads of a sequence, as for padded tokens: flash kernels take no mask.

Where nothing is padded the mask has no effect; where tokens are padded, attention over packed sequences needs none. A mask for one query
per sequence, as in decoding, says how much of a cache is filled.
"""

from collections.abc import Iterator

from ....cost import less_traffic
from ....torch_prices import Tensor
from ....torch_prices.attention import mask_of
from ....workload import Avoidable, Saves
from .recorded import PricedExecution, Recorded
from .written_attention import MASKED


def key_masks(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """Attention whose mask is the same for all queries and heads, with its cost without reading the mask."""
    for execution, priced in recorded.ordered:
        cost, mask = priced.priced.cost, mask_of(priced.name, priced.args)  # a flash kernel, too, computes the scores again for gradients
        if cost is not None and mask is not None and _is_of_keys(mask):
            instead = less_traffic(cost, mask.bytes or 0)
            yield (execution, priced), Avoidable(kind=MASKED, instead=instead, group="keys", saves=Saves.GOOD_KERNEL)


def _is_of_keys(mask: Tensor) -> bool:
    """Whether a mask repeats one row for several queries, and for all heads."""
    if mask.strides is None or len(mask.shape) != 4 or mask.shape[-2] == 1:
        return False
    return mask.strides[-2] == 0 and (mask.strides[1] == 0 or mask.shape[1] == 1)
