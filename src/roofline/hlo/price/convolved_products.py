"""Products of matrices that a compiler wrote as convolutions.

The TPU compiler writes every dot as a convolution: its free, shared and contracted axes become the features and batch of the convolution,
or spatial dimensions with a window of one element, of the whole axis, or of one element that moves along with the output.
"""

from math import prod
from typing import Literal

from ...errors import FormulaError
from ...graph.operators import Sizes
from ...ops.convolution import inputs_read, outputs_with_input, pairs
from ..ir.attributes import ConvolutionDimensions, WindowDimension
from ..ir.module import Instruction

Role = Literal["batch", "depth", "rows", "columns"]


def convolved_product(instruction: Instruction, source: tuple[int, ...], kernel: tuple[int, ...]) -> Sizes | None:
    """The sizes of the product that a convolution of arrays with these dimensions is; ``None`` if its windows overlap.

    Rows are those of the operand whose axes come first in the result, as in the dot that was written.
    """
    labels, result = instruction.convolution, instruction.shape.dims
    groups = instruction.feature_group_count * instruction.batch_group_count
    if labels is None or not fits(labels, source, kernel, result):
        return None
    sides = instruction.window or tuple(WindowDimension(kernel[axis]) for axis in labels.kernel_spatial)
    ours = [(labels.output_batch, source[labels.input_batch] // instruction.batch_group_count)]
    theirs = [(labels.output_feature, result[labels.output_feature] // groups)]
    batch, depth = [groups], [source[labels.input_feature] // instruction.feature_group_count]
    for side, place, out in zip(sides, labels.input_spatial, labels.output_spatial, strict=True):
        read, written = source[place], result[out]
        match role_of(side, read, written):
            case "batch":
                batch.append(written)
            case "depth":
                depth.append(read)
            case "rows":
                ours.append((out, written))
            case "columns":
                theirs.append((out, written))
            case None:
                return None
    if max((axis for axis, size in ours if size > 1), default=-1) > max((axis for axis, size in theirs if size > 1), default=len(result)):
        ours, theirs = theirs, ours
    rows, columns = (prod(size for _, size in axes) for axes in (ours, theirs))
    return Sizes(prod(batch), rows, prod(depth), columns)


def fits(labels: ConvolutionDimensions, source: tuple[int, ...], kernel: tuple[int, ...], result: tuple[int, ...]) -> bool:
    """Whether the arrays have the dimensions that the convolution names."""
    return (
        max(labels.input_batch, labels.input_feature, *labels.input_spatial) < len(source)
        and max(labels.kernel_input_feature, labels.kernel_output_feature, *labels.kernel_spatial) < len(kernel)
        and max(labels.output_batch, labels.output_feature, *labels.output_spatial) < len(result)
    )


def role_of(side: WindowDimension, read: int, written: int) -> Role | None:
    """What one spatial dimension is in a product: an axis of the batch, the depth, the rows or the columns; ``None`` in a convolution."""
    try:
        count = pairs(side, read, written)
        is_complete = inputs_read(side, read, written) == read and outputs_with_input(side, read, written) == written
    except FormulaError:
        return None
    if not is_complete:
        return None
    if side.size == 1:
        return "rows" if count == read == written else None
    if written == 1:
        return "depth" if count == read == side.size else None
    if read == 1:
        return "columns" if count == written == side.size else None
    return "batch" if count == read == written == side.size else None
