"""Crossings: exact, in whole numbers and real ones, for any chip, number format, level and infinite dimension."""

from fractions import Fraction
from functools import partial
from math import floor, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline.cost import Cost
from roofline.errors import FormulaError, MachineError, UsageError
from roofline.ledger import Ledger, read, send, write
from roofline.machine import Machine
from roofline.placement import place
from roofline.resource import Resource, matrix
from roofline.solving import cross
from toys import toy

V5E = Machine.of("v5e", {"matrix/bf16": "197 TFLOP/s", "matrix/int8": "394 TFLOP/s", "hbm": "820 GB/s", "ici": "45 GB/s"})
H100 = Machine.of("h100", {"matrix/bf16": "989 TFLOP/s", "hbm": "3.35 TB/s"})


def product(m, k, n, *, dtype="bf16", activations=None, weights=None, out=None, runs=None):
    """C[m,n] = A[m,k] @ B[k,n], each tensor once."""
    rows = (
        read("A", (m, k), activations or dtype),
        read("B", (k, n), weights or dtype),
        write("C", (m, n), out or activations or dtype),
    )
    return Ledger("product", Cost.of({matrix(runs or dtype): 2 * m * k * n}), rows)


def two_chips(b, d, f):
    """The contracted dimension over two chips: b·d·f FLOP each, and the partial sums cross the link."""
    return Ledger("two chips", Cost.of({matrix("bf16"): b * d * f}), (send("Z", (b, f), "bf16", level=Resource("ici")),))


def square(machine: Machine):
    return cross(product, ("m", "k", "n"), machine)


@every(("machine", "real", "first"), [(V5E, 197e12 / 820e9, 241), (H100, 989e12 / 3.35e12, 296)])
def test_with_infinite_weights_the_crossing_is_the_ridge(machine: Machine, real: float, first: int) -> None:
    # m·k·n / (m·k + k·n + m·n) tends to m: the critical batch is the ridge itself, 240.24 and 295.22.
    found = cross(product, "m", machine, k="inf", n=inf)
    assert found.real == pytest.approx(real, rel=2**-52)
    assert (found.integer, found.regime) == (first, "compute above")
    assert found.ridge == pytest.approx(real, rel=1e-15)
    assert found.intensity == pytest.approx(found.ridge, rel=1e-15)


@every(("size", "rounded_down", "first"), [(8192, 255, 256), (4096, 272, 273)])
def test_finite_weights_need_a_larger_batch(size: int, rounded_down: int, first: int) -> None:
    # m = R·D / (D − 2R) for k = n = D: 255.21 and 272.17. The guides print the crossing rounded down; the first whole batch on
    # the compute side is one more.
    found = cross(product, "m", V5E, k=size, n=size)
    ridge = Fraction(197, 1) * 10**12 / (820 * 10**9)
    assert found.real == float(ridge * size / (size - 2 * ridge))
    assert (floor(found.real), found.integer) == (rounded_down, first)


@every(
    ("peak", "bandwidth", "real", "rounded_down", "first"),
    [
        ("4614 TFLOP/s", "7.2 TB/s", 1922.5, 1922, 1923),
        ("2307 TFLOP/s", "7.2 TB/s", 961.25, 961, 962),
        ("918 TFLOP/s", "1.6 TB/s", 1721.25, 1721, 1722),
        ("459 TFLOP/s", "2.76 TB/s", 3 * 459 / 2.76, 498, 499),
    ],
)
def test_a_square_product_crosses_at_three_times_the_ridge(peak: str, bandwidth: str, real: float, rounded_down: int, first: int) -> None:
    # N³ / 3N² = N/3, so N = 3 x ridge: bf16 bytes under each peak.
    found = square(Machine.of("chip", {"matrix/bf16": peak, "hbm": bandwidth}))
    assert found.real == pytest.approx(real, rel=2**-52)
    assert (floor(found.real), found.integer) == (rounded_down, first)


def test_fp8_bytes_halve_the_square_crossing_under_the_fp8_peak() -> None:
    # The same 4614 TFLOP/s with one byte an element: 2N³ / 3N² = 2N/3, so N = 1.5 x 640.8 = 961.25.
    chip = Machine.of("chip", {"matrix/fp8": "4614 TFLOP/s", "hbm": "7.2 TB/s"})
    assert cross(partial(product, dtype="fp8"), ("m", "k", "n"), chip).real == 961.25


def test_the_two_chip_product_depends_on_the_sharded_dimension_alone() -> None:
    # b·d·f / 1.97e14 = 2·b·f / 4.5e10 gives d = 2 x 1.97e14 / 4.5e10 = 8755.55, whatever b and f.
    found = cross(two_chips, "d", V5E, level="ici", b=128, f=1024)
    assert found.real == pytest.approx(2 * 1.97e14 / 4.5e10, rel=2**-52)
    assert (floor(found.real), found.integer) == (8755, 8756)
    assert (found.compute_unit, found.level_unit) == ("matrix", "ici")
    assert cross(two_chips, "d", V5E, level="ici", b="inf", f=7).real == found.real


def test_the_link_rate_moves_the_two_chip_crossing() -> None:
    # 50 GB/s a link gives 7880, the 200 GB/s of a chip's four links 1970: both exactly, so the tie is on the compute side.
    for rate, size in (("50 GB/s", 7880), ("200 GB/s", 1970)):
        found = cross(two_chips, "d", V5E.override({"ici": rate}), level="ici", b=8, f=8)
        assert (found.real, found.integer) == (size, size)


def test_all_int8_keeps_the_critical_batch_and_int8_weights_halve_it() -> None:
    # int8 everywhere: 2m FLOP/B against 394e12 / 8.1e11 = 486.4, so m = 243.2 (240.2 with 8.2e11); int8 weights under the bf16
    # peak: 2m against 240.2, so 120.1; int8 activations leave the weights' bytes, so nothing moves.
    def batch(machine: Machine, **formats: str):
        return cross(product, "m", machine, k="inf", n="inf", **formats)

    slower = V5E.override({"hbm": "810 GB/s"})
    assert batch(slower, dtype="int8").ridge == pytest.approx(486.4, abs=0.05)
    assert floor(batch(slower, dtype="int8").real) == 243
    assert batch(V5E, dtype="int8").real == pytest.approx(240.24, abs=0.01)
    assert floor(batch(V5E, weights="int8").real) == 120
    assert batch(V5E, activations="int8").real == batch(V5E).real


def test_an_exact_tie_is_on_the_compute_side() -> None:
    # The toy's ridge is 10: with infinite weights, m = 10 takes the same time on both units, and placement names the matrix unit.
    found = cross(product, "m", toy(), k="inf", n="inf")
    assert (found.real, found.integer) == (10.0, 10)
    assert place(Cost.of({"matrix/bf16": 100, "hbm": 10}), toy()).bound == "matrix"


def test_a_product_with_small_weights_never_crosses() -> None:
    # m·64·64 / (64m + 64² + 64m) tends to 32, below the ridge of 240.
    found = cross(product, "m", V5E, k=64, n=64)
    assert (found.crosses, found.real, found.integer, found.regime) == (False, None, None, "always memory")
    assert (found.intensity, round(found.ridge, 2)) == (32.0, 240.24)
    assert found.words == "memory-bound (hbm) for every m: intensity tends to 32 FLOP/B, ridge 240.2 FLOP/B"


def test_work_that_is_compute_bound_from_the_start_says_so() -> None:
    # One row of 2·k·n FLOP over 2·k·n bytes is 1 FLOP/B, above a ridge of 0.1; the intensity grows without bound with m.
    fast_memory = Machine.of("chip", {"matrix/bf16": 1, "hbm": 10})
    found = cross(product, "m", fast_memory, k="inf", n="inf")
    assert (found.regime, found.intensity, found.integer) == ("always compute", inf, None)


def test_per_example_weights_stay_at_one_flop_per_byte() -> None:
    # X[b,d] · Y[b,d,f]: d·f / (d + d·f + f) tends to 1.
    def per_example(b, d, f):
        rows = (read("X", (b, d), "bf16"), read("Y", (b, d, f), "bf16"), write("Z", (b, f), "bf16"))
        return Ledger("per example", Cost.of({"matrix/bf16": 2 * b * d * f}), rows)

    found = cross(per_example, ("d", "f"), V5E, b=8)
    assert (found.regime, found.intensity) == ("always memory", 1.0)


def test_more_chips_end_compute_boundness() -> None:
    # 1000/n FLOP at 100 FLOP/s against 2 bytes at 1 B/s: equal at n = 5, and beyond it the link binds.
    def shared_out(n):
        return Cost.of({"matrix/bf16": Fraction(1000) / n, "ici": 2})

    found = cross(shared_out, "n", toy(), level="ici")
    assert (found.regime, found.real, found.integer) == ("compute below", 5.0, 5)
    assert found.words == "compute-bound (matrix) for n ≤ 5 (crossover 5), else communication-bound (ici)"


def test_a_formula_that_turns_back_lists_its_other_crossings() -> None:
    # (400 + (n − 20)²) / 200 = n / 10 is n² − 60 n + 800 = 0: compute bound up to 20, and again from 40.
    def valley(n):
        return Cost.of({"matrix/bf16": 400 + (n - 20) ** 2, "hbm": n})

    found = cross(valley, "n", toy().override({"matrix/bf16": 200}))
    assert (found.regime, found.real, found.integer, found.others) == ("compute below", 20.0, 20, (40.0,))


def test_a_formula_of_tiles_is_solved_in_whole_numbers() -> None:
    # Rows come in tiles of 8: 8·ceil(m/8)·100 FLOP over 100 + m bytes. Fractions of a row are refused.
    def tiled(m):
        if not isinstance(m, int):
            raise FormulaError(f"{m} rows make no tile; give a whole number")
        tiles = -(-m // 8)
        return Cost.of({"matrix/bf16": 8 * tiles * 100, "hbm": 1000 + m})

    found = cross(tiled, "m", toy())
    # 8·tiles seconds against (1000 + m)/10: 13 tiles give 104 < 109.7, 14 give 112 >= 110.5 from m = 105 on.
    assert (found.real, found.integer, found.regime) == (None, 105, "compute above")


def test_sizes_that_a_formula_refuses_are_stepped_over() -> None:
    # Over 3 chips the dimension must divide by 3: n FLOP-seconds against 100 is equal at 100, and 102 is the next size allowed.
    def thirds(n):
        if n % 3:
            raise FormulaError(f"{n} does not divide by 3")
        return Cost.of({"matrix/bf16": 100 * n, "hbm": 1000})

    found = cross(thirds, "n", toy())
    assert (found.real, found.integer) == (None, 102)


def test_a_formula_that_accepts_nothing_passes_its_own_error_on() -> None:
    def never(n):
        raise FormulaError(f"{n} is never right")

    with pytest.raises(FormulaError, match="is never right"):
        cross(never, "n", toy())


def test_work_on_one_unit_adds_up_and_the_ridge_is_that_of_the_mix() -> None:
    # n bf16 at 100 and n fp8 at 200 take 3n/200 s for 2n FLOP: 133.3 FLOP/s, a ridge of 13.33 against 10 B/s.
    def mixed(n):
        return Cost.of({"matrix/bf16": n, "matrix/fp8": n, "hbm": 15})

    found = cross(mixed, "n", toy())
    assert found.real == 100.0
    assert found.ridge == pytest.approx(40 / 3)
    assert [str(resource) for resource in found.compute] == ["matrix/bf16", "matrix/fp8"]


def test_a_named_unit_is_compared_and_the_busiest_one_otherwise() -> None:
    # Per n: 10 FLOP of matrix at 100 (0.1 s) and 10 of vector at 20 (0.5 s), against 1 s of memory.
    def both(n):
        return Cost.of({"matrix/bf16": 10 * n, "vector/fp32": 10 * n, "hbm": 10})

    assert cross(both, "n", toy()).real == 2.0
    assert cross(both, "n", toy(), compute="matrix").real == 10.0
    assert cross(both, "n", toy(), compute="matrix/bf16").real == 10.0
    assert cross(both, "n", toy(), compute="vector").compute_unit == "vector"


def test_a_product_without_a_matrix_unit_names_the_vector_unit() -> None:
    found = cross(product, "m", Machine.of("cpu", {"vector/fp32": 20, "hbm": 10}, kind="cpu"), k="inf", n="inf")
    assert (found.compute_unit, found.integer, str(found.compute[0])) == ("vector", 2, "matrix/bf16")


def test_unrated_compute_is_left_out_and_named() -> None:
    def both(n):
        return Cost.of({"matrix/bf16": 10 * n, "vector/int4": n, "hbm": 10})

    found = cross(both, "n", Machine.of("chip", {"matrix/bf16": 100, "hbm": 10}))
    assert (found.real, [str(resource) for resource in found.unrated]) == (10.0, ["vector/int4"])


def test_hops_without_a_rate_are_left_out_of_the_links_time() -> None:
    chip = Machine.of("chip", {"matrix/bf16": 100, "ici": 1})
    found = cross(lambda n: Cost.of({"matrix/bf16": n, "ici": 1, "ici/hop": 4}), "n", chip, level="ici")
    assert (found.real, [str(resource) for resource in found.unrated]) == (100.0, ["ici/hop"])


def test_hops_take_their_time_on_the_link() -> None:
    # n FLOP at 100 against 1 B at 1 B/s plus 4 hops at 4 hop/s: 2 s, so n = 200.
    assert cross(lambda n: Cost.of({"matrix/bf16": n, "ici": 1, "ici/hop": 4}), "n", toy(), level="ici").real == 200.0


@every(
    ("arguments", "words"),
    [
        ({"free": "q", "k": 1, "n": 1}, "product has no argument 'q'"),
        ({"free": "m", "k": 1, "nn": 1}, "did you mean 'n'"),
        ({"free": "m", "k": 1}, "product: missing n; give each a size, or inf"),
        ({"free": ("m", "k"), "k": 1, "n": 1}, "k is both free and fixed"),
        ({"free": (), "m": 1, "k": 1, "n": 1}, "no free dimension"),
        ({"free": "m", "k": 1, "n": 1, "level": "ici"}, "has no ici traffic; it uses hbm, matrix/bf16"),
        ({"free": "m", "k": 1, "n": 1, "compute": "vector"}, "has no work on vector; it uses hbm, matrix/bf16"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_in_one_line(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError) as error:
        cross(product, arguments.pop("free"), V5E, **arguments)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_level_without_a_rate_is_the_machines_error() -> None:
    with pytest.raises(MachineError, match="h100 has no known rate for ici"):
        cross(two_chips, "d", H100, level="ici", b=1, f=1)


def test_an_unknown_amount_cannot_be_solved_for() -> None:
    with pytest.raises(UsageError, match="the amount of hbm is unknown"):
        cross(lambda n: Cost.of({"matrix/bf16": n, "hbm": None}), "n", toy())


def test_any_number_of_dimensions_may_be_infinite() -> None:
    def many(n, **sizes):
        return Ledger("many", Cost.of({"matrix/bf16": n}), (read("x", (n, *sizes.values()), "bf16"),))

    for names in ("ab", "abcdefg"):
        assert cross(many, "n", toy(), **dict.fromkeys(names, "inf")).regime == "always memory"


def test_work_of_transcendentals_alone_is_measured_in_them() -> None:
    # n of them at the vector rate of 20 against 5 s of memory: 100, and 2 per byte.
    found = cross(lambda n: Cost.of({"vector/transcendental": n, "hbm": 50}), "n", toy())
    assert (found.real, found.intensity, found.ridge) == (100.0, 2.0, 2.0)


def test_what_is_no_formula_is_refused() -> None:
    def flops(n):
        return 2 * n

    with pytest.raises(UsageError, match="flops returns int; a formula returns a Ledger or a Cost"):
        cross(flops, "n", toy())


RATES = st.floats(min_value=1.0, max_value=1e15, allow_nan=False)
SIZES = st.integers(min_value=1, max_value=2**20)


@given(RATES, RATES, SIZES, SIZES)
def test_the_first_integer_is_compute_bound_and_the_one_before_is_not(peak: float, bandwidth: float, k: int, n: int) -> None:
    chip = Machine.of("chip", {"matrix/bf16": peak, "hbm": bandwidth})
    found = cross(product, "m", chip, k=k, n=n)

    def compute_bound(m: int) -> bool:
        cost = product(m, k, n).cost
        return Fraction(cost.known("matrix/bf16")) / Fraction(peak) >= Fraction(cost.known("hbm")) / Fraction(bandwidth)

    if found.integer is None or found.real is None:
        assert compute_bound(1) == compute_bound(2**60) == (found.regime == "always compute")
        return
    assert compute_bound(found.integer)
    assert not compute_bound(found.integer - 1)
    assert found.integer - 1 <= found.real <= found.integer


@given(RATES, RATES, SIZES, st.integers(min_value=-30, max_value=30))
def test_scaling_every_rate_alike_leaves_the_crossing(peak: float, bandwidth: float, n: int, power: int) -> None:
    # Powers of two scale floats exactly, so the very same crossing comes out.
    chips = [Machine.of("chip", {"matrix/bf16": peak * scale, "hbm": bandwidth * scale}) for scale in (1.0, 2.0**power)]
    first, second = (cross(product, "m", chip, k=n, n=n) for chip in chips)
    assert (first.real, first.integer, first.regime) == (second.real, second.integer, second.regime)


@given(RATES, RATES, SIZES)
def test_a_faster_memory_never_raises_the_crossing(peak: float, bandwidth: float, n: int) -> None:
    slow, fast = (cross(product, "m", Machine.of("chip", {"matrix/bf16": peak, "hbm": bandwidth * k}), k=n, n=n) for k in (1, 3))
    if slow.regime == "always compute":
        assert fast.regime == "always compute"
    elif slow.integer is not None:
        assert fast.regime == "always compute" or (fast.integer or 0) <= slow.integer
