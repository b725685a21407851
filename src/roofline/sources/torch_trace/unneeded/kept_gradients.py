"""Gradients that are filled with zeros, so that the backward pass adds to them what it could store: ``zero_grad(set_to_none=False)``.

Filling writes each gradient, and adding reads it and what is added and writes the sum; a gradient that was dropped instead takes the
tensor of the backward pass as it is. A backward pass after another, which accumulates, has to add. Gradients that some pass stores were
dropped before it.
"""

from collections.abc import Container, Iterator, Sequence

from ....workload import Avoidable
from ..columns import NONE
from .frozen_gradients import Shape, Spared
from .recorded import PricedExecution, Recorded, all_tensors

_ZEROS = ("aten::zero_", "aten::_foreach_zero_")
_ADD = "aten::add_"


def kept_gradients(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The executions that fill gradients with zeros, and those of the first backward pass after that which add to them."""
    backward = [(execution, priced) for execution, priced in recorded.ordered if execution.context.backward]
    adding = {execution.op for execution, priced in backward if priced.name == _ADD}
    last: dict[int, int] = {}  # the last op of each step
    for execution, _ in backward:
        last[execution.mark] = max(execution.op, last.get(execution.mark, NONE))
    shape_of_add: dict[int, Shape] = {}
    stored: set[Shape] = set()
    for mark, place, shape in recorded.accumulated:
        if place >= last.get(mark, NONE):
            continue
        add = next((op for op in (place + 1, place + 2) if op in adding), None)  # inside the op that accumulates
        if add is None:
            stored.add(shape)
        else:
            shape_of_add[add] = shape
    kept = set(shape_of_add.values()) - stored
    if recorded.has_shards or not kept:
        return
    spared = Spared()
    fills: list[PricedExecution] = []
    zeroed, has_added = False, False
    for execution, priced in recorded.ordered:
        if priced.name in _ZEROS and not execution.context.backward and _fills(priced.args, kept):
            fills.append((execution, priced))
            zeroed, has_added = True, False
        elif shape_of_add.get(execution.op) in kept:
            spared.add((execution, priced), float(zeroed))
            has_added = True
        elif has_added and execution.op != NONE and not (execution.context.backward or execution.context.optimizer):
            zeroed = False  # the forward pass of another backward pass, which accumulates
    for fill in fills:
        spared.add(fill, 1.0)
    if fills:
        yield from spared.reasons(group="zeros")


def _fills(args: Sequence[object], kept: Container[Shape]) -> bool:
    """Whether an op fills tensors with the shapes of such gradients; traces leave out long lists of tensors."""
    return all(tensor.shape in kept for tensor in all_tensors(args))
