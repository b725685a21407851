"""Work on padded tensors: ``F.pad``, zeros that are partly overwritten, or ``torch.cat`` with zeros.

Padding shows as a fill and a copy into a part of the filled tensor, or as a concatenation with a filled tensor. A trace does not record
which tensor an op reads, so all products, attention and other ops with the padded number of rows count, unless an earlier product in the
step had as many rows.
"""

from collections.abc import Iterator, Sequence
from math import prod

from msgspec import Struct

from ....cost import NOTHING, Cost
from ....resource import HBM
from ....torch_prices import Tensor
from ....workload import Avoidable, Facts
from ..pricing import PricedOp
from .recorded import PricedExecution, Recorded, moved_bytes, tensors_of

KIND, CLASS = "padding", "padded"
NEAR = 4  # executions from the fill to the copy
MOST_NEEDED = 0.9  # of the rows are data: a little padding pays off, for alignment
MOST = 16  # padded tensors in a step
LEAST = 64  # rows including padding: with fewer, other tensors may have the same shape
_FILLS = ("aten::fill_", "aten::zero_")
_MULTIPLY = frozenset(("matmul", "attention"))
_STREAMED = frozenset(("elementwise", "cast", "copy", "normalisation", "softmax", "reduction", "data movement"))


class Padded(Struct, frozen=True):
    """A tensor that is padded along one axis, of which ``filled`` elements are data."""

    shape: tuple[int, ...]
    axis: int
    filled: int
    location: str = ""

    @property
    def needed(self) -> float:
        return self.filled / self.shape[self.axis]

    @property
    def rows(self) -> int:
        """The rows of the tensor as a matrix; 0 if its columns are padded."""
        return prod(self.shape[:-1]) if self.axis < len(self.shape) - 1 else 0

    def share(self, priced: PricedOp) -> float:
        """The share of an op's work that is on data; 1 if the op works on another tensor."""
        if not self.rows:
            return 1.0
        long, category = self.shape[self.axis], priced.priced.category
        tensors = tensors_of(priced)
        if category == "attention":
            square = sum(len(one.shape) > 3 and long in one.shape[-3:-1] and one.elements % self.rows == 0 for one in tensors[:3])
            return self.needed**2 if square == 3 else 1.0
        if category == "matmul":
            matrices = [one for one in tensors if len(one.shape) == 2]
            return self.needed if any(self.rows in one.shape for one in matrices) else 1.0
        alike = [one for one in tensors if long in one.shape or self.rows in one.shape]
        is_whole = any(one.elements % self.rows == 0 and one.elements > self.rows for one in alike)
        return self.needed if category in _STREAMED and is_whole else 1.0


def padded_tensors(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The ops on padded tensors, and their costs without padding, in order of time."""
    steps: dict[int, list[PricedExecution]] = {}
    for held in recorded.ordered:
        steps.setdefault(held[0].mark, []).append(held)
    for mine in steps.values():
        yield from _of_step(mine)


def _of_step(ordered: Sequence[PricedExecution]) -> Iterator[tuple[PricedExecution, Avoidable]]:
    known: list[Padded] = []
    seen: set[int] = set()  # rows of products so far
    for place, held in enumerate(ordered):
        # In a backward pass, a fill with a partial copy is the gradient of a slice.
        made = None if held[0].context.backward else _padded(ordered[max(place - NEAR, 0) : place], held)
        if made is not None and made.rows not in seen and len(known) < MOST and made not in known:
            known.append(made)
        seen |= _rows(held[1])
        for padded in known:
            if (share := padded.share(held[1])) < 1:
                yield held, _avoidable(held[1], padded, share)
                break


def _rows(priced: PricedOp) -> set[int]:
    """The sizes of a product's matrices."""
    return (
        {size for one in tensors_of(priced) if len(one.shape) == 2 for size in one.shape} if priced.priced.category in _MULTIPLY else set()
    )


def _padded(before: Sequence[PricedExecution], held: PricedExecution) -> Padded | None:
    """The padded tensor that an op completes, if a fill just before made its padding."""
    priced = held[1]
    fills = [one for _, made in before if made.name in _FILLS for one in tensors_of(made)[:1]]
    for whole in fills:
        part: tuple[int, ...] = ()
        if priced.name == "aten::copy_" and (tensors := tensors_of(priced)) and tensors[0].strides == _contiguous(whole.shape):
            part = tensors[0].shape
        elif priced.name == "aten::cat" and priced.args and isinstance(priced.args[0], tuple) and len(priced.args[0]) == 2:
            joined = [one for one in priced.args[0] if isinstance(one, Tensor)]
            others = [one for one in joined if one.shape != whole.shape]
            if len(joined) == 2 and len(others) == 1 and len(others[0].shape) == len(whole.shape):
                part, whole = others[0].shape, Tensor(_joined(others[0].shape, whole.shape))
        axes = [axis for axis, (size, most) in enumerate(zip(part, whole.shape, strict=False)) if size != most]
        if len(part) != len(whole.shape) or len(axes) != 1 or len(part) < 2:
            continue
        found = Padded(whole.shape, axes[0], part[axes[0]], held[0].context.location)
        if 0 < found.needed <= MOST_NEEDED and found.rows >= LEAST:
            return found
    return None


def _joined(part: tuple[int, ...], added: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of two tensors concatenated along the axis in which they differ."""
    return tuple(one if one == other else one + other for one, other in zip(part, added, strict=True))


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _avoidable(priced: PricedOp, padded: Padded, share: float) -> Avoidable:
    long = padded.shape[padded.axis]
    amounts = {resource: amount * share for resource, amount in (priced.priced.cost or NOTHING).amounts if resource != HBM}
    amounts[HBM] = _moved(priced, padded)
    facts = Facts(where=padded.location.rpartition("/")[2], filled=padded.filled, padded=long, share=padded.needed)
    unneeded = CLASS if priced.priced.category in _MULTIPLY else ""
    return Avoidable(kind=KIND, instead=Cost.of(amounts), cause="tensors", facts=facts, unneeded=unneeded)


def _moved(priced: PricedOp, padded: Padded) -> float:
    """The bytes of an op without padding: weights, which have no padded axis, are still read in full."""
    moved = moved_bytes(priced)
    kept = 0.0
    if priced.priced.category == "matmul":
        kept = sum(float(one.bytes or 0) for one in tensors_of(priced) if padded.rows not in one.shape)
    return min(kept, moved) + max(moved - kept, 0.0) * padded.needed
