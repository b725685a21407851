"""cuBLAS and cuBLASLt (hipBLAS and hipBLASLt answer to the same names): products, grouped and scaled ones, triangular solves.

FLOP = 2 · batch · m · n · k from the dimension numbers in the configuration, without the zeros that the compiler padded with; the
epilogue runs on the vector unit; the workspace at the end of the result is no traffic.
"""

from math import prod

from ...cost import NOTHING, Cost
from ...resource import matrix
from ..bill import Price, Site
from .lawn41 import solve_triangle
from .padding import Extents, extents
from .products import accumulator, check_dimensions, dimensions, each, free, multiply_adds, pointwise, precision_of, sizes, unit
from .registry import call
from .settings import Config, flag, integers, real, section, word
from .traffic import Misfit, operand, output, priced

# What an epilogue does to each element of the result; its parts are joined by underscores. AUX writes one more result.
_EPILOGUES = {"DEFAULT": (), "BIAS": ("bias",), "RELU": ("relu",), "GELU": ("gelu",), "SILU": ("silu",), "AUX": ()}
PADDED = "multiplications by zeros that the compiler padded with are not counted"


@call("__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8", "__cublas$lt$matmul$mx")
def gemm(site: Site) -> Price:
    """D = α·A·B + β·C, then an epilogue: 2 · batch · m · n · k FLOP on the matrix unit, the rest on the vector unit."""
    config = _config(site)
    left, right = operand(site, 0), operand(site, 1)
    dims = dimensions(section(config, "dot_dimension_numbers"))
    check_dimensions(dims, left, right)
    ours_free = free(left.rank, dims.lhs_contracting, dims.lhs_batch)
    theirs_free = free(right.rank, dims.rhs_contracting, dims.rhs_batch)
    if sizes(left, dims.lhs_batch) * sizes(left, ours_free) * sizes(right, theirs_free) != output(site).elements:
        raise Misfit(f"{left} times {right} does not make {output(site)}")
    ours, theirs = extents(site, 0), extents(site, 1)
    # Along a contraction, what either side padded is padding.
    depth = prod(min(ours[a].size, theirs[b].size) for a, b in zip(dims.lhs_contracting, dims.rhs_contracting, strict=True))
    batch = prod(min(ours[a].size, theirs[b].size) for a, b in zip(dims.lhs_batch, dims.rhs_batch, strict=True))
    rows, columns = _real(ours, ours_free), _real(theirs, theirs_free)
    resource, said = unit(left.number, right.number, precision_of(config), site.platform)
    made = batch * rows * columns
    work = Cost.of({resource: multiply_adds(left.number) * made * depth}) + _epilogue(site, config, made)
    cut = any(extent.size < size for real, shape in ((ours, left), (theirs, right)) for extent, size in zip(real, shape.dims, strict=True))
    return priced(site, work, "matmul", said, PADDED if cut else "")


def _config(site: Site) -> Config:
    """The part of the configuration that is about the product; older compilers wrote it alone."""
    config = site.instruction.backend_config
    return section(config, "gemm_backend_config") if "gemm_backend_config" in config else config


def _real(found: Extents, axes: tuple[int, ...]) -> int:
    return prod(found[axis].size for axis in axes)


def _epilogue(site: Site, config: Config, made: int) -> Cost:
    """Scales, the addition of C, a bias and an activation, for each element of the result."""
    number = output(site).number
    work = NOTHING
    scaled = site.instruction.custom_call_target == "__cublas$lt$matmul$f8" or real(config, "alpha_real", 1.0) != 1
    beta = real(config, "beta")
    work += each(made, number, int(scaled) + (0 if not beta else 1 if beta == 1 else 2))
    for part in word(config, "epilogue", "DEFAULT").split("_"):
        if part not in _EPILOGUES:
            raise Misfit(f"an epilogue {part!r} that nobody knows")
        work += sum((pointwise(name, made, number) for name in _EPILOGUES[part]), NOTHING)
    return work


@call("__cublas$lt$groupedMatmul")
def grouped(site: Site) -> Price:
    """One product a group, each with rows (or contracted elements, or batches) of its own: 2 · elements of A · columns of B FLOP."""
    config = section(site.instruction.backend_config, "grouped_gemm_backend_config")
    ragged = section(config, "ragged_dot_dimension_numbers")
    left, right = operand(site, 0), operand(site, 1)
    dims = dimensions(section(ragged, "dot_dimension_numbers"))
    groups = integers(ragged, "rhs_group_dimensions")
    check_dimensions(dims, left, right, groups)
    columns = sizes(right, free(right.rank, dims.rhs_contracting, dims.rhs_batch, groups))
    product = section(config, "gemm_backend_config")
    resource, said = unit(left.number, right.number, precision_of(product), site.platform)
    work = Cost.of({resource: multiply_adds(left.number) * left.elements * columns})
    return priced(site, work, "matmul", said, "the groups are taken to fill the ragged dimension")


@call("__cudnn$blockScaledDot", "__op$block_scaled_dot")
def block_scaled(site: Site) -> Price:
    """A product of operands with one scale a block along the contraction, their last dimension: 2 · elements of the result · k FLOP."""
    left, right, result = operand(site, 0), operand(site, 1), output(site)
    if left.rank < 2 or right.rank < 2 or left.dims[-1] != right.dims[-1]:
        raise Misfit(f"{left} and {right} do not meet along their last dimensions")
    resource, said = unit(left.number, right.number, {}, site.platform)
    return priced(site, Cost.of({resource: 2 * result.elements * left.dims[-1]}), "matmul", said)


@call("__cublas$triangularSolve")
def triangular_solve(site: Site) -> Price:
    """X of A·X = B or X·A = B with A triangular, n x n: n² FLOP for each right-hand side."""
    triangle, right = operand(site, 0), operand(site, 1)
    if triangle.rank < 2 or right.rank < 2:
        raise Misfit(f"{triangle} is no stack of matrices")
    left = flag(site.instruction.backend_config, "left_side")
    columns = right.dims[-1] if left else right.dims[-2]
    each_one = solve_triangle(triangle.dims[-1], columns).flops(complex_numbers=right.number.name.startswith("complex"))
    work = Cost.of({matrix(accumulator(right.number)): prod(right.dims[:-2]) * each_one})
    return priced(site, work, "linear algebra", "n² FLOP for each right-hand side of a triangular solve (LAPACK Working Note 41)")
