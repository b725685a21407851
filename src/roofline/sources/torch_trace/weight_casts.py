"""Casts of weights: under autocast, fp32 weights are cast to the narrow format of their products again in every step."""

from collections.abc import Iterable

from ...cost import NOTHING
from ...torch_prices import Tensor
from ...workload import Avoidable
from .pricing import PricedOp

# Where products have their weights.
WEIGHTS = {
    "aten::mm": (1,),
    "aten::addmm": (2,),
    "aten::linear": (1,),
    "aten::cudnn_convolution": (1,),
    "aten::miopen_convolution": (1,),
    "aten::convolution": (1,),
}
NARROW_BITS, WIDE = 16, "fp32"


def weight_shapes(ops: Iterable[PricedOp]) -> frozenset[tuple[int, ...]]:
    """The shapes of the weights of products in 16 bits, as they lie in memory: a linear layer's is transposed where it is used."""
    found = set()
    for priced in ops:
        for place in WEIGHTS.get(priced.name, ()):
            weight = priced.args[place] if place < len(priced.args) else None
            if isinstance(weight, Tensor) and weight.dtype is not None and weight.dtype.bits == NARROW_BITS:
                turned = weight.strides is not None and len(weight.strides) == 2 and weight.strides[0] == 1 < weight.shape[0]
                if turned:
                    found.add(weight.shape[::-1])
                elif len(weight.shape) > 2:
                    found.add(weight.shape)
    return frozenset(found)


def weight_cast(priced: PricedOp, weights: frozenset[tuple[int, ...]]) -> tuple[Avoidable, ...]:
    """A cast of a weight to the format of its product."""
    tensors = [one for one in priced.args if isinstance(one, Tensor)]
    if priced.name != "aten::copy_" or len(tensors) != 2 or tensors[0].shape not in weights:
        return ()
    target, source = tensors[0].dtype, tensors[1].dtype
    if target is None or source is None or target.bits != NARROW_BITS or source.name != WIDE:
        return ()
    why = "casts fp32 weights to a narrow format again in every step, as autocast does"
    return (Avoidable(kind="wide-format", instead=NOTHING, why=why, unneeded="wide", group="casts"),)
