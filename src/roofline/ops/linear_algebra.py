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
        real = (6, 2) if complex_numbers else (1, 1)
        return tidy(real[0] * Fraction(self.multiplications) + real[1] * self.additions)


def _sixths(multiplications: int, additions: int) -> Count:
    return Count(Fraction(multiplications, 6), Fraction(additions, 6))


def _estimate(total: int | Fraction) -> Count:
    return Count(Fraction(total) / 2, Fraction(total) / 2)


def cholesky(n: int) -> Count:
    """A = L·Lᵀ of order n (potrf): about n³/3."""
    return _sixths(n**3 + 3 * n**2 + 2 * n, n**3 - n)


def factor_symmetric(n: int) -> Count:
    """A = L·D·Lᵀ of order n (sytrf): about n³/3."""
    return _sixths(n**3 + 3 * n**2 + 20 * n, n**3 - n)


def invert_symmetric(n: int) -> Count:
    """The inverse from a Cholesky factor (potri): about 2n³/3."""
    return _sixths(2 * n**3 + 6 * n**2 + 4 * n, 2 * n**3 - 3 * n**2 + n)


def invert_triangle(n: int) -> Count:
    """The inverse of a triangle of order n (trtri): about n³/3."""
    return _sixths(n**3 + 3 * n**2 + 2 * n, n**3 - 3 * n**2 + 2 * n)


def lu(m: int, n: int) -> Count:
    """P·A = L·U of m x n (getrf): about 2n³/3 for a square one."""
    m, n = max(m, n), min(m, n)
    shared = 3 * m * n**2 - n**3
    return _sixths(shared + 3 * m * n - 3 * n**2 + 4 * n, shared - 3 * m * n + n)


def inverse(n: int) -> Count:
    """An inverse as frameworks compute it, solved for the identity: about 8n³/3."""
    return solve(n, n)


def qr(m: int, n: int) -> Count:
    """A = Q·R of m x n by Householder reflections (geqrf): about 2mn² − 2n³/3."""
    if m > n:
        shared = 6 * m * n**2 - 2 * n**3 + 3 * n**2 + 5 * n
        return _sixths(shared + 6 * m * n + 18 * n, shared)
    shared = 6 * n * m**2 - 2 * m**3 - 3 * m**2 + 6 * m * n + 5 * m
    return _sixths(shared + 6 * m * n + 18 * m, shared)


def reflections_to_q(m: int, n: int, k: int) -> Count:
    """The first n columns of Q, m x n, from k reflections (orgqr): 4mnk − 2(m + n)k² + 4k³/3."""
    shared = 12 * m * n * k - 6 * (m + n) * k**2 + 4 * k**3
    return _sixths(shared + 12 * n * k - 6 * k**2 - 10 * k, shared + 6 * n * k - 6 * m * k + 2 * k)


def both_factors(m: int, n: int, columns: int) -> Count:
    """R and so many columns of Q."""
    return qr(m, n) + reflections_to_q(m, columns, min(m, n))


def apply_reflections(m: int, n: int, k: int) -> Count:
    """Qᵀ·C with C of m x n and Q of k reflections (ormqr): 4mnk − 2nk²."""
    shared = 2 * m * n * k - n * k**2 + n * k
    return Count(shared + n * k, shared)


def tridiagonalise(n: int) -> Count:
    """A symmetric matrix to tridiagonal form (sytrd): about 4n³/3."""
    return _sixths(max(0, 4 * n**3 + 15 * n**2 - n - 90), max(0, 4 * n**3 + 6 * n**2 - 16 * n - 24))


def hessenberg(n: int) -> Count:
    """A square matrix to Hessenberg form (gehrd): about 10n³/3."""
    return _sixths(max(0, 10 * n**3 + 3 * n**2 - 7 * n - 78), max(0, 10 * n**3 - 6 * n**2 - 4 * n - 48))


def solve_triangle(n: int, columns: int, unit_diagonal: bool = False) -> Count:
    """A·X = B with A triangular of order n (trsm): n² for each column of B, less n divisions where the diagonal is 1."""
    below = columns * (n * (n - 1) // 2)
    return Count(below if unit_diagonal else below + columns * n, below)


def solve_definite(n: int, columns: int) -> Count:
    """A·X = B with a Cholesky factor of A (potrs): 2n² for each column."""
    return solve_triangle(n, columns) + solve_triangle(n, columns)


def solve_factored(n: int, columns: int) -> Count:
    """A·X = B with A factored into two triangles, of which LU and LDLᵀ have one of diagonal 1 (getrs): about 2n² for each column."""
    return solve_triangle(n, columns) + solve_triangle(n, columns, unit_diagonal=True)


def solve(n: int, columns: int) -> Count:
    """A·X = B by an LU factor (gesv)."""
    return lu(n, n) + solve_factored(n, columns)


def least_squares(m: int, n: int, columns: int) -> Count:
    """The x of the least |A·x − b| for each column of B (gels): a QR factor, its reflections applied, and a triangular solve."""
    m, n = max(m, n), min(m, n)
    return qr(m, n) + apply_reflections(m, columns, n) + solve_triangle(n, columns)


def symmetric_product(n: int, k: int) -> Count:
    """One triangle of A·Aᵀ with A of n x k (syrk): n(n + 1)k."""
    return _estimate(k * n * (n + 1))


def solve_tridiagonal(n: int, columns: int) -> Count:
    """A tridiagonal system by elimination (gtsv): 3(n − 1) to eliminate, 5n − 4 for each column."""
    below = max(0, n - 1)
    return Count(2 * below + columns * (3 * n - 2), below + columns * 2 * below)


def exponential(n: int) -> Count:
    """A matrix exponential: six products."""
    return _estimate(12 * n**3)


def symmetric_eigen(n: int, vectors: Vectors) -> Count:
    """Eigenvalues of a symmetric matrix, about 4n³/3 in all; with vectors about 9n³ (an estimate)."""
    return _estimate(Fraction(4 * n**3, 3) if vectors == "none" else 9 * n**3)


def eigen(n: int, vectors: Vectors) -> Count:
    """Eigenvalues of a square matrix by the QR algorithm, about 10n³ in all; with vectors about 25n³ (an estimate)."""
    return _estimate((10 if vectors == "none" else 25) * n**3)


def singular(m: int, n: int, vectors: Vectors) -> Count:
    """Singular values of m x n, m ≥ n, with no vectors, n of each (thin) or all: estimates, of the cheaper of two algorithms.

    Golub and Reinsch: 4mn² − 4n³/3, thin 14mn² + 8n³, full 4m²n + 8mn² + 9n³. With a QR factor first: 2mn² + 2n³, 6mn² + 20n³, 4m²n + 22n³.
    """
    long, short = max(m, n), min(m, n)
    square, cube = Fraction(long * short**2), short**3
    total = 4 * long * long * short + min(8 * square + 9 * cube, Fraction(22 * cube))
    if vectors == "none":
        total = min(4 * square - Fraction(4 * cube, 3), 2 * square + 2 * cube)
    elif vectors == "thin":  # all of the vectors include the first ones
        total = min(total, 14 * square + 8 * cube, 6 * square + 20 * cube)
    return _estimate(total)


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
    """The count of a routine, the `Sizes` that it depends on, and which part of its matrix it reads; an ``iterative`` one is estimated."""

    count: Callable[..., Count]
    sizes: str
    reads: Part = "all"
    iterative: bool = False


SINGULAR = ("gesdd", "gesvd", "gesvdj", "gesvdp")
ROUTINES: dict[str, Routine] = {
    "potrf": Routine(cholesky, "n", "triangle"),
    "potri": Routine(invert_symmetric, "n", "triangle"),
    "potrs": Routine(solve_definite, "n columns", "triangle"),
    "sytrf": Routine(factor_symmetric, "n", "triangle"),
    "sytrs": Routine(solve_factored, "n columns", "triangle"),
    "getrf": Routine(lu, "m n"),
    "getrs": Routine(solve_factored, "n columns"),
    "gesv": Routine(solve, "n columns"),
    "inverse": Routine(inverse, "n"),
    **dict.fromkeys(("geqrf", "geqp3"), Routine(qr, "m n")),
    "qr": Routine(both_factors, "m n columns"),
    "gels": Routine(least_squares, "m n columns"),
    **dict.fromkeys(("orgqr", "ungqr"), Routine(reflections_to_q, "m n reflections", "reflections")),
    **dict.fromkeys(("ormqr", "unmqr"), Routine(apply_reflections, "m columns reflections", "reflections")),
    **dict.fromkeys(("sytrd", "hetrd"), Routine(tridiagonalise, "n", "triangle")),
    "gehrd": Routine(hessenberg, "n"),
    "trtri": Routine(invert_triangle, "n", "triangle"),
    "trsm": Routine(solve_triangle, "n columns unit_diagonal", "triangle"),
    "syrk": Routine(symmetric_product, "m n"),
    **dict.fromkeys(("syevd", "heevd", "syevj"), Routine(symmetric_eigen, "n vectors", "triangle", iterative=True)),
    **dict.fromkeys(("geev", "gees"), Routine(eigen, "n vectors", iterative=True)),
    **dict.fromkeys(SINGULAR, Routine(singular, "m n vectors", iterative=True)),
    "expm": Routine(exponential, "n"),
    "unpack": Routine(Count, ""),
}


def work(routine: str, sizes: Sizes, number: DType, unit: Resource | None = None) -> Cost:
    """The FLOP of a routine on matrices of a number format, on the matrix unit in that format or on another unit."""
    counted = ROUTINES[routine]
    count = counted.count(*(getattr(sizes, name) for name in counted.sizes.split()))
    return Cost.of({unit or matrix(number): sizes.many * count.flops(complex_numbers=number.is_complex)})


def elements_read(routine: str, sizes: Sizes) -> int:
    """The elements of a matrix that are read: all, one triangle with its diagonal, or the reflections, which are below the diagonal."""
    part = ROUTINES[routine].reads
    if part == "all":
        return sizes.m * sizes.n
    if part == "triangle":
        return sizes.n * (sizes.n + 1) // 2
    k = min(sizes.reflections, sizes.m)
    return sizes.m * k - k * (k + 1) // 2
