"""Arguments, and arrays that a loop carries, copied in full to reorder their rows: the cache of a beam search after every token."""

from collections.abc import Iterator

from ...cost import NOTHING, less_traffic
from ...rules.layout_copies.gathered_blocks import CLASS
from ...rules.layout_copies.reordered import KIND
from ...workload import Avoidable, Usual
from .kernels import Kernels
from .program_arrays import results_of
from .values import LAYOUT, Value, Values

GROUP, IN_LOOP = "reordered", "reordered in a loop"
_PASSED = LAYOUT | {"convert"}
_UPDATES = ("dynamic-update-slice", "scatter")
_MOST_UPDATES = 16  # updates of an argument that are followed before it is reordered


def reordered_arrays(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of a program's entry that gather all rows of an argument to return them, and those that copy the result; in the body of a
    loop, those that hand all rows of an array on to the next iteration.
    """
    is_loop = kernels.number in kernels.values.loop_bodies
    if not (kernels.are_in_entry or is_loop) or "gather" not in kernels.module.opcodes:
        return
    results = results_of(kernels.computation)
    group = IN_LOOP if is_loop else GROUP
    for index, cost in kernels.costs.items():
        moved = 2 * sum(made.shape.bytes for made in _written(kernels, index) if _is_reordered(kernels, made, is_loop))
        copies = [user for user in kernels.users(index) if kernels.computation[user].opcode == "copy"] if moved else []
        if not moved or results.isdisjoint((index, *copies)):
            continue
        yield index, Avoidable(kind=KIND, instead=less_traffic(cost, moved), unneeded=CLASS, group=group, usual=Usual.UNLESS_ASKED)
        for copy in copies:
            yield copy, Avoidable(kind=KIND, instead=NOTHING, unneeded=CLASS, group=group, usual=Usual.UNLESS_ASKED)


def _written(kernels: Kernels, index: int) -> Iterator[Value]:
    """The gathers whose results a kernel writes."""
    for value in kernels.values.written(kernels.computation, index):
        made = kernels.values.origin(value, _PASSED)
        if made.opcode == "gather" and kernels.holding(made) == index:
            yield made


def _is_reordered(kernels: Kernels, gather: Value, is_loop: bool) -> bool:
    """Whether a gather takes as many whole rows as an argument has, which the program updates or which is donated: its state. In a loop, an
    array that it carries and updates.

    A program that only shuffles its arguments, or a loop that only shuffles an array, does what it is for.
    """
    source = kernels.values.origin(kernels.values.operand(gather, 0), _PASSED)
    dims, sizes = source.shape.dims, gather.instruction.integers("slice_sizes")
    if (
        source.shape.elements != gather.shape.elements
        or len([size for size in sizes if size > 1]) < len([size for size in dims if size > 1]) - 1
    ):
        return False
    is_updated = False
    for _ in range(_MOST_UPDATES):
        before = _before_update(kernels.values, source)
        if before is None:
            break
        is_updated = True
        source = kernels.values.origin(before, _PASSED)
    if source.computation is not kernels.computation:
        return False
    if is_loop:
        return is_updated and source.opcode == "get-tuple-element" and kernels.values.operand(source, 0).opcode == "parameter"
    if source.opcode != "parameter":
        return False
    number = kernels.computation.parameters.index(source.index)
    return is_updated or any(alias.parameter == number for alias in kernels.module.aliases)


def _before_update(values: Values, value: Value) -> Value | None:
    """An array before a part of it was updated, or before a loop that carries it; ``None`` for other values."""
    if value.opcode in _UPDATES:
        return values.operand(value, 0)
    loop = values.operand(value, 0) if value.opcode == "get-tuple-element" else None
    start = values.made_by(values.operand(loop, 0)) if loop is not None and loop.opcode == "while" else None
    place = value.instruction.integer("index") or 0
    return values.operand(start, place) if start is not None and start.opcode == "tuple" else None
