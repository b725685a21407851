"""Common subexpression elimination, which compilers do before they fuse: values that a program computes twice are computed once.

Instructions are merged if opcode, shape, attributes and operands are the same. Values before and after an ``opt-barrier`` are not merged,
nor are instructions with side effects or control dependencies. Instructions without arithmetic are not merged, but their users are: each
kernel converts and reshapes its inputs itself, and an array filled with constants would need a copy if two loops or updates shared it.
"""

from msgspec.structs import replace

from ..ir.equality import NEVER_EQUAL, EqualInstructions
from ..ir.module import Computation, HloModule
from ..ir.rewriting import busy_computations, with_effects, without_dead_code
from ..ir.shapes import Shape
from .inlining import computations_that_run

_NEVER_MERGED = NEVER_EQUAL | {"opt-barrier"}
_NO_ARITHMETIC = frozenset(("convert", "bitcast", "bitcast-convert", "broadcast", "reshape", "transpose", "slice"))


def with_common_values(module: HloModule) -> HloModule:
    """The module with every value computed once in each computation that runs."""
    busy = busy_computations(module)
    done = list(module.computations)
    for number in computations_that_run(module):
        done[number] = _merged(module, done[number], busy)
    return replace(module, computations=tuple(done))


def _merged(module: HloModule, computation: Computation, busy: set[int]) -> Computation:
    """A computation with equal instructions merged; ``busy`` are the computations with side effects."""
    ordered = with_effects(computation, busy).union(*(operation.control for operation in computation.instructions if operation.control))
    alike = EqualInstructions(module, computation)
    same: dict[int, int] = {}  # an instruction, and the first that computes the same value
    merged: dict[int, int] = {}  # the entries of `same` that are replaced
    constant: set[int] = set()
    shapes: dict[int, Shape] = {}  # by id, so that each shape object is compared with others only once
    first_of: dict[Shape, Shape] = {}
    for index, instruction in enumerate(computation.instructions):
        if instruction.opcode in _NEVER_MERGED or instruction.control or index in ordered:
            continue
        if constant.issuperset(instruction.operands):  # true of a constant itself, which has no operands
            constant.add(index)
        shape = shapes.get(id(instruction.shape))
        if shape is None:
            shape = shapes[id(instruction.shape)] = first_of.setdefault(instruction.shape, instruction.shape)
        operands = instruction.operands
        if not same.keys().isdisjoint(operands):
            operands = tuple([same.get(operand, operand) for operand in operands])
        literal = instruction.literal if instruction.opcode == "constant" else None
        first = alike.first(index, (instruction.opcode, id(shape), operands, literal))
        if first == index:
            continue
        same[index] = first
        if index not in constant and instruction.opcode not in _NO_ARITHMETIC:
            merged[index] = first
    return without_dead_code(computation, busy, merged) if merged else computation
