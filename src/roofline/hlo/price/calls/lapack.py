"""Dense linear algebra: LAPACK on CPUs, cuSOLVER, cuBLAS, cuSPARSE and hipSOLVER on GPUs, for every matrix of a batch.

The counts are those of `ops.linear_algebra`.
"""

import re
from math import prod

from ....cost import NOTHING
from ....ops.elementwise import summed
from ....ops.linear_algebra import ROUTINES, SINGULAR, Sizes, Vectors, elements_read, solve_tridiagonal, work
from ....workload import COUNTED
from ...ir.shapes import Shape
from ...read.backend_config import backend_config
from ..types import Price, Site
from .registry import call
from .settings import Config
from .traffic import Misfit, operand, output, outputs, priced

_ROUTINE = re.compile(r"lapack_[sdcz](?P<cpu>[a-z0-9]+?)(?:_ffi)?|(?:cu|hip)(?:solver|blas|sparse)_(?P<gpu>[a-z0-9]+?)(?:_ffi)?")
_YES, _LEFT = ("V", "A", "S", "O"), "L"


@call("lapack_*", "cusolver_*", "hipsolver_*", "cublas_*", "hipblas_*")
def routine(site: Site) -> Price | None:
    """The price of a routine, by its name without the number format: ``lapack_dpotrf_ffi`` and ``cusolver_potrf_ffi`` are potrf."""
    match = _ROUTINE.fullmatch(site.instruction.custom_call_target)
    name = (match["cpu"] or match["gpu"]) if match else ""
    if name not in ROUTINES:
        return None
    place = _matrix_place(site)
    matrices = site.operands[place].shape
    sizes = _sizes(site, name, matrices)
    note = f"{name} is iterative: FLOP estimated" if ROUTINES[name].iterative else f"{COUNTED}{name} by LAPACK Working Note 41"
    wanted = {place: sizes.many * elements_read(name, sizes)}
    return priced(site, work(name, sizes, matrices.number), "linear algebra", note, read=wanted, written=_written(site, name, sizes))


def _written(site: Site, name: str, sizes: Sizes) -> tuple[Shape, ...]:
    """The results without the matrix that an iterative routine overwrites on its way: it is first, and nothing of it is asked for."""
    written = outputs(site)
    spoilt = name in SINGULAR or (ROUTINES[name].iterative and ROUTINES[name].reads == "triangle" and sizes.vectors == "none")
    return written[1:] if spoilt and len(written) > 1 and written[0].dims[-2:] == (sizes.m, sizes.n) else written


def _matrix_place(site: Site) -> int:
    """The place of the first operand that is a stack of matrices; older targets pass sizes before it."""
    for place, value in enumerate(site.operands):
        shape = value.shape
        if shape.is_array and shape.is_bounded and shape.rank >= 2 and shape.number.rate in ("fp32", "fp64"):
            return place
    raise Misfit("no operand is a matrix")


def _sizes(site: Site, name: str, matrices: Shape) -> Sizes:
    (m, n), many = matrices.dims[-2:], prod(matrices.dims[:-2])
    columns, reflections, vectors = 0, 0, _vectors(site, name)
    if name == "trsm":
        columns = _right_sides(site, matrices)
    elif name == "syrk":
        n = max((1, *output(site).dims[-1:]))
        m, n = n, matrices.elements // max(1, many * n)  # order and depth
    elif name in ("orgqr", "ungqr"):
        reflections = _reflections(site, matrices)
    elif name in ("ormqr", "unmqr"):  # applied to a matrix of the size of the result, from either side
        columns, reflections = output(site).elements // max(1, many * m), _reflections(site, matrices)
    return Sizes(m=m, n=n, columns=columns, reflections=reflections, vectors=vectors, many=many)


def _option(site: Site, name: str, default: str) -> str:
    """A LAPACK option, which configurations write as a letter or as its character code."""
    value = backend_config(site.instruction).get(name, default)
    return chr(value) if isinstance(value, int) and 0 < value < 128 else str(value)


def _flag(site: Site, name: str, default: bool) -> bool:
    config: Config = backend_config(site.instruction)
    value = config.get(name, default)
    return value is True


def _vectors(site: Site, name: str) -> Vectors:
    """Which vectors an eigenvalue problem or a singular value decomposition computes."""
    if name == "geev":
        computed = [_option(site, side, "N") in _YES for side in ("compute_left", "compute_right", "left", "right")]
        return "full" if any(computed) or _option(site, "mode", "N") in _YES else "none"
    if name not in SINGULAR:
        return "full" if _option(site, "mode", "V") in _YES else "none"
    mode = _option(site, "mode", "")
    if mode:
        return {"A": "full", "N": "none"}.get(mode, "thin")  # type: ignore[return-value]
    if not _flag(site, "compute_uv", True):
        return "none"
    return "full" if _flag(site, "full_matrices", False) else "thin"


def _reflections(site: Site, matrices: Shape) -> int:
    """The number of reflections in a factor: that of the scalars passed with it."""
    return min(operand(site, 1).dims[-1], matrices.dims[-2]) if operand(site, 1).rank else 0


def _right_sides(site: Site, matrices: Shape) -> int:
    """Columns (right-hand sides) of a triangular solve."""
    right = next((value.shape for value in site.operands[1:] if value.shape.is_array and value.shape.rank >= 2), matrices)
    on_the_left = _option(site, "side", _LEFT) == _LEFT and _flag(site, "left_side", True)
    return right.dims[-1] if on_the_left else right.dims[-2]


@call("cusparse_gtsv2_ffi", "hipsparse_gtsv2_ffi", "lapack_sgtsv_ffi", "lapack_dgtsv_ffi", "lapack_cgtsv_ffi", "lapack_zgtsv_ffi")
def tridiagonal(site: Site) -> Price:
    """Tridiagonal systems, one per row of the diagonals: elimination, then each right-hand side, on the vector unit."""
    diagonal, right = operand(site, 1), operand(site, 3)
    if not diagonal.rank or right.rank <= diagonal.rank - 1:
        raise Misfit(f"{diagonal} and {right} are not a tridiagonal system")
    columns = right.elements // diagonal.elements if diagonal.elements else 0
    number = diagonal.number
    per_matrix = solve_tridiagonal(diagonal.dims[-1], columns).flops(complex_numbers=number.is_complex)
    elimination = summed(prod(diagonal.dims[:-1]), number, per_matrix)
    return priced(site, elimination, "linear algebra", "gtsv: elimination without pivoting")


@call("cu_lu_pivots_to_permutation", "hip_lu_pivots_to_permutation")
def pivots(site: Site) -> Price:
    """Row swaps converted to a permutation: no arithmetic, but one swap after the other."""
    return priced(site, NOTHING, "linear algebra")
