"""Dense linear algebra: LAPACK on CPUs, cuSOLVER, cuBLAS, cuSPARSE and hipSOLVER on GPUs, for every matrix of a batch.

Counted on the matrix unit in the number format of the matrix: blocked algorithms spend most of their work in products. Two-sided
reductions of eigenvalue problems spend half of it in matrix-vector products, which a matrix unit does not speed up.
"""

import re
from collections.abc import Callable
from math import prod

from ....cost import NOTHING, Cost
from ....resource import matrix, vector
from ....workload import COUNTED
from ...ir.shapes import Shape
from ...read.backend_config import backend_config
from ..types import Price, Site
from . import linear_algebra_counts as counts
from .products import accumulator
from .registry import call
from .settings import Config
from .traffic import Misfit, operand, output, priced

_ROUTINE = re.compile(r"lapack_[sdcz](?P<cpu>[a-z0-9]+?)(?:_ffi)?|(?:cu|hip)(?:solver|blas|sparse)_(?P<gpu>[a-z0-9]+?)(?:_ffi)?")
_YES, _LEFT = ("V", "A", "S", "O"), "L"


@call("lapack_*", "cusolver_*", "hipsolver_*", "cublas_*", "hipblas_*")
def routine(site: Site) -> Price | None:
    """The price of a routine, by its name without the number format: ``lapack_dpotrf_ffi`` and ``cusolver_potrf_ffi`` are potrf."""
    match = _ROUTINE.fullmatch(site.instruction.custom_call_target)
    if match is None:
        return None
    name = match["cpu"] or match["gpu"]
    count = _COUNTS.get(name)
    if count is None:
        return None
    matrices = _matrices(site)
    number = matrices.number
    flops = count(site, matrices).flops(complex_numbers=number.name.startswith("complex"))
    work = Cost.of({matrix(accumulator(number)): prod(matrices.dims[:-2]) * flops})
    note = f"{name} is iterative: FLOP estimated" if name in _ITERATIVE else f"{COUNTED}{name} by LAPACK Working Note 41"
    return priced(site, work, "linear algebra", note)


def _matrices(site: Site) -> Shape:
    """The first operand that is a stack of matrices; older targets pass sizes before it."""
    for one in site.operands:
        if one.shape.is_array and one.shape.rank >= 2 and one.shape.number.rate in ("fp32", "fp64"):
            return one.shape
    raise Misfit("no operand is a matrix")


def _order(matrices: Shape) -> int:
    return matrices.dims[-1]


def _option(site: Site, name: str, default: str) -> str:
    """A LAPACK option, which configurations write as a letter or as its character code."""
    found = backend_config(site.instruction).get(name, default)
    return chr(found) if isinstance(found, int) and 0 < found < 128 else str(found)


def _flag(site: Site, name: str, default: bool) -> bool:
    config: Config = backend_config(site.instruction)
    found = config.get(name, default)
    return found is True


def _eigenvectors(site: Site) -> bool:
    return _option(site, "mode", "V") in _YES


def _general_vectors(site: Site) -> bool:
    computed = [_option(site, name, "N") in _YES for name in ("compute_left", "compute_right", "left", "right")]
    return any(computed) or _option(site, "mode", "N") in _YES


def _singular_vectors(site: Site) -> str:
    mode = _option(site, "mode", "")
    if mode:
        return {"A": "full", "N": "none"}.get(mode, "thin")
    if not _flag(site, "compute_uv", True):
        return "none"
    return "full" if _flag(site, "full_matrices", False) else "thin"


def _reflections(site: Site, matrices: Shape) -> int:
    """The number of reflections in a factor: that of the scalars passed with it."""
    return min(operand(site, 1).dims[-1], matrices.dims[-2]) if operand(site, 1).rank else 0


def _right_side(site: Site, matrices: Shape) -> int:
    """Columns (right-hand sides) of a triangular solve."""
    right = next((one.shape for one in site.operands[1:] if one.shape.is_array and one.shape.rank >= 2), matrices)
    on_the_left = _option(site, "side", _LEFT) == _LEFT and _flag(site, "left_side", True)
    return right.dims[-1] if on_the_left else right.dims[-2]


def _applied(site: Site, matrices: Shape) -> counts.Count:
    """Reflections applied to a matrix of the size of the result."""
    rows, columns = _square(output(site))
    return counts.apply_reflections(rows, columns, _reflections(site, matrices))


def _square(shape: Shape) -> tuple[int, int]:
    if shape.rank < 2:
        raise Misfit(f"{shape} is not a matrix")
    return shape.dims[-2], shape.dims[-1]


def _syrk(site: Site, matrices: Shape) -> counts.Count:
    order = _square(output(site))[1]
    return counts.symmetric_product(order, matrices.dims[-1] * matrices.dims[-2] // max(1, order))


_COUNTS: dict[str, Callable[[Site, Shape], counts.Count]] = {
    "potrf": lambda site, a: counts.cholesky(_order(a)),
    "getrf": lambda site, a: counts.lu(a.dims[-2], a.dims[-1]),
    "geqrf": lambda site, a: counts.qr(a.dims[-2], a.dims[-1]),
    "geqp3": lambda site, a: counts.qr(a.dims[-2], a.dims[-1]),
    **dict.fromkeys(("orgqr", "ungqr"), lambda site, a: counts.reflections_to_q(a.dims[-2], a.dims[-1], _reflections(site, a))),
    **dict.fromkeys(("ormqr", "unmqr"), lambda site, a: _applied(site, a)),
    **dict.fromkeys(("sytrd", "hetrd"), lambda site, a: counts.tridiagonalise(_order(a))),
    "gehrd": lambda site, a: counts.hessenberg(_order(a)),
    "trsm": lambda site, a: counts.solve_triangle(_order(a), _right_side(site, a)),
    "syrk": _syrk,
    **dict.fromkeys(("syevd", "heevd", "syevj"), lambda site, a: counts.symmetric_eigen(_order(a), _eigenvectors(site))),
    "geev": lambda site, a: counts.eigen(_order(a), _general_vectors(site)),
    "gees": lambda site, a: counts.eigen(_order(a), _eigenvectors(site)),
    **dict.fromkeys(
        ("gesdd", "gesvd", "gesvdj", "gesvdp"), lambda site, a: counts.singular(a.dims[-2], a.dims[-1], _singular_vectors(site))
    ),
}
_ITERATIVE = {"syevd", "heevd", "syevj", "geev", "gees", "gesdd", "gesvd", "gesvdj", "gesvdp"}


@call("cusparse_gtsv2_ffi", "hipsparse_gtsv2_ffi", "lapack_sgtsv_ffi", "lapack_dgtsv_ffi", "lapack_cgtsv_ffi", "lapack_zgtsv_ffi")
def tridiagonal(site: Site) -> Price:
    """Tridiagonal systems, one per row of the diagonals: elimination, then each right-hand side, on the vector unit."""
    diagonal, right = operand(site, 1), operand(site, 3)
    if not diagonal.rank or right.rank <= diagonal.rank - 1:
        raise Misfit(f"{diagonal} and {right} are not a tridiagonal system")
    columns = right.elements // diagonal.elements if diagonal.elements else 0
    number = diagonal.number
    each = counts.solve_tridiagonal(diagonal.dims[-1], columns).flops(complex_numbers=number.name.startswith("complex"))
    return priced(
        site,
        Cost.of({vector(accumulator(number)): prod(diagonal.dims[:-1]) * each}),
        "linear algebra",
        "gtsv: elimination without pivoting",
    )


@call("cu_lu_pivots_to_permutation", "hip_lu_pivots_to_permutation")
def pivots(site: Site) -> Price:
    """Row swaps converted to a permutation: no arithmetic, but one swap after the other."""
    return priced(site, NOTHING, "linear algebra")
