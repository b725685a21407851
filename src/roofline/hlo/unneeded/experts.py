"""Experts computed for every token: a ragged product that the compiler turned into a dense one over all groups."""

from collections.abc import Iterator

from ...cost import NOTHING, Cost, less_traffic
from ...workload import Avoidable, Facts
from ..lower.products import DOTS
from .kernels import Kernels
from .values import LAYOUT, Value, Values

KIND, CLASS = "dense-experts", "dense"
_PASSED = LAYOUT | {"convert"}


def dense_experts(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The dense products that the compiler made of ragged ones, and the kernels that spread their rows over the groups."""
    values, computation = kernels.values, kernels.computation
    for index, found in kernels.products.items():
        if found.made.opcode == "ragged-dot" or "ragged_dot" not in computation[index].op_name:
            continue
        cost = kernels.costs[index]
        groups = _groups(values, found.left, found.right, found.made)
        if groups is None or groups < 2:
            continue
        bytes_less = 0
        for side in (found.left, found.right):
            spread = _spread(kernels, side, groups)
            if spread is not None:
                bytes_less += (side.shape.bytes or 0) * (groups - 1) // groups
                facts = Facts(experts=groups)
                for place in {spread, *_layout_changes(kernels, side)} - {index}:
                    yield place, Avoidable(kind=KIND, instead=NOTHING, cause="spread", facts=facts, unneeded=CLASS, group=str(groups))
        amounts = {resource: amount / groups if resource.unit == "matrix" else amount for resource, amount in cost.amounts}
        instead, facts = less_traffic(Cost.of(amounts), bytes_less), Facts(experts=groups, product=str(found))
        yield index, Avoidable(kind=KIND, instead=instead, facts=facts, unneeded=CLASS, group=str(groups), factor=groups)


def _groups(values: Values, left: Value, right: Value, made: Value) -> int | None:
    """The number of groups: the first dimension of the weights, which have one matrix per group."""
    for side in (right, left):
        origin = values.origin(side, _PASSED)
        if origin.opcode in ("parameter", "get-tuple-element") and len(origin.shape.dims) == 3:
            return origin.shape.dims[0]
    shapes = [side.shape.dims for side in (right, left, made)]
    return next((dims[0] for dims in shapes if len(dims) == 3), None)


def _spread(kernels: Kernels, side: Value, groups: int) -> int | None:
    """The kernel whose only purpose is to repeat each row for every group, with zeros in all but its own."""
    made = kernels.values.origin(side, _PASSED)
    holder = kernels.holding(made)
    body = kernels.values.body(kernels.computation[holder]) if holder is not None else None
    if made.opcode != "select" or groups not in made.shape.dims or body is None or any(one.opcode in DOTS for one in body):
        return None
    return holder


def _layout_changes(kernels: Kernels, side: Value) -> Iterator[int]:
    """The kernels between an operand's producer and its product that only change the layout."""
    value = kernels.values.made_by(side)
    while value.opcode in _PASSED and value.instruction.operands:
        place = kernels.holding(value)
        if place in kernels.costs:
            yield place
        value = kernels.values.made_by(kernels.values.operand(value, 0))
