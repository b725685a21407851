"""Results that a loop stacks, of which only a part is used: the class scores of every layer, of which the last are returned.

A scan writes the result of each iteration to its slice of an array. If the program uses only some slices, the work for the others is
unneeded: in the loop, the kernels whose results are only used there; before it, the kernel that fills the array.
"""

from collections.abc import Iterator

from ...workload import Avoidable
from ..ir.module import Computation, Instruction
from .kernels import Kernels
from .unused import CLASS, KIND, MOST_USED, demands_on, share_used
from .values import LAYOUT, Value, Values

_PASSED = LAYOUT | {"convert"}
_NAMES = frozenset(("bitcast", "get-tuple-element", "async-done", "reshape"))


def unused_in_loops(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of a loop in the entry that compute stacked results which are not used, or those of the entry that fill the array."""
    if "while" not in kernels.module.opcodes or not (kernels.are_in_entry or kernels.number in kernels.values.loop_bodies):
        return
    for place, loop in enumerate(kernels.module.entry_computation.instructions):
        if loop.opcode != "while" or not (kernels.are_in_entry or kernels.number in loop.called("body")):
            continue
        bodies = [kernels.module.computations[number] for number in loop.called("body")]
        for part, used in _stacked(kernels, place).items():
            for body in bodies:
                if (writer := writer_of(kernels.values, body, part)) is None:
                    continue
                for index in fillers(kernels, loop, part) if kernels.are_in_entry else only_for(kernels, body, writer):
                    instead, facts = kernels.costs[index] * used, {"share": used}
                    yield index, Avoidable(kind=KIND, instead=instead, cause="loop", facts=facts, unneeded=CLASS, factor=1 / used)


def _stacked(kernels: Kernels, place: int) -> dict[int, float]:
    """The parts of a loop's result of which the program uses only some of the first axis, with the used share."""
    module, found = kernels.module, {}
    demands = demands_on(kernels.pricer.bodies, module.entry)
    for user in kernels.values.users(module.entry_computation, place):
        part = module.entry_computation[user]
        if part.opcode != "get-tuple-element" or not part.shape.is_array or not part.shape.dims or user not in demands:
            continue
        used = share_used(part.shape, demands[user])
        if 0 < used <= MOST_USED and abs(used * part.shape.dims[0] - round(used * part.shape.dims[0])) < 1e-6:
            found[part.integer("index") or 0] = used
    return found


def writer_of(values: Values, body: Computation, part: int) -> int | None:
    """The instruction of a loop's body that writes one slice of a part of the result per iteration."""
    root = body.root_instruction
    if root.opcode != "tuple" or part >= len(root.operands):
        return None
    made = values.origin(Value(body, root.operands[part]), _PASSED)
    if made.opcode != "dynamic-update-slice":
        return None
    target = values.origin(values.operand(made, 0), _PASSED)
    is_carried = target.computation is body and target.opcode == "get-tuple-element" and target.instruction.integer("index") == part
    if not is_carried or values.operand(made, 1).shape.dims[:1] != (1,):
        return None
    writer = made.inside[0][1] if made.inside else made.instruction
    return next((place for place, one in enumerate(body.instructions) if one is writer), None)


def only_for(kernels: Kernels, body: Computation, writer: int) -> Iterator[int]:
    """The kernels of a body whose results are only used by ``writer``, that one included."""
    mine = {writer}
    for place in range(len(body.instructions) - 1, -1, -1):
        users = kernels.values.users(body, place)
        if place != writer and users and mine.issuperset(users) and body[place].opcode != "parameter":
            mine.add(place)
    yield from (place for place in sorted(mine) if place in kernels.costs)


def fillers(kernels: Kernels, loop: Instruction, part: int) -> Iterator[int]:
    """The kernel that makes the array before the first iteration."""
    start = kernels.values.made_by(Value(kernels.computation, loop.operands[0]))
    if start.opcode == "tuple" and part < len(start.instruction.operands):
        index = start.instruction.operands[part]
        while kernels.computation[index].opcode in _NAMES:
            index = kernels.computation[index].operands[0]
        if index in kernels.costs:
            yield index
