"""Products: dot, ragged dot, scaled dot and convolution, exact for any dimension numbers, and the unit that runs them.

A product's number format is the operands', unless the program or the platform chooses another: an algorithm it names; tf32 for fp32
on GPUs, unless it requests the highest precision; bf16 for fp32 on TPUs, in one, three or six passes by precision. FLOP are the
counted once, not per pass; several passes divide the rate (``matrix/bf16x3``), and a note says how many.
"""

import re
from math import prod

from ...cost import Cost
from ...dtypes import DType, dtype, one_pass_note, passes_note, wider
from ...graph import EXPANDED
from ...operation import MatrixWork
from ...ops.convolution import multiply_adds, pairs
from ...ops.product import real_flops
from ...resource import Resource, matrix, vector
from ..ir.attributes import WindowDimension
from ..ir.platforms import Platform
from ..ir.scopes import written
from ..ir.shapes import Shape
from .types import Site
from .work import Inner, Rule, Work

_ALGORITHM = re.compile(r"dot_(any_f8|f8|bf16|f16|tf32|f32|f64)_\w+?(?:_x(\d))?")
_TPU_FP32 = {"high": "bf16x3", "highest": "bf16x6"}  # passes of bf16 for an fp32 product by its precision; by default one
_PRECISIONS = ("default", "high", "highest")
_WIDE_INTEGERS = ("int16", "int32", "int64")
_NARROW_FLOATS = ("fp8", "fp6", "fp4", "bfp8")


def dot(site: Site, inner: Inner) -> Work:
    """2 · elements of the result · contracted elements FLOP."""
    left, right = site.operands[:2]
    depth = prod(left.shape.dims[axis] for axis in site.instruction.dot.lhs_contracting)
    return product(site, depth * site.instruction.shape.elements, left.shape, right.shape, depth, dot_widths(site))


def dot_widths(site: Site) -> tuple[int, int]:
    """The rows and the columns of the result of a dot, or of one of its batch."""
    dims, (left, right) = site.instruction.dot, (operand.shape for operand in site.operands[:2])
    shared = (*dims.lhs_batch, *dims.lhs_contracting), (*dims.rhs_batch, *dims.rhs_contracting)
    rows, columns = (
        prod(size for axis, size in enumerate(shape.dims) if axis not in taken) for shape, taken in zip((left, right), shared, strict=True)
    )
    return rows, columns


def ragged_dot(site: Site, inner: Inner) -> Work:
    """2 · elements of the result in one group · contracted elements FLOP: each row, or each contracted element, belongs to one group.

    Assumes that the groups fill the ragged dimension; rows beyond them would do nothing.
    """
    left, right, sizes = site.operands[:3]
    ragged = site.instruction.integers("lhs_ragged_dims")
    contracted = site.instruction.dot.lhs_contracting
    depth = prod(left.shape.dims[axis] for axis in contracted)
    elements = site.instruction.shape.elements
    if any(axis in contracted for axis in ragged):  # the result has the groups as a dimension of its own
        elements //= max(1, sizes.shape.dims[-1])
    work = product(site, depth * elements, left.shape, right.shape, depth, (right.shape.dims[-1], left.shape.elements // max(1, depth)))
    return Work(work.cost, (*work.notes, "assuming the groups fill the ragged dimension"), work.products)


def convolution(site: Site, inner: Inner) -> Work:
    """2 · batch/batch groups · in/feature groups · out · valid taps FLOP; multiplications by padding and holes are left out."""
    left, right = site.operands[:2]
    return product(site, multiply_adds(*convolution_sizes(site)), left.shape, right.shape, *_convolution_fill(site))


# Fewer input channels than the 8 sublanes of a register are packed with the taps of the window: a TPU contracts over both.
_PACKED_BELOW = 8


def _convolution_fill(site: Site) -> tuple[int, tuple[int, ...]]:
    """The contracted elements of a convolution's products, and the sizes of which one fills the columns; none for groups of channels."""
    instruction, labels = site.instruction, site.instruction.convolution
    if labels is None or instruction.feature_group_count > 1 or instruction.batch_group_count > 1:
        return 0, ()
    kernel, result = site.operands[1].shape.dims, instruction.shape.dims
    depth, features = kernel[labels.kernel_input_feature], result[labels.output_feature]
    taps, places = prod(kernel[axis] for axis in labels.kernel_spatial), prod(result[axis] for axis in labels.output_spatial)
    if depth < _PACKED_BELOW or taps > places:  # the gradient of weights: its window is the image, which is contracted with the batch
        depth *= taps
    return depth, (features, prod(result) // max(1, features))


def convolution_sizes(site: Site) -> tuple[int, int, int]:
    """Images, input channels of a group times output channels, and pairs of an output and a tap whose input exists."""
    instruction = site.instruction
    left, right = site.operands[:2]
    labels = instruction.convolution
    if labels is None:
        raise ValueError("no dim_labels")
    source, result = left.shape.dims, instruction.shape.dims
    window = instruction.window or tuple(WindowDimension(right.shape.dims[axis]) for axis in labels.kernel_spatial)
    taps = prod(
        pairs(side, source[place], result[out])
        for side, place, out in zip(window, labels.input_spatial, labels.output_spatial, strict=True)
    )
    images = source[labels.input_batch] // instruction.batch_group_count
    return images, source[labels.input_feature] // instruction.feature_group_count * result[labels.output_feature], taps


def product(site: Site, count: int, left: Shape, right: Shape, depth: int = 0, widths: tuple[int, ...] = ()) -> Work:
    """So many multiplies and adds on the unit that multiplies these formats.

    ``depth`` and ``widths`` say how they fill a matrix unit, see `MatrixWork`.
    """
    unit, flops = unit_of(site, left.number, right.number), real_flops(count, left.number, right.number)
    note = passes_note(unit.kind)
    if site.platform == "tpu" and not site.instruction.word("algorithm"):
        note = note or one_pass_note(wider(left.number, right.number), unit.kind)
    fills = site.platform == "tpu" and unit.unit == "matrix" and flops > 0 and depth > 0 and all(widths)
    if not fills or not widths:
        return Work(Cost.of({unit: flops}), (note,) if note else ())
    is_compilers = written(site.instruction.op_name) in EXPANDED
    filling = MatrixWork(flops=flops, depth=depth, widths=widths, compute=unit.kind, is_compilers=is_compilers)
    return Work(Cost.of({unit: flops}), (note,) if note else (), (filling,))


def unit_of(site: Site, left: DType, right: DType) -> Resource:
    """The unit and number format that run a product."""
    named = _ALGORITHM.fullmatch(site.instruction.word("algorithm"))
    if named is not None:
        return algorithm_unit(named[1], named[2], site.platform)
    number = wider(left, right)
    if number.rate in _WIDE_INTEGERS or left.name == right.name == "bool":
        return vector(number)  # no matrix unit has these formats
    requested = [word for word in site.instruction.operand_precision if word in _PRECISIONS]
    precision = max(requested, key=_PRECISIONS.index, default="default")
    return _UNITS[site.platform](number.rate, precision)


def default_unit(number: DType, platform: Platform) -> Resource:
    """The unit that runs products in a format at default precision."""
    return unit_at(number, platform, "default")


def unit_at(number: DType, platform: Platform, precision: str) -> Resource:
    """The unit that runs products in a format at a precision: ``default``, ``high`` or ``highest``."""
    return _UNITS[platform](number.rate, precision)


def algorithm_unit(name: str, passes: str | None, platform: Platform) -> Resource:
    """The unit that runs an algorithm: ``bf16`` and ``3`` of ``dot_bf16_bf16_f32_x3``."""
    rate = dtype(name.lower().removeprefix("any_")).rate
    if platform == "tpu" and rate == "fp32":
        return matrix(_TPU_FP32["highest"])
    return matrix(f"{rate}x{passes}" if passes else rate)


def _gpu(rate: str, precision: str) -> Resource:
    if rate == "fp32" and precision != "highest":
        rate = "tf32"
    return matrix("int8" if rate == "int4" else rate)


def _tpu(rate: str, precision: str) -> Resource:
    if rate in ("fp32", "fp16"):
        return matrix(_TPU_FP32.get(precision, "bf16") if rate == "fp32" else "bf16")
    return matrix(rate)


def _cpu(rate: str, precision: str) -> Resource:
    if rate in ("int8", "int4"):
        return vector("int8")
    return vector("fp32") if rate in _NARROW_FLOATS else matrix(rate)


_UNITS = {"gpu": _gpu, "tpu": _tpu, "cpu": _cpu}

PRODUCTS: dict[str, Rule] = {"dot": dot, "ragged-dot": ragged_dot, "scaled-dot": dot, "convolution": convolution}
