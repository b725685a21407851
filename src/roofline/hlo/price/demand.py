"""Which elements of its operands an instruction needs, if only some of its result is needed.

Of a parameter that is only sliced, only the slice is read. What each opcode does to axes and elements is in `graph.axes` and `graph.needs`.
"""

from collections.abc import Callable
from math import prod

from ...graph.index_sets import NOTHING, WHOLE, Dims, Region, count, loosely
from ...graph.needs import along_axes, at_unknown_place, gathered, overwritten, renamed, taken_whole
from ...ops.convolution import inputs_read
from ..ir.axes import index_map
from ..ir.module import Instruction
from ..ir.opcodes import ELEMENTWISE, of_kind
from ..ir.shapes import Shape

Operands = tuple[Instruction, ...]
Rule = Callable[[Instruction, Operands, Region], tuple[Region, ...]]


def needs(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    """The region of each operand that a region of the result needs. For a tuple, the region is the same for all its parts."""
    if not region:
        return (NOTHING,) * len(operands)
    if region.whole and instruction.opcode not in SELECTIVE:
        return (WHOLE,) * len(operands)
    return NEEDS.get(instruction.opcode, _along_axes)(instruction, operands, region)


def result_dims(shape: Shape) -> Dims:
    """The dimensions of an array, or those that the parts of a tuple share: a sort's, a reduction's of several arrays."""
    return next((leaf.dims for leaf in shape.leaves if leaf.is_array), ())


def _along_axes(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    """The part of each operand that lies along the axes of the region; if no axes are known, the same elements of operands of its shape."""
    result = result_dims(instruction.shape)
    dims = [operand.shape.dims for operand in operands]
    axes = index_map(instruction, operands) if instruction.opcode not in ELEMENTWISE else None
    if axes is None:
        return tuple([region if size == result else WHOLE for size in dims])
    return along_axes(axes, dims, result, region)


def _reshape(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    """The same elements in the same order (row-major for a reshape, in memory for a bitcast), and operands that are sizes."""
    source, in_memory = operands[0].shape, instruction.opcode == "bitcast"
    here, there = (shape.major_to_minor if in_memory else tuple(range(shape.rank)) for shape in (instruction.shape, source))
    return (renamed(region, result_dims(instruction.shape), source.dims, (here, there)), *(WHOLE for _ in operands[1:]))


def _dynamic_slice(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    part, whole = instruction.shape.dims, operands[0].shape.dims
    return (at_unknown_place(part, whole, taken_whole(part, whole), region), *(WHOLE for _ in operands[1:]))


def _dynamic_update_slice(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    """The part of the operand that is not overwritten, and the update."""
    return (*overwritten(instruction.shape.dims, operands[1].shape.dims, region), *(WHOLE for _ in operands[2:]))


def _gather(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    table, indices = (operand.shape.dims for operand in operands[:2])
    return gathered(table, instruction.integers("slice_sizes"), indices, instruction.shape.dims, region)


def _windowed(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    """Inputs that lie in some window: all of them, unless windows skip some. Kernels and initial values are needed whole."""
    dims, result, labels = operands[0].shape.dims, result_dims(instruction.shape), instruction.convolution
    if labels is None and instruction.opcode == "convolution":
        return (WHOLE,) * len(operands)
    places = zip(labels.input_spatial, labels.output_spatial, strict=True) if labels else ((axis, axis) for axis in range(len(dims)))
    read, windows = prod(dims), count(region, result)
    for side, (axis, place) in zip(instruction.window, places, strict=True):
        read = read // max(1, dims[axis]) * inputs_read(side, dims[axis], result[place])
        windows *= side.size
    if not region.whole and labels is None:
        read = min(read, windows)
    half = 1 if instruction.opcode == "convolution" else max(1, len(operands) // 2)
    inputs = WHOLE if read >= prod(dims) else loosely(read)
    return (inputs,) * half + (WHOLE,) * (len(operands) - half)


def _ragged_dot(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    """Weights of at most as many groups as there are rows; which groups depends on their sizes at run time."""
    groups = instruction.integers("rhs_group_dims")
    rows = prod(operands[0].shape.dims[axis] for axis in instruction.integers("lhs_ragged_dims"))
    dims = operands[1].shape.dims
    sizes = prod(dims[axis] for axis in groups)
    weights = WHOLE if not groups or rows >= sizes else loosely(prod(dims) // max(1, sizes) * rows)
    return (WHOLE, weights, *(WHOLE for _ in operands[2:]))


def _triangle(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    """Half of a triangular matrix, its diagonal included; right-hand sides whole."""
    dims = operands[0].shape.dims
    size = dims[-1]
    half = prod(dims) * (size + 1) // (2 * size) if size else 0
    return (loosely(half), *(WHOLE for _ in operands[1:]))


# Opcodes that do not need all of their operands even if all of the result is needed.
_PARTIAL: dict[str, Rule] = {
    # The same elements of the first operand; nothing of the others, which only order the program.
    "add-dependency": lambda instruction, operands, region: (region, *(NOTHING for _ in operands[1:])),
    **dict.fromkeys(("cholesky", "triangular-solve"), _triangle),
    **dict.fromkeys(("convolution", "reduce-window"), _windowed),
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    # Nothing: the sizes of an array are known without reading it.
    "get-dimension-size": lambda instruction, operands, region: (NOTHING, *(WHOLE for _ in operands[1:])),
    "ragged-dot": _ragged_dot,
}
SELECTIVE = _PARTIAL.keys() | {"pad", "slice"}
# Opcodes that need all of their operands whichever part of the result is needed.
_WHOLE = of_kind("collective", "custom", "normalisation", "random", "run") | {"scaled-dot", "scan", "scatter"}
# Opcodes that are not here need what lies along the axes of the result.
NEEDS: dict[str, Rule] = {
    **_PARTIAL,
    **dict.fromkeys(("bitcast", "dynamic-reshape", "reshape"), _reshape),
    **dict.fromkeys(_WHOLE, lambda instruction, operands, region: (WHOLE,) * len(operands)),
}
