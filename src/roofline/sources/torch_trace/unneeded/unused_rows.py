"""Products of which few rows are used: for example logits of every position, of which only the last or a few are read.

This shows as a strided view into the result with the same columns, or as an op that picks rows by index, followed by ops on as many rows. A
later op that reads the whole result rules it out.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from ....cost import Cost
from ....resource import HBM
from ....torch_prices import Tensor
from ....workload import Avoidable
from ..columns import NONE
from ..pricing import PricedOp
from .recorded import PricedExecution, Recorded, all_tensors, factors_of, moved_bytes

KIND, CLASS = "unused-results", "unused"
AHEAD = 40  # executions after a product in which its rows are used
LEAST = 64  # columns: with fewer, other tensors may have the same shape
MOST_USED = 0.5  # of the rows
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm")
_PICKS = ("aten::index", "aten::index_select", "aten::gather", "aten::embedding")


class Made(Struct, frozen=True):
    """The result of a product: its rows and columns, and the bytes of weights that it reads for any number of rows."""

    rows: int
    columns: int
    weights: int

    @property
    def elements(self) -> int:
        return self.rows * self.columns

    def is_some_of(self, tensor: Tensor) -> bool:
        """Whether a tensor is a strided view of some of the rows."""
        strided = tensor.strides[0] * tensor.shape[0] == self.elements if tensor.strides and tensor.strides[-1] == 1 else False
        return strided and len(tensor.shape) > 1 and tensor.shape[-1] == self.columns and tensor.elements < self.elements


def unused_rows(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The products of which less than half of the rows are used, and their gradients, in order of time."""
    forward: dict[int, tuple[Made, int]] = {}
    for place, held in enumerate(recorded.ordered):
        one, priced = held
        made = _made(priced)
        if made is None:
            continue
        if one.context.backward:
            known = forward.get(recorded.sequence(one))
            if known is not None and any(tensor.elements == known[0].elements for tensor in all_tensors(priced.args)):
                yield held, _avoidable(priced, *known)
            continue
        used = _used(made, recorded.ordered[place + 1 : place + 1 + AHEAD], one.mark) if made.columns >= LEAST else 0
        if used:
            if recorded.sequence(one) != NONE:
                forward[recorded.sequence(one)] = (made, used)
            yield held, _avoidable(priced, made, used)


def _made(priced: PricedOp) -> Made | None:
    """The result of a product; ``None`` for a batch of products."""
    factors = factors_of(priced) if priced.name in _PRODUCTS else None
    if factors is None or min(len(one.shape) for one in factors) < 2:
        return None
    left, right = factors
    is_one = left.elements == left.shape[-2] * left.shape[-1]
    return Made(left.shape[-2], right.shape[-1], right.bytes or 0) if is_one else None


def _used(made: Made, after: Sequence[PricedExecution], mark: int) -> int:
    """How many rows of a product the ops after it use; 0 if unknown, or if at least half of them are used."""
    used = most = 0
    picked = False
    for one, priced in after:
        if one.mark != mark:
            break
        for tensor in all_tensors(priced.args):
            if tensor.elements == made.elements:
                if priced.name not in _PICKS:
                    return 0
                picked = True
            elif made.is_some_of(tensor) or (picked and tensor.shape[-1:] == (made.columns,) and tensor.elements < made.elements):
                used += tensor.elements
                most = max(most, tensor.elements)
                break
    return most // made.columns if used < MOST_USED * made.elements else 0


def _avoidable(priced: PricedOp, made: Made, used: int) -> Avoidable:
    share = used / made.rows
    cost = priced.priced.cost or Cost.of({})
    amounts = {resource: amount * share for resource, amount in cost.amounts if resource != HBM}
    moved = moved_bytes(priced)
    amounts[HBM] = max(moved * share, min(made.weights, moved))
    facts = {"rows": made.rows, "used": used}
    return Avoidable(
        kind=KIND, instead=Cost.of(amounts), cause="rows", facts=facts, unneeded=CLASS, group=str(made.columns), factor=1 / share
    )
