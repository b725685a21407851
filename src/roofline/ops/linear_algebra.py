"""Dense linear algebra: factorisations, solves and eigenvalues, by the names that LAPACK gives its routines.

Multiplications and additions are those of LAPACK Working Note 41 (Blackford and Dongarra, Appendix C). Between complex numbers a
multiplication is 6 FLOP and an addition 2. Iterative algorithms have no exact count: theirs are the usual estimates (Golub and Van Loan,
Matrix Computations, sections 7.5, 8.3 and 8.6).

All of it counts on the matrix unit, in the number format of the matrix: blocked algorithms spend most of their work in products. (Two-sided
reductions of eigenvalue problems spend half of theirs in matrix-vector products, which a matrix unit does not speed up.) A routine reads
of a triangular or symmetric matrix one triangle, and writes all of its results.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Literal

from msgspec import Struct

from ..cost import Amount, Cost, tidy
from ..dtypes import DType
from ..resource import Resource, matrix

Part = Literal["all", "triangle", "reflections"]
Vectors = Literal["none", "thin", "full"]
_THIRD, _SIXTH = Fraction(1, 3), Fraction(1, 6)


class Count(Struct, frozen=True):
    """Numbers of multiplications (with divisions and roots) and of additions."""

    multiplications: int | Fraction = 0
    additions: int | Fraction = 0

    def __add__(self, other: "Count") -> "Count":
        return Count(self.multiplications + other.multiplications, self.additions + other.additions)

    def flops(self, *, complex_numbers: bool = False) -> Amount:
        """All of them in real FLOP.

        >>> cholesky(2).flops(), Count(1, 1).flops(complex_numbers=True)
        (5, 8)
        """
        return tidy((6 if complex_numbers else 1) * Fraction(self.multiplications) + (2 if complex_numbers else 1) * self.additions)


def cholesky(n: int) -> Count:
    """A = L·Lᵀ of order n (potrf): about n³/3."""
    return Count(_SIXTH * n**3 + Fraction(n * n, 2) + _THIRD * n, _SIXTH * n**3 - _SIXTH * n)


def lu(m: int, n: int) -> Count:
    """P·A = L·U of m x n (getrf): about 2n³/3 for a square one."""
    if m < n:
        m, n = n, m
    return Count(
        Fraction(m * n * n, 2) - _SIXTH * n**3 + Fraction(m * n, 2) - Fraction(n * n, 2) + 2 * _THIRD * n,
        Fraction(m * n * n, 2) - _SIXTH * n**3 - Fraction(m * n, 2) + _SIXTH * n,
    )


def qr(m: int, n: int) -> Count:
    """A = Q·R of m x n by Householder reflections (geqrf): about 2mn² − 2n³/3."""
    if m > n:
        shared = m * n * n - _THIRD * n**3 + Fraction(n * n, 2)
        return Count(shared + m * n + 23 * _SIXTH * n, shared + 5 * _SIXTH * n)
    shared = n * m * m - _THIRD * m**3 - Fraction(m * m, 2)
    return Count(shared + 2 * m * n + 23 * _SIXTH * m, shared + m * n + 5 * _SIXTH * m)


def reflections_to_q(m: int, n: int, k: int) -> Count:
    """The first n columns of Q, m x n, from k reflections (orgqr): 4mnk − 2(m + n)k² + 4k³/3."""
    shared = 2 * m * n * k - (m + n) * k * k + 2 * _THIRD * k**3
    return Count(shared + 2 * n * k - k * k - 5 * _THIRD * k, shared + n * k - m * k + _THIRD * k)


def apply_reflections(m: int, n: int, k: int) -> Count:
    """Qᵀ·C with C of m x n and Q of k reflections (ormqr, from the left): 4mnk − 2nk²."""
    return Count(2 * m * n * k - n * k * k + 2 * n * k, 2 * m * n * k - n * k * k + n * k)


def tridiagonalise(n: int) -> Count:
    """A symmetric matrix to tridiagonal form (sytrd): about 4n³/3."""
    return Count(
        max(Fraction(0), 2 * _THIRD * n**3 + Fraction(5 * n * n, 2) - _SIXTH * n - 15),
        max(Fraction(0), 2 * _THIRD * n**3 + n * n - 8 * _THIRD * n - 4),
    )


def hessenberg(n: int) -> Count:
    """A square matrix to Hessenberg form (gehrd): about 10n³/3."""
    return Count(
        max(Fraction(0), 5 * _THIRD * n**3 + Fraction(n * n, 2) - 7 * _SIXTH * n - 13),
        max(Fraction(0), 5 * _THIRD * n**3 - n * n - 2 * _THIRD * n - 8),
    )


def invert(n: int) -> Count:
    """The inverse from an LU factor (getri): about 4n³/3, which with the factor makes 2n³."""
    cube = 2 * _THIRD * n**3
    return Count(cube + Fraction(n * n, 2) + 5 * _SIXTH * n, cube - Fraction(3 * n * n, 2) + 5 * _SIXTH * n)


def invert_symmetric(n: int) -> Count:
    """The inverse from a Cholesky factor (potri): about 2n³/3."""
    cube = _THIRD * n**3
    return Count(cube + n * n + 2 * _THIRD * n, cube - Fraction(n * n, 2) + _SIXTH * n)


def factor_symmetric(n: int) -> Count:
    """A = L·D·Lᵀ of order n (sytrf): about n³/3."""
    return Count(_SIXTH * n**3 + Fraction(n * n, 2) + 10 * _THIRD * n, _SIXTH * n**3 - _SIXTH * n)


def solve_triangle(n: int, columns: int, unit_diagonal: bool = False) -> Count:
    """A·X = B with A triangular of order n (trsm): n² for each column of B, less n divisions where the diagonal is 1."""
    below = Fraction(columns * n * (n - 1), 2)
    return Count(below if unit_diagonal else below + columns * n, below)


def solve_factored(n: int, columns: int) -> Count:
    """A·X = B with A factored into two triangles, of which LU and LDLᵀ have one of diagonal 1 (getrs): about 2n² for each column."""
    return solve_triangle(n, columns) + solve_triangle(n, columns, unit_diagonal=True)


def least_squares(m: int, n: int, columns: int) -> Count:
    """The x of the least |A·x − b| for each column of B (gels): a QR factor, its reflections applied, and a triangular solve."""
    long, short = max(m, n), min(m, n)
    return qr(long, short) + apply_reflections(long, columns, short) + solve_triangle(short, columns)


def symmetric_product(n: int, k: int) -> Count:
    """One triangle of A·Aᵀ with A of n x k (syrk): n(n + 1)k."""
    return Count(Fraction(k * n * (n + 1), 2), Fraction(k * n * (n + 1), 2))


def solve_tridiagonal(n: int, columns: int) -> Count:
    """A tridiagonal system by elimination (gtsv): 3(n − 1) to eliminate, 5n − 4 for each column."""
    return Count(2 * max(0, n - 1) + columns * (3 * n - 2), max(0, n - 1) + columns * 2 * max(0, n - 1))


def symmetric_eigen(n: int, vectors: bool) -> Count:
    """Eigenvalues of a symmetric matrix, about 4n³/3 in all; with vectors about 9n³ (an estimate)."""
    total = Fraction(9 * n**3 if vectors else 4 * _THIRD * n**3)
    return Count(total / 2, total / 2)


def eigen(n: int, vectors: bool) -> Count:
    """Eigenvalues of a square matrix by the QR algorithm, about 10n³ in all; with vectors about 25n³ (an estimate)."""
    total = Fraction(25 * n**3 if vectors else 10 * n**3)
    return Count(total / 2, total / 2)


def singular(m: int, n: int, vectors: Vectors) -> Count:
    """Singular values of m x n, m ≥ n, with no vectors, n of each (thin) or all: estimates, of the cheaper of two algorithms.

    Golub and Reinsch: 4mn² − 4n³/3, thin 14mn² + 8n³, full 4m²n + 8mn² + 9n³. With a QR factor first: 2mn² + 2n³, 6mn² + 20n³, 4m²n + 22n³.
    """
    long, short = max(m, n), min(m, n)
    square, cube = Fraction(long * short * short), short**3
    if vectors == "none":
        total = min(4 * square - 4 * _THIRD * cube, 2 * square + 2 * cube)
    elif vectors == "thin":
        total = min(14 * square + 8 * cube, 6 * square + 20 * cube)
    else:
        total = 4 * long * long * short + min(8 * square + 9 * cube, Fraction(22 * cube))
    return Count(total / 2, total / 2)


class Sizes(Struct, frozen=True, kw_only=True):
    """The sizes of one call: a matrix of m x n, the columns of the other matrix, the reflections of a factor, the vectors asked for.

    There are ``many`` such matrices.
    """

    m: int
    n: int
    columns: int = 0
    reflections: int = 0
    vectors: Vectors = "none"
    unit_diagonal: bool = False
    many: int = 1


class Routine(Struct, frozen=True):
    """The count of a routine by its sizes, and which part of its matrix it reads; an ``iterative`` one is estimated."""

    count: Callable[[Sizes], Count]
    reads: Part = "all"
    iterative: bool = False


SINGULAR = ("gesdd", "gesvd", "gesvdj", "gesvdp")
_HOUSEHOLDER = Routine(lambda s: qr(s.m, s.n))
_LU = Routine(lambda s: lu(s.m, s.n))
_FORM_Q = Routine(lambda s: reflections_to_q(s.m, s.n, s.reflections), "reflections")
_APPLY_Q = Routine(lambda s: apply_reflections(s.m, s.columns, s.reflections), "reflections")
_SYMMETRIC_EIGEN = Routine(lambda s: symmetric_eigen(s.n, s.vectors != "none"), "triangle", iterative=True)
_EIGEN = Routine(lambda s: eigen(s.n, s.vectors != "none"), iterative=True)
_SINGULAR = Routine(lambda s: singular(s.m, s.n, s.vectors), iterative=True)
_TRIDIAGONALISE = Routine(lambda s: tridiagonalise(s.n), "triangle")
_SOLVE_FACTORED = Routine(lambda s: solve_factored(s.n, s.columns))

ROUTINES: dict[str, Routine] = {
    "potrf": Routine(lambda s: cholesky(s.n), "triangle"),
    "potri": Routine(lambda s: invert_symmetric(s.n), "triangle"),
    "potrs": Routine(lambda s: solve_triangle(s.n, s.columns) + solve_triangle(s.n, s.columns), "triangle"),
    "sytrf": Routine(lambda s: factor_symmetric(s.n), "triangle"),
    "sytrs": Routine(lambda s: solve_factored(s.n, s.columns), "triangle"),
    "getrf": _LU,
    "getrs": _SOLVE_FACTORED,
    "gesv": Routine(lambda s: lu(s.n, s.n) + solve_factored(s.n, s.columns)),
    "inverse": Routine(lambda s: lu(s.n, s.n) + invert(s.n)),
    "geqrf": _HOUSEHOLDER,
    "geqp3": _HOUSEHOLDER,
    "qr": Routine(lambda s: qr(s.m, s.n) + reflections_to_q(s.m, s.columns, min(s.m, s.n))),  # both factors; columns are those of Q
    "gels": Routine(lambda s: least_squares(s.m, s.n, s.columns)),
    **dict.fromkeys(("orgqr", "ungqr"), _FORM_Q),
    **dict.fromkeys(("ormqr", "unmqr"), _APPLY_Q),
    **dict.fromkeys(("sytrd", "hetrd"), _TRIDIAGONALISE),
    "gehrd": Routine(lambda s: hessenberg(s.n)),
    "trsm": Routine(lambda s: solve_triangle(s.n, s.columns, s.unit_diagonal), "triangle"),
    **dict.fromkeys(("syevd", "heevd", "syevj"), _SYMMETRIC_EIGEN),
    **dict.fromkeys(("geev", "gees"), _EIGEN),
    **dict.fromkeys(SINGULAR, _SINGULAR),
    "expm": Routine(lambda s: Count(6 * s.n**3, 6 * s.n**3)),  # a matrix exponential: six products
    "syrk": Routine(lambda s: symmetric_product(s.columns, s.m * s.n // max(1, s.columns))),  # columns are those of the result
    "unpack": Routine(lambda s: Count()),
}


def work(routine: str, sizes: Sizes, number: DType, unit: Resource | None = None) -> Cost:
    """The FLOP of a routine on matrices of a number format, on the matrix unit in that format or on another unit."""
    flops = ROUTINES[routine].count(sizes).flops(complex_numbers=number.name.startswith("complex"))
    return Cost.of({unit or matrix(number): sizes.many * flops})


def elements_read(routine: str, sizes: Sizes) -> int:
    """The elements of a matrix that are read: all, one triangle with its diagonal, or the reflections, which are below the diagonal."""
    part = ROUTINES[routine].reads
    if part == "all":
        return sizes.m * sizes.n
    if part == "triangle":
        return sizes.n * (sizes.n + 1) // 2
    k = min(sizes.reflections, sizes.m)
    return sizes.m * k - k * (k + 1) // 2
