"""Elementwise opcodes: which they are, and their work, counted by `ops.elementwise`.

XLA's own cost analysis counts 1 for each of them: docs/hlo.md explains each difference.
"""

from ...cost import Amount, Cost
from ...ops.elementwise import amounts
from ...resource import Resource
from ..ir.module import Computation, Instruction
from ..ir.opcodes import ELEMENTWISE as ELEMENTWISE
from ..ir.opcodes import TRANSCENDENTALS as TRANSCENDENTALS
from .types import Site
from .work import NO_WORK, Inner, Work


def each_element(computation: Computation, instruction: Instruction) -> tuple[tuple[Resource, Amount], ...]:
    """The work of an elementwise instruction per element of its result; empty if it only compares or converts."""
    result = instruction.shape.number
    # The modulus of complex numbers is real.
    operands = result
    if instruction.opcode == "abs" and instruction.operands:
        operands = computation.operands(instruction)[0].shape.number
    return amounts(instruction.opcode, operands, result)


def elementwise(site: Site, inner: Inner) -> Work:
    """The work of each element times the elements of the result."""
    per_element = each_element(site.computation, site.instruction)
    if not per_element:
        return NO_WORK
    elements = site.instruction.shape.elements
    return Work(Cost(tuple((resource, amount * elements) for resource, amount in per_element) if elements else ()))
