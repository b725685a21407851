"""Arrays that are rewritten in full by a select, to change the one position along an axis at which a counter equals an index.

A cache of `jnp.where(arange(n) == position, new, cache)` reads and writes all of its positions; a scatter writes one, in place.
"""

from collections.abc import Iterator

from ...cost import less_traffic
from ...workload import Avoidable, Usual
from .axes import source_axis
from .kernels import Kernels
from .layout import CLASS, KIND
from .positions import follows
from .rebuilt import carried_part
from .values import LAYOUT, RENAMED, SPREAD, Value, Values

GROUP = "selected"
_LEAST = 8  # positions along the axis: fewer are hardly worth the change


def selected_updates(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that rewrite arguments of a program, or the state of a loop, to change one position, and hand them back."""
    is_loop = kernels.number in kernels.values.loop_bodies
    if not {"select", "iota", "compare"} <= kernels.module.opcodes or not (kernels.are_in_entry or is_loop):
        return
    returned = _returned(kernels)
    for index, cost in kernels.costs.items():
        if "select" not in kernels.values.opcodes(kernels.computation[index]):
            continue
        saved = 0.0
        for written in kernels.values.written(kernels.computation, index):
            made = kernels.values.origin(written, LAYOUT)
            if made.opcode != "select" or kernels.holding(made) != index or made.key not in returned:
                continue
            if _is_replaced(kernels, made, index, returned[made.key]) and (positions := _positions(kernels.values, made)):
                ways = 1 if _is_read(kernels.values, made) else 2
                saved += ways * made.shape.bytes * (1 - 1 / positions)
        if saved:
            yield (
                index,
                Avoidable(kind=KIND, instead=less_traffic(cost, saved), unneeded=CLASS, group=GROUP, usual=Usual.UNLESS_ASKED),
            )


def _returned(kernels: Kernels) -> dict[object, int]:
    """The values that a computation returns, with their place in its result."""
    root = kernels.computation.root_instruction
    places = root.operands if root.opcode == "tuple" else (kernels.computation.root,)
    return {kernels.values.origin(Value(kernels.computation, place), LAYOUT).key: number for number, place in enumerate(places)}


def _is_replaced(kernels: Kernels, select: Value, index: int, place: int) -> bool:
    """Whether a select changes an argument or the state of a loop that nothing else reads, so that it could be updated in place."""
    old = kernels.values.origin(kernels.values.operand(select, 2), LAYOUT)
    if old.computation is not kernels.computation or old.shape.dims != select.shape.dims or kernels.users(old.index) != {index}:
        return False
    if kernels.are_in_entry:
        return old.opcode == "parameter"
    return carried_part(kernels.computation, old) == place


def _is_read(values: Values, select: Value) -> bool:
    """Whether the kernel of a select also computes with all of its result, which it has to read anyway."""
    users = values.users(select.computation, select.index) if select.inside else []
    return any(select.computation[user].opcode not in ("tuple", *LAYOUT) for user in users)


def _positions(values: Values, select: Value) -> int:
    """The number of positions along the axis of which a select changes one; 0 if it may change more."""
    predicate, new, _ = values.operands(select)
    for axis, size in enumerate(select.shape.dims):
        if size >= _LEAST and _is_spread(values, new, axis) and _is_at_one(values, predicate, axis):
            return size
    return 0


def _is_at_one(values: Values, predicate: Value, axis: int) -> bool:
    """Whether a predicate holds at most at one place along an axis: where a counter equals an index, and other predicates hold too."""
    made, place = values.origin(predicate, SPREAD), source_axis(values, predicate, axis, SPREAD)
    if place is None:
        return False
    sides = values.operands(made)
    if made.opcode == "and":
        return any(_is_at_one(values, side, place) for side in sides)
    if made.opcode != "compare" or made.instruction.word("direction").upper() != "EQ":
        return False
    pairs = (sides, sides[::-1])
    return any(follows(values, counter, place) and _is_spread(values, index, place) for counter, index in pairs)


def _is_spread(values: Values, value: Value, axis: int) -> bool:
    """Whether a value is the same along an axis, which a broadcast added or lengthened."""
    made, here = values.origin(value, RENAMED), source_axis(values, value, axis, RENAMED)
    if made.opcode == "constant":
        return made.shape.elements == 1
    if made.opcode != "broadcast" or here is None:
        return False
    before, dimensions = values.operand(made, 0), made.instruction.dimensions
    if here not in dimensions or before.shape.dims[dimensions.index(here)] == 1:
        return True
    return _is_spread(values, before, dimensions.index(here))
