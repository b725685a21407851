"""Machines resolve work to roofs, and keep where every figure came from."""

import pytest

from every import every
from roofline.errors import MachineError, UnitError
from roofline.machine import Capacity, Ceiling, Limit, Machine
from roofline.machines import load
from roofline.resource import Resource
from toys import BF16, HBM, toy


def test_the_ridge_is_peak_over_bandwidth_for_any_pair() -> None:
    # 100 FLOP/s over 10 B/s and over 1 B/s; 200 for fp8.
    assert (toy().ridge(BF16), toy().ridge("matrix/fp8"), toy().ridge(BF16, "ici")) == (10.0, 20.0, 100.0)


def test_attainable_is_the_lower_of_the_two_roofs() -> None:
    assert (toy().attainable(5, BF16), toy().attainable(10, BF16), toy().attainable(50, BF16)) == (50, 100, 100)


@every(
    ("asked", "found"),
    [
        ("vector/bf16", "vector/fp32"),
        ("vector/transcendental", "vector/fp32"),
        ("matrix/fp32", "vector/fp32"),
        ("matrix/tf32", "vector/fp32"),
    ],
)
def test_work_falls_back_along_the_declared_chain(asked: str, found: str) -> None:
    ceiling = toy().resolve(asked)
    assert ceiling is not None
    assert ceiling.resource.name == found


def test_an_fp32_product_never_runs_as_tf32_by_itself() -> None:
    chip = Machine.of("gpu", {"matrix/tf32": 500, "vector/fp32": 60})
    assert chip.rate("matrix/fp32") == 60
    assert chip.rate("matrix/tf32") == 500


@every("product", ["matrix/bf16", "matrix/fp16", "matrix/fp32", "matrix/fp64", "matrix/bf16x3"])
@every(
    ("kind", "matrix_unit", "runs"),
    [("", None, False), ("gpu", None, False), ("gpu", False, True), ("cpu", None, True), ("cpu", True, False)],
)
def test_products_run_on_the_vector_unit_only_where_there_is_no_matrix_unit(
    product: str, kind: str, matrix_unit: bool | None, runs: bool
) -> None:
    chip = Machine.of("chip", {"vector/fp32": 5, "vector/fp64": 5, "hbm": 1}, kind=kind, matrix_unit=matrix_unit)
    ceiling = chip.resolve(product)
    assert (ceiling is not None and ceiling.rate == 5) == runs


def test_a_matrix_rate_in_another_format_tells_which_formats_the_unit_lacks() -> None:
    volta = Machine.of("volta", {"matrix/fp16": 100, "vector/fp32": 5})
    assert (volta.rate("matrix/bf16"), volta.rate("matrix/fp32")) == (5, 5)
    # Units with bf16 have fp16 too, and one with fp8 has 16-bit formats: their rates are only not given.
    assert Machine.of("chip", {"matrix/bf16": 100, "vector/fp32": 5}).resolve("matrix/fp16") is None
    assert Machine.of("chip", {"matrix/fp8": 100, "vector/fp32": 5}).resolve("matrix/bf16") is None


def test_narrow_formats_do_not_fall_back_to_the_vector_unit() -> None:
    assert toy().resolve("matrix/int8") is None
    with pytest.raises(MachineError, match="toy has no known rate for matrix/int4"):
        toy().rate("matrix/int4")


def test_an_override_keeps_the_figure_it_replaces() -> None:
    faster = toy().override({"hbm": "20 B/s", "l2": "100 B/s"})
    ceiling = faster.ceiling(HBM)
    assert ceiling is not None
    assert (ceiling.rate, ceiling.provenance, ceiling.others[0].value) == (20, "user", 10)
    assert faster.rate("l2") == 100
    assert toy().rate(HBM) == 10  # the original is untouched


def test_an_override_with_the_wrong_unit_says_which() -> None:
    with pytest.raises(UnitError, match="hbm: '3 GHz' is in Hz, not in B/s"):
        toy().override({"hbm": "3 GHz"})


def test_a_device_of_a_two_device_chip_is_half_of_it_but_a_link_is_a_link() -> None:
    chip = Machine(
        name="v7x",
        ceilings=(
            Ceiling(resource=BF16, rate=100),
            Ceiling(resource=HBM, rate=10),
            Ceiling(resource=Resource("ici"), rate=9, count=6),
        ),
        capacities=(Capacity(level=HBM, bytes=192),),
        devices=2,
    )
    device = chip.per_device()
    assert (device.name, device.scope) == ("v7x/device", "device")
    assert (device.rate(BF16), device.rate(HBM), device.capacity(), device.rate("ici")) == (50, 5, 96, 9)
    assert device.per_device() is device
    assert device.ridge(BF16) == chip.ridge(BF16)  # the share cancels


def test_a_named_limit_is_a_lower_roof() -> None:
    chip = Machine(name="gpu", ceilings=toy().ceilings, limits=(Limit(name="no FMA", resource=Resource("vector/fp32"), fraction=0.5),))
    assert chip.limited("no FMA").rate("vector/fp32") == 10
    with pytest.raises(MachineError, match="no limit named 'no FMMA'; did you mean 'no FMA'"):
        chip.limited("no FMMA")


@every("rate", [0, float("nan")])
def test_a_rate_of_nothing_is_refused(rate: float) -> None:
    with pytest.raises((MachineError, UnitError)):
        Machine.of("broken", {"hbm": rate})


def test_a_rate_under_a_limit_is_no_figure_of_a_datasheet() -> None:
    whole, lower = load("v6e"), load("v6e").limited("sustained")
    for unit in ("matrix/bf16", "hbm"):
        before, after = whole.ceiling(unit), lower.ceiling(unit)
        assert before is not None
        assert after is not None
        assert (before.provenance, after.provenance) == ("datasheet", "derived")
        assert after.note.endswith("sustained")
        assert after.others[0].value == before.rate


def test_rating_a_resource_twice_is_refused() -> None:
    with pytest.raises(MachineError, match="rates hbm twice"):
        Machine(name="x", ceilings=(Ceiling(resource=HBM, rate=1), Ceiling(resource=HBM, rate=2)))


def test_passes_divide_the_rate_of_their_format() -> None:
    chip = Machine.of("chip", {"matrix/bf16": 90, "vector/fp32": 5})
    assert [chip.rate(f"matrix/bf16{passes}") for passes in ("", "x3", "x6", "x9")] == [90, 30, 15, 10]
    # Without the format there is nothing to repeat: the vector unit has fp32 itself.
    assert chip.rate("matrix/tf32x3") == 5


def test_a_tpu_rounds_wider_products_to_bf16_and_other_chips_do_not() -> None:
    rates = {"matrix/bf16": 90, "vector/fp32": 5}
    assert [Machine.of("chip", rates, kind=kind).rate("matrix/fp32") for kind in ("tpu", "gpu")] == [90, 5]
    assert Machine.of("chip", {**rates, "matrix/fp32": 20}, kind="tpu").rate("matrix/fp32") == 20
