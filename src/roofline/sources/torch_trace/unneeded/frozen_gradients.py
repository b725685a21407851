"""Unused gradients: of weights that require gradients but that the optimizer does not update.

After the last gradient of a weight that it updates, the rest of the backward pass is unneeded; before that, only the products that compute
gradients of other weights are.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from ....cost import NOTHING, Cost
from ....torch_prices import Tensor
from ....workload import Avoidable
from ..columns import NONE
from ..pricing import PricedOp
from .recorded import PricedExecution, Recorded

KIND, CLASS = "unused-results", "unused"
WHY = "computes gradients of weights that the optimizer does not update"

Shape = tuple[int, ...]


def unused_gradients(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The executions of the backward pass that only compute gradients which the optimizer does not use."""
    updated = Counter[Shape]() if recorded.has_shards else _updated(recorded.ordered)
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
    spared: Counter[tuple[int, int]] = Counter()
    every: Counter[tuple[int, int]] = Counter()
    held_of: dict[tuple[int, int], PricedExecution] = {}
    for one, priced in recorded.ordered:
        if not one.context.backward or one.context.recomputed or one.op == NONE:
            continue
        key = (id(priced), id(one.context))
        held_of.setdefault(key, (one, priced))
        every[key] += 1
        spared[key] += one.op > (last.get(one.mark) or one.op) or _makes_gradient(priced, frozen)
    for key, count in spared.items():
        if count:
            cost = held_of[key][1].priced.cost or Cost.of({})
            instead = NOTHING if count == every[key] else cost * (1 - count / every[key])
            yield held_of[key], Avoidable(kind=KIND, instead=instead, why=WHY, unneeded=CLASS, group="gradients")


def _updated(ordered: Sequence[PricedExecution]) -> Counter[Shape]:
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


def _makes_gradient(priced: PricedOp, frozen: set[Shape]) -> bool:
    """Whether a product computes the gradient of a weight that is not updated: it sums over rows, so its first operand is transposed."""
    if priced.name != "aten::mm" or len(priced.args) < 2:
        return False
    left, right = priced.args[:2]
    if not isinstance(left, Tensor) or not isinstance(right, Tensor) or not left.strides or len(left.shape) != 2 or len(right.shape) != 2:
        return False
    made = (left.shape[0], right.shape[1])
    return left.strides[0] == 1 and (made in frozen or made[::-1] in frozen)
