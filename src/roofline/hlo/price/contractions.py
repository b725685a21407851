"""Products: dot, ragged dot, scaled dot and convolution, exact for any dimension numbers, and the unit that runs them.

A product's number format is the operands', unless the program or the platform chooses another: an algorithm it names; tf32 for fp32
on GPUs, unless it asks for the highest precision; bf16 for fp32 on TPUs, in one, three or six passes by precision. FLOP are the
product's own, once, however many passes the unit makes: a note says how many.
"""

import re
from math import prod

from ...cost import Cost
from ...dtypes import DType, dtype, wider
from ...resource import Resource, matrix, vector
from ..ir.attributes import WindowDimension
from ..ir.shapes import Shape
from .types import Site
from .windows import pairs
from .work import Inner, Rule, Work

_COMPLEX = ("c64", "c128")
_ALGORITHM = re.compile(r"dot_(any_f8|f8|bf16|f16|tf32|f32|f64)_\w+?(?:_x(\d))?")
_PASSES = {"high": 3, "highest": 6}  # of bf16 on TPUs for an fp32 product
_WIDE_INTEGERS = ("int16", "int32", "int64")
_NARROW_FLOATS = ("fp8", "fp6", "fp4", "bfp8")


def dot(site: Site, inner: Inner) -> Work:
    """2 · elements of the result · contracted elements FLOP."""
    left, right = site.operands[:2]
    depth = prod(left.shape.dims[axis] for axis in site.instruction.dot.lhs_contracting)
    return product(site, 2 * depth * site.instruction.shape.elements, left.shape, right.shape)


def ragged_dot(site: Site, inner: Inner) -> Work:
    """2 · elements of the result in one group · contracted elements FLOP: each row, or each contracted element, meets one group.

    That all groups together are as long as the ragged dimension is assumed; rows beyond them do nothing.
    """
    left, right, sizes = site.operands[:3]
    ragged = site.instruction.integers("lhs_ragged_dims")
    contracted = site.instruction.dot.lhs_contracting
    depth = prod(left.shape.dims[axis] for axis in contracted)
    elements = site.instruction.shape.elements
    if any(axis in contracted for axis in ragged):  # the result has the groups as a dimension of its own
        elements //= max(1, sizes.shape.dims[-1])
    work = product(site, 2 * depth * elements, left.shape, right.shape)
    return Work(work.cost, (*work.notes, "assuming the groups fill the ragged dimension"))


def convolution(site: Site, inner: Inner) -> Work:
    """2 · batch/batch groups · in/feature groups · out · valid taps FLOP; multiplications by padding and holes are left out."""
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
    flops = (
        2
        * (source[labels.input_batch] // instruction.batch_group_count)
        * (source[labels.input_feature] // instruction.feature_group_count)
        * result[labels.output_feature]
        * taps
    )
    return product(site, flops, left.shape, right.shape)


def product(site: Site, flops: int, left: Shape, right: Shape) -> Work:
    """So many FLOP of real products on the unit that multiplies these formats; complex ones are four times as many."""
    if left.dtype in _COMPLEX or right.dtype in _COMPLEX:
        flops *= 4
    unit, passes = unit_of(site, left.number, right.number)
    notes = (f"runs as {passes} passes of {unit.kind}; FLOP counted once",) if passes > 1 else ()
    return Work(Cost.of({unit: flops}), notes)


def unit_of(site: Site, left: DType, right: DType) -> tuple[Resource, int]:
    """The unit and number format that run a product, and in how many passes."""
    named = _ALGORITHM.fullmatch(site.instruction.word("algorithm"))
    if named is not None:
        return matrix(dtype(named[1].removeprefix("any_"))), int(named[2] or 1)
    number = wider(left, right)
    if number.rate in _WIDE_INTEGERS or left.name == right.name == "bool":
        return vector(number), 1  # no matrix unit takes these
    precision = max(site.instruction.operand_precision, key=lambda word: _PASSES.get(word, 1), default="default")
    return _UNITS[site.platform](number.rate, precision)


def _gpu(rate: str, precision: str) -> tuple[Resource, int]:
    if rate == "fp32" and precision != "highest":
        rate = "tf32"
    return matrix("int8" if rate == "int4" else rate), 1


def _tpu(rate: str, precision: str) -> tuple[Resource, int]:
    if rate in ("fp32", "fp16"):
        return matrix("bf16"), _PASSES.get(precision, 1) if rate == "fp32" else 1
    return matrix(rate), 1


def _cpu(rate: str, precision: str) -> tuple[Resource, int]:
    if rate in ("int8", "int4"):
        return vector("int8"), 1
    return (vector("fp32") if rate in _NARROW_FLOATS else matrix(rate)), 1


_UNITS = {"gpu": _gpu, "tpu": _tpu, "cpu": _cpu}

PRODUCTS: dict[str, Rule] = {"dot": dot, "ragged-dot": ragged_dot, "scaled-dot": dot, "convolution": convolution}
