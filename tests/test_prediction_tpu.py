"""Expected times of ops on TPUs: the formulas by hand, and public measurements where they lie beside the project."""

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from roofline.cost import Cost
from roofline.errors import MachineError
from roofline.formulas import matmul
from roofline.machine import Machine
from roofline.machines import load
from roofline.machines.calibrations import calibration_for, read_calibration
from roofline.operation import Collective, Streamed
from roofline.prediction import predict
from roofline.prediction.calibration import Calibration, Family

MEASURED = Path(__file__).parents[2] / "shared" / "data" / "third_party" / "tpu_ops.csv"
CHIP = Machine.of("core", {"matrix/bf16": "100 TFLOP/s", "vector/fp32": "1 TFLOP/s", "hbm": "1 TB/s", "ici": "100 GB/s"}, kind="tpu")
FITTED = Calibration(
    name="core",
    families=(
        Family(family="products", values={"floor": 2e-6, "compute": 0.8, "memory": 0.5, "exposed": 10e-6}, interval={"any": (0.9, 1.2)}),
        Family(family="pointwise", values={"floor": 2e-6, "memory": 0.5}),
        Family(family="collectives", values={"floor": 5e-6, "link": 0.5}),
    ),
)


def test_a_product_waits_for_its_first_windows_beside_its_math() -> None:
    # 2 x 4096³ over 80% of 100 TFLOP/s is 1718 µs, the bytes over half of 1 TB/s 201 µs, of which 10 µs are exposed; 2 µs floor.
    ledger = matmul(4096, 4096, 4096)
    found = predict(ledger.operation, ledger.cost, CHIP, FITTED)
    assert found is not None
    assert found.time_s == pytest.approx(2e-6 + 2 * 4096**3 / 80e12 + 10e-6)
    assert (found.low_s, found.high_s) == pytest.approx((0.9 * found.time_s, 1.2 * found.time_s))
    assert found.family == "products"


def test_a_small_product_loads_before_it_multiplies() -> None:
    # All of 3 x 256 x 256 x 2 bytes come first: 0.79 µs; then 0.42 µs of math.
    ledger = matmul(256, 256, 256)
    found = predict(ledger.operation, ledger.cost, CHIP, FITTED)
    assert found is not None
    assert found.time_s == pytest.approx(2e-6 + 2 * 256**3 / 80e12 + 6 * 256**2 / 0.5e12)


def test_a_product_bound_by_memory_takes_as_long_as_its_bytes() -> None:
    ledger = matmul(8, 8192, 8192)
    found = predict(ledger.operation, ledger.cost, CHIP, FITTED)
    assert found is not None
    assert found.time_s == pytest.approx(2e-6 + float(ledger.cost.known("hbm")) / 0.5e12)


def test_a_stream_takes_the_longer_of_its_bytes_and_its_arithmetic() -> None:
    for flops, seconds in ((1e6, 2e-3), (4e9, 4e-3)):
        found = predict(Streamed(kind="elementwise"), Cost.of({"hbm": 1e9, "vector/fp32": flops}), CHIP, FITTED)
        assert found is not None
        assert found.time_s == pytest.approx(2e-6 + seconds)


def test_a_collective_over_ici_has_a_start_and_a_share_of_the_links() -> None:
    operation = Collective(kind="all-gather", devices=4, bytes=1e6, link="ici")
    found = predict(operation, Cost.of({"ici": 1e6}), CHIP, FITTED)
    assert found is not None
    assert found.time_s == pytest.approx(5e-6 + 1e6 / 50e9)


def test_what_has_no_family_gets_usual_shares_and_wide_bounds() -> None:
    bare = replace(FITTED, families=FITTED.families[1:])
    ledger = matmul(4096, 4096, 4096)
    found = predict(ledger.operation, ledger.cost, CHIP, bare)
    assert found is not None
    assert (found.family, "no calibration of this family" in found.evidence) == ("", True)


def test_tpus_have_calibrations_and_their_devices_the_same() -> None:
    for chip in ("v6e", "v7x"):
        families = [family.family for family in calibration_for(load(chip)).families]
        assert {"products", "pointwise", "collectives"} <= set(families)
    chip, device = load("v7x"), load("v7x").per_device()
    assert calibration_for(device).families == calibration_for(chip).families
    # Twice the work on two devices takes as long as half of it on one.
    whole, half = matmul(16384, 8192, 8192), matmul(8192, 8192, 8192)
    times = [predict(one.operation, one.cost, on, calibration_for(on)) for one, on in ((whole, chip), (half, device))]
    assert times[0] is not None
    assert times[1] is not None
    assert times[0].time_s == pytest.approx(times[1].time_s, rel=1e-3)


def test_a_large_product_on_v6e_is_expected_near_what_xla_reaches() -> None:
    # 1.329 ms with 64 MiB of scoped VMEM and 1.511 ms with default flags were published.
    ledger = matmul(8192, 8192, 8192)
    machine = load("v6e")
    found = predict(ledger.operation, ledger.cost, machine, calibration_for(machine))
    assert found is not None
    assert found.low_s < 1.329e-3 < found.time_s < 1.511e-3 < found.high_s
    assert "tpu-recipes" in found.evidence


def test_a_calibration_of_a_tpu_names_the_value_it_lacks(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'chips = ["tpu-v6e"]\narchitecture = "TPU"\n[[family]]\nfamily = "products"\nsource = "me"\n'
        'values = { floor = "2 us", compute = 0.8 }\n'
    )
    with pytest.raises(MachineError, match=r"values\.memory: missing; products need floor, compute, memory, exposed"):
        read_calibration(file)


@pytest.mark.skipif(not MEASURED.exists(), reason="the measurements are not beside the project")
def test_public_measurements_lie_near_the_expected_times_and_never_below_the_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1] / "benchmarks"), *sys.path])
    from tpu_ops import measured

    rows = list(measured(MEASURED))
    traced = [row for row in rows if not row.by_host]
    assert len(traced) >= 15
    assert sum(abs(row.error) for row in traced) / len(traced) < 0.15
    assert sum(row.is_within for row in traced) >= 0.8 * len(traced)
    by_host = [row for row in rows if row.by_host]
    assert len(by_host) > 60
    assert [row for row in by_host if row.time_s < row.prediction.floor_s] == []


@pytest.mark.skipif(not MEASURED.exists(), reason="the measurements are not beside the project")
def test_measurements_that_were_not_fitted_lie_near_the_expected_times_and_within_their_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1] / "benchmarks"), *sys.path])
    from tpu_ops import held_out, measured

    rows = list(held_out(measured(MEASURED)))
    assert len({row.group for row in rows}) >= 4
    for group in {row.group for row in rows}:
        errors = [abs(row.error) for row in rows if row.group == group]
        assert sum(errors) / len(errors) < 0.16, group  # products at two clocks of TPU7x: neither tells the other's
    assert sum(abs(row.error) for row in rows) / len(rows) < 0.1
    assert sum(row.is_within for row in rows) >= 0.8 * len(rows)
