"""Concatenations, which the TPU compiler writes as the maximum of parts, each with -inf in the place of the others."""

from math import inf

from msgspec.structs import replace

from ..ir.amending import amended
from ..ir.module import Computation, Instruction
from ..ir.rewriting import without_dead_code
from ..ir.shapes import Shape

_MOST_PARTS = 64  # of one concatenation


def with_concatenations(computation: Computation) -> Computation:
    """A body in which concatenations are written as such, without what only they needed."""
    if not any(instruction.opcode == "maximum" for instruction in computation.instructions):
        return computation
    joined = {
        index: concatenation
        for index, instruction in enumerate(computation.instructions)
        if instruction.opcode in ("maximum", "convert") and (concatenation := _concatenation(computation, instruction)) is not None
    }
    if not joined:
        return computation
    instructions = tuple(joined.get(index, instruction) for index, instruction in enumerate(computation.instructions))
    return without_dead_code(replace(computation, instructions=instructions), set())


def _concatenation(computation: Computation, instruction: Instruction) -> Instruction | None:
    """The concatenation that an instruction computes; ``None`` if it is none.

    The maximum may be in a wider format, between conversions.
    """
    pads = _padded(computation, instruction)
    for axis in range(len(instruction.shape.dims)):
        pads.sort(key=lambda pad: pad.padding[axis].low)
        if len(pads) > 1 and _fills(computation, pads, instruction.shape, axis):
            parts = tuple(pad.operands[0] for pad in pads)
            return amended(replace(instruction, opcode="concatenate", operands=parts), dimensions=(axis,))
    return None


def _padded(computation: Computation, instruction: Instruction) -> list[Instruction]:
    """The padded arrays that an array is the maximum of; none if it is not one of few such arrays alone."""
    pads, waiting = list[Instruction](), [instruction]
    while waiting and len(pads) + len(waiting) <= _MOST_PARTS:
        part = waiting.pop()
        if part.opcode in ("maximum", "convert"):
            waiting += computation.operands(part)
        elif part.opcode == "pad" and computation.operands(part)[-1].opcode == "constant":
            literal = computation.operands(part)[-1].literal
            if literal is None or literal[:1] != (-inf,):
                return []
            pads.append(part)
        else:
            return []
    return [] if waiting else pads


def _fills(computation: Computation, pads: list[Instruction], whole: Shape, axis: int) -> bool:
    """Whether padded arrays of one format fill an array one after another along an axis, and all of its other axes."""
    place = 0
    for pad in pads:
        part = computation[pad.operands[0]].shape
        others = [side for other, side in enumerate(pad.padding) if other != axis]
        is_next = len(pad.padding) == len(whole.dims) and pad.padding[axis].low == place and not pad.padding[axis].interior
        if not is_next or any(side.low or side.high or side.interior for side in others) or part.dtype != whole.dtype:
            return False
        place += part.dims[axis]
    return place == whole.dims[axis]
