"""Products of matrices that a compiler wrote as convolutions.

The TPU compiler writes every dot as a convolution: its free, shared and contracted axes become the features and batch of the convolution,
or spatial dimensions with a window of one element, of the whole axis, or of one element that moves along with the output.
"""

from typing import Literal

from ...errors import FormulaError
from ...ops.convolution import inputs_read, outputs_with_input, pairs
from ..ir.attributes import ConvolutionDimensions, WindowDimension

Role = Literal["batch", "depth", "rows", "columns"]


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
