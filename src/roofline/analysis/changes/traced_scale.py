"""``scale batch=xN`` and ``scale sequence=xN`` of a PyTorch trace: ops are scaled by the shapes of their first tensors.

Rows of tokens grow with either. Attention grows with the sequence twice, by its queries and by its keys, and so do scores that are stored.
Weights and their optimizer stay.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from math import log2, prod

from msgspec.structs import replace

from ...cost import Cost
from ...operation import Attention, Convolution, Operation, Product, RowWise, Streamed
from ...resource import HBM
from ...workload import Op
from .state import State
from .traced_dimensions import Axes, Batch, SequenceLength, Shape, Traced

TRACED: dict[str, type[Batch] | type[SequenceLength]] = {"batch": Batch, "sequence": SequenceLength}
GATHER = "gather"
NAMED = 3  # most ops that a note names


def scale_traced(state: State, name: str, times: Fraction) -> int:
    """Scale a dimension of all ops that have it. Returns its size before, 0 where no op has it."""
    recorded = state.recording.workload.ops
    dimension = TRACED[name](recorded)
    if not dimension.size:
        return 0
    unknown = list[str]()
    for index, op in state:
        shapes = op.shapes
        axes = [dimension.axes(shape, op) for shape in shapes]
        if not op.count or op.category == "optimizer" or (shapes and not any(axes)):
            continue
        if not shapes or not op.cost.is_known:
            if op.phase and (op.time_s or 0.0) > 0 and (shapes or op.cost.amounts):
                unknown.append(op.name)
            continue
        if op.category == GATHER:  # it reads as many rows of a table as it writes
            shapes, axes = tuple(shape for shape, held in zip(shapes, axes, strict=True) if held), [held for held in axes if held]
        operation = _grown(op.operation, recorded[index].operation, dimension, shapes, axes, times)
        state.put(index, _cost(op, operation, shapes, axes, times), operation, abs(log2(times)))
    if unknown:
        names = list(dict.fromkeys(unknown))
        more = ", …" if len(names) > NAMED else ""
        state.notes.append(f"ops whose shapes or cost are not known keep their times: {', '.join(names[:NAMED])}{more}")
    return dimension.size


def _grown(
    one: Operation | None, was: Operation | None, dimension: Traced, shapes: Sequence[Shape], axes: Sequence[Axes], times: Fraction
) -> Operation | None:
    """The operation after scaling; ``was`` is the recorded one, to which the shapes belong."""
    is_batch = isinstance(dimension, Batch)
    if isinstance(one, Product):
        return _product(one, was if isinstance(was, Product) else one, is_batch, shapes, axes, times)
    if isinstance(one, Attention):
        return replace(one, batch=one.batch * times) if is_batch else _longer(one, was, dimension.size, times)
    if isinstance(one, Convolution):
        grown = _share(shapes, axes, times)
        moved = None if one.bytes is None else float(one.bytes) * grown
        return replace(one, bytes=moved, **({"batch": one.batch * times} if is_batch else {"pairs": one.pairs * times}))
    if isinstance(one, RowWise):
        most = max(zip(shapes, axes, strict=True), key=lambda each: len(each[1]))
        along = times if len(most[0]) - 1 in most[1] else Fraction(1)
        return replace(one, rows=one.rows * times ** len(most[1]) / along, columns=one.columns * along)
    return replace(one, elements=one.elements * times ** max(map(len, axes))) if isinstance(one, Streamed) else one


def _longer(one: Attention, was: Operation | None, size: int, times: Fraction) -> Attention:
    """Attention over longer sequences: more queries, more keys, or both, whichever have the sequence length."""
    recorded = was if isinstance(was, Attention) else one
    queries, keys = (times if sides == size else Fraction(1) for sides in (recorded.queries, recorded.keys))
    return replace(one, queries=one.queries * queries, keys=one.keys * keys)


def _product(one: Product, was: Product, is_batch: bool, shapes: Sequence[Shape], axes: Sequence[Axes], times: Fraction) -> Product:
    """A product with a larger m, k (the gradient of a weight) or batch, depending on where its operands have the dimension."""
    if one.batch > 1 and is_batch:
        return replace(one, batch=one.batch * times)
    matrices = [(shape, held) for shape, held in zip(shapes, axes, strict=True) if len(shape) > 1]
    for (left, held), (right, other) in pairwise(matrices):  # the first may be a bias, the last the result
        if left[-1] != was.k or (prod(left[:-1]) != was.m and (was.batch == 1 or left[-2] != was.m)):
            continue
        rows, summed = any(axis < len(left) - 1 for axis in held), len(left) - 1 in held
        if was.batch > 1:
            grows = {"m": rows, "k": summed, "n": len(right) - 1 in other}
        else:
            grows = {"k": summed and not rows, "m": rows, "n": not held and bool(other)}
        return replace(one, **{side: getattr(one, side) * times for side, is_longer in grows.items() if is_longer})
    return replace(one, m=one.m * times)


def _cost(op: Op, operation: Operation | None, shapes: Sequence[Shape], axes: Sequence[Axes], times: Fraction) -> Cost:
    """The cost of an op after scaling: its arithmetic times the factor, and the bytes of its larger tensors."""
    was, more, share = op.operation, float(times) ** max(map(len, axes)), _share(shapes, axes, times)
    if isinstance(was, Product) and isinstance(operation, Product):
        more = operation.flops / was.flops if was.flops else more
    if isinstance(was, Attention) and isinstance(operation, Attention):
        more = _pairs(operation) / _pairs(was)
        share = _tokens(operation) / _tokens(was)
    amounts = {resource: float(amount or 0) * more for resource, amount in op.cost.amounts}
    if HBM in amounts:
        moved = float(op.cost.known(HBM))
        if isinstance(operation, Product) and isinstance(was, Product):
            amounts[HBM] = max(moved + (operation.bytes - was.bytes) * op.count, 0.0)
        else:
            amounts[HBM] = moved * share
    return Cost.of(amounts)


def _pairs(one: Attention) -> float:
    return float(one.batch * one.queries * one.keys)


def _tokens(one: Attention) -> float:
    """The number of head vectors that attention reads."""
    return float(one.batch * (one.heads * one.queries + one.groups * one.keys))


def _share(shapes: Sequence[Shape], axes: Sequence[Axes], times: Fraction) -> float:
    """The factor on the total number of elements of some tensors."""
    whole = sum(map(prod, shapes))
    then = sum(prod(shape) * float(times) ** len(held) for shape, held in zip(shapes, axes, strict=True))
    return then / whole if whole else float(times)
