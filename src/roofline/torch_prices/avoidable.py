"""Avoidable work of a call: work that the model did not need, or that writing the program differently would avoid.

Each rule is about one call. Rules on chains of calls are in `sources/torch_trace/unneeded`.
"""

from ..cost import NOTHING, Cost
from ..formulas.fourier import slow_length
from ..resource import HBM, matrix, vector
from ..workload import Avoidable, Saves, Usual
from .call import Call, Priced, Tensor

_STREAMED = frozenset(("elementwise", "cast", "copy", "normalisation", "softmax", "reduction", "loss"))
_COPIES = ("aten::contiguous", "aten::clone", "aten::copy_")
# Wide formats of products, and a narrower one that usually suffices: tf32 has the range of fp32 and is the default in other frameworks.
NARROWER = {"fp32": "tf32", "fp64": "fp32"}

EFFICIENT = "efficient_attention"  # in the names of the memory-efficient kernel's operators, forward and backward


def avoidable(call: Call, priced: Priced) -> tuple[Avoidable, ...]:
    """The avoidable work of a call: recomputed scores, copies of layouts, products in a wide format."""
    if priced.needed is not None:  # the user cannot change it, so it is no kind of finding
        recomputed = Avoidable(kind="", instead=priced.needed, unneeded="recomputed")
        wide = _wide_attention(call, priced)
        return (recomputed, wide) if wide else (recomputed,)
    if call.op in _COPIES and changes_layout([one for one in call.args if isinstance(one, Tensor)]):
        return (Avoidable(kind="layout-copies", instead=NOTHING, cause="tensors", unneeded="layout", usual=Usual.UNLESS_ASKED),)
    found = _transformed(call, priced)
    found = found or _wide_attention(call, priced) or _wide(priced) or _double(call, priced)
    return (found,) if found else ()


def _transformed(call: Call, priced: Priced) -> Avoidable | None:
    """A Fourier transform of a length with a large prime factor. The last length of a real result is an argument."""
    x, axes = call.tensor(0), call.ints(1)
    if priced.category != "fft" or priced.cost is None or x is None or not axes:
        return None
    lengths = [x.shape[axis] for axis in axes]
    if call.op == "aten::_fft_c2r":
        lengths[-1] = int(call.number(3) or lengths[-1])
    slow = slow_length(lengths)
    if not slow:
        return None
    return Avoidable(kind="odd-sizes", instead=priced.cost, facts={"length": slow}, group="lengths", saves=Saves.GOOD_TRANSFORM)


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


def _wide(priced: Priced) -> Avoidable | None:
    """A product in fp32 or fp64, at the rate of a narrower format; factorisations and solves have no narrower one."""
    if priced.cost is None or priced.category == "linear algebra":
        return None
    for wide, narrow in NARROWER.items():
        unit = matrix(wide)
        if flops := priced.cost.known(unit):
            amounts = {resource: amount for resource, amount in priced.cost.items() if resource != unit}
            instead = Cost.of({**amounts, matrix(narrow): flops})
            return Avoidable(kind="wide-format", instead=instead, cause="without_tf32" if wide == "fp32" else "multiplies_fp64")
    return None


def _wide_attention(call: Call, priced: Priced) -> Avoidable | None:
    """Attention in fp32, which runs the memory-efficient kernel, as a flash kernel in bf16: half the bytes, products at the rate of bf16.

    That kernel never multiplies in tf32, whatever the precision of matmuls.
    """
    flops = priced.cost.known(matrix("fp32")) if priced.cost is not None and EFFICIENT in call.op else 0
    if priced.cost is None or not flops:
        return None
    amounts = {resource: amount for resource, amount in priced.cost.items() if resource != matrix("fp32")}
    amounts |= {matrix("bf16"): flops, HBM: priced.cost.known(HBM) / 2}
    return Avoidable(kind="wide-format", instead=Cost.of(amounts), cause="attention")


def _double(call: Call, priced: Priced) -> Avoidable | None:
    """Elementwise work, reductions and casts in fp64, with the cost in fp32 instead; a cast between the two would not be needed."""
    tensors = [one for one in call.args if isinstance(one, Tensor) and one.bytes is not None]
    double = [one for one in tensors if one.dtype is not None and one.dtype.name == "fp64" and one.shape]
    if not double or priced.cost is None or priced.category not in _STREAMED:
        return None
    if call.op == "aten::copy_" and {one.dtype.name for one in tensors[:2] if one.dtype} == {"fp64", "fp32"}:
        return Avoidable(kind="wide-format", instead=NOTHING, unneeded="wide", group="double")
    moved = priced.cost.known(HBM)
    written = max(moved - sum(one.bytes or 0 for one in tensors), 0) if priced.category == "elementwise" else 0
    amounts = {resource: amount for resource, amount in priced.cost.items() if resource != vector("fp64")}
    amounts[vector("fp32")] = priced.cost.known(vector("fp32")) + priced.cost.known(vector("fp64"))
    amounts[HBM] = moved - (sum(one.bytes or 0 for one in double) + written) / 2
    return Avoidable(kind="wide-format", instead=Cost.of(amounts), group="double")
