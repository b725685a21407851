"""cuBLAS and cuBLASLt (hipBLAS and hipBLASLt have the same target names): products, grouped and scaled ones, triangular solves.

FLOP = 2 · batch · m · n · k from the dimension numbers in the configuration, without the compiler's zero padding; the epilogue runs on the
vector unit; the workspace, the last part of the result, is not counted as traffic.
"""

from functools import lru_cache
from math import prod

from ....cost import NOTHING, Cost
from ....dtypes import DType
from ....ops.elementwise import added, on_sums, summed
from ....ops.linear_algebra import Sizes, elements_read, work
from ....ops.product import real_flops
from ....workload import COUNTED
from ...ir.platforms import Platform
from ...ir.shapes import Shape
from ...read.backend_config import backend_config, parse_config
from ..types import Price, Site
from .padding import sizes as real_sizes
from .products import check_dimensions, dimensions, free, precision_of, sizes, unit
from .registry import call
from .settings import Config, flag, integers, real, section, word
from .traffic import Misfit, operand, output, priced

# What an epilogue does to each element of the result; its parts are joined by underscores. AUX writes one more result.
_EPILOGUES = {"DEFAULT": (), "BIAS": ("bias",), "RELU": ("relu",), "GELU": ("gelu",), "SILU": ("silu",), "AUX": ()}
PADDED = f"{COUNTED}without multiplications by the compiler's zero padding"


@call("__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8", "__cublas$lt$matmul$mx")
def gemm(site: Site) -> Price:
    """D = α·A·B + β·C, then an epilogue: 2 · batch · m · n · k FLOP on the matrix unit, the rest on the vector unit."""
    instruction = site.instruction
    left, right, result = operand(site, 0), operand(site, 1), output(site)
    ours, theirs = real_sizes(site, 0), real_sizes(site, 1)
    of_fp8 = instruction.custom_call_target == "__cublas$lt$matmul$f8"
    work, note = _product(instruction.backend_config_text, of_fp8, left, right, result, ours, theirs, site.platform)
    return priced(site, work, "matmul", note, PADDED if ours != left.dims or theirs != right.dims else "")


@lru_cache(maxsize=256)  # a program repeats its products for each layer
def _product(
    text: str, of_fp8: bool, left: Shape, right: Shape, result: Shape, ours: tuple[int, ...], theirs: tuple[int, ...], platform: Platform
) -> tuple[Cost, str]:
    """The arithmetic of a product with this configuration, and a note. ``ours`` and ``theirs`` are the operands' sizes without padding."""
    config: Config = parse_config(text)
    if "gemm_backend_config" in config:  # older compilers wrote its contents directly
        config = section(config, "gemm_backend_config")
    dims = dimensions(section(config, "dot_dimension_numbers"))
    check_dimensions(dims, left, right)
    ours_free = free(left.rank, dims.lhs_contracting, dims.lhs_batch)
    theirs_free = free(right.rank, dims.rhs_contracting, dims.rhs_batch)
    if sizes(left, dims.lhs_batch) * sizes(left, ours_free) * sizes(right, theirs_free) != result.elements:
        raise Misfit(f"{left} times {right} does not make {result}")
    # Along a contracted dimension, padding of either side is padding of both.
    depth = prod(min(ours[a], theirs[b]) for a, b in zip(dims.lhs_contracting, dims.rhs_contracting, strict=True))
    batch = prod(min(ours[a], theirs[b]) for a, b in zip(dims.lhs_batch, dims.rhs_batch, strict=True))
    elements = batch * prod(ours[axis] for axis in ours_free) * prod(theirs[axis] for axis in theirs_free)
    resource, note = unit(left.number, right.number, precision_of(config), platform)
    return Cost.of({resource: real_flops(elements * depth, left.number)}) + _epilogue(config, of_fp8, result.number, elements), note


def _epilogue(config: Config, of_fp8: bool, number: DType, elements: int) -> Cost:
    """Scales, the addition of C, a bias and an activation, for each element of the result."""
    work = NOTHING
    scaled = of_fp8 or real(config, "alpha_real", 1.0) != 1
    work += summed(elements, number, int(scaled) + added(real(config, "beta")))
    for part in word(config, "epilogue", "DEFAULT").split("_"):
        if part not in _EPILOGUES:
            raise Misfit(f"unknown epilogue {part!r}")
        work += sum((on_sums(name, elements, number) for name in _EPILOGUES[part]), NOTHING)
    return work


@call("__cublas$lt$groupedMatmul")
def grouped(site: Site) -> Price:
    """One product per group, each with rows (or contracted elements, or batches) of its own: 2 · elements of A · columns of B FLOP."""
    config = section(backend_config(site.instruction), "grouped_gemm_backend_config")
    ragged = section(config, "ragged_dot_dimension_numbers")
    left, right = operand(site, 0), operand(site, 1)
    dims = dimensions(section(ragged, "dot_dimension_numbers"))
    groups = integers(ragged, "rhs_group_dimensions")
    check_dimensions(dims, left, right, groups)
    columns = sizes(right, free(right.rank, dims.rhs_contracting, dims.rhs_batch, groups))
    product = section(config, "gemm_backend_config")
    resource, note = unit(left.number, right.number, precision_of(product), site.platform)
    work = Cost.of({resource: real_flops(left.elements * columns, left.number)})
    return priced(site, work, "matmul", note, "assuming the groups fill the ragged dimension")


@call("__cudnn$blockScaledDot", "__op$block_scaled_dot")
def block_scaled(site: Site) -> Price:
    """A product of operands with one scale per block of the contracted, last dimension: 2 · elements of the result · k FLOP."""
    left, right, result = operand(site, 0), operand(site, 1), output(site)
    if left.rank < 2 or right.rank < 2 or left.dims[-1] != right.dims[-1]:
        raise Misfit(f"{left} and {right} differ in size along their last dimensions")
    resource, note = unit(left.number, right.number, {}, site.platform)
    return priced(site, Cost.of({resource: 2 * result.elements * left.dims[-1]}), "matmul", note)


@call("__cublas$triangularSolve")
def triangular_solve(site: Site) -> Price:
    """X of A·X = B or X·A = B with A triangular, n x n: n² FLOP for each right-hand side."""
    triangle, right = operand(site, 0), operand(site, 1)
    if triangle.rank < 2 or right.rank < 2:
        raise Misfit(f"{triangle} is not a batch of matrices")
    left = flag(backend_config(site.instruction), "left_side")
    columns = right.dims[-1] if left else right.dims[-2]
    sizes = Sizes(m=triangle.dims[-1], n=triangle.dims[-1], columns=columns, many=prod(right.dims[:-2]))
    note = f"{COUNTED}n² FLOP per right-hand side (LAPACK Working Note 41)"
    wanted = {0: prod(triangle.dims[:-2]) * elements_read("trsm", sizes)}
    return priced(site, work("trsm", sizes, right.number), "linear algebra", note, read=wanted)
