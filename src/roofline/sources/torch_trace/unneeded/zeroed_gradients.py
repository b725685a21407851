"""Gradients that are zeroed before an optimizer uses them: where two optimizers take turns, a loss goes back through what only the other
updates, such as a discriminator's through the generator.

The part of a step up to an optimizer's update needs the gradients of the weights that this optimizer updates. Others are kept only if the
part in which their own optimizer updates them adds to them; if it stores new ones, the old ones were dropped.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from ....workload import Avoidable
from ..columns import NONE
from ..pricing import PricedOp
from .frozen_gradients import Shape, Spared, makes_gradient, updated_shapes
from .recorded import PricedExecution, Recorded, tensors_of


class Part(Struct):
    """A backward pass, or several, and the updates that follow. ``accumulated`` has the shape of each gradient and the op that stored it,
    or added it to an earlier one; ``updated`` has the shapes of the weights that were updated.
    """

    mark: int
    backward: list[PricedExecution] = field(default_factory=list)
    updates: list[PricedExecution] = field(default_factory=list)
    accumulated: list[tuple[int, Shape]] = field(default_factory=list)
    updated: frozenset[Shape] = frozenset()

    def stores(self, shape: Shape) -> bool:
        """Whether a gradient of this shape was stored as it was, not added to an earlier one. An addition is in the op that accumulates."""
        added = {one.op for one, priced in self.backward if priced.name == "aten::add_"}
        return any(one == shape and not added & {place + 1, place + 2} for place, one in self.accumulated)

    @property
    def is_second(self) -> bool:
        """Whether it goes through the same ops as a pass before it, which is a finding of its own."""
        return any(one.context.again is not None for one, _ in self.backward)


def zeroed_gradients(recorded: Recorded) -> Iterator[tuple[PricedExecution, Avoidable]]:
    """The executions of backward passes that only compute gradients which no optimizer uses."""
    parts = [] if recorded.has_shards else _parts(recorded)
    spared = Spared()
    for number, part in enumerate(parts):
        dropped = _dropped(part, [*parts[number + 1 :], *parts[:number]])  # steps repeat
        last = max((place for place, shape in part.accumulated if shape in part.updated), default=None)
        for held in part.backward:
            is_after = last is not None and held[0].op > last
            spared.add(held, 0.0 if not dropped else 1.0 if is_after else _share(held[1], dropped))
    yield from spared.reasons("zeroed")


def _parts(recorded: Recorded) -> list[Part]:
    """The parts of the first steps, in order; empty unless there are several in a step."""
    parts: list[Part] = []
    for held in recorded.ordered:
        one = held[0]
        if one.op == NONE or one.context.recomputed:
            continue
        if one.context.optimizer and parts:
            parts[-1].updates.append(held)
        elif one.context.backward:
            if not parts or parts[-1].mark != one.mark or parts[-1].updates:
                parts.append(Part(one.mark))
            parts[-1].backward.append(held)
    if len(parts) <= len({part.mark for part in parts}):
        return []
    begins = [(part.mark, part.backward[0][0].op) for part in parts]
    for mark, place, shape in recorded.accumulated:
        mine = [number for number, (step, begin) in enumerate(begins) if step == mark and begin <= place]
        if mine:
            parts[max(mine, key=lambda number: begins[number][1])].accumulated.append((place, shape))
    for part in parts:
        part.updated = frozenset(updated_shapes(part.updates))
    return parts if all(part.updated for part in parts) else []


def _dropped(part: Part, later: Sequence[Part]) -> frozenset[Shape]:
    """The shapes of the gradients that a part computes for weights which only a later part updates, with gradients of its own."""
    found = set()
    for shape in {shape for _, shape in part.accumulated} - part.updated:
        owner = next((one for one in later if shape in one.updated), None)
        if owner is not None and owner.stores(shape) and not owner.is_second:
            found.add(shape)
    return frozenset(found)


def _share(priced: PricedOp, dropped: frozenset[Shape]) -> float:
    """The share of an op that computes gradients of these shapes: half of a convolution's, which are of its input and of its weights."""
    if priced.name == "aten::convolution_backward":
        operands = tensors_of(priced)
        return 0.5 if len(operands) > 2 and operands[2].shape in dropped else 0.0
    return float(makes_gradient(priced, dropped))
