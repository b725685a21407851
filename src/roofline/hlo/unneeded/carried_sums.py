"""Gradients of weights that a recurrent loop adds up: each iteration multiplies a few rows, and reads and writes the whole sum.

The state of the loop must be computed step by step, but the products need not be: with what they multiply stored for every iteration, one
product after the loop has the same FLOP, and the sum is written once.
"""

from collections.abc import Iterator

from ...cost import NOTHING, Cost
from ...resource import HBM
from ...units import show
from ...workload import Avoidable
from ..price.types import Site
from .kernels import Kernels, Product, product
from .low_batch import FEW_IN_LOOPS, KIND, Loop
from .values import LAYOUT, RENAMED, Value

GROUP = "carried"
_LEAST_TRIPS = 8
_PARTS = RENAMED | {"slice"}  # one product may compute the gradients of several weights


def carried_sums(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of a loop's body that add products of few rows to its state, and those that compute the products."""
    loop, around = Loop.around(kernels), kernels.values.loops.get(kernels.computation.name)
    if loop is None or around is None:
        return
    trips = kernels.pricer.trip_count(Site(kernels.module, around.computation, around.instruction, kernels.platform))
    if trips is None or trips < _LEAST_TRIPS:
        return
    for place in sorted(loop.changing):
        found, adder = _added_product(kernels, place) or (None, None)
        if found is None or found.depth > min(FEW_IN_LOOPS, found.rows, found.columns) or not loop.is_recurrent(found):
            continue
        multiplier = kernels.holding(found.made)
        why = f"adds {show(found.made.shape.bytes, 'B')} of gradients to a sum for {found.depth:,} rows in each iteration of a loop"
        if adder is not None and adder in kernels.costs and adder != multiplier:
            yield adder, Avoidable(kind=KIND, instead=NOTHING, why=why, group=GROUP)
        if multiplier is not None and multiplier in kernels.costs:
            yield multiplier, Avoidable(kind=KIND, instead=_after_the_loop(kernels.costs[multiplier], found, trips), why=why, group=GROUP)


def _added_product(kernels: Kernels, place: int) -> tuple[Product, int | None] | None:
    """The product that an iteration adds to a part of the loop's state, and the kernel that adds it, if nothing else uses that part."""
    values, body = kernels.values, kernels.computation
    made = values.origin(Value(body, body.root_instruction.operands[place]), LAYOUT)
    if made.opcode != "add":
        return None
    for number in (0, 1):
        carried = values.origin(values.operand(made, number), RENAMED)
        is_state = carried.computation is body and carried.opcode == "get-tuple-element" and carried.instruction.integer("index") == place
        if not is_state or carried.instruction.operands[0] != body.parameters[0] or len(values.users(body, carried.index)) != 1:
            continue
        found = product(values, values.origin(values.operand(made, 1 - number), _PARTS))
        return (found, kernels.holding(made)) if found is not None and found.batch == 1 else None
    return None


def _after_the_loop(cost: Cost, found: Product, trips: int) -> Cost:
    """An iteration's share of one product after the loop: its rows are stored and read, and the result is written once."""
    moved = 2 * (found.left.shape.bytes + found.right.shape.bytes) + found.made.shape.bytes // trips
    return Cost.of({resource: min(moved, amount) if resource == HBM else amount for resource, amount in cost.amounts})
