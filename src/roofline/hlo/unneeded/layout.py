"""Kernels that only change the layout of an array: transposes and copies that move every byte and compute nothing."""

from collections.abc import Iterator

from ...cost import NOTHING
from ...resource import HBM
from ...workload import Avoidable
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
        turned = max((one.shape.elements for one in parts if one.opcode in _MOVES), default=0)
        if turned and 2 * turned >= instruction.shape.elements:
            yield index, Avoidable(kind=KIND, instead=NOTHING, why="moves arrays only to change their layout", unneeded=CLASS)
