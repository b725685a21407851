"""Which elements of its operands an instruction needs, if only some of its result is needed.

Elementwise work before a slice is done for the slice alone, and of a parameter that is only sliced, only the slice is read. A rule that
cannot be exact over-estimates: it returns the whole operand, or a number of elements at unknown positions.
"""

from collections.abc import Callable
from math import prod

from ..ir.module import Instruction
from ..ir.shapes import Shape
from .index_sets import (
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
    reversed_range,
)
from .windows import inputs_read

Operands = tuple[Instruction, ...]
Rule = Callable[[Instruction, Operands, Region], tuple[Region, ...]]


def needs(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    """The region of each operand that a region of the result needs. For a tuple, the region is the same for all its parts."""
    if not region:
        return (NOTHING,) * len(operands)
    if region.whole and instruction.opcode not in SELECTIVE:
        return (WHOLE,) * len(operands)
    return NEEDS.get(instruction.opcode, _elementwise)(instruction, operands, region)


def result_dims(shape: Shape) -> Dims:
    """The dimensions of an array, or those that the parts of a tuple share: a sort's, a reduction's of several arrays."""
    return next((leaf.dims for leaf in shape.leaves if leaf.is_array), ())


def _elementwise(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    """The same elements of operands with the result's dimensions; others, such as the bounds of a clamp, whole."""
    dims = result_dims(instruction.shape)
    return tuple(region if operand.shape.dims == dims else WHOLE for operand in operands)


def _broadcast(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    """The elements that are broadcast, and operands that are sizes computed at run time."""
    dims = operands[0].shape.dims
    axes = instruction.dimensions

    def back(box: Box) -> Box:
        # HLO only adds dimensions; StableHLO also broadcasts dimensions of size 1.
        return tuple(range(1) if size == 1 else box[axis] for axis, size in zip(axes, dims, strict=True))

    kept = {axis for axis, size in zip(axes, dims, strict=True) if size != 1}
    repeats = prod(size for axis, size in enumerate(instruction.shape.dims) if axis in region.lines and axis not in kept)
    lines = [place for place, axis in enumerate(axes) if axis in region.lines]
    return (moved(region, dims, back, -(-region.loose // max(1, repeats)), lines), *(WHOLE for _ in operands[1:]))


def _transpose(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    order = instruction.dimensions

    def back(box: Box) -> Box:
        return tuple(box[order.index(axis)] for axis in range(len(order)))

    return (moved(region, operands[0].shape.dims, back, lines=[order[axis] for axis in region.lines]),)


def _reverse(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    dims, turned = operands[0].shape.dims, set(instruction.dimensions)

    def back(box: Box) -> Box:
        return tuple(reversed_range(side, dims[axis]) if axis in turned else side for axis, side in enumerate(box))

    return (moved(region, dims, back, lines=region.lines),)


def _slice(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    dims, cuts = operands[0].shape.dims, instruction.slices
    sides = tuple(range(cut.start, cut.limit, cut.stride) for cut in cuts)
    if region.whole:
        return (moved(Region((sides,)), dims, lambda box: box),)

    def back(box: Box) -> Box:
        return tuple(whole[side.start : side.stop : side.step] for whole, side in zip(sides, box, strict=True))

    return (moved(region, dims, back),)


def _pad(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    """The elements that are not padding; a negative padding cuts some off."""
    dims = operands[0].shape.dims
    after = instruction.shape.dims
    pads = instruction.padding

    def back(box: Box) -> Box:
        sides = []
        for side, size, pad in zip(box, dims, pads, strict=True):
            step = pad.interior + 1
            kept = common(side, range(pad.low, pad.low + (size - 1) * step + 1, step))
            # `common` steps by a multiple of either step, so these divisions are exact.
            first, last = (kept.start - pad.low) // step, (kept[-1] - pad.low) // step if kept else -1
            sides.append(range(first, last + 1, max(1, kept.step // step)) if kept else range(0))
        return tuple(sides)

    whole = Region((full_box(after),)) if region.whole else region
    return (moved(whole, dims, back), WHOLE)


def _concatenate(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    axis = instruction.dimensions[0]
    total = instruction.shape.dims[axis]
    found = []
    offset = 0
    for operand in operands:
        dims = operand.shape.dims
        here = range(offset, offset + dims[axis])

        def back(box: Box, here: range = here) -> Box:
            kept = common(box[axis], here)
            return (*box[:axis], range(kept.start - here.start, kept.stop - here.start, kept.step), *box[axis + 1 :])

        # Elements at unknown positions are divided among the operands by size.
        found.append(moved(region, dims, back, -(-region.loose * dims[axis] // max(1, total))))
        offset += dims[axis]
    return tuple(found)


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
    found = moved(Region(tuple(kept), loose), source.dims, lambda box: box, lines=[there[place] for place in lines])
    return (found, *(WHOLE for _ in operands[1:]))


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


def _reduce(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    """All elements along the reduced dimensions, and the initial values."""
    half = len(operands) // 2
    dims = operands[0].shape.dims
    gone = set(instruction.dimensions)

    def back(box: Box) -> Box:
        sides = iter(box)
        return tuple(range(size) if axis in gone else next(sides) for axis, size in enumerate(dims))

    line = prod(size for axis, size in enumerate(dims) if axis in gone)
    kept = [axis for axis in range(len(dims)) if axis not in gone]
    inputs = moved(region, dims, back, region.loose * line, {*gone, *(kept[place] for place in region.lines)})
    return (inputs,) * half + (WHOLE,) * (len(operands) - half)


def _windowed(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    """Inputs that lie in some window: all of them, unless windows skip some."""
    half = max(1, len(operands) // 2)
    dims = operands[0].shape.dims
    read = prod(
        inputs_read(side, size, out) for side, size, out in zip(instruction.window, dims, result_dims(instruction.shape), strict=True)
    )
    if not region.whole:
        read = min(read, count(region, result_dims(instruction.shape)) * prod(side.size for side in instruction.window))
    inputs = WHOLE if read >= prod(dims) else loosely(read)
    return (inputs,) * half + (WHOLE,) * (len(operands) - half)


def _convolution(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    labels = instruction.convolution
    if labels is None:
        return (WHOLE,) * len(operands)
    dims = operands[0].shape.dims
    read = dims[labels.input_batch] * dims[labels.input_feature]
    for side, place, out in zip(instruction.window, labels.input_spatial, labels.output_spatial, strict=True):
        read *= inputs_read(side, dims[place], instruction.shape.dims[out])
    return (WHOLE if read >= prod(dims) else loosely(read), *(WHOLE for _ in operands[1:]))


def _dot(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    """All elements along the contracted dimensions. A result's dimensions are batches, then the left's free ones, then the right's."""
    if region.loose or len(operands) != 2:
        return (WHOLE,) * len(operands)
    numbers = instruction.dot
    found = []
    batches = len(numbers.lhs_batch)
    start = batches
    for operand, batch, contracted in (
        (operands[0], numbers.lhs_batch, numbers.lhs_contracting),
        (operands[1], numbers.rhs_batch, numbers.rhs_contracting),
    ):
        dims = operand.shape.dims
        free = [axis for axis in range(len(dims)) if axis not in batch and axis not in contracted]
        where = {axis: place for place, axis in enumerate(batch)} | {axis: start + place for place, axis in enumerate(free)}
        if start + len(free) > len(result_dims(instruction.shape)):  # the result has fewer dimensions than such a product
            return (WHOLE,) * len(operands)

        def back(box: Box, where: dict[int, int] = where, dims: Dims = dims) -> Box:
            return tuple(box[where[axis]] if axis in where else range(size) for axis, size in enumerate(dims))

        found.append(moved(region, dims, back))
        start += len(free)
    return tuple(found)


def _ragged_dot(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    """Weights of at most as many groups as there are rows; which groups depends on their sizes at run time."""
    groups = instruction.integers("rhs_group_dims")
    rows = prod(operands[0].shape.dims[axis] for axis in instruction.integers("lhs_ragged_dims"))
    dims = operands[1].shape.dims
    sizes = prod(dims[axis] for axis in groups)
    weights = WHOLE if not groups or rows >= sizes else loosely(prod(dims) // max(1, sizes) * rows)
    return (WHOLE, weights, *(WHOLE for _ in operands[2:]))


def _sort(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    """All elements along the sorted dimension."""
    dims = operands[0].shape.dims
    axes = set(instruction.dimensions)

    def back(box: Box) -> Box:
        return tuple(range(dims[axis]) if axis in axes else side for axis, side in enumerate(box))

    line = prod(dims[axis] for axis in axes)
    return (moved(region, dims, back, region.loose * line),) * len(operands)


def _triangle(instruction: Instruction, operands: Operands, region: Region) -> tuple[Region, ...]:
    """Half of a triangular matrix, its diagonal included; right-hand sides whole."""
    dims = operands[0].shape.dims
    size = dims[-1]
    half = prod(dims) * (size + 1) // (2 * size) if size else 0
    return (loosely(half), *(WHOLE for _ in operands[1:]))


# Opcodes that do not need all of their operands even if all of the result is needed. All other opcodes do.
_SELECTIVE = """
add-dependency cholesky convolution dynamic-slice dynamic-update-slice gather get-dimension-size pad ragged-dot reduce-window slice
triangular-solve
"""
SELECTIVE = frozenset(_SELECTIVE.split())
# Opcodes that need all of their operands whichever part of the result is needed.
_WHOLE = """
all-gather all-reduce all-to-all batch-norm-grad batch-norm-inference batch-norm-training collective-broadcast collective-permute
conditional custom-call fft ragged-all-to-all reduce-scatter rng rng-bit-generator scaled-dot scan scatter select-and-scatter topk while
"""
# Opcodes that are not here are elementwise.
NEEDS: dict[str, Rule] = {
    # The same elements of the first operand; nothing of the others, which only order the program.
    "add-dependency": lambda instruction, operands, region: (region, *(NOTHING for _ in operands[1:])),
    "bitcast": _reshape,
    "broadcast": _broadcast,
    "cholesky": _triangle,
    "concatenate": _concatenate,
    "convolution": _convolution,
    "dot": _dot,
    "dynamic-reshape": _reshape,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    # Nothing: the sizes of an array are known without reading it.
    "get-dimension-size": lambda instruction, operands, region: (NOTHING, *(WHOLE for _ in operands[1:])),
    "pad": _pad,
    "ragged-dot": _ragged_dot,
    "reduce": _reduce,
    "reduce-window": _windowed,
    "reshape": _reshape,
    "reverse": _reverse,
    "slice": _slice,
    "sort": _sort,
    "transpose": _transpose,
    "triangular-solve": _triangle,
    **dict.fromkeys(_WHOLE.split(), lambda instruction, operands, region: (WHOLE,) * len(operands)),
}
