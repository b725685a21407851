"""The results of operators that are as large as their operands, which traces do not tell."""

from collections.abc import Sequence

from ...torch_prices import Tensor
from .pricing import PricedOp

SIZE_KEEPING = frozenset(("elementwise", "cast", "copy", "normalisation", "softmax"))
REARRANGED = frozenset(f"aten::{name}" for name in ("roll", "flip", "rot90", "tril", "triu", "pixel_shuffle", "pixel_unshuffle"))


def result_of(priced: PricedOp) -> Tensor | None:
    """The result of an op, as large as its operands broadcast together; ``None`` for an op whose result is smaller."""
    if priced.priced.category not in SIZE_KEEPING and priced.name not in REARRANGED:
        return None
    tensors = [arg for arg in priced.args if isinstance(arg, Tensor)]
    largest = max(tensors, key=lambda one: one.elements, default=None)
    if largest is None:
        return None
    named = [one.dtype for one in tensors if one.dtype is not None and one.dtype.name == priced.priced.dtype]
    return Tensor(broadcast(tensors) or largest.shape, named[0] if named else largest.dtype)


def broadcast(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """The shape of tensors broadcast together; empty if they cannot be."""
    rank = max(len(one.shape) for one in tensors)
    padded = [(1,) * (rank - len(one.shape)) + one.shape for one in tensors]
    sizes = [set(axis) - {1} for axis in zip(*padded, strict=True)]
    return tuple(next(iter(size), 1) for size in sizes) if all(len(size) < 2 for size in sizes) else ()
