"""This computer, measured: plausible rates that say where they come from."""

from roofline.machines.detection import of_device
from roofline.machines.measurement import measure, processor
from roofline.units import parse
from roofline.workload import Device


def test_this_computer_is_rated_by_experiment() -> None:
    machine = measure()
    assert {ceiling.resource.name: ceiling.provenance for ceiling in machine.ceilings} == {
        "vector/fp32": "measured",
        "vector/fp64": "measured",
        "hbm": "measured",
    }
    # From an old laptop on a busy day to the largest server: wrong units would fall far outside.
    assert parse("500 MFLOP/s", "FLOP/s") < machine.rate("vector/fp32") < parse("100 TFLOP/s", "FLOP/s")
    assert parse("200 MB/s", "B/s") < machine.rate("hbm") < parse("10 TB/s", "B/s")
    assert processor()
    assert machine.title == processor()


def test_a_cpu_in_a_profile_is_this_computer_and_the_report_says_so() -> None:
    machine = of_device(Device(id=0, name="CPU"))
    assert machine is measure()  # once a process
    assert "using this computer" in machine.notes[0]
