"""Dense products: the guides' figures, and the identities between the formulas."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from every import every
from roofline.errors import FormulaError
from roofline.formulas import batched_matmul, conv1d, dot, matmul, per_example_weights, sharded_matmul, tiled_matmul
from roofline.machine import Machine
from roofline.solving import cross

# The machines as the guides have them, per chip.
V7X_FP8 = Machine.of("v7x fp8", {"matrix/bf16": "4614 TFLOP/s", "hbm": "7.2 TB/s"})
V7X = Machine.of("v7x", {"matrix/bf16": "2307 TFLOP/s", "matrix/fp8": "4614 TFLOP/s", "hbm": "7.2 TB/s"})
V6E = Machine.of("v6e", {"matrix/bf16": "918 TFLOP/s", "hbm": "1.6 TB/s"})
V5P = Machine.of("v5p", {"matrix/bf16": "459 TFLOP/s", "hbm": "2.76 TB/s"})
V5E = Machine.of("v5e", {"matrix/bf16": 1.97e14, "matrix/int8": 3.94e14, "vector/fp32": 1e13, "hbm": 8.2e11, "ici": 4.5e10})
H100 = Machine.of("h100", {"matrix/bf16": 9.89e14, "hbm": 3.35e12})

sizes = st.integers(1, 10**5)


def rounded(machine: Machine, intensity: float | None) -> int:
    """Attainable TFLOP/s, as the guides print it."""
    assert intensity is not None
    return round(machine.attainable(intensity, "matrix/bf16") / 10**12)


def test_a_dot_product_has_half_a_flop_a_byte() -> None:
    # N multiplies and N − 1 adds; two vectors of 2N bytes read and one number of 2 written.
    ledger = dot(1000)
    assert (ledger.cost.flops, ledger.cost.bytes()) == (1999, 4002)
    assert dot(10**9).cost.intensity() == pytest.approx(0.5)
    machine = Machine.of("guide", {"matrix/bf16": "100 TFLOP/s", "hbm": "2 TB/s"})
    assert machine.ridge("matrix/bf16") == 50
    assert machine.attainable(0.5, "matrix/bf16") == 10**12


def test_a_dot_product_runs_on_the_vector_unit_unless_told_otherwise() -> None:
    assert dot(10).work["vector/fp32"] == 19
    assert dot(10, unit="matrix").work["matrix/bf16"] == 19
    assert dot(10, dtype="fp64").work["vector/fp64"] == 19
    assert dot(10, compute="bf16").work["vector/bf16"] == 19


def test_a_complex_multiply_and_add_is_eight_flop() -> None:
    # (a + bi)(c + di) is 4 multiplies and 2 adds, and a complex add 2 more.
    assert dot(10, dtype="complex64").work["vector/fp32"] == 10 * 6 + 9 * 2
    complex_product = matmul(8, 16, 32, dtype="complex128")
    assert complex_product.work["matrix/fp64"] == 8 * 8 * 16 * 32
    assert complex_product.operation is None
    assert matmul(8, 16, 32, dtype="fp32", weights="complex64").work["matrix/fp32"] == 8 * 8 * 16 * 32
    assert batched_matmul(3, 8, 16, 32, dtype="complex64").cost.flops == 3 * 8 * 8 * 16 * 32
    assert conv1d(1, 2, 4, 8, kernel=1, dtype="complex64").cost.flops == 8 * 2 * 4 * 8


@every("size", [64, 256, 1000, 100, 4096, 16384])
def test_a_square_product_of_bf16_has_a_third_of_its_size_in_intensity(size: int) -> None:
    # 2N³ FLOP over 3·2·N² bytes.
    ledger = matmul(size, size, size)
    assert (ledger.cost.flops, ledger.cost.bytes()) == (2 * size**3, 6 * size**2)
    assert ledger.cost.intensity() == pytest.approx(size / 3)


def test_the_guides_operations_land_where_they_say() -> None:
    chips = (V7X_FP8, V7X, V6E, V5P)
    attention = matmul(1024, 128, 2048).cost.intensity()
    assert attention == pytest.approx(107.8, abs=0.05)
    assert [rounded(chip, attention) for chip in chips] == [776, 776, 172, 297]
    small = matmul(600, 600, 600).cost.intensity()
    assert small == pytest.approx(200.0)
    assert [rounded(chip, small) for chip in chips] == [1440, 1440, 320, 459]
    up = matmul(65536, 4096, 16384).cost.intensity()
    assert up == pytest.approx(3120.8, abs=0.05)
    assert [rounded(chip, up) for chip in chips] == [4614, 2307, 918, 459]


def test_the_real_product_of_queries_and_keys_is_batched() -> None:
    # One head of 2048 x 128 x 2048: 2·2048²·128 / 2(2·2048·128 + 2048²) = 113.8, whatever the number of heads.
    assert batched_matmul(1024, 2048, 128, 2048).cost.intensity() == pytest.approx(113.8, abs=0.05)


@every(("chip", "real", "dtype"), [(V7X_FP8, 1922.5, "bf16"), (V7X, 961.25, "bf16"), (V6E, 1721.25, "bf16"), (V7X, 961.25, "fp8")])
def test_square_products_cross_at_three_ridges(chip: Machine, real: float, dtype: str) -> None:
    # bf16 bytes under the fp8 peak cross at 1922; fp8 bytes too halve that to the bf16 crossing.
    found = cross(lambda n: matmul(n, n, n, dtype=dtype), "n", chip)
    assert found.real == pytest.approx(real)


def test_square_products_cross_early_on_v5p() -> None:
    found = cross(lambda n: matmul(n, n, n), "n", V5P)
    assert found.real is not None
    assert int(found.real) == 498


@every(("dtype", "accumulator", "bytes_", "intensity"), [("bf16", "fp32", 41_943_040, 409.6), ("fp8", "bf16", 20_971_520, 819.2)])
def test_an_accumulator_is_one_more_tensor(dtype: str, accumulator: str, bytes_: int, intensity: float) -> None:
    ledger = matmul(2048, 2048, 2048, dtype=dtype, accumulator=accumulator)
    assert ledger.cost.flops == 17_179_869_184
    assert ledger.cost.bytes() == bytes_
    assert ledger.cost.intensity() == pytest.approx(intensity)


def test_without_an_accumulator_three_tensors_are_counted() -> None:
    assert matmul(2048, 2048, 2048).cost.bytes() == 25_165_824


def test_the_critical_batch_is_the_ridge() -> None:
    for chip, batch in ((V5E, 240), (H100, 295)):
        found = cross(matmul, "m", chip, k="inf", n="inf")
        assert found.real is not None
        assert int(found.real) == batch


@every(("width", "batch"), [(8192, 255), (4096, 272)])
def test_narrow_layers_need_more_batch(width: int, batch: int) -> None:
    # 1/B = 1/ridge − 2/D: 240.2 becomes 255.2 at 8192 and 272.2 at 4096.
    found = cross(matmul, "m", V5E, k=width, n=width)
    assert found.real is not None
    assert int(found.real) == batch


def test_quantizing_both_operands_leaves_the_critical_batch_and_weights_alone_halves_it() -> None:
    older = V5E.override({"hbm": 8.1e11})
    assert older.ridge("matrix/int8") == pytest.approx(486, abs=0.5)
    int8 = cross(lambda m: matmul(m, 2**200, 2**200, dtype="int8"), "m", older)
    assert int8.real == pytest.approx(243, abs=0.5)
    newer = cross(lambda m: matmul(m, 2**200, 2**200, dtype="int8"), "m", V5E)
    assert newer.real == pytest.approx(240.2, abs=0.05)
    weights = cross(lambda m: matmul(m, 2**200, 2**200, weights="int8"), "m", V5E)
    assert weights.real == pytest.approx(120, abs=0.5)
    activations = cross(lambda m: matmul(m, 2**200, 2**200, activations="int8"), "m", V5E)
    assert activations.real == pytest.approx(240.2, abs=0.05)


@every(
    ("left", "right", "unit"),
    [("bf16", "int8", "bf16"), ("int8", "int8", "int8"), ("fp8", "int4", "fp8"), ("bf16", "fp32", "fp32"), ("int8", "fp8", "fp8")],
)
def test_arithmetic_runs_in_the_wider_format(left: str, right: str, unit: str) -> None:
    assert matmul(4, 4, 4, activations=left, weights=right).work[f"matrix/{unit}"] == 128


def test_each_tensor_has_its_own_format() -> None:
    ledger = matmul(10, 20, 30, dtype="bf16", activations="fp8", weights="int4", out="fp32", compute="fp16")
    assert [row.bytes for row in ledger.rows] == [200, 300, 1200]  # 200 x 1 B, 600 x 1/2 B, 300 x 4 B
    assert ledger.work["matrix/fp16"] == 12000
    assert any("computed in fp16" in note for note in ledger.notes)


@given(sizes, sizes, sizes)
def test_a_batch_of_one_is_a_matmul(m: int, k: int, n: int) -> None:
    assert batched_matmul(1, m, k, n).cost == matmul(m, k, n).cost


@given(sizes, sizes, sizes)
def test_per_example_weights_are_a_batch_of_single_rows(b: int, d: int, f: int) -> None:
    assert per_example_weights(b, d, f).cost == batched_matmul(b, 1, d, f).cost


def test_per_example_weights_never_reach_one_flop_a_byte() -> None:
    # DF / (D + DF + F), whatever the batch.
    for batch in (1, 4096):
        assert per_example_weights(batch, 64, 32).cost.intensity() == pytest.approx(64 * 32 / (64 + 64 * 32 + 32))
    assert per_example_weights(8, 2**40, 2**40).cost.intensity() == pytest.approx(1)


@given(sizes, sizes, sizes)
def test_one_tile_is_a_matmul(m: int, k: int, n: int) -> None:
    assert tiled_matmul(m, k, n, tile_m=m, tile_k=k, tile_n=n).cost == matmul(m, k, n).cost


def test_tiles_set_the_intensity() -> None:
    # b_m·b_n/(b_m + b_n), writes aside: 256·512/768 = 170.7, whatever the size of the product.
    ledger = tiled_matmul(8192, 8192, 8192, tile_m=256, tile_k=64, tile_n=512)
    t_m, t_k, t_n = 32, 128, 16
    assert ledger.cost.flops == 2 * t_m * t_n * t_k * 256 * 64 * 512
    reads = 2 * t_m * t_n * t_k * (256 * 64 + 64 * 512)
    assert ledger.cost.bytes() == reads + 2 * 8192**2
    assert 2 * 8192**3 / reads == pytest.approx(256 * 512 / (256 + 512))


def test_edge_tiles_are_done_in_full() -> None:
    # 1000 takes 8 tiles of 128, as 1024 does; the result that is written stays 1000 x 1000.
    odd, even = tiled_matmul(1000, 1000, 1000), tiled_matmul(1024, 1024, 1024)
    assert odd.work == even.work
    assert odd.cost.bytes() == even.cost.bytes() - 2 * (1024**2 - 1000**2)


def test_tiles_of_an_inner_level_leave_the_compulsory_traffic_to_hbm() -> None:
    ledger = tiled_matmul(4096, 4096, 4096, level="l2")
    assert ledger.cost.bytes("l2") == tiled_matmul(4096, 4096, 4096).cost.bytes("hbm")
    assert ledger.cost.bytes("hbm") == matmul(4096, 4096, 4096).cost.bytes()
    vmem = tiled_matmul(4096, 4096, 4096, level="vmem").cost
    assert vmem["vmem.write"] == 2 * 4096**2
    assert vmem.bytes("vmem") == ledger.cost.bytes("l2")


@given(sizes, sizes, sizes, st.sampled_from(["m", "k", "n"]))
def test_sharded_over_one_chip_is_a_matmul(m: int, k: int, n: int, shard: str) -> None:
    assert sharded_matmul(m, k, n, over=1, shard=shard).cost == matmul(m, k, n).cost  # type: ignore[arg-type]


def test_two_chips_with_k_split_exchange_their_partial_sums_whole() -> None:
    # BDF FLOP and 2BF bytes a chip.
    b, d, f = 512, 4096, 1024
    cost = sharded_matmul(b, d, f).cost
    assert cost.flops == b * d * f
    assert cost["ici"] == 2 * b * f
    assert cost["ici/hop"] == 0
    assert sharded_matmul(b, d, f, latency=True).cost["ici/hop"] == 2


@every(("rate", "width"), [(4.5e10, 8755), (5e10, 7880), (2e11, 1970)])
def test_the_split_dimension_alone_decides_whether_the_link_binds(rate: float, width: int) -> None:
    # BDF / 1.97e14 > 2BF / rate: D > 2·1.97e14 / rate, for any B and F.
    chip = V5E.override({"ici": rate})
    for b, f in ((64, 64), (4096, 16384)):
        found = cross(sharded_matmul, "k", chip, level="ici", m=b, n=f)
        assert found.real == pytest.approx(2 * 1.97e14 / rate)
        assert int(found.real) == width


def test_a_reduce_scatter_halves_the_exchange() -> None:
    whole, scattered = sharded_matmul(512, 4096, 512, over=8), sharded_matmul(512, 4096, 512, over=8, reduce="reduce-scatter")
    assert whole.cost["ici"] == 2 * Fraction(7, 8) * 2 * 512 * 512
    assert scattered.cost["ici"] == Fraction(7, 8) * 2 * 512 * 512


def test_splitting_rows_or_columns_exchanges_only_what_is_gathered() -> None:
    for shard in ("m", "n"):
        assert sharded_matmul(512, 1024, 256, over=4, shard=shard).cost["ici"] == 0  # type: ignore[arg-type]
    gathered = sharded_matmul(512, 1024, 256, over=4, shard="m", gather="weights")
    assert gathered.cost["ici"] == Fraction(3, 4) * 2 * 1024 * 256
    assert gathered.cost.flops == 2 * 512 * 1024 * 256 // 4
    assert gathered.cost.bytes() == 2 * (128 * 1024 + 1024 * 256 + 128 * 256)
    columns = sharded_matmul(512, 1024, 256, over=4, shard="n", gather="activations", links=2, link="nvlink")
    assert columns.cost["nvlink"] == Fraction(3, 4) * 2 * 512 * 1024 / 2
    out = sharded_matmul(512, 1024, 256, over=4, shard="n", gather="out", out="fp32")
    assert out.cost["ici"] == Fraction(3, 4) * 4 * 512 * 256


def test_the_split_operand_is_not_gathered() -> None:
    with pytest.raises(FormulaError, match="gather is 'activations' with m split; choose one of none, weights, out"):
        sharded_matmul(8, 8, 8, shard="m", gather="activations")
    with pytest.raises(FormulaError, match=r"over is 0\.5; a group needs one chip or more"):
        sharded_matmul(8, 8, 8, over=0.5)
