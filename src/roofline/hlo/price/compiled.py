"""What a compiled program says of an instruction besides its cost: whether it runs beside others, and the compiler's estimate."""

import re

from ...operation import UNSTATED, Compiled
from ..ir.module import Instruction
from .types import Price

# Opcodes that only start work, which the DMA engines or the links do beside the instructions up to the one that waits for it.
STARTS = frozenset(("copy-start", "async-start", "all-gather-start", "all-reduce-start", "collective-permute-start", "send", "recv"))
_CYCLES = re.compile(r'"estimated_cycles":"?(\d{1,19})(?!\d)')  # in the configurations of the TPU compiler
_IN_PLACE = '"aliasing_operands":{"lists":[{'
_UNKNOWN = 2**63 - 1  # what it writes for work of the SparseCore


def compiled(instruction: Instruction, price: Price) -> Compiled:
    """What the program says of an instruction."""
    beside, cycles = instruction.opcode in STARTS or price.beside, estimated_cycles(instruction)
    if not (beside or cycles or price.products or price.axes):
        return UNSTATED
    in_place = _IN_PLACE in instruction.backend_config_text
    return Compiled(beside=beside, in_place=in_place, axes=price.axes, cycles=cycles, products=price.products)


def estimated_cycles(instruction: Instruction) -> float | None:
    """The compiler's estimate of one execution; ``None`` where it states none, or does not know."""
    if "estimated_cycles" not in instruction.backend_config_text:
        return None
    stated = _CYCLES.search(instruction.backend_config_text)
    cycles = int(stated[1]) if stated else 0
    return float(cycles) if 0 < cycles < _UNKNOWN else None
