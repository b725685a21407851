"""The machine behind a recording: the device's own peaks before the catalogue's, unless they cannot be right."""

import pytest

from roofline.errors import MachineError
from roofline.machines.detection import of_device
from roofline.workload import Device


def test_a_reported_peak_comes_before_the_catalogues_which_stays_beside_it() -> None:
    ceiling = of_device(Device(id=0, name="NVIDIA H200", rates={"hbm": 4.9e12})).ceiling("hbm")
    assert ceiling is not None
    assert (ceiling.rate, ceiling.provenance, ceiling.others[0].value) == (4.9e12, "profile", 4.8e12)


def test_a_peak_that_cannot_be_right_is_said_and_not_used() -> None:
    # A public MI300X profile reports 2479.55 GiB/s where the chip has 5.3 TB/s.
    machine = of_device(Device(id=0, name="AMD Instinct MI300X", rates={"hbm": 2479.55 * 2**30}))
    assert machine.rate("hbm") == 5.3e12
    assert "50% of the catalogue's 5.3 TB/s" in machine.notes[-1]


def test_a_gpus_own_compute_peak_stands_beside_the_catalogues() -> None:
    # 132 SM x 4096 FLOP x 1.98 GHz is 1070 TFLOP/s; the matrix unit is specified at 989.4.
    ceiling = of_device(Device(id=0, name="NVIDIA H200", rates={"matrix/bf16": 1.0705e15})).ceiling("matrix/bf16")
    assert ceiling is not None
    assert ceiling.rate == 9.894e14
    assert ceiling.others[-1].value == 1.0705e15


def test_a_device_of_a_two_device_chip_is_held_against_its_share() -> None:
    assert of_device(Device(id=0, name="TPU7x")).name == "tpu-v7x/device"


def test_an_unknown_device_is_taken_at_its_word() -> None:
    machine = of_device(Device(id=0, name="My Chip 3", rates={"matrix/bf16": 1e15, "hbm": 1e12}))
    assert (machine.name, machine.rate("hbm")) == ("my-chip-3", 1e12)
    with pytest.raises(MachineError, match="no machine named 'My Chip 3'"):
        of_device(Device(id=0, name="My Chip 3"))
