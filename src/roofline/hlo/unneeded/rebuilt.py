"""Arrays that a loop copies to change a small part of them: a scan over the slices of a cache that returns the changed slices.

Each slice is read from the old array, changed at one position and written to the new one. If the loop carried the array, it would be
updated in place. Kernels around the loop that only fill, slice or concatenate such arrays would not be needed either.
"""

from collections.abc import Iterator

from ...cost import NOTHING, Cost
from ...resource import HBM
from ...rules.missing_donation.copies import CLASS, KIND
from ...workload import Avoidable
from ..ir.module import Computation
from .kernels import Kernels
from .values import LAYOUT, Value, Values

GROUP = "rebuilt"
MOST_NEW = 1 / 16  # of a slice: the largest part that counts as small
WRITTEN = {"dynamic-update-slice": 1, "scatter": 2}  # opcode that updates its first operand -> the operand with the new values
_PASSED = LAYOUT | {"convert"}
_MOVES = frozenset(
    (*LAYOUT, "parameter", "constant", "broadcast", "slice", "dynamic-slice", "concatenate", "pad", "tuple", "get-tuple-element", "convert")
)


def rebuilt_arrays(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of a loop that copy slices of an array to change them, and those around the loop that only move that array."""
    if not {"while", "dynamic-update-slice"} <= kernels.module.opcodes:
        return
    if kernels.number in kernels.values.loop_bodies:
        for index, (_, _, share) in _rebuilt(kernels.values, kernels.computation).items():
            if index not in kernels.costs:
                continue
            amounts = dict(kernels.costs[index].amounts)
            amounts[HBM] = amounts.get(HBM, 0) * share
            yield index, Avoidable(kind=KIND, instead=Cost.of(amounts), unneeded=CLASS, group=GROUP, extra=True)
    for place, loop in enumerate(kernels.computation.instructions):
        if loop.opcode == "while":
            for index in dict.fromkeys(_around(kernels, place)):
                yield index, Avoidable(kind=KIND, instead=NOTHING, unneeded=CLASS, group=GROUP, extra=True)


def _rebuilt(values: Values, body: Computation) -> dict[int, tuple[int, int, float]]:
    """The kernels of a loop's body that copy a slice to change it: the indices of the new and the old array in the loop's state, and the
    share of the slice that changes."""
    found = {}
    for index, instruction in enumerate(body.instructions):
        if "dynamic-update-slice" in values.opcodes(instruction):
            for written in values.written(body, index):
                if (one := _replaced(values, body, written)) is not None:
                    found[index] = one
    return found


def _replaced(values: Values, loop: Computation, written: Value) -> tuple[int, int, float] | None:
    """The indices of the new and the old array in the loop's state, and the changed share of a slice, if a value is written so."""
    outer = values.origin(written, _PASSED)
    if outer.opcode != "dynamic-update-slice":
        return None
    new = carried_part(loop, values.origin(values.operand(outer, 0), _PASSED))
    slice_ = values.operand(outer, 1)
    inner = values.origin(slice_, _PASSED | {"broadcast"})
    if new is None or inner.opcode not in WRITTEN or inner.shape.elements != slice_.shape.elements:
        return None
    part = values.origin(values.operand(inner, 0), _PASSED)
    if part.opcode != "dynamic-slice":
        return None
    source = values.operand(part, 0)
    old = carried_part(loop, values.origin(source, _PASSED))
    share = values.operand(inner, WRITTEN[inner.opcode]).shape.elements / max(inner.shape.elements, 1)
    if old is None or old == new or source.shape.elements != outer.shape.elements or share > MOST_NEW:
        return None
    return new, old, share


def carried_part(loop: Computation, value: Value) -> int | None:
    """The index of a value in the loop's state."""
    instruction = value.instruction
    if value.computation is not loop or instruction.opcode != "get-tuple-element" or not instruction.operands:
        return None
    return instruction.integer("index") or 0 if loop[instruction.operands[0]].opcode == "parameter" else None


def _around(kernels: Kernels, place: int) -> Iterator[int]:
    """The kernels before and after a loop that only move the arrays which it copies."""
    computation, values, loop = kernels.computation, kernels.values, kernels.computation[place]
    for number in loop.called("body"):
        for new, old, _ in _rebuilt(values, kernels.module.computations[number]).values():
            start = values.made_by(Value(computation, loop.operands[0]))
            for before in (new, old):
                if start.opcode == "tuple" and before < len(start.instruction.operands):
                    yield from _moved(kernels, start.instruction.operands[before])
            for user in values.users(computation, place):
                if computation[user].opcode == "get-tuple-element" and computation[user].integer("index") == new:
                    yield from (after for after in values.users(computation, user) if _only_moves(kernels, after))


def _moved(kernels: Kernels, index: int) -> Iterator[int]:
    """The kernels that only move or fill arrays to make a value, nearest first."""
    for _ in range(len(kernels.computation.instructions)):
        instruction = kernels.computation[index]
        if _only_moves(kernels, index):
            yield index
        elif instruction.opcode not in ("bitcast", "reshape", "get-tuple-element"):
            return
        if len(instruction.operands) != 1:
            return
        index = instruction.operands[0]


def _only_moves(kernels: Kernels, index: int) -> bool:
    return index in kernels.costs and kernels.values.opcodes(kernels.computation[index]) <= _MOVES
