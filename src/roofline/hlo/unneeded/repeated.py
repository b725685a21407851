"""Arrays that are repeated for a product: keys and values of a few heads, broadcast to many query heads, are read once per query head.

A kernel that broadcasts the largest array it reads, and sums products with it, reads that array once per repetition, at best from a cache.
A product over the groups reads it once. Squared differences of all pairs of rows are such sums too: they can be computed from a product
and the squares of the rows. A ``cond`` under ``vmap`` repeats all arrays that its branches use for every row, so that a matmul of rows by
weights becomes such a sum.
"""

from collections.abc import Iterator

from ...cost import Cost
from ...resource import HBM
from ...units import parse
from ...workload import Avoidable, Saves
from ..ir.module import Computation, Instruction
from ..lower.products import DOTS
from ..price.contractions import default_unit
from .kernels import Kernels
from .values import RENAMED

KIND, PAIRS, BRANCHES = "repeated-operand", "pairs", "branches"
_MANY = 128  # repetitions: more than there are heads that share keys and values
_LEAST = parse("1 MB", "B")  # of an array: smaller ones stay in the cache
_SUMMED = frozenset((*DOTS, "reduce"))
_TAKES = frozenset((*DOTS, "multiply", "subtract"))
_PASSES = RENAMED | {"broadcast", "select"}


def repeated_operands(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels that repeat the largest array they read for a sum of products; squared differences have a reason of their own."""
    known: dict[str, tuple[int, Instruction | None]] = {}  # several kernels may have one body
    for index, cost in kernels.costs.items():
        body = kernels.values.body(kernels.computation[index])
        if body is None or _SUMMED.isdisjoint(kernels.values.opcodes(kernels.computation[index])):
            continue
        if body.name not in known:
            known[body.name] = _repeated(body), _squared_difference(body)
        times, difference = known[body.name]
        if times < 2:
            continue
        if difference is None and times > _MANY and "vmap(" in kernels.computation[index].op_name:
            unit = default_unit(kernels.computation[index].shape.leaves[0].number, kernels.platform)
            summed = sum(cost.known(resource) for resource, _ in cost.amounts if resource.unit == "vector")
            instead = Cost.of({unit: summed, HBM: cost.known(HBM)})
            yield index, Avoidable(kind=KIND, instead=instead, group=BRANCHES, saves=Saves.GOOD_STREAM)
        elif difference is None:
            yield index, Avoidable(kind=KIND, instead=cost, facts={"times": times}, saves=Saves.GOOD_STREAM)
        else:
            unit = default_unit(difference.shape.number, kernels.platform)
            instead = Cost.of({unit: 2 * difference.shape.elements, HBM: cost.known(HBM)})
            yield (
                index,
                Avoidable(kind=KIND, instead=instead, group=PAIRS, saves=Saves.GOOD_STREAM),
            )


def _squared_difference(body: Computation) -> Instruction | None:
    """The difference of two broadcast arrays that a body squares and sums; ``None`` if there is none."""
    for one in body:
        if one.opcode != "multiply" or one.operands[0] != one.operands[1] or not one.shape.is_bounded:
            continue
        difference = _renamed(body, body[one.operands[0]])
        if difference.opcode == "subtract" and all(_is_spread(body, body[operand]) for operand in difference.operands):
            return difference
    return None


def _is_spread(body: Computation, value: Instruction) -> bool:
    value = _renamed(body, value)
    return value.opcode == "broadcast" and bool(value.operands) and 1 < body[value.operands[0]].shape.elements < value.shape.elements


def _renamed(body: Computation, value: Instruction) -> Instruction:
    """A value before renamings and added dimensions of size 1."""
    while value.operands:
        before = body[value.operands[0]]
        if value.opcode not in RENAMED and not (value.opcode == "broadcast" and before.shape.elements == value.shape.elements):
            break
        value = before
    return value


def _repeated(body: Computation) -> int:
    """How often a body repeats the largest array it reads; 1 if it does not."""
    arrays = [one for one in body.instructions if one.opcode == "parameter" and one.shape.is_array and one.shape.is_bounded]
    largest = max(arrays, key=lambda one: one.shape.bytes, default=None)
    if largest is None or largest.shape.bytes < _LEAST:
        return 1
    found = 1
    for place, one in enumerate(body.instructions):
        if one.opcode != "broadcast" or not one.operands or not one.shape.is_bounded:
            continue
        source = _renamed(body, body[one.operands[0]])
        if source is largest and _is_multiplied(body, place):
            found = max(found, one.shape.elements // max(source.shape.elements, 1))
    return found


def _is_multiplied(body: Computation, place: int) -> bool:
    """Whether a value itself is multiplied or subtracted, and not a function of it: a matmul could then do the same."""
    values = {place}
    for index, one in enumerate(body.instructions):
        if values.isdisjoint(one.operands):
            continue
        if one.opcode in _TAKES:
            return True
        if one.opcode in _PASSES:
            values.add(index)
    return False
