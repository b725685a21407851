"""Which elements of its operands an instruction needs, if only some of its result is needed.

Elementwise work before a slice is done for the slice alone, and of a parameter that is only sliced, only the slice is read. A rule that
cannot be exact over-estimates: it returns the whole operand, or a number of elements at unknown positions.
"""

from collections.abc import Callable
from math import prod

from ...graph.axes import IndexMap, Part
from ...graph.index_sets import (
    NO_AXES,
    NOTHING,
    WHOLE,
    Axes,
    Box,
    Dims,
    Region,
    common,
    count,
    full_box,
    loosely,
    moved,
    reshaped,
    reshaped_lines,
)
from ..ir.axes import index_map
from ..ir.module import Instruction
from ..ir.opcodes import ELEMENTWISE, of_kind
from ..ir.shapes import Shape
from .windows import inputs_read

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
    dims = result_dims(instruction.shape)
    axes = index_map(instruction, operands) if instruction.opcode not in ELEMENTWISE else None
    if axes is None:
        return tuple([region if operand.shape.dims == dims else WHOLE for operand in operands])
    if region.whole:
        region = Region((full_box(dims),))
    return tuple([_along(axes, place, operand.shape.dims, dims, region) for place, operand in enumerate(operands)])


def _along(axes: IndexMap, operand: int, dims: Dims, result: Dims, region: Region) -> Region:
    """The part of an operand that a region of the result needs. Axes that are not the result's are needed whole."""
    if not dims:
        return WHOLE
    parts = [axes.parts.get((operand, axis)) for axis in range(len(dims))]
    places = [None if part and part.taken is None else place for part, place in zip(parts, axes.axis_of(operand), strict=True)]
    sides = [*zip(places, parts, dims, strict=True)]

    def back(box: Box) -> Box:
        return tuple(range(size) if place is None else _taken(box[place], part) for place, part, size in sides)

    own = {place for place, _, _ in sides if place is not None}
    line = prod(size for place, _, size in sides if place is None)
    repeats = prod(size for axis, size in enumerate(result) if axis in region.lines and axis not in own)
    if len({place for place, _ in axes.parts}) > 1:  # operands side by side: elements at unknown positions are divided among them by size
        cut = [(size, result[part.result]) for _, part, size in sides if part and part.taken is not None]
    else:
        cut = []
    divided = max(1, repeats * prod(whole for _, whole in cut))
    loose = -(-region.loose * prod(size for size, _ in cut) // divided) * line
    lines = [axis for axis, (place, part, _) in enumerate(sides) if place is None or (part is None and place in region.lines)]
    return moved(region, dims, back, loose, lines)


def _taken(side: range, part: Part | None) -> range:
    """The elements of an operand's axis that are these of the result's, in order."""
    if part is None or part.taken is None:
        return side
    kept = common(side, part.placed)
    if not kept:
        return range(0)
    # `common` steps by a multiple of either step, so these divisions are exact.
    first, last = ((place - part.placed.start) // part.placed.step for place in (kept.start, kept[-1]))
    taken = part.taken[first : last + 1 : max(1, kept.step // part.placed.step)]
    return taken if taken.step > 0 else taken[::-1]


def _reshape(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    """The same elements in the same order (row-major for a reshape, in memory for a bitcast), and operands that are sizes."""
    source = operands[0].shape
    result = result_dims(instruction.shape)
    in_memory = instruction.opcode == "bitcast"
    here, there = (shape.major_to_minor if in_memory else tuple(range(shape.rank)) for shape in (instruction.shape, source))
    before, after = tuple(result[axis] for axis in here), tuple(source.dims[axis] for axis in there)
    kept = []
    loose = region.loose
    for box in region.boxes:
        sides = reshaped(tuple(box[axis] for axis in here), before, after)
        if sides is None:
            loose += prod(map(len, box))
        else:
            kept.append(tuple(sides[there.index(axis)] for axis in range(len(there))))
    if prod(before) != prod(after):  # a bitcast between formats: the same fraction of the bytes
        loose = -(-count(region, result) * prod(after) // max(1, prod(before)))
        kept = []
    lines = reshaped_lines(frozenset(map(here.index, region.lines)), before, after) if loose == region.loose else ()
    needed = moved(Region(tuple(kept), loose), source.dims, lambda box: box, lines=[there[place] for place in lines])
    return (needed, *(WHOLE for _ in operands[1:]))


def _dynamic_slice(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    taken = count(region, instruction.shape.dims)
    whole = taken == prod(operands[0].shape.dims)
    lines = _taken_whole(instruction.shape.dims, operands[0].shape.dims) if region.whole else NO_AXES
    return (WHOLE if whole else loosely(taken, lines), *(WHOLE for _ in operands[1:]))


def _taken_whole(taken: Dims, dims: Dims) -> Axes:
    """The dimensions of an array that slices at unknown positions take whole."""
    return frozenset(axis for axis, (part, size) in enumerate(zip(taken, dims, strict=False)) if part == size)


def _dynamic_update_slice(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    """The part of the operand that is not overwritten, and the update."""
    total, wanted = prod(instruction.shape.dims), count(region, instruction.shape.dims)
    update = prod(operands[1].shape.dims)
    kept = loosely(total - update) if region.whole else loosely(min(wanted, total - update))
    return (kept, WHOLE if region.whole else loosely(min(wanted, update)), *(WHOLE for _ in operands[2:]))


def _gather(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    taken = count(region, instruction.shape.dims)
    size = prod(operands[0].shape.dims)
    slices = max(1, prod(instruction.integers("slice_sizes")))
    indices = prod(operands[1].shape.dims)
    rows = max(1, prod(instruction.shape.dims) // slices)
    lines = _taken_whole(instruction.integers("slice_sizes"), operands[0].shape.dims) if region.whole else NO_AXES
    return (loosely(min(size, taken), lines), WHOLE if region.whole else loosely(min(indices, taken * -(-indices // rows))))


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
