"""Arrays that a loop carries and of which it stacks a full copy in every iteration, although each changes a small part of them.

A scan whose body returns its cache among the results of each token writes the whole cache for every token. What is new would be enough, or
the last state. On an H200 the generation of 32 tokens with a cache of 67 MB takes 5.7 ms so, 3.3 ms without (predicted: 2.3 ms saved).
"""

from collections.abc import Iterator

from ...cost import Cost
from ...resource import HBM
from ...workload import Avoidable, Usual
from ..ir.module import Computation
from .kernels import Kernels
from .layout import KIND
from .rebuilt import MOST_NEW, WRITTEN, carried_part
from .stacked_arguments import CLASS
from .stacked_slices import fillers, writer_of
from .values import LAYOUT, Value, Values

GROUP = "every state"
_PASSED = LAYOUT | {"convert", "broadcast"}


def stacked_states(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of a loop that write such copies, and those in front of it that fill the stack of them."""
    if not {"while", "dynamic-update-slice"} <= kernels.module.opcodes:
        return
    if kernels.number in kernels.values.loop_bodies:
        for part, copied in _stacks(kernels.values, kernels.computation).items():
            index = writer_of(kernels.values, kernels.computation, part)
            if index is not None and index in kernels.costs:
                yield index, _without(kernels.costs[index], 2 * copied)
    for loop in kernels.computation.instructions:
        for number in loop.called("body") if loop.opcode == "while" else ():
            for part in _stacks(kernels.values, kernels.module.computations[number]):
                for index in fillers(kernels, loop, part):
                    yield index, _without(kernels.costs[index], loop.shape.parts[part].bytes)


def _without(cost: Cost, moved: int) -> Avoidable:
    """The saving of a kernel that moves these bytes for the copies."""
    amounts = {resource: max(amount - moved, 0) if resource == HBM else amount for resource, amount in cost.amounts}
    return Avoidable(kind=KIND, instead=Cost.of(amounts), unneeded=CLASS, group=GROUP, usual=Usual.UNLESS_ASKED)


def _stacks(values: Values, body: Computation) -> dict[int, int]:
    """The parts of a loop's state that are stacks of copies of another part, and the bytes of one copy."""
    found = {}
    for part in range(len(body.root_instruction.operands) if body.root_instruction.opcode == "tuple" else 0):
        if writer_of(values, body, part) is None:
            continue
        written = values.operand(values.origin(Value(body, body.root_instruction.operands[part]), _PASSED), 1)
        if _is_state(values, body, values.origin(written, _PASSED)):
            found[part] = written.shape.bytes
    return found


def _is_state(values: Values, body: Computation, value: Value) -> bool:
    """Whether a value is a part of the loop's state after an iteration, which changes at most a small part of it."""
    after = [values.origin(Value(body, operand), _PASSED).key for operand in body.root_instruction.operands]
    if value.key not in after:
        return False
    changed, one = 0, value
    while one.opcode in WRITTEN:
        changed += values.operand(one, WRITTEN[one.opcode]).shape.elements
        one = values.origin(values.operand(one, 0), _PASSED)
    return carried_part(body, one) == after.index(value.key) and changed <= MOST_NEW * value.shape.elements
