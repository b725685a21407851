"""Kernels that only change the layout of an array: transposes and copies that move every byte and compute nothing.

A copy that keeps the layout is none of them: the compiler makes it where a buffer is written while its old value is still needed.
"""

from collections.abc import Iterator

from ...cost import NOTHING
from ...resource import HBM
from ...workload import Avoidable
from ..ir.module import Computation, Instruction
from ..ir.shapes import Shape
from .kernels import Kernels

KIND, CLASS = "layout-copies", "layout"
_MOVES = ("transpose", "copy")
_ALLOWED = frozenset(
    (*_MOVES, "bitcast", "reshape", "convert", "parameter", "slice", "concatenate", "broadcast", "constant", "tuple", "get-tuple-element")
)


def layout_copies(kernels: Kernels) -> Iterator[tuple[int, Avoidable]]:
    """The kernels of a computation that only change a layout."""
    for index, cost in kernels.costs.items():
        if [resource for resource, _ in cost.amounts] != [HBM] or cost.unknown:
            continue
        instruction = kernels.computation[index]
        body = kernels.values.body(instruction)
        parts = body.instructions if body is not None else (instruction,)
        if body is not None and not kernels.values.opcodes(body) <= _ALLOWED:
            continue
        within = body if body is not None else kernels.computation
        turned = max((one.shape.elements for one in parts if turns(within, one)), default=0)
        if turned and 2 * turned >= instruction.shape.elements:
            yield index, Avoidable(kind=KIND, instead=NOTHING, why="moves arrays only to change their layout", unneeded=CLASS)


def turns(computation: Computation, instruction: Instruction) -> bool:
    """Whether an instruction puts the elements of an array in another order."""
    if instruction.opcode != "copy" or not instruction.operands:
        return instruction.opcode in _MOVES
    return _order(computation[instruction.operands[0]].shape) != _order(instruction.shape)


def _order(shape: Shape) -> tuple[object, ...]:
    """The dimensions of an array from minor to major, without those of size 1, and its tiles."""
    layout = shape.layout
    order = layout.minor_to_major if layout is not None and layout.minor_to_major else range(len(shape.dims) - 1, -1, -1)
    return (*(axis for axis in order if shape.dims[axis] != 1), layout.tiles if layout is not None else ())
