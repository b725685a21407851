"""Casts of weights: under autocast, fp32 weights are cast to the 16-bit format of their products again in every step.

Biases and inputs of products are cast too; inputs of norms and gradients of weights are cast to fp32. With weights in 16 bits none of these
casts would be needed, except those of weights that an optimizer updates in fp32, and of their gradients.
"""

from collections.abc import Iterable, Sequence

from ....cost import NOTHING
from ....torch_prices import Tensor
from ....workload import Avoidable
from ..executions import Execution
from ..pricing import PricedOp

# The places of the weights and biases among the arguments of products.
WEIGHTS = {
    "aten::mm": (1,),
    "aten::addmm": (2,),
    "aten::linear": (1,),
    "aten::cudnn_convolution": (1,),
    "aten::miopen_convolution": (1,),
    "aten::convolution": (1,),
}
BIASES = {"aten::addmm": 0, "aten::linear": 2, "aten::convolution": 2}
NEXT = 4  # executions from the cast of an operand to its product: casts of weight and bias may come between
NARROW_BITS, WIDE, NORM = 16, "fp32", "normalisation"
OF_WEIGHTS = Avoidable(
    kind="wide-format",
    instead=NOTHING,
    unneeded="wide",
    group="casts",
)
OF_OPERANDS = Avoidable(
    kind="wide-format",
    instead=NOTHING,
    unneeded="wide",
    group="operands",
)

Shapes = frozenset[tuple[int, ...]]


def weight_shapes(ops: Iterable[PricedOp]) -> Shapes:
    """The shapes of the weights of 16-bit products, as stored: that of a linear layer is transposed when it is used."""
    found = set()
    for priced in ops:
        for place in WEIGHTS.get(priced.name, ()):
            weight = _narrow(priced, place)
            if weight is not None:
                transposed = weight.strides is not None and len(weight.strides) == 2 and weight.strides[0] == 1 < weight.shape[0]
                if transposed:
                    found.add(weight.shape[::-1])
                elif len(weight.shape) > 2:
                    found.add(weight.shape)
        bias = _narrow(priced, BIASES[priced.name]) if priced.name in BIASES else None
        if bias is not None and len(bias.shape) == 1:
            found.add(bias.shape)
    return frozenset(found)


def are_updated(ops: Iterable[PricedOp], weights: Shapes) -> bool:
    """Whether the gradients of weights are cast to fp32: weights that change have to be cast again."""
    return any(_is_cast(priced) and not _narrows(priced) and _is_matrix(priced) and priced.args[0].shape in weights for priced in ops)


def operand_casts(ordered: Sequence[tuple[Execution, PricedOp]], weights: Shapes) -> set[int]:
    """The casts of inputs of products and norms, by ``id`` of the priced op, in a program that casts weights too."""
    casts = [(place, priced) for place, (_, priced) in enumerate(ordered) if _is_cast(priced)]
    if not any(_narrows(priced) and _is_matrix(priced) and priced.args[0].shape in weights for _, priced in casts):
        return set()
    found = set()
    for place, cast in casts:
        if cast.args[0].shape in weights:
            continue
        after = [priced for _, priced in ordered[place + 1 : place + 1 + NEXT]]
        takers = [one for one in after if (one.name in WEIGHTS if _narrows(cast) else one.priced.category == NORM)]
        if any(_takes(taker, cast.args[0]) for taker in takers):
            found.add(id(cast))
    return found


def _takes(taker: PricedOp, tensor: Tensor) -> bool:
    """Whether an op has an operand of a tensor's size and format."""
    return any(isinstance(one, Tensor) and one.elements == tensor.elements and one.dtype == tensor.dtype for one in taker.args)


def weight_cast(priced: PricedOp, weights: Shapes, operands: set[int], *, updated: bool) -> tuple[Avoidable, ...]:
    """The reason for a cast that autocast makes: of a weight or its gradient, or of an input of a product or a norm.

    ``updated`` is whether the weights are trained.
    """
    if id(priced) in operands:
        return (OF_OPERANDS if updated else OF_WEIGHTS,)
    is_weight = _is_cast(priced) and priced.args[0].shape in weights and (_narrows(priced) or _is_matrix(priced))
    return (OF_WEIGHTS,) if is_weight and not updated else ()


def _narrow(priced: PricedOp, place: int) -> Tensor | None:
    """An argument of an op, if it is a tensor in 16 bits."""
    found = priced.args[place] if place < len(priced.args) else None
    return found if isinstance(found, Tensor) and found.dtype is not None and found.dtype.bits == NARROW_BITS else None


def _is_cast(priced: PricedOp) -> bool:
    """Whether an op casts between fp32 and 16 bits."""
    pair = priced.args[:2] if priced.name == "aten::copy_" else ()
    formats = [one.dtype for one in pair if isinstance(one, Tensor) and one.dtype is not None]
    if len(formats) < 2 or WIDE not in (formats[0].name, formats[1].name):
        return False
    return NARROW_BITS in (formats[0].bits, formats[1].bits)


def _narrows(cast: PricedOp) -> bool:
    return bool(cast.args[1].dtype.name == WIDE)


def _is_matrix(cast: PricedOp) -> bool:
    return len(cast.args[0].shape) > 1
