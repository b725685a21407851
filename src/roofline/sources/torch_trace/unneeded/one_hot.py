"""Products with a one-hot matrix, made by ``one_hot``, a comparison or a scatter, where a gather or a scatter-add would do."""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ....cost import NOTHING, Cost
from ....resource import HBM, vector
from ....torch_prices import Tensor
from ....workload import Avoidable
from ..columns import NONE
from ..pricing import PricedOp
from .recorded import PricedExecution, Recorded, tensors_of

KIND, CLASS = "one-hot-product", "dense"
NEAR = 8  # executions from the making of the rows to their product
LEAST = 32  # columns: with fewer, the product is as fast as a gather
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm")
_PASSED = frozenset(("cast", "copy"))
_FILLS = ("aten::fill_", "aten::zero_")


class Rows(Struct, frozen=True):
    """One-hot rows: how many, and of how many columns."""

    rows: int
    columns: int

    def is_like(self, tensor: Tensor) -> bool:
        return tensor.elements == self.rows * self.columns and self.columns in tensor.shape


def one_hot_products(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The executions that make one-hot rows and multiply by them, with the cost of a lookup instead.

    The product of the gradient has the same one-hot rows.
    """
    forward: dict[int, Rows] = {}
    for place, (one, priced) in enumerate(recorded.ordered):
        if priced.name not in _PRODUCTS:
            continue
        number = recorded.sequence(one)
        rows, makers = next(_made(recorded.ordered[max(place - NEAR, 0) : place], priced), (forward.get(number), []))
        found = _looked_up(priced, rows) if rows is not None else None
        if rows is None or found is None:
            continue
        if makers and number != NONE:
            forward[number] = rows
        yield (one, priced), found
        for held in makers:
            yield held, replace(found, instead=NOTHING)


def _made(before: Sequence[PricedExecution], product: PricedOp) -> Iterator[tuple[Rows, list[PricedExecution]]]:
    """The one-hot rows that a product reads, and the executions that made them: a scatter or comparison, its fill, and casts of it."""
    for operand in tensors_of(product):
        makers: list[PricedExecution] = []
        for held in reversed(before):
            priced = held[1]
            like = [one for one in tensors_of(priced) if one.elements == operand.elements]
            rows = _one_hot(priced)
            if rows is not None and rows.is_like(operand):
                fills = [one for one in before if one[1].name in _FILLS and any(map(rows.is_like, tensors_of(one[1])))]
                yield rows, [*makers, held, *fills]
                break
            if like and priced.priced.category in _PASSED:
                makers.append(held)
            elif like:
                break


def _one_hot(priced: PricedOp) -> Rows | None:
    """The one-hot rows that an op makes, or ``None``."""
    tensors = tensors_of(priced)
    if len(tensors) < 2:
        return None
    first, second = tensors[:2]
    if priced.name in ("aten::scatter_", "aten::scatter") and first.shape and second.shape[-1:] == (1,):
        columns = first.shape[-1]
    elif priced.name == "aten::eq" and first.shape[-1:] != second.shape[-1:] and 1 in (*first.shape[-1:], *second.shape[-1:]):
        columns = max(first.shape[-1], second.shape[-1])
        ids, positions = (first, second) if first.shape[-1] == 1 else (second, first)
        if positions.elements != columns:  # not one number per column
            return None
        return Rows(ids.elements, columns) if columns >= LEAST else None
    else:
        return None
    return Rows(first.elements // columns, columns) if columns >= LEAST else None


def _looked_up(priced: PricedOp, rows: Rows) -> Avoidable | None:
    """The cost of a gather instead of a product that sums over the one-hot columns, else that of a scatter-add."""
    left, right = tensors_of(priced)[-2:]
    hot, other = (left, right) if rows.is_like(left) else (right, left)
    if not rows.is_like(hot) or other.dtype is None:
        return None
    added = left.shape[-1]
    width = right.shape[-1] if hot is left else left.shape[-2]
    moved = other.dtype.bytes(rows.rows * width)
    if added == rows.columns:
        instead, words = Cost.of({HBM: 2 * moved}), "a gather"
    else:
        written = other.dtype.bytes(rows.columns * width)
        instead, words = Cost.of({HBM: 3 * moved + written, vector("fp32"): rows.rows * width}), "a scatter-add"
    why = f"multiplies by one-hot rows ({rows.rows}×{rows.columns}), where {words} would do"
    return Avoidable(kind=KIND, instead=instead, why=why, unneeded=CLASS)
