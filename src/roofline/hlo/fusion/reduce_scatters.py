"""Replaces an all-reduce of which each device keeps its own slice by a reduce-scatter, as XLA does on GPUs and TPUs.

XLA's partitioner writes the pair, and its CPU compiler does not replace it. A reduce-scatter moves half the bytes.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from ..ir.module import Computation, HloModule, Instruction
from ..ir.opcodes import of_kind
from ..ir.rewriting import Rewriting
from ..price.collectives import group_size
from ..price.types import Site
from .inlining import computations_that_run

_PASSING = ("bitcast", "copy", "reshape")
_DEVICE = of_kind("device")


def with_reduce_scatters(module: HloModule) -> tuple[HloModule, int]:
    """The module with reduce-scatters in place of all-reduces that are only sliced, and the number of reduce-scatters."""
    computations, count = list(module.computations), 0
    loops = _loops(module)
    for number in computations_that_run(module):
        slices = dict(_own_slices(module, number, loops))
        if slices:
            computations[number] = _written(module.computations[number], slices)
            count += len(slices)
    return replace(module, computations=tuple(computations)), count


Loops = dict[int, tuple[int, Instruction]]  # body -> the computation that its loop is in, and the loop


def _loops(module: HloModule) -> Loops:
    return {
        body: (number, instruction)
        for number, computation in enumerate(module)
        for instruction in computation.instructions
        if instruction.opcode == "while"
        for body in instruction.called("body")
    }


def _own_slices(module: HloModule, number: int, loops: Loops) -> Iterator[tuple[int, int]]:
    """Slices of a device's own part, each with the all-reduce whose only use it is."""
    computation = module.computations[number]
    users: dict[int, list[int]] = {}
    for index, instruction in enumerate(computation.instructions):
        for operand in set(instruction.operands):
            users.setdefault(operand, []).append(index)
    for index, adding in enumerate(computation.instructions):
        value = index if adding.opcode == "all-reduce" and adding.shape.is_array else computation.root
        while value != computation.root and len(users.get(value, [])) == 1:
            user = users[value][0]
            instruction = computation[user]
            if instruction.opcode == "dynamic-slice" and instruction.operands[0] == value:
                fits = instruction.shape.elements * group_size(Site(module, computation, adding)) == adding.shape.elements
                if fits and any(_names_device(module, number, start, loops) for start in instruction.operands[1:]):
                    yield user, index
            if instruction.opcode not in _PASSING:
                break
            value = user


def _names_device(module: HloModule, number: int, index: int, loops: Loops) -> bool:
    """Whether a value depends on the device's number, also if it was computed before a loop."""
    seen, waiting = {(number, index)}, [(number, index)]
    while waiting:
        number, index = waiting.pop()
        computation = module.computations[number]
        instruction = computation[index]
        if instruction.opcode in _DEVICE:
            return True
        needed = [(number, operand) for operand in instruction.operands]
        if instruction.opcode == "get-tuple-element" and instruction.operands[0] in computation.parameters and number in loops:
            outer, loop = loops[number]
            start = module.computations[outer][loop.operands[0]]
            part = instruction.integer("index") or 0
            needed = [(outer, start.operands[part])] if start.opcode == "tuple" else []
        waiting += [place for place in needed if place not in seen]
        seen.update(needed)
    return False


def _written(computation: Computation, slices: dict[int, int]) -> Computation:
    """The computation with these slices replaced by reduce-scatters of their all-reduces' operands."""
    writing = Rewriting(computation)
    for index, instruction in enumerate(computation.instructions):
        if index in slices.values():
            writing.where[index] = writing.where[instruction.operands[0]]
            continue
        if index in slices:
            adding = computation[slices[index]]
            instruction = replace(
                adding, name=instruction.name, opcode="reduce-scatter", shape=instruction.shape, operands=instruction.operands[:1]
            )
        writing.where[index] = writing.put(writing.moved(instruction))
    return writing.finished()
