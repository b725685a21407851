"""``scale batch=xN`` of a PyTorch trace, which has no compiled program: the shapes of each op's first tensors say which of them are data.

The batch is the first dimension that most elements of tensors with three dimensions or more have. Sizes that a reshape makes of it (batch
times sequence, batch times heads) are known by their products. What has no such dimension, as weights and their optimizer, stays.
"""

import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from math import log2, prod
from operator import mul

from msgspec.structs import replace

from ...cost import Cost
from ...operation import Attention, Convolution, Operation, Product, RowWise, Streamed
from ...resource import HBM
from ...workload import Op
from .state import State

Shape = tuple[int, ...]
JOINED = 3  # dimensions of a tensor whose first is the batch, at least
_SHAPES = re.compile(r" (\d+(?:x\d+)*(?:, \d+(?:x\d+)*)*)(?: \w+)?\Z")


def shapes_of(label: str) -> list[Shape]:
    """The shapes of the first tensors of an op of a trace, as its label has them.

    >>> shapes_of("layer  addmm 5120, 6144x1280, 1280x5120 bf16"), shapes_of("fill_")
    ([(5120,), (6144, 1280), (1280, 5120)], [])
    """
    found = _SHAPES.search(label)
    return [tuple(map(int, one.split("x"))) for one in found[1].split(", ")] if found else []


class Batch:
    """The batch of a trace: its size, and the sizes that are made of it and of dimensions beside it."""

    def __init__(self, ops: Sequence[Op]) -> None:
        large = [shape for op in ops for shape in shapes_of(op.label) if len(shape) >= JOINED and op.category != "optimizer"]
        firsts = Counter[int]()
        for shape in large:
            firsts[shape[0]] += prod(shape)
        self.size = max(firsts, key=lambda size: firsts[size], default=0)
        self._sizes = {self.size, *(size for shape in large if shape[0] == self.size for size in accumulate(shape[:-1], mul))}

    def axis(self, shape: Shape) -> int | None:
        """Which dimension of a tensor grows with the batch; of a matrix it may be the second, where it is transposed."""
        return next((axis for axis in range(min(len(shape), 2 if len(shape) < JOINED else 1)) if shape[axis] in self._sizes), None)


def scale_traced_batch(state: State, times: Fraction) -> int:
    """Scale the batch of all ops that have it; its size before, 0 where no op shows it."""
    batch = Batch(state.ops)
    if not batch.size:
        return 0
    unknown = 0.0
    for index, op in state:
        shapes = shapes_of(op.label)
        axes = [batch.axis(shape) for shape in shapes]
        if not op.count or (shapes and all(axis is None for axis in axes)):
            continue
        if not shapes or not op.cost.is_known:
            unknown += (op.time_s or 0.0) if op.phase else 0.0
            continue
        operation = _grown(op.operation, shapes, axes, times)
        state.put(index, _cost(op, operation, shapes, axes, times), operation, abs(log2(times)))
    if unknown:
        state.notes.append("ops whose shapes or cost are not known keep their times")
    return batch.size


def _grown(one: Operation | None, shapes: Sequence[Shape], axes: Sequence[int | None], times: Fraction) -> Operation | None:
    if isinstance(one, Product):
        return _product(one, shapes, axes, times)
    if isinstance(one, Attention):
        return replace(one, batch=one.batch * times)
    if isinstance(one, Convolution):
        grown = _share(shapes, axes, times)
        return replace(one, batch=one.batch * times, bytes=None if one.bytes is None else float(one.bytes) * grown)
    if isinstance(one, RowWise):
        return replace(one, rows=one.rows * times)
    return replace(one, elements=one.elements * times) if isinstance(one, Streamed) else one


def _product(one: Product, shapes: Sequence[Shape], axes: Sequence[int | None], times: Fraction) -> Product:
    """A product with more rows, with more to sum over (the gradient of a weight), or more of them, by where the data have the batch."""
    if one.batch > 1:
        return replace(one, batch=one.batch * times)
    matrices = [(shape, axis) for shape, axis in zip(shapes, axes, strict=True) if len(shape) > 1]
    for (left, axis), (_, other) in pairwise(matrices):  # the first may be what is added, the last the result
        if left[-1] == one.k and prod(left[:-1]) == one.m:
            grows = "k" if axis == len(left) - 1 else "m" if axis is not None else "n" if other is not None else ""
            return replace(one, **{grows: getattr(one, grows) * times}) if grows else one
    return replace(one, m=one.m * times)


def _cost(op: Op, operation: Operation | None, shapes: Sequence[Shape], axes: Sequence[int | None], times: Fraction) -> Cost:
    """What an op costs then: as many times the arithmetic, and the bytes of its data."""
    amounts = {resource: float(amount or 0) * float(times) for resource, amount in op.cost.amounts}
    if HBM in amounts:
        moved = float(op.cost.known(HBM))
        if isinstance(operation, Product) and isinstance(op.operation, Product):
            amounts[HBM] = max(moved + (operation.bytes - op.operation.bytes) * op.count, 0.0)
        else:
            amounts[HBM] = moved * _share(shapes, axes, times)
    return Cost.of(amounts)


def _share(shapes: Sequence[Shape], axes: Sequence[int | None], times: Fraction) -> float:
    """How many times the elements some tensors have then."""
    data = sum(prod(shape) for shape, axis in zip(shapes, axes, strict=True) if axis is not None)
    whole = sum(map(prod, shapes))
    return (data * float(times) + whole - data) / whole if whole else float(times)
