"""Copies that donation would avoid: an argument is copied in full because a part of it is updated and the caller keeps it.

A donated argument is copied too, if its old value is used after the update, or its buffer becomes another result.
"""

from collections.abc import Iterator

from ...cost import NOTHING
from ...workload import Avoidable
from ..ir.module import Computation, Instruction
from ..ir.shapes import Shape
from ..price.bodies import updated
from .kernels import Kernels
from .layout import changes_order
from .values import Value, Values

KIND, CLASS = "missing-donation", "copied"
DONATED = "donated"  # the group of copies of donated arguments
_PASSED = frozenset(("bitcast", "get-tuple-element", "copy"))
_MOST_USERS = 64


def missing_donations(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The copies of arguments in the entry that are then updated in place."""
    if not kernels.are_in_entry:
        return
    values, entry = kernels.values, kernels.computation
    donated = {alias.parameter for alias in kernels.module.aliases}
    for index, instruction in enumerate(entry.instructions):
        if instruction.opcode not in ("copy", "copy-start") or not instruction.operands:
            continue
        source = values.origin(Value(entry, instruction.operands[0]), _PASSED)
        if source.opcode != "parameter" or source.computation is not entry:
            continue
        number = entry.parameters.index(source.index)
        if (number in donated and changes_order(entry, instruction)) or not updated_in_place(values, entry, index):
            continue
        facts = {"argument": source.instruction.op_name or f"argument {number}"}
        group = DONATED if number in donated else ""
        yield index, Avoidable(kind=KIND, instead=NOTHING, facts=facts, unneeded=CLASS, group=group, extra=True)


def updated_in_place(values: Values, computation: Computation, index: int) -> bool:
    """Whether a value is the target of an update in place, in a kernel of its own, a fusion or a loop."""
    waiting, seen = [index], {index}
    while waiting and len(seen) < _MOST_USERS:
        here = waiting.pop()
        for user in values.users(computation, here):
            instruction = computation[user]
            if here in updated(instruction):
                return True
            body = values.body(instruction)
            if body is not None and any(
                body[target].opcode == "parameter" and instruction.operands[body.parameters.index(target)] == here
                for one in body.instructions
                for target in _bases(body, updated(one))
            ):
                return True
            if instruction.opcode == "while":
                return _updates_shape(values, instruction, computation[index].shape)
            if instruction.opcode in ("bitcast", "copy", "copy-done", "tuple") and user not in seen:
                seen.add(user)
                waiting.append(user)
    return False


def _updates_shape(values: Values, loop: Instruction, shape: Shape) -> bool:
    """Whether a loop updates an array of this shape in place."""
    bodies = [values.module.computations[number] for number in loop.called("body")]
    inner = [body for outer in bodies for one in outer if (body := values.body(one)) is not None]
    updates = [(body, target) for body in (*bodies, *inner) for one in body for target in updated(one)]
    return any(body[target].shape.dims == shape.dims for body, target in updates)


def _bases(body: Computation, targets: tuple[int, ...]) -> Iterator[int]:
    """The sources of these targets, through bitcasts."""
    for target in targets:
        while body[target].opcode == "bitcast" and body[target].operands:
            target = body[target].operands[0]
        yield target
