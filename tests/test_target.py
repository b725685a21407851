"""The machine that a source is read for: named by the user, or found from a profile's devices."""

import pickle

from roofline.machines import load
from roofline.machines.detection import machine_for
from roofline.sources.target import network_for
from roofline.workload import Device, Hardware


def test_the_network_is_that_of_the_device_unless_a_machine_is_named() -> None:
    h200, mi300x = Device(id=0, name="NVIDIA H200"), Device(id=0, name="AMD Instinct MI300X")
    own = network_for(machine_for, h200)
    assert own is not None
    assert (own.link, own.links, own.reach) == ("nvlink", 18, 8)
    assert getattr(network_for(machine_for, mi300x), "link", "") == "xgmi"
    assert network_for(load("a100"), h200) == network_for(machine_for, Device(id=0, name="NVIDIA A100-SXM4-80GB"))


def test_the_network_of_an_unknown_device_is_not_known() -> None:
    assert network_for(machine_for, Device(id=0, name="Chip of Tomorrow", hardware=Hardware())) is None
    assert network_for(None, Device(id=0, name="NVIDIA H200")) is None


def test_other_processes_can_find_the_machine() -> None:
    assert pickle.loads(pickle.dumps(machine_for)) is machine_for
