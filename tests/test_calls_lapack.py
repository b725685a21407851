"""Dense linear algebra: LAPACK Working Note 41's counts, for every matrix of a batch, whichever library runs it."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from call_sites import calls, price, site
from every import every
from roofline.hlo.price.calls import price_call
from roofline.ops import linear_algebra as counts


def test_captured_factorisations_count_as_the_working_note_says() -> None:
    found = calls("linear_algebra")
    # Four Cholesky factors of order 96: n³/3 + n²/2 + n/6 each.
    assert found["cholesky.0"].cost["matrix/fp64"] == 4 * (96**3 / 3 + 96**2 / 2 + 96 / 6)
    # Four LU factors: 2n³/3 − n²/2 + 5n/6 each.
    assert found["lu.41"].cost["matrix/fp32"] == 4 * round(Fraction(2 * 96**3, 3) - Fraction(96**2, 2) + Fraction(5 * 96, 6))
    m, n = 160, 96
    # Four QR factors of 160 x 96: 2mn² − 2n³/3 + mn + n² + 14n/3 each; then as many columns of Q.
    assert found["geqrf.0"].cost["matrix/fp32"] == 4 * (2 * m * n * n - 2 * n**3 // 3 + m * n + n * n + 14 * n // 3)
    assert found["householder_product.0"].cost["matrix/fp32"] == 4 * (2 * m * n * n - 2 * n**3 // 3 - m * n + 2 * n * n - 4 * n // 3)
    # Eigenvectors of a symmetric matrix and thin singular vectors: estimates, and the notes say so.
    assert found["eigh.0"].cost["matrix/fp64"] == 9 * 128**3
    assert found["svd.0"].cost["matrix/fp32"] == 4 * (6 * m * n * n + 20 * n**3)  # a QR factor first: 14mn² + 8n³ would be more
    assert "estimate" in found["svd.0"].notes[0]


def test_a_cholesky_factorisation_reads_one_triangle_and_writes_all_of_its_results() -> None:
    # Four triangles in, four matrices out, and four status words.
    assert calls("linear_algebra")["cholesky.0"].cost["hbm"] == 4 * (96 * 97 // 2 + 96 * 96) * 8 + 4 * 4


def test_the_matrix_that_a_singular_value_decomposition_overwrites_is_no_result() -> None:
    # In: 16 x 8. Out: 8 values, 16 x 8 and 8 x 8 vectors, a status word; the first part of the tuple is the spoilt input.
    results = "(f64[16,8], f64[8], f64[16,8], f64[8,8], s32[])"
    found = price(results, "f64[16,8]", "cusolver_gesvdj_ffi", "{compute_uv = true, full_matrices = false}")
    assert found.cost["hbm"] == 8 * (16 * 8 + 8 + 16 * 8 + 8 * 8) + 4


@every("target", ["lapack_spotrf_ffi", "lapack_spotrf", "cusolver_potrf_ffi", "hipsolver_potrf_ffi"])
def test_one_routine_has_many_names(target: str) -> None:
    found = price("(f32[3,8,8], s32[3])", "f32[3,8,8]", target, platform="cpu")
    assert found.cost["matrix/fp32"] == 3 * counts.cholesky(8).flops()


def test_older_targets_pass_sizes_before_the_matrix() -> None:
    found = price("(f64[8,8], s32[])", "s32[]; s32[]; f64[8,8]", "lapack_dpotrf", platform="cpu")
    assert found.cost["matrix/fp64"] == counts.cholesky(8).flops()


def test_complex_numbers_cost_six_and_two() -> None:
    found = price("(c64[8,8], s32[])", "c64[8,8]", "lapack_cpotrf_ffi", platform="cpu")
    count = counts.cholesky(8)
    assert found.cost["matrix/fp32"] == 6 * count.multiplications + 2 * count.additions


def test_options_are_letters_or_their_codes() -> None:
    # 86 is V, 78 is N; 65 is A, 83 is S.
    with_vectors, without = (price("(f64[8,8], f64[8])", "f64[8,8]", "lapack_dsyevd_ffi", f"{{mode = {code} : ui8}}") for code in (86, 78))
    assert (with_vectors.cost["matrix/fp64"], without.cost["matrix/fp64"]) == (9 * 512, Fraction(4 * 512, 3))
    kinds = (price("f64[8,8]", "f64[16,8]", "lapack_dgesdd_ffi", f"{{mode = {code} : ui8}}").cost["matrix/fp64"] for code in (65, 83, 78))
    assert list(kinds) == [
        4 * 16 * 16 * 8 + 22 * 512,  # again: without it 4 · 16² · 8 + 8 · 16 · 64 + 9 · 512
        6 * 16 * 64 + 20 * 512,  # with a QR factor first; without it 14 · 16 · 64 + 8 · 512
        2 * 16 * 64 + 2 * 512,
    ]
    flags = price("f64[8,8]", "f64[16,8]", "cusolver_gesvdj_ffi", "{compute_uv = false, full_matrices = false}")
    assert flags.cost["matrix/fp64"] == 2 * 16 * 64 + 2 * 512


@given(m=st.integers(1, 200), n=st.integers(1, 200))
def test_some_singular_vectors_never_cost_more_than_all(m: int, n: int) -> None:
    values, thin, full = (counts.singular(m, n, vectors).flops() for vectors in ("none", "thin", "full"))  # type: ignore[arg-type]
    assert values <= thin <= full
    if m == n:
        assert thin == full == 21 * n**3


def test_eigenvectors_of_a_general_matrix_are_dearer_than_its_eigenvalues() -> None:
    def flops(left: str, right: str) -> object:
        config = f"{{compute_left = {ord(left)} : ui8, compute_right = {ord(right)} : ui8}}"
        return price("(f64[8], f64[8])", "f64[8,8]", "lapack_dgeev_ffi", config).cost["matrix/fp64"]

    assert (flops("N", "N"), flops("N", "V")) == (10 * 512, 25 * 512)


def test_solves_and_reflections_count_the_other_operand() -> None:
    # side L is 76, R is 82: the triangle multiplies columns, or rows.
    left = price("f32[8,3]", "f32[8,8]; f32[8,3]", "lapack_strsm_ffi", "{side = 76 : ui8}")
    right = price("f32[3,8]", "f32[8,8]; f32[3,8]", "lapack_strsm_ffi", "{side = 82 : ui8}")
    assert left.cost["matrix/fp32"] == right.cost["matrix/fp32"] == 3 * 64
    applied = price("f32[16,5]", "f32[16,8]; f32[8]; f32[16,5]", "cusolver_ormqr_ffi")
    assert applied.cost["matrix/fp32"] == 4 * 16 * 5 * 8 - 2 * 5 * 64 + 3 * 5 * 8
    reduced = price("(f64[8,8], f64[8])", "f64[8,8]", "lapack_dsytrd_ffi")
    assert reduced.cost["matrix/fp64"] == counts.tridiagonalise(8).flops()


def test_tridiagonal_systems_are_eliminated_on_the_vector_unit() -> None:
    # 64 systems of 128 equations with two right-hand sides: 3(n − 1) + 2(5n − 4) each.
    assert calls("linear_solvers")["tridiagonal_solve.1"].cost["vector/fp32"] == 64 * (3 * 127 + 2 * (5 * 128 - 4))


def test_a_routine_nobody_knows_is_unknown_and_one_without_a_matrix_too() -> None:
    assert price_call(site("f32[8]", "f32[8,8]", "lapack_smystery_ffi")) is None
    assert price("f32[8]", "f32[8]", "lapack_spotrf_ffi").cost.flops is None


@given(n=st.integers(1, 200), m=st.integers(1, 200))
def test_counts_are_whole_positive_and_grow(n: int, m: int) -> None:
    for smaller, larger in [
        (counts.cholesky(n), counts.cholesky(n + 1)),
        (counts.lu(m, n), counts.lu(m, n + 1)),
        (counts.qr(m, n), counts.qr(m + 1, n)),
        (counts.solve_triangle(n, m), counts.solve_triangle(n + 1, m)),
        (counts.tridiagonalise(n), counts.tridiagonalise(n + 1)),
        (counts.hessenberg(n), counts.hessenberg(n + 1)),
    ]:
        assert 0 <= smaller.flops() <= larger.flops()
    assert all(isinstance(one.flops(), int) for one in (counts.cholesky(n), counts.lu(m, n), counts.qr(m, n)))


@given(n=st.integers(1, 30))
def test_cholesky_and_lu_count_what_the_loops_do(n: int) -> None:
    # Row by row: a root and n − 1 − j divisions in column j, and a multiply and an add for each entry right of and below the pivot.
    divisions = sum(1 + (n - 1 - j) for j in range(n))
    updates = sum((n - 1 - j) * (n - j) // 2 for j in range(n))
    assert counts.cholesky(n).flops() == divisions + 2 * updates
    eliminations = sum((n - 1 - j) + 2 * (n - 1 - j) ** 2 for j in range(n))
    # The note counts one reciprocal a column besides.
    assert counts.lu(n, n).flops() == eliminations + n


@every(
    ("target", "block", "flops"),
    [
        ("Cholesky", "f32[128,128]", counts.cholesky(128)),
        ("LuRealDecompositionBlock", "f32[512,128]", counts.lu(512, 128)),
        ("QrDecompositionBlock", "f32[512,128]", counts.qr(512, 128)),
        ("LuDecompositionBlock", "f32[384,128]", counts.lu(384, 128)),
        ("CompactWyHelper", "f32[128,128]", counts.invert_triangle(128)),
        ("InvertDiagBlocksLowerTriangular", "f32[1,128,128]", counts.invert_triangle(128)),
    ],
)
def test_the_tpu_compiler_factors_blocks_of_a_matrix_on_the_vector_unit(target: str, block: str, flops: counts.Count) -> None:
    assert price(block, block, target, platform="tpu").cost["vector/fp32"] == flops.flops()


def test_the_inverse_of_a_triangle_is_a_third_of_a_product() -> None:
    # Column j of n needs a triangular solve of order n - j, (n - j)², which sum up to n(n + 1)(2n + 1)/6; the diagonal is inverted once.
    assert counts.invert_triangle(1).flops() == 1
    assert counts.invert_triangle(1000).flops() == pytest.approx(1000**3 / 3, rel=0.01)
