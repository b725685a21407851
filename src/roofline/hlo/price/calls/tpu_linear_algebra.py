"""Kernels of the TPU compiler for dense linear algebra: it divides matrices into blocks of 128 columns, and factors each by a kernel.

What is between blocks are products of their own. A kernel goes from column to column, so that it runs on the vector unit.
"""

from math import prod

from ....ops.linear_algebra import Sizes, elements_read, work
from ....resource import vector
from ....workload import COUNTED
from ..types import Price, Site
from .registry import call
from .traffic import Misfit, operand, priced

_ROUTINES = {  # of LAPACK, of the same count
    "Cholesky": "potrf",
    **dict.fromkeys(("LuDecompositionBlock", "LuRealDecompositionBlock"), "getrf"),
    "QrDecompositionBlock": "geqrf",
    "CompactWyHelper": "trtri",  # of a block of reflections: the inverse of a triangle of their products
    "InvertDiagBlocksLowerTriangular": "trtri",
    "InvertDiagBlocksUpperTriangular": "trtri",
}


@call(*_ROUTINES)
def block(site: Site) -> Price:
    """The routine of a block, for every block of a batch."""
    routine = _ROUTINES[site.instruction.custom_call_target]
    blocks = operand(site, 0)
    if blocks.rank < 2:
        raise Misfit("its operand is not a matrix")
    sizes = Sizes(m=blocks.dims[-2], n=blocks.dims[-1], many=prod(blocks.dims[:-2]))
    flops = work(routine, sizes, blocks.number, vector(blocks.number))
    read = {0: sizes.many * elements_read(routine, sizes)}
    return priced(site, flops, "linear algebra", f"{COUNTED}{routine} by LAPACK Working Note 41", read=read)
