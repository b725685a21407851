"""Factorisations, inverses and solutions of linear systems: the usual leading terms of their FLOP, on the vector unit.

For matrices of n rows: a Cholesky factor n³/3, an LU factor 2n³/3, an inverse 2n³, a triangular solve n² for each right-hand side. Of m x n
matrices with m ≥ n, a QR factor is 2mn² - 2n³/3; eigenvalues of a symmetric matrix take 4n³/3 and its vectors 9n³ in all, singular values
4mn² - 4n³/3 and both sets of vectors 4m²n + 22n³.
"""

from collections.abc import Callable
from fractions import Fraction
from math import prod

from .call import Call, Priced, Tensor
from .op_table import op
from .traffic import streamed

Flops = Callable[[int, int], Fraction]


def _qr(m: int, n: int) -> Fraction:
    long, short = max(m, n), min(m, n)
    return 2 * long * short**2 - Fraction(2 * short**3, 3)


def _svd(m: int, n: int) -> Fraction:
    long, short = max(m, n), min(m, n)
    return Fraction(4 * long**2 * short + 22 * short**3)


# By the operator's name: the FLOP of one m x n matrix.
FACTORS: dict[str, Flops] = {
    **dict.fromkeys(("linalg_cholesky_ex", "cholesky"), lambda m, n: Fraction(n**3, 3)),
    **dict.fromkeys(
        ("linalg_lu_factor_ex", "linalg_lu", "_linalg_det", "_linalg_slogdet", "linalg_ldl_factor_ex"),
        lambda m, n: Fraction(2 * max(m, n) * min(m, n) ** 2, 3),
    ),
    "linalg_inv_ex": lambda m, n: Fraction(2 * n**3),
    "cholesky_inverse": lambda m, n: Fraction(2 * n**3, 3),
    **dict.fromkeys(("linalg_qr", "geqrf", "linalg_householder_product"), _qr),
    "_linalg_eigh": lambda m, n: Fraction(9 * n**3),
    **dict.fromkeys(("linalg_eig", "_linalg_eigvals"), lambda m, n: Fraction(25 * n**3)),
    "_linalg_svd": _svd,
    "linalg_matrix_exp": lambda m, n: Fraction(12 * n**3),  # six products
    "lu_unpack": lambda m, n: Fraction(0),
}


@op(*(f"aten::{name}" for name in FACTORS))
def factor(call: Call) -> Priced | None:
    """A batch of matrices is read, and the same size written, or the recorded results."""
    a = call.need(0)
    if len(a.shape) < 2:
        return None
    flops = round(FACTORS[call.op.removeprefix("aten::")](*a.shape[-2:]) * prod(a.shape[:-2]))
    return streamed("linear algebra", a, (a,), call.outputs or (a,), flops=1, elements=flops)


# By operator: the positions of the matrix and of the right-hand sides, whether it factors too, and FLOP per n² and right-hand side.
SOLVES = {
    "_linalg_solve_ex": (0, 1, True, 2),
    "linalg_lstsq": (0, 1, True, 2),
    "linalg_solve_triangular": (0, 1, False, 1),
    "triangular_solve": (1, 0, False, 1),
    "cholesky_solve": (1, 0, False, 2),
    "_cholesky_solve_helper": (1, 0, False, 2),
    "linalg_lu_solve": (0, 2, False, 2),
    "linalg_ldl_solve": (0, 2, False, 2),
    "ormqr": (0, 2, False, 2),
}


@op(*(f"aten::{name}" for name in SOLVES))
def solve(call: Call) -> Priced | None:
    """Solutions for right-hand sides, after an LU factorisation of the matrix if the operator includes one."""
    at, sides, factors, each = SOLVES[call.op.removeprefix("aten::")]
    a, b = call.need(at), call.need(sides)
    if len(a.shape) < 2 or not b.shape:
        return None
    m, n = a.shape[-2:]
    flops = each * m * b.elements
    if factors:
        flops += round(Fraction(2 * max(m, n) * min(m, n) ** 2, 3) * prod(a.shape[:-2]))
    return streamed("linear algebra", a, (a, b), (Tensor(b.shape, b.dtype),), flops=1, elements=flops)
