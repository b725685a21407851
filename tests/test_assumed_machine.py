"""A recording that does not name its chip: the report says that it is assumed, and drops one that the ops are too fast for."""

from msgspec.structs import replace

from every import every
from roofline.analysis import assemble
from roofline.cost import Cost
from roofline.machine import Machine
from roofline.report import Report
from roofline.workload import Coverage, Device, Op, Recording, Workload

RATES = {"matrix/fp32": 100, "hbm": 10}
CHIP = replace(Machine.of("toy", RATES, kind="cpu", title="Toy 3").override(RATES, "derived"), assumed=True)


def report_on(machine: Machine, *ops: Op) -> Report:
    busy = sum(op.time_s or 0.0 for op in ops)
    device = Device(id=0, name="CPU")
    return assemble(
        Recording(workload=Workload(ops), format="torch", devices=(device,), coverage=Coverage(wall_s=busy, busy_s=busy)), machine
    )


def product(flops: float, time_s: float) -> Op:
    return Op(name="mm", cost=Cost.of({"matrix/fp32": flops, "hbm": 1}), time_s=time_s)


def test_the_first_sentence_says_that_the_chip_is_assumed() -> None:
    assert "on one Toy 3 (assumed);" in report_on(CHIP, product(100, 2.0)).summary
    assert "on one Toy 3;" in report_on(replace(CHIP, assumed=False), product(100, 2.0)).summary


def test_a_chip_that_the_products_are_too_fast_for_is_not_the_one() -> None:
    report = report_on(CHIP, product(300, 1.0), Op(name="copy", cost=Cost.of({"hbm": 1}), time_s=9.0))
    assert report.machine.name == "unknown-cpu"
    assert report.machine.assumed
    assert "Toy 3, on which mm would take at least 3 times as long" in report.machine.notes[0]
    assert "--chip" in report.machine.notes[0]
    assert " 5,100 times as long" in report_on(CHIP, product(510_000, 1.0)).machine.notes[0]
    assert report.summary.startswith("10 s on one unknown CPU; its minimum is not known.")
    assert [op.bound for op in report.ops] == [None, None]
    assert [finding.message for finding in report.findings] == ["The chip is not known, so no op has a minimum time."]


@every(
    "ops",
    [
        [product(150, 1.0)],  # a boost clock
        [product(1000, 1.0), product(100, 2.0)],  # one count may be wrong
        [Op(name="copy", cost=Cost.of({"hbm": 1000}), time_s=1.0)],  # a cache
    ],
)
def test_a_chip_is_kept_where_something_else_explains_the_speed(ops: list[Op]) -> None:
    assert report_on(CHIP, *ops).machine.name == "toy"


def test_a_chip_that_was_named_or_whose_rates_were_set_is_kept() -> None:
    assert report_on(replace(CHIP, assumed=False), product(300, 1.0)).machine.name == "toy"
    assert report_on(CHIP.override({"matrix/fp32": 100}), product(300, 1.0)).machine.name == "toy"


def test_a_profile_is_reported_where_no_unit_has_a_rate() -> None:
    report = report_on(Machine.of("toy", {"hbm": 10}), Op(name="all_reduce", cost=Cost.of({"dcn": 5}), time_s=2.0))
    assert report.summary.startswith("2 s on one toy; its minimum is not known.")
