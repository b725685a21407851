"""The batch and the sequence of a PyTorch trace, which has no compiled program: found in the shapes of each op's first tensors.

Sizes that a reshape combines (batch times sequence, batch times heads) are recognized as products. Tensors without such a dimension, such
as weights, stay.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from math import prod
from operator import mul
from typing import Protocol

from ...operation import Attention, Product
from ...workload import Op

Shape = tuple[int, ...]
Axes = tuple[int, ...]
JOINED = 3  # least number of dimensions of a tensor whose first one is the batch
SHIFTED = 16  # least length of a sequence for which one token more or less is recognized as the same dimension


class Traced(Protocol):
    """A dimension of a trace: its size, and where tensors have it."""

    size: int

    def axes(self, shape: Shape, op: Op | None = None) -> Axes: ...


class Batch:
    """The batch of a trace: the most common first dimension of tensors with three or more dimensions, by number of elements."""

    def __init__(self, ops: Sequence[Op]) -> None:
        large = _large(ops)
        firsts = Counter[int]()
        for shape in large:
            firsts[shape[0]] += prod(shape)
        self.size = _most(firsts)
        self._sizes = {self.size, *(size for shape in large if shape[0] == self.size for size in accumulate(shape[:-1], mul))}

    def axes(self, shape: Shape, op: Op | None = None) -> Axes:
        """Which dimension of a tensor grows with the batch; of a matrix it may be the second, where it is transposed."""
        sought = range(min(len(shape), 2 if len(shape) < JOINED else 1))
        return next(((axis,) for axis in sought if shape[axis] in self._sizes), ())


class SequenceLength:
    """The sequence length of a trace: from attention, from its stored scores, or else the second dimension of most data.

    Data may have one token less or more where a model predicts the next one. Stored scores have the dimension twice.
    """

    def __init__(self, ops: Sequence[Op]) -> None:
        large = _large(ops)
        self.batch = Batch(ops).size
        self.size = _length(ops, large, self.batch)
        forward = [op.operation for op in ops if isinstance(op.operation, Product) and op.operation.batch == 1 and op.phase != "backward"]
        self._weights = {sizes for one in forward for sizes in ((int(one.k), int(one.n)), (int(one.n), int(one.k)))}
        self._widths = {size for weight in self._weights for size in weight}
        fused = [op.operation for op in ops if isinstance(op.operation, Attention)]
        self._stores_scores = not fused
        self._sizes = {int(one.batch * one.queries) for one in fused if one.queries == self.size}
        for shape in large:
            for axis in self.axes(shape)[:1]:
                self._sizes |= set(list(accumulate(shape[:-1], mul))[axis:])

    def axes(self, shape: Shape, op: Op | None = None) -> Axes:
        """Which dimensions of a tensor grow with the sequence; none of a tensor with the shape of a weight, unless a product reads it."""
        if not self.size:
            return ()
        if len(shape) >= JOINED:
            return self._of_data(shape)
        if shape == (self.size, self.size):
            return () if shape in self._weights else (0, 1)  # a mask
        if len(shape) == 2 and shape[0] == self.batch and self._is_length(shape[1]):
            return (1,)  # the ids of tokens
        if shape in self._weights and not (op is not None and isinstance(op.operation, Product)):
            return ()
        rows = next(((axis,) for axis in range(len(shape)) if shape[axis] in self._sizes), ())
        return rows or ((0,) if shape[:1] == (self.size,) else ())  # rows of tokens, or a table of positions

    def _of_data(self, shape: Shape) -> Axes:
        axes_found = [axis for axis in range(1, len(shape)) if shape[axis] == self.size]
        if not axes_found and self._is_length(shape[1]) and shape[0] == self.batch:
            axes_found = [1]
        last = [axis for axis in axes_found if axis >= len(shape) - 2]
        is_wide = len(shape) == JOINED and shape[0] == self.batch and self.size in self._widths
        if len(last) == 2 and self._stores_scores and not is_wide:
            return tuple(last)
        return tuple(axes_found[:1]) or ((0,) if shape[0] == self.size else ())

    def _is_length(self, size: int) -> bool:
        return size == self.size or (self.size >= SHIFTED and abs(size - self.size) == 1)


def _large(ops: Sequence[Op]) -> list[Shape]:
    return [shape for op in ops for shape in op.shapes if len(shape) >= JOINED and op.category != "optimizer"]


def _length(ops: Sequence[Op], large: Sequence[Shape], batch: int) -> int:
    """The sequence length, from the best evidence available."""
    positions, scores, seconds = Counter[int](), Counter[int](), Counter[int]()
    for op in ops:
        if isinstance(one := op.operation, Attention):
            for size in (one.queries, one.keys):
                positions[int(size)] += int(one.queries * one.keys * one.heads * one.batch * int(op.count or 1)) if size > 1 else 0
    for shape in large:
        if shape[-1] == shape[-2] > 1:
            scores[shape[-1]] += prod(shape)
        if len(shape) == JOINED and shape[0] == batch and shape[1] > 1:
            seconds[shape[1]] += prod(shape)
    if any(positions.values()):
        return _most(positions)
    return _most(scores if any(scores[size] and _is_between(size, ops) for size in scores) else seconds)


def _is_between(size: int, ops: Sequence[Op]) -> bool:
    """Whether a batched product reads or writes square matrices of this size, as attention does with its scores."""
    products = (op.operation for op in ops if isinstance(op.operation, Product) and op.operation.batch > 1)
    return any(size in (one.k, one.n) and one.m == size for one in products)


def _most(votes: Counter[int]) -> int:
    return max(votes, key=lambda size: votes[size], default=0)
