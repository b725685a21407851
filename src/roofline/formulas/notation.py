"""The types of formulas' arguments: dimensions, number formats, levels and links; and exact arithmetic on dimensions.

A solver evaluates formulas at whole numbers as large as 2**200 and at fractions, so nothing here turns them into floats.
"""

from fractions import Fraction
from typing import Annotated, Literal, TypedDict

from ..cost import tidy
from ..errors import FormulaError

Dim = int | float | Fraction
Format = str | None
Level = Literal["hbm", "host", "l3", "l2", "l1", "lds", "vmem", "cmem", "smem", "sbuf", "psum", "tmem", "slc", "sram", "infinity_cache"]
Link = Literal["ici", "nvlink", "xgmi", "neuronlink", "xelink", "roce", "ethernet", "c2c", "dcn", "pcie"]
Algorithm = Literal["ring", "bidirectional", "torus", "switch"]


class OperandFormats(TypedDict, total=False):
    """The options of a product: the number formats of its operands and its result, and of its arithmetic."""

    dtype: Annotated[Format, "bf16"]
    activations: Format
    weights: Format
    out: Format
    compute: Format


class ProductOptions(OperandFormats, total=False):
    """The options of a product whose accumulator may be written too."""

    accumulator: Format


class ParameterFormats(TypedDict, total=False):
    """The number formats of a layer of products with weights, and of its work on the vector unit."""

    dtype: Annotated[Format, "bf16"]
    weights: Format
    compute: Format
    vector: Format


class Links(TypedDict, total=False):
    """How the chips of a group are wired."""

    algorithm: Annotated[Algorithm, "ring"]
    links: Annotated[int, 1]
    link: Annotated[Link, "ici"]


def ratio(above: Dim, below: Dim) -> Dim:
    """The exact quotient of exact numbers; a float only if one of them is.

    >>> ratio(8, 2), ratio(1, 3), ratio(1.5, 3)
    (4, Fraction(1, 3), 0.5)
    """
    if isinstance(above, float) or isinstance(below, float):
        return float(above / below)
    return tidy(Fraction(above) / Fraction(below))


def tiles(size: Dim, tile: Dim) -> Dim:
    """How many tiles cover a size: whole tiles for whole sizes, the exact quotient otherwise.

    >>> tiles(1000, 128), tiles(1024, 128), tiles(Fraction(1, 2), 2)
    (8, 8, Fraction(1, 4))
    """
    if isinstance(size, int) and isinstance(tile, int):
        return -(-size // tile)
    return ratio(size, tile)


def require_whole(formula: str, **sizes: Dim) -> None:
    """Refuses fractional sizes, for formulas that count positions one by one."""
    for name, size in sizes.items():
        if size != int(size):
            raise FormulaError(f"{formula}: {name} is {size}; give a whole number")


def require_shared(formula: str, many: str, count: Dim, few: str, groups: Dim) -> None:
    """Refuses a count that is not divisible by the groups; fractional numbers always are."""
    if isinstance(count, int) and isinstance(groups, int) and count % groups:
        raise FormulaError(f"{formula}: {count} {many} cannot be divided among {groups} {few}; choose a divisor of {count}")
