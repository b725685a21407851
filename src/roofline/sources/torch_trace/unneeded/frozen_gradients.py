"""Unused gradients: of weights that require gradients but that the optimizer does not update.

After the last gradient of a weight that it updates, the rest of the backward pass is unneeded; before that, only the products that compute
gradients of other weights are.
"""

from collections import Counter
from collections.abc import Container, Iterator, Sequence

from ....cost import NOTHING, Cost
from ....torch_prices import Tensor
from ....workload import Avoidable
from ..columns import NONE
from ..pricing import PricedOp
from .recorded import PricedExecution, Recorded

KIND, CLASS = "unused-results", "unused"

Shape = tuple[int, ...]


def unused_gradients(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The executions of the backward pass that only compute gradients which the optimizer does not use."""
    updated = Counter[Shape]() if recorded.has_shards else updated_shapes(recorded.ordered)
    if not updated:
        return
    steps: dict[int, list[tuple[int, Shape]]] = {one.mark: [] for one, _ in recorded.ordered}
    for mark, place, shape in recorded.accumulated:
        if mark in steps:
            steps[mark].append((place, shape))
    frozen = {shape for mine in steps.values() for _, shape in mine} - updated.keys()
    last = {mark: _last_needed(mine, updated) for mark, mine in steps.items()}
    if not frozen or not any(last.values()):
        return
    spared = Spared()
    for one, priced in recorded.ordered:
        if one.context.backward and not one.context.recomputed and one.op != NONE:
            spared.add((one, priced), float(one.op > (last.get(one.mark) or one.op) or makes_gradient(priced, frozen)))
    yield from spared.reasons("frozen")


class Spared:
    """Executions of a backward pass with the share of each that is not needed, summed for those with the same op and context."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, int], tuple[PricedExecution, float, int]] = {}

    def add(self, held: PricedExecution, share: float) -> None:
        key = (id(held[1]), id(held[0].context))
        first, shares, count = self._sums.get(key, (held, 0.0, 0))
        self._sums[key] = first, shares + share, count + 1

    def reasons(self, cause: str = "", group: str = "gradients") -> Iterator[tuple[PricedExecution, Avoidable]]:
        """The executions of which something is not needed."""
        for held, shares, count in self._sums.values():
            if shares:
                cost = held[1].priced.cost or Cost.of({})
                instead = NOTHING if shares == count else cost * (1 - shares / count)
                yield held, Avoidable(kind=KIND, instead=instead, cause=cause, unneeded=CLASS, group=group)


def updated_shapes(ordered: Sequence[PricedExecution]) -> Counter[Shape]:
    """How many weights of each shape an optimizer updates; empty if the trace left out its lists of tensors."""
    counts: dict[tuple[int, str], Counter[Shape]] = {}
    for one, priced in ordered:
        if not one.context.optimizer:
            continue
        lists = [arg for arg in priced.args if isinstance(arg, tuple) and arg and all(isinstance(each, Tensor) for each in arg)]
        tensors = list(lists[0]) if lists else [arg for arg in priced.args if isinstance(arg, Tensor)][:1]
        if not tensors:
            return Counter()
        counts.setdefault((one.mark, priced.name), Counter()).update(tensor.shape for tensor in tensors)
    found: Counter[Shape] = Counter()
    for mine in counts.values():
        found |= mine
    return found


def _last_needed(accumulated: Sequence[tuple[int, Shape]], updated: Counter[Shape]) -> int:
    """The op that accumulates the last gradient that the optimizer uses; of several gradients of one shape, the first count as used."""
    left, last = updated.copy(), 0
    for place, shape in sorted(accumulated):
        if left[shape]:
            left[shape] -= 1
            last = place
    return last


def makes_gradient(priced: PricedOp, frozen: Container[Shape]) -> bool:
    """Whether a product computes the gradient of a weight that is not updated: it sums over rows, so its first operand is transposed."""
    if priced.name != "aten::mm" or len(priced.args) < 2:
        return False
    left, right = priced.args[:2]
    if not isinstance(left, Tensor) or not isinstance(right, Tensor) or not left.strides or len(left.shape) != 2 or len(right.shape) != 2:
        return False
    made = (left.shape[0], right.shape[1])
    return left.strides[0] == 1 and (made in frozen or made[::-1] in frozen)
