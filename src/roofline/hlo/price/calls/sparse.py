"""Sparse products by cuSPARSE and hipSPARSE, and by XLA's CPU kernels: 2 FLOP per stored element and column, on the vector unit."""

from math import prod

from ....cost import NOTHING
from ....ops.elementwise import summed
from ....ops.product import real_flops
from ..types import Price, Site
from .registry import call
from .traffic import Misfit, operand, priced

_KINDS = tuple(f"{library}sparse_{form}_%s_ffi" for library in ("cu", "hip") for form in ("coo", "csr"))


@call(*(kind % "matvec" for kind in _KINDS), *(kind % "matmat" for kind in _KINDS))
def product(site: Site) -> Price:
    """A sparse matrix times a vector or matrix: operand 0 holds the stored elements, operand 3 the dense side."""
    stored, dense = operand(site, 0), operand(site, 3)
    if dense.rank not in (1, 2):
        raise Misfit(f"{dense} is neither a vector nor a matrix")
    columns = prod(dense.dims[1:])
    work = summed(1, stored.number, real_flops(stored.elements * columns, stored.number))
    return priced(site, work, "matmul", "indices are known only at run time: the dense side is counted once")


@call(*(kind % "todense" for kind in _KINDS), *(kind % "fromdense" for kind in _KINDS))
def conversion(site: Site) -> Price:
    """Conversion between sparse and dense: no arithmetic."""
    return priced(site, NOTHING, "data movement")
