"""The machine behind a recording: the device's own peaks before the catalogue's, unless they cannot be right."""

import os
from pathlib import Path

import pytest

from every import every
from roofline.errors import MachineError
from roofline.machines import cards, load
from roofline.machines.architectures import architecture, capability_of, clock_of, derive
from roofline.machines.chip_specs import Card
from roofline.machines.detection import machine_for, of_device
from roofline.workload import Device, Hardware


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


def amd(capability: str, cores: int, memory_bytes: float, clock_hz: float) -> Device:
    hardware = Hardware(vendor="AMD", capability=capability, cores=cores, memory_bytes=memory_bytes, clock_hz=clock_hz)
    return Device(id=0, name="AMD GPU", hardware=hardware)


@every(
    ("device", "chip"),
    [
        (amd("9.4", 304, 206_141_652_992, 2.1e9), "mi300x"),
        (amd("9.4", 304, 274_861_129_728, 2.1e9), "mi325x"),
        (amd("9.4", 228, 137_170_518_016, 2.1e9), "mi300a"),
        (amd("9.5", 256, 309_220_868_096, 2.4e9), "mi355x"),
        (amd("9.5", 256, 309_220_868_096, 2.2e9), "mi350x"),
        (amd("9.0", 110, 68_702_699_520, 1.7e9), "mi250x/device"),
        (amd("9.0", 104, 68_702_699_520, 1.7e9), "mi210"),
    ],
)
def test_a_gpu_without_a_name_is_identified_by_its_hardware(device: Device, chip: str) -> None:
    machine = of_device(device)
    assert machine.name == chip
    assert any(f"{device.hardware.cores} CUs" in note and "--chip" in note for note in machine.notes)


GIB = 2**30


@every("name", ["AMD GPU", "AMD Instinct MI300X"])
@every(
    ("cores", "memory_bytes", "parts"),
    [
        (152, 96 * GIB, 2),  # DPX, NPS2
        (76, 48 * GIB, 4),  # QPX, NPS4
        (38, 24 * GIB, 8),  # CPX, NPS8
        (38, 48 * GIB, 8),  # CPX, NPS4: two partitions share a memory
        (38, 192 * GIB, 8),  # CPX, NPS1: all of it is seen
    ],
)
def test_a_partition_of_an_mi300x_has_its_share_of_the_rates(name: str, cores: int, memory_bytes: int, parts: int) -> None:
    hardware = Hardware(vendor="AMD", capability="9.4", cores=cores, memory_bytes=memory_bytes, clock_hz=2.1e9)
    machine, whole = of_device(Device(id=0, name=name, hardware=hardware)), load("mi300x")
    assert machine.name == f"mi300x-1-of-{parts}"
    for resource in ("matrix/bf16", "matrix/fp8", "vector/fp32", "hbm"):
        assert machine.rate(resource) == pytest.approx(whole.rate(resource) / parts)
    assert machine.capacity() == pytest.approx(memory_bytes)
    assert machine.rate("xgmi") == whole.rate("xgmi")
    assert any(f"a partition of mi300x with {cores} of its 304 CUs" in note for note in machine.notes)


@every(
    ("device", "chip"),
    [
        (amd("9.4", 38, 64 * GIB, 2.1e9), "mi325x-1-of-8"),
        (amd("9.4", 76, 128 * GIB / 3, 2.1e9), "mi300a-1-of-3"),
        (amd("9.5", 32, 36 * GIB, 2.4e9), "mi355x-1-of-8"),
    ],
)
def test_partitions_of_other_chips_are_told_by_their_memory(device: Device, chip: str) -> None:
    machine = of_device(device)
    assert machine.name == chip
    assert any("does not name its device" in note and "--chip" in note for note in machine.notes)


def test_a_name_with_other_cores_than_the_catalogues_chip_is_another_chip() -> None:
    # Every Jetson Orin is called Orin; the Nano has 8 of the AGX's 16 SMs. The RTX 3080 with 12 GB has 70 SMs.
    nano = Hardware(vendor="NVIDIA", capability="8.7", cores=8, clock_hz=0.625e9, memory_bytes=8 * GIB)
    machine = of_device(Device(id=0, name="Orin", hardware=nano))
    assert machine.rate("matrix/fp16") == pytest.approx(8 * 0.625e9 * 2048)
    assert "Orin has 8 cores and the catalogue's jetson-agx-orin-64 has 16" in machine.notes[0]
    larger = Hardware(vendor="NVIDIA", capability="8.6", cores=70, clock_hz=1.71e9, memory_bytes=12 * GIB, bandwidth=912e9)
    machine = of_device(Device(id=0, name="NVIDIA GeForce RTX 3080", hardware=larger))
    assert (machine.rate("matrix/fp16"), machine.rate("hbm")) == (pytest.approx(70 * 1.71e9 * 512), 912e9)


def test_another_version_of_a_chip_has_its_own_memory() -> None:
    hardware = Hardware(vendor="NVIDIA", capability="7.0", cores=80, memory_bytes=32 * GIB)
    machine = of_device(Device(id=0, name="Tesla V100-SXM2-32GB", hardware=hardware))
    assert (machine.name, machine.capacity()) == ("v100-sxm2", 32 * GIB)
    assert "34.36 GB of memory, v100-sxm2 in the catalogue 17.18 GB" in machine.notes[-1]


def test_a_gpu_outside_the_catalogue_has_rates_derived_from_its_cores_and_clock() -> None:
    # 85 SMs x 1.8 GHz x 1024 FLOP a cycle is 156.7 TFLOP/s; a GeForce sums bf16 products in fp32 at half that.
    hardware = Hardware(vendor="NVIDIA", capability="8.6", cores=85, clock_hz=1.8e9, memory_bytes=5e10, bandwidth=7.68e11)
    machine = of_device(Device(id=0, name="NVIDIA RTX A9999", hardware=hardware))
    assert machine.rate("matrix/bf16") == pytest.approx(85 * 1.8e9 * 1024)
    assert machine.rate("vector/fp32") == pytest.approx(85 * 1.8e9 * 256)
    assert (machine.rate("hbm"), machine.capacity()) == (7.68e11, 5e10)
    assert {ceiling.provenance for ceiling in machine.ceilings} == {"derived"}
    assert "derived from NVIDIA, compute capability 8.6, 85 SMs" in machine.notes[-1]
    consumer = of_device(Device(id=0, name="NVIDIA GeForce RTX 9999", hardware=hardware))
    assert consumer.rate("matrix/bf16") == pytest.approx(85 * 1.8e9 * 512)
    without = of_device(
        Device(id=0, name="NVIDIA GeForce GTX 1660 Ti", hardware=Hardware(vendor="NVIDIA", capability="7.5", cores=24, clock_hz=1.77e9))
    )
    assert [ceiling.resource.name for ceiling in without.compute if ceiling.resource.unit == "matrix"] == []
    assert without.rate("matrix/fp16") == without.rate("vector/fp16")  # a card without matrix units runs products on its vector unit


def test_an_unlisted_amd_gpu_and_a_later_minor_version_are_derived_too() -> None:
    machine = of_device(amd("9.4", 70, 206e9, 2.1e9))
    assert machine.rate("matrix/bf16") == pytest.approx(70 * 2.1e9 * 2048)
    found = architecture("NVIDIA", "8.8")
    assert found is not None
    assert found.name == "Ampere GA10B"
    assert architecture("NVIDIA", "99.0") is None


def _described(card: Card) -> bool:
    return bool(architecture(card.machine.vendor, capability_of(card.machine)) and card.cores and card.spec("clock"))


@every("card", [card for card in cards() if _described(card)])
def test_derived_rates_are_those_of_the_catalogue(card: Card) -> None:
    clock = card.spec("clock")
    assert clock is not None
    hardware = Hardware(vendor=card.machine.vendor, capability=capability_of(card.machine), cores=card.cores, clock_hz=clock_of(clock))
    machine = derive(card.machine.title, hardware)
    assert machine is not None
    for resource in ("matrix/bf16", "matrix/fp16", "matrix/tf32", "matrix/fp8", "vector/fp32"):
        mine, theirs = machine.ceiling(resource), card.machine.ceiling(resource)
        if mine and theirs and card.machine.name not in SLOWED:
            assert mine.rate == pytest.approx(theirs.rate, rel=0.08)


SLOWED = ("a10g", "h20", "h20-3e", "l20", "l40")  # sold with matrix units held below what cores and clock give


def test_a_slice_has_its_share_of_the_chip() -> None:
    whole = load("a100-sxm4-40")
    named = load("NVIDIA A100-SXM4-40GB MIG 1g.5gb")
    assert named.rate("matrix/bf16") == pytest.approx(whole.rate("matrix/bf16") / 7)
    assert named.rate("hbm") == pytest.approx(whole.rate("hbm") / 8)
    hardware = Hardware(vendor="NVIDIA", capability="8.0", cores=14, clock_hz=1.41e9)
    seen = of_device(Device(id=0, name="NVIDIA A100-SXM4-40GB MIG 1g.5gb", hardware=hardware))
    assert seen.rate("matrix/bf16") == pytest.approx(whole.rate("matrix/bf16") * 14 / 108)
    assert seen.capacity() == pytest.approx((whole.capacity() or 0) / 8)
    assert load("NVIDIA A100-SXM4-80GB MIG 7g.80gb").rate("hbm") == pytest.approx(load("a100-sxm4-80").rate("hbm"))
    with pytest.raises(MachineError, match="no machine named 'NVIDIA X9"):
        load("NVIDIA X9 MIG 1g.5gb")


@every("name", ["", "GPU", "NVIDIA GPU"])
def test_a_device_of_which_nothing_is_known_falls_back_to_the_default_chip(name: str) -> None:
    machine = machine_for([Device(id=0, name=name, hardware=Hardware(capability="8.0"))])
    assert machine.name == "h100-sxm"
    assert machine.notes[-1] == (
        "the file does not name its device (compute capability 8.0): using h100-sxm; choose the right one with --chip"
    )


def test_every_chip_with_a_matrix_unit_has_its_rates() -> None:
    # TPUs and accelerators are matrix units first of all; a GPU's architecture tells.
    lacking, marked = [], []
    for card in cards():
        machine = card.machine
        known = architecture(machine.vendor, capability_of(machine))
        has_matrix_unit = known is not None and any(name.startswith("matrix/") for name in known.rates)
        expected = machine.kind in ("tpu", "accelerator") or has_matrix_unit
        if expected and not any(ceiling.resource.unit == "matrix" for ceiling in machine.compute):
            lacking.append(machine.name)
        if not machine.rates_matrix and machine.kind == "gpu":
            marked.append((machine.name, machine.matrix_unit, has_matrix_unit))
        if known and machine.kind == "gpu":
            half = {name for name in ("matrix/bf16", "matrix/fp16") if name in known.rates}
            lacking += [f"{machine.name}: {name}" for name in sorted(half) if machine.ceiling(name) is None]
    assert lacking == []
    assert len(marked) >= 6  # Pascal
    assert {(unit, has) for _, unit, has in marked} == {(False, False)}


@pytest.mark.parametrize(("name", "chip"), [("TPU", "tpu-v5e"), ("AMD GPU", "mi300x")])
def test_a_device_without_a_name_gets_a_default_of_its_kind_and_a_note(name: str, chip: str) -> None:
    machine = machine_for([Device(id=0, name=name)])
    assert machine.name == chip
    assert machine.notes[-1] == f"the file does not name its device: using {chip}; choose the right one with --chip"


@pytest.mark.parametrize(
    "name", ["{folder}/forged.toml", "./forged.toml", "/dev/zero", "{folder}/pipe", "x" * 100_000, "a\0b", "\ud800", "local"]
)
def test_a_devices_name_is_looked_up_in_the_catalogue_and_nowhere_else(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A file of that name would be opened: a forged machine, a pipe that never ends, a device without end.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "forged.toml").write_text('name = "forged"\n[[memory]]\nlevel = "hbm"\nrate = "9 PB/s"\n')
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(MachineError, match="no machine named") as refused:
        machine_for([Device(id=0, name=name.format(folder=tmp_path))])
    assert len(str(refused.value)) < 500


def test_a_machine_file_extends_plain_files_only_and_no_circle(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('extends = "./b.toml"\n')
    (tmp_path / "b.toml").write_text('extends = "./a.toml"\n')
    (tmp_path / "zero.toml").write_text('extends = "/dev/zero"\n')
    (tmp_path / "deep.toml").write_text("a = " + "[" * 100_000)
    (tmp_path / "large.toml").write_text("#" * 2_000_000)
    for file, said in (("a", "extend itself"), ("zero", "not a plain file"), ("deep", "nested too deeply"), ("large", "larger than")):
        with pytest.raises(MachineError, match=said):
            load(str(tmp_path / f"{file}.toml"))


def test_a_chip_that_nothing_names_is_assumed() -> None:
    assert machine_for(()).assumed
    assert of_device(Device(id=0, name="GPU")).assumed
    assert of_device(Device(id=0, name="CPU")).assumed
    assert not of_device(Device(id=0, name="NVIDIA H200")).assumed
    assert not load("h200").assumed
