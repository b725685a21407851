"""Avoidable work of a call: work that the model did not need, or that writing the program differently would avoid.

Each rule is about one call. Rules on chains of calls are in `sources/torch_trace/unneeded`.
"""

from ..cost import NOTHING
from ..workload import Avoidable, Usual
from .call import Call, Priced, Tensor

_COPIES = ("aten::contiguous", "aten::clone", "aten::copy_")


def avoidable(call: Call, priced: Priced) -> tuple[Avoidable, ...]:
    """The avoidable work of a call: recomputed scores, and copies of layouts."""
    if priced.needed is not None:  # the user cannot change it, so it is no kind of finding
        return (Avoidable(kind="", instead=priced.needed, unneeded="recomputed"),)
    if call.op in _COPIES and changes_layout([one for one in call.args if isinstance(one, Tensor)]):
        return (Avoidable(kind="layout-copies", instead=NOTHING, cause="tensors", unneeded="layout", usual=Usual.UNLESS_ASKED),)
    return ()


def changes_layout(tensors: list[Tensor]) -> bool:
    """Whether the first two tensors have one shape and format, but different orders of their axes in memory."""
    if len(tensors) < 2 or tensors[0].shape != tensors[1].shape or tensors[0].dtype != tensors[1].dtype:
        return False
    orders = [_order(one) for one in tensors[:2]]
    return None not in orders and orders[0] != orders[1]


def _order(tensor: Tensor) -> tuple[int, ...] | None:
    """The axes of a tensor from the largest stride to the smallest; ``None`` if it is expanded or its strides are not known."""
    strides = tensor.strides
    if strides is None or 0 in strides or len(strides) != len(tensor.shape):
        return None
    return tuple(sorted((axis for axis, size in enumerate(tensor.shape) if size > 1), key=lambda axis: -strides[axis]))
