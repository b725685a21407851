"""Multiplications and additions of dense linear algebra, from LAPACK Working Note 41 (Blackford and Dongarra, Appendix C).

Between complex numbers a multiplication is 6 FLOP and an addition 2. Iterative algorithms have no exact count: theirs are the usual
estimates (Golub and Van Loan, Matrix Computations, sections 7.5, 8.3 and 8.6).
"""

from fractions import Fraction

from msgspec import Struct

from ....cost import Amount, tidy

_THIRD, _SIXTH = Fraction(1, 3), Fraction(1, 6)


class Count(Struct, frozen=True):
    """Numbers of multiplications (with divisions and roots) and of additions."""

    multiplications: int | Fraction
    additions: int | Fraction

    def flops(self, *, complex_numbers: bool = False) -> Amount:
        """All of them in real FLOP.

        >>> cholesky(2).flops(), Count(1, 1).flops(complex_numbers=True)
        (5, 8)
        """
        if complex_numbers:
            return tidy(6 * Fraction(self.multiplications) + 2 * self.additions)
        return tidy(Fraction(self.multiplications) + self.additions)


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


def solve_triangle(n: int, columns: int) -> Count:
    """A·X = B with A triangular of order n (trsm): n² for each column of B."""
    return Count(Fraction(columns * n * (n + 1), 2), Fraction(columns * n * (n - 1), 2))


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


def singular(m: int, n: int, vectors: str) -> Count:
    """Singular values of m x n, m ≥ n: 4mn² − 4n³/3 alone; 14mn² + 8n³ thin, 4m²n + 8mn² + 9n³ full (estimates).

    ``vectors`` is ``none``, ``thin`` or ``full``.
    """
    if m < n:
        m, n = n, m
    totals = {
        "none": 4 * m * n * n - 4 * _THIRD * n**3,
        "thin": Fraction(14 * m * n * n + 8 * n**3),
        "full": Fraction(4 * m * m * n + 8 * m * n * n + 9 * n**3),
    }
    return Count(totals[vectors] / 2, totals[vectors] / 2)
