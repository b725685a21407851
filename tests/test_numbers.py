"""Every figure that the guides to rooflines print, to the digits printed, through the public functions.

The machines are the catalogue's with the rates the guides use. Where a guide counts by another convention than ours, the formula
takes that convention as an argument, and the test says so.
"""

import math
from fractions import Fraction
from functools import partial

import pytest

import roofline as rl
from roofline.formulas import attention, batched_matmul, dot, layernorm, matmul, per_example_weights, sharded_matmul, tiled_matmul
from roofline.fusing import best, fuse
from roofline.fusing.op_chain import StageSpec, chain
from roofline.ops.elementwise import POINTWISE

V7X = rl.chip("v7x").override({"matrix/fp8": "4614 TFLOP/s", "matrix/bf16": "2307 TFLOP/s", "hbm": "7.2 TB/s"})
V6E = rl.chip("v6e").override({"matrix/bf16": "918 TFLOP/s", "hbm": "1.6 TB/s"})
V5P = rl.chip("v5p").override({"matrix/bf16": "459 TFLOP/s", "hbm": "2.76 TB/s"})
V5E = rl.chip("v5e").override({"matrix/bf16": 1.97e14, "matrix/int8": 3.94e14, "hbm": 8.2e11, "ici": 4.5e10})
V5E_OLD = V5E.override({"hbm": 8.1e11})
H100 = rl.chip("h100").override({"matrix/bf16": 9.89e14, "hbm": 3.35e12})

# The four columns of the first guide: the chip, and the roof its work is held under.
COLUMNS = ((V7X, "matrix/fp8"), (V7X, "matrix/bf16"), (V6E, "matrix/bf16"), (V5P, "matrix/bf16"))


def tera(rate: float) -> int:
    return round(rate / 1e12)


class TestChipsAndOps:
    """The first guide's set-up and its table of operations on four roofs."""

    def test_ridges(self) -> None:
        assert [round(chip.ridge(roof), 1) for chip, roof in COLUMNS] == [640.8, 320.4, 573.8, 166.3]

    OPS = (
        # Two reads and one write of 65,536 x 4096; one read gives 2.5 FLOP/B.
        ("LayerNorm", layernorm(65536, 4096, reads=2), 1.7, [12, 12, 3, 5], [False] * 4),
        # Batch times heads taken as rows of one product.
        ("QK^T", matmul(1024, 128, 2048), 107.8, [776, 776, 172, 297], [False] * 4),
        ("MatMul 600", matmul(600, 600, 600), 200.0, [1440, 1440, 320, 459], [False, False, False, True]),
        ("FFN up", matmul(65536, 4096, 16384), 3120.8, [4614, 2307, 918, 459], [True] * 4),
    )

    @pytest.mark.parametrize(("name", "ledger", "intensity", "rates", "compute_bound"), OPS, ids=[op[0] for op in OPS])
    def test_ops_on_four_roofs(self, name: str, ledger: rl.Ledger, intensity: float, rates: list[int], compute_bound: list[bool]) -> None:
        found = ledger.cost.intensity()
        assert found is not None
        assert round(found, 1) == intensity
        assert [tera(chip.attainable(found, roof)) for chip, roof in COLUMNS] == rates
        assert [found > chip.ridge(roof) for chip, roof in COLUMNS] == compute_bound

    def test_compulsory_traffic_gives_layernorm_more(self) -> None:
        assert layernorm(65536, 4096).cost.intensity() == pytest.approx(2.5, abs=0.001)

    def test_the_real_batched_attention_product(self) -> None:
        # 64 heads of 2048 x 2048 x 128: 2048·128·2048·2 / (2·(2048·128·2 + 2048²)).
        assert round(batched_matmul(64, 2048, 128, 2048).cost.intensity() or 0, 1) == 113.8

    def test_layernorm_is_half_a_percent_of_peak_and_all_of_the_bandwidth(self) -> None:
        placed = rl.place(layernorm(65536, 4096, reads=2).cost, V7X)
        assert placed.attainable is not None
        assert round(placed.attainable / 1e12, 1) == 12.0
        assert round(100 * placed.attainable / V7X.rate("matrix/bf16"), 1) == 0.5
        on_the_roof = rl.place(layernorm(65536, 4096, reads=2).cost, V7X, time_s=placed.floor_s)
        assert on_the_roof.utilization["hbm"] == 1.0


class TestSizes:
    """Intensity against size, and where products cross the ridge."""

    TABLE = (
        (64, 524_288, 24_576, 21.3),
        (256, 33_554_432, 393_216, 85.3),
        (1024, 2_147_483_648, 6_291_456, 341.3),
        (4096, 137_438_953_472, 100_663_296, 1365.3),
        (16384, 8_796_093_022_208, 1_610_612_736, 5461.3),
    )

    @pytest.mark.parametrize(("n", "flops", "moved", "intensity"), TABLE)
    def test_square_products(self, n: int, flops: int, moved: int, intensity: float) -> None:
        cost = matmul(n, n, n).cost
        assert (cost.flops, cost.bytes()) == (flops, moved)
        assert round(cost.intensity() or 0, 1) == intensity == round(n / 3, 1)

    def test_a_third_of_the_size(self) -> None:
        assert [int(matmul(n, n, n).cost.intensity() or 0) for n in (1000, 100)] == [333, 33]

    def test_square_crossings(self) -> None:
        # bf16 bytes under each roof: 3 x ridge, printed rounded down.
        found = [rl.cross(partial(matmul, compute=roof.partition("/")[2]), ("m", "k", "n"), chip) for chip, roof in COLUMNS]
        assert [one.real for one in found] == pytest.approx([1922.5, 961.25, 1721.25, 498.913], abs=0.001)
        assert [math.floor(one.real or 0) for one in found] == [1922, 961, 1721, 498]
        assert [one.integer for one in found] == [1923, 962, 1722, 499]

    def test_with_fp8_bytes_the_fp8_crossing_is_961(self) -> None:
        found = rl.cross(partial(matmul, dtype="fp8"), ("m", "k", "n"), V7X)
        assert math.floor(found.real or 0) == 961

    def test_critical_batches(self) -> None:
        assert [math.floor(rl.cross(matmul, "m", chip, k=math.inf, n=math.inf).real or 0) for chip in (V5E, H100)] == [240, 295]

    @pytest.mark.parametrize(("width", "batch"), [(8192, 255), (4096, 272)])
    def test_critical_batches_of_finite_layers_are_larger(self, width: int, batch: int) -> None:
        found = rl.cross(matmul, "m", V5E, k=width, n=width)
        assert math.floor(found.real or 0) == batch
        assert found.integer == batch + 1  # the first whole batch that is compute bound

    def test_intensity_tends_to_the_batch(self) -> None:
        assert matmul(240, 2**40, 2**40).cost.intensity() == pytest.approx(240)


class TestFormats:
    """The accumulator, and what quantization does to the threshold."""

    def test_the_accumulator_of_2048(self) -> None:
        bf16, fp8 = matmul(2048, 2048, 2048, accumulator="fp32").cost, matmul(2048, 2048, 2048, dtype="fp8", accumulator="bf16").cost
        assert (bf16.flops, bf16.bytes(), bf16.intensity()) == (17_179_869_184, 41_943_040, 409.6)
        assert (fp8.flops, fp8.bytes(), fp8.intensity()) == (17_179_869_184, 20_971_520, 819.2)
        assert matmul(2048, 2048, 2048).cost.bytes() == 25_165_824

    def test_full_int8_leaves_the_threshold(self) -> None:
        assert round(V5E_OLD.ridge("matrix/int8")) == 486
        limits = {"k": math.inf, "n": math.inf}
        assert math.floor(rl.cross(partial(matmul, dtype="int8"), "m", V5E_OLD, **limits).real or 0) == 243
        assert round(rl.cross(partial(matmul, dtype="int8"), "m", V5E, **limits).real or 0, 1) == 240.2

    def test_int8_weights_halve_the_threshold(self) -> None:
        found = rl.cross(partial(matmul, weights="int8"), "m", V5E, k=math.inf, n=math.inf)
        assert math.floor(found.real or 0) == 120

    def test_int8_activations_leave_it(self) -> None:
        plain = rl.cross(matmul, "m", V5E, k=math.inf, n=math.inf)
        found = rl.cross(partial(matmul, activations="int8"), "m", V5E, k=math.inf, n=math.inf)
        assert found.real == pytest.approx(plain.real)


class TestFusion:
    """LayerNorm, GELU, dropout and a residual add on 268,435,456 bf16 elements."""

    SHAPE = (32, 2048, 4096)

    def line(self, residual: bool) -> list[StageSpec]:
        names = ("layernorm", "gelu", "dropout", "add")
        return [
            StageSpec(
                name,
                POINTWISE[name].flops,
                reduces=POINTWISE[name].reduces,
                extra_inputs=("residual",) if residual and name == "add" else (),
            )
            for name in names
        ]

    def test_traffic_intensity_rate_and_speed_up(self) -> None:
        tail = chain(self.SHAPE, "bf16", self.line(residual=False))
        found = [fuse(tail, groups, V7X) for groups in ((1, 1, 1, 1), (2, 2), (4,))]
        assert math.prod(self.SHAPE) == 268_435_456
        assert [round(one.bytes / 1e9, 2) for one in found] == [4.29, 2.15, 1.07]
        # 1.25 is printed as 1.2: halves round to even.
        assert [float(f"{one.intensity:.1f}") for one in found] == [1.2, 2.5, 5.0]
        assert [tera(one.attainable or 0) for one in found] == [9, 18, 36]
        assert [one.speedup for one in found] == pytest.approx([1, 2, 4])

    def test_the_residual_is_a_second_tensor(self) -> None:
        tail = chain(self.SHAPE, "bf16", self.line(residual=True))
        assert [round(fuse(tail, groups, V7X).bytes / 1e9, 2) for groups in ((1, 1, 1, 1), (2, 2), (4,))] == [4.83, 2.68, 1.61]

    def test_one_kernel_is_the_best_legal_grouping(self) -> None:
        assert len(best(chain(self.SHAPE, "bf16", self.line(residual=False)), V7X).kernels) == 1


class TestMeasurements:
    """Points of the figures: gaps to the roof."""

    @pytest.mark.parametrize(("intensity", "share"), [(2, 0.92), (12, 0.55), (150, 0.35), (2000, 0.78), (5, 0.92), (500, 0.25)])
    def test_gaps(self, intensity: float, share: float) -> None:
        cost = rl.Cost.of({"matrix/bf16": intensity * 1e12, "hbm": 1e12})
        time_s = rl.place(cost, V7X).floor_s / share
        assert rl.place(cost, V7X, time_s).efficiency == pytest.approx(share)

    def test_hierarchical_roofs(self) -> None:
        chip = V7X.override({"vmem": "150 TB/s"})
        assert (round(chip.ridge("matrix/bf16")), round(chip.ridge("matrix/bf16", "vmem"))) == (320, 15)
        under_hbm = chip.attainable(50, "matrix/bf16")
        assert (tera(under_hbm), tera(3.5 * under_hbm)) == (360, 1260)
        # The well-tiled kernel stands between the two roofs, where tiling is the lever.
        assert under_hbm < 1260e12 < chip.attainable(50, "matrix/bf16", "vmem")
        op = rl.Op(name="tiled", cost=rl.Cost.of({"matrix/bf16": 50e12, "hbm": 1e12}), time_s=50e12 / 1260e12)
        report = rl.analyze(rl.Recording(workload=rl.Workload((op,)), format="formula"), chip)
        assert report.findings[0].kind == "between-roofs"
        assert any("tile" in lever for lever in report.findings[0].levers)

    @pytest.mark.parametrize("fraction", [0.2, 0.4, 0.6])
    def test_communication_lowers_the_roof(self, fraction: float) -> None:
        cost = matmul(8192, 8192, 8192).cost
        lowered = rl.place(cost, V7X, corrections=rl.Corrections(communication=fraction)).attainable
        assert lowered == pytest.approx((1 - fraction) * V7X.rate("matrix/bf16"))


class TestTheSecondGuide:
    """Dot products, sharding, tiles, per-example weights, bounds."""

    def test_dot(self) -> None:
        for n in (1, 100, 2**20):
            assert (dot(n).cost.flops, dot(n).cost.bytes()) == (2 * n - 1, 4 * n + 2)
        assert dot(2**40).cost.intensity() == pytest.approx(0.5)
        chip = rl.Machine.of("example", {"matrix/bf16": "100 TFLOP/s", "hbm": "2 TB/s"})
        assert chip.ridge("matrix/bf16") == 50
        placed = rl.place(dot(2**40, unit="matrix").cost, chip)
        assert placed.attainable == pytest.approx(1e12, rel=1e-9)
        assert placed.bound == "hbm"

    def test_the_vector_unit_of_v5p_mixes_scopes(self) -> None:
        # 7e12 is one core's; over the chip's HBM that is 2.5, "about 3". Both per chip, it is 5.
        assert round(7e12 / V5P.rate("hbm"), 2) == 2.54
        assert round(V5P.ridge("vector/fp32"), 1) == 5.1

    def test_two_chips(self) -> None:
        shard = sharded_matmul(512, 8192, 4096)
        assert (shard.cost.flops, shard.cost["ici"]) == (512 * 8192 * 4096, 2 * 512 * 4096)
        sizes = {"m": 512, "n": 4096}

        def threshold(link: float) -> float:
            return rl.cross(sharded_matmul, "k", V5E.override({"ici": link}), level="ici", **sizes).real or 0

        assert math.floor(threshold(4.5e10)) == 8755
        assert rl.cross(sharded_matmul, "k", V5E, level="ici", **sizes).integer == 8756
        assert [threshold(link) for link in (5e10, 2e11)] == pytest.approx([7880, 1970])
        # The threshold is in the sharded dimension alone.
        assert rl.cross(sharded_matmul, "k", V5E, level="ici", m=7, n=13).real == pytest.approx(threshold(4.5e10))

    def test_tiles(self) -> None:
        t_m, t_k, t_n, b_m, b_k, b_n = 4, 8, 16, 128, 256, 512
        cost = tiled_matmul(t_m * b_m, t_k * b_k, t_n * b_n, tile_m=b_m, tile_k=b_k, tile_n=b_n).cost
        assert cost.flops == 2 * t_m * t_n * t_k * b_m * b_k * b_n
        output = 2 * (t_m * b_m) * (t_n * b_n)
        assert cost.bytes() == 2 * t_m * t_n * t_k * (b_m * b_k + b_k * b_n) + output
        without_writes = Fraction(int(cost.flops), int(cost.bytes() or 0) - output)
        assert without_writes == Fraction(b_m * b_n, b_m + b_n)

    def test_per_example_weights_tend_to_one(self) -> None:
        assert per_example_weights(256, 2**20, 2**20).cost.intensity() == pytest.approx(1, abs=1e-5)

    @pytest.mark.parametrize(("chip", "fraction"), [(V6E, 0.95), (H100, 0.80), (H100, 0.85)])
    def test_sustained_fractions(self, chip: rl.Machine, fraction: float) -> None:
        cost = matmul(16384, 16384, 16384).cost
        sustained = rl.place(cost, chip, corrections=rl.Corrections(sustained={"matrix": fraction})).attainable
        assert sustained == pytest.approx(fraction * chip.rate("matrix/bf16"))

    def test_the_serial_time_is_at_most_as_many_floors_as_there_are_units(self) -> None:
        two = rl.place(matmul(240, 8192, 8192).cost, V5E)
        assert two.floor_s <= two.serial_s <= 2 * two.floor_s
        three = rl.place(sharded_matmul(512, 8755, 4096).cost, V5E)
        assert len(three.times) == 3
        assert three.serial_s <= 3 * three.floor_s


class TestStatementsToCorrect:
    """Sentences of the guides that do not hold, as arithmetic."""

    def test_doubling_the_batch_of_a_memory_bound_product_leaves_its_time(self) -> None:
        small, double = (rl.place(matmul(b, 8192, 8192).cost, V5E) for b in (8, 16))
        assert small.bound == double.bound == "hbm"
        assert double.floor_s / small.floor_s == pytest.approx(1, abs=0.01)

    def test_doubling_the_batch_of_a_compute_bound_product_doubles_it(self) -> None:
        large, double = (rl.place(matmul(b, 8192, 8192).cost, V5E) for b in (4096, 8192))
        assert large.bound == double.bound == "matrix"
        assert double.floor_s / large.floor_s == pytest.approx(2)

    def test_the_output_write_dominates_only_above_the_depth(self) -> None:
        def share_of_output(b: int, d: int, f: int) -> float:
            ledger = matmul(b, d, f)
            return float(next(row for row in ledger.rows if row.tensor == "out").bytes / (ledger.cost.bytes() or 1))

        assert share_of_output(8, 4096, 4096) < 0.01  # a small batch: the weights are nearly everything
        assert share_of_output(65536, 128, 4096) > 0.5  # B far above D

    def test_the_floor_assumes_that_paths_overlap(self) -> None:
        placed = rl.place(sharded_matmul(512, 8755, 4096).cost, V5E, corrections=rl.Corrections(overlap=0))
        assert placed.expected_s == pytest.approx(placed.serial_s)
        assert placed.expected_s > placed.floor_s


def test_causal_attention_counts_half_the_square() -> None:
    full, causal = attention(4, 16, 4096, 4096, 128).work, attention(4, 16, 4096, 4096, 128, causal=True).work
    assert causal["matrix/bf16"] == 274_877_906_944
    assert full["matrix/bf16"] == 2 * 274_877_906_944
