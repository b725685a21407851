"""Products inside library calls: the unit and number format that run them, and the epilogues that follow on the vector unit."""

import re
from math import prod

from ....dtypes import DType, passes_note, wider
from ....resource import Resource, matrix
from ...ir.attributes import DotDimensions
from ...ir.platforms import Platform
from ...ir.shapes import Shape
from ..contractions import algorithm_unit
from .settings import Config, integers, section, word, words
from .traffic import Misfit

_ALGORITHM = re.compile(r"ALG_DOT_(?:ANY_)?(F8|BF16|F16|TF32|F32|F64)_\w+?(?:_X(\d))?")


def dimensions(config: Config) -> DotDimensions:
    """Dimension numbers of a dot as a configuration writes them."""
    return DotDimensions(
        lhs_contracting=integers(config, "lhs_contracting_dimensions"),
        rhs_contracting=integers(config, "rhs_contracting_dimensions"),
        lhs_batch=integers(config, "lhs_batch_dimensions"),
        rhs_batch=integers(config, "rhs_batch_dimensions"),
    )


def check_dimensions(dims: DotDimensions, left: Shape, right: Shape, extra: tuple[int, ...] = ()) -> None:
    """Refuse dimension numbers that name no dimension, or one twice, or pair dimensions of different sizes."""
    for shape, axes in ((left, (*dims.lhs_contracting, *dims.lhs_batch)), (right, (*dims.rhs_contracting, *dims.rhs_batch, *extra))):
        if len(set(axes)) != len(axes) or any(not 0 <= axis < shape.rank for axis in axes):
            raise Misfit(f"the dimension numbers {axes} do not fit {shape}")
    pairs = ((dims.lhs_contracting, dims.rhs_contracting), (dims.lhs_batch, dims.rhs_batch))
    for ours, theirs in pairs:
        if [left.dims[axis] for axis in ours] != [right.dims[axis] for axis in theirs]:
            raise Misfit(f"{left} and {right} differ in size along the contracting dimensions {ours} and {theirs}")


def free(rank: int, *taken: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions that are neither contracted nor batches."""
    gone = {axis for axes in taken for axis in axes}
    return tuple(axis for axis in range(rank) if axis not in gone)


def unit(left: DType, right: DType, precision: Config, platform: Platform) -> tuple[Resource, str]:
    """The unit and number format of a product from its ``precision_config``, and a note.

    On GPUs a product of fp32 runs as tf32 unless the program requests the highest precision or names an algorithm.
    """
    named = _ALGORITHM.fullmatch(word(precision, "algorithm"))
    if named is not None:
        unit = algorithm_unit(named[1], named[2], platform)
        return unit, passes_note(unit.kind)
    number = wider(left, right)
    highest = "HIGHEST" in words(precision, "operand_precision")
    if number.rate == "fp32" and platform == "gpu" and not highest:
        return matrix("tf32"), "fp32 at default precision runs as tf32"
    return matrix(number), ""


def sizes(shape: Shape, axes: tuple[int, ...]) -> int:
    """Elements along some dimensions."""
    return prod(shape.dims[axis] for axis in axes)


def precision_of(config: Config) -> Config:
    """The precision that a product requests."""
    return section(config, "precision_config")
