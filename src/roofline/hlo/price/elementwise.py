"""Elementwise opcodes: which they are, and their work, counted by `ops.elementwise`.

XLA's own cost analysis counts 1 for each of them: docs/hlo.md explains each difference.
"""

from ...cost import Amount, Cost
from ...ops.elementwise import CONVENTIONS, amounts
from ...resource import Resource
from ..ir.module import Computation, Instruction
from ..ir.opcodes import OPCODES
from .types import Site
from .work import NO_WORK, Inner, Work

# Not opcodes of XLA, but of the CHLO dialect that StableHLO programs use.
_CHLO = "bessel-i1e digamma erf-inv erfc lgamma polygamma zeta is-inf is-neg-inf is-pos-inf next-after"
CHLO = frozenset(_CHLO.split())
ARITHMETIC, BITS, COMPARISONS, SIGNS, CONVERSIONS = (
    CONVENTIONS[kind] & OPCODES for kind in ("arithmetic", "bits", "comparisons", "signs", "conversions")
)
TRANSCENDENTALS = CONVENTIONS["transcendentals"] & OPCODES | {"logistic"}
ELEMENTWISE = ARITHMETIC | BITS | TRANSCENDENTALS | COMPARISONS | SIGNS | CONVERSIONS | CHLO


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
    each = each_element(site.computation, site.instruction)
    if not each:
        return NO_WORK
    elements = site.instruction.shape.elements
    return Work(Cost(tuple((resource, amount * elements) for resource, amount in each) if elements else ()))
