"""Sorts that another sort undoes: rows are sorted only to find which of their elements to keep, as in top-p sampling.

The elements to keep are those above a threshold, which a bisection finds without sorting.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ...cost import NOTHING, Cost
from ...resource import HBM
from ...rules.unused_results.parts import CLASS, KIND
from ...workload import Avoidable
from .kernels import Kernels
from .sorted_parts import sorts
from .values import LAYOUT, SPREAD, Value, Values

GROUP = "masked"
PASSES = 24  # over a row, of a bisection down to the last bit of the significand of fp32


class _Pair(NamedTuple):
    """A sort and the one that undoes it."""

    first: int
    second: int


def undone_sorts(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The sorts of a computation that keep some elements of each row in its first order, and the kernels between them."""
    if kernels.module.opcodes.isdisjoint(("sort", "custom-call")) or not {"iota", "select"} <= kernels.module.opcodes:
        return
    for pair in _pairs(kernels):
        between = _between(kernels, pair)
        if not kernels.users(pair.first) <= between:
            continue
        keys = kernels.values.operand(Value(kernels.computation, pair.first), 0).shape
        avoidable = Avoidable(kind=KIND, instead=NOTHING, unneeded=CLASS, group=GROUP)
        for index in sorted(between & kernels.costs.keys()):
            yield index, avoidable
        besides = Cost.of({HBM: PASSES * keys.bytes})
        yield pair.first, Avoidable(kind=KIND, instead=NOTHING, unneeded=CLASS, group=GROUP, besides=besides)


def _pairs(kernels: Kernels) -> Iterator[_Pair]:
    values, computation = kernels.values, kernels.computation
    for index in kernels.costs:
        second = Value(computation, index)
        if not sorts(second.instruction) or len(second.instruction.operands) < 2:
            continue
        order, kept = values.operands(second)[:2]
        part = _part(values, order)
        if part is None or part[1] == 0 or part[0].computation is not computation:
            continue
        first, number = part
        if first.shape.dims == second.shape.dims and _counts(values, first, number) and _masks(values, kept, first):
            yield _Pair(first.index, index)


def _part(values: Values, value: Value) -> tuple[Value, int] | None:
    """The sort that a value is a result of, and which."""
    made = values.origin(value, LAYOUT)
    part = 0
    if made.opcode == "get-tuple-element":
        part, made = made.instruction.integer("index") or 0, values.operand(made, 0)
    return (made, part) if sorts(made.instruction) else None


def _counts(values: Values, sort: Value, number: int) -> bool:
    """Whether an operand of a sort counts along the axis that is sorted, so that it becomes the order of the row."""
    if number >= len(sort.instruction.operands):
        return False
    counter = values.origin(values.operand(sort, number))
    last = len(sort.shape.dims) - 1
    axis = sort.instruction.dimensions[0] if sort.opcode == "sort" and sort.instruction.dimensions else last
    return counter.opcode == "iota" and (counter.instruction.integer("iota_dimension") or 0) == axis


def _masks(values: Values, kept: Value, first: Value) -> bool:
    """Whether a value is the sorted keys, with a constant in place of some."""
    select = values.origin(kept, LAYOUT)
    if select.opcode != "select":
        return False
    sides = values.operands(select)[1:]
    for taken, other in (sides, sides[::-1]):
        part = _part(values, taken)
        if part is not None and part[1] == 0 and part[0].key == first.key and values.origin(other, SPREAD).opcode == "constant":
            return True
    return False


def _between(kernels: Kernels, pair: _Pair) -> set[int]:
    """The second sort, and the kernels between that only it needs."""
    after = {pair.first}
    for index in range(pair.first, pair.second):
        if index in after:
            after |= kernels.users(index)
    found = {pair.second}
    for index in range(pair.second - 1, pair.first, -1):
        if index in after and kernels.users(index) and kernels.users(index) <= found:
            found.add(index)
    return found
