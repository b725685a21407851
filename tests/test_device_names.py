"""Device names as CUDA, nvidia-smi and HIP print them: its own chip of the catalogue, or derived from its hardware, never another."""

import pytest

from every import every
from roofline.errors import MachineError
from roofline.machines import load, names
from roofline.machines.detection import of_device
from roofline.workload import Device, Hardware

NAMED = """
NVIDIA A100-SXM4-40GB = a100-sxm4-40
NVIDIA A100-SXM4-80GB = a100-sxm4-80
NVIDIA A100-PCIE-40GB = a100-pcie-40
NVIDIA A100 80GB PCIe = a100-pcie-80
NVIDIA A100-SXM4-80GB MIG 3g.40gb = a100-sxm4-80-mig-3g-40gb
NVIDIA A100 80GB PCIe MIG 1g.10gb = a100-pcie-80-mig-1g-10gb
NVIDIA A30 MIG 2g.12gb = a30-mig-2g-12gb
NVIDIA H100 80GB HBM3 MIG 3g.40gb = h100-sxm-mig-3g-40gb
NVIDIA A800-SXM4-80GB = a800-sxm4-80
NVIDIA A800 80GB PCIe = a800-pcie-80
NVIDIA A40 = a40
NVIDIA A30 = a30
NVIDIA A10 = a10
NVIDIA A10G = a10g
NVIDIA A16 = a16
NVIDIA A2 = a2
NVIDIA L4 = l4
NVIDIA L20 = l20
NVIDIA L40 = l40
NVIDIA L40S = l40s
NVIDIA H20 = h20
NVIDIA H20-3e = h20-3e
NVIDIA H100 80GB HBM3 = h100-sxm
NVIDIA H100 PCIe = h100-pcie
NVIDIA H100 80GB HBM2e = h100-pcie
NVIDIA H100 NVL = h100-nvl
NVIDIA H800 = h800-sxm
NVIDIA H800 PCIe = h800-pcie
NVIDIA H200 = h200-sxm
NVIDIA H200 NVL = h200-nvl
NVIDIA GH200 120GB = gh200
NVIDIA GH200 480GB = gh200
NVIDIA GH200 144G HBM3e = gh200-144
NVIDIA GB10 = gb10
NVIDIA GB200 = gb200
NVIDIA GB300 = gb300
NVIDIA B200 = b200
NVIDIA B300 SXM6 AC = b300
NVIDIA GeForce GTX 1080 = gtx-1080
NVIDIA GeForce GTX 1080 Ti = gtx-1080-ti
GeForce GTX 1080 Ti = gtx-1080-ti
NVIDIA GeForce RTX 2060 = rtx-2060
NVIDIA GeForce RTX 2070 = rtx-2070
NVIDIA GeForce RTX 2080 = rtx-2080
NVIDIA GeForce RTX 2080 Ti = rtx-2080-ti
NVIDIA GeForce RTX 3060 = rtx-3060
NVIDIA GeForce RTX 3060 Ti = rtx-3060-ti
NVIDIA GeForce RTX 3070 = rtx-3070
NVIDIA GeForce RTX 3080 = rtx-3080
NVIDIA GeForce RTX 3080 Ti = rtx-3080-ti
NVIDIA GeForce RTX 3090 = rtx-3090
NVIDIA GeForce RTX 3090 Ti = rtx-3090-ti
NVIDIA GeForce RTX 4060 = rtx-4060
NVIDIA GeForce RTX 4060 Ti = rtx-4060-ti
NVIDIA GeForce RTX 4070 = rtx-4070
NVIDIA GeForce RTX 4070 SUPER = rtx-4070-super
NVIDIA GeForce RTX 4070 Ti = rtx-4070-ti
NVIDIA GeForce RTX 4070 Ti SUPER = rtx-4070-ti-super
NVIDIA GeForce RTX 4080 = rtx-4080
NVIDIA GeForce RTX 4080 SUPER = rtx-4080-super
NVIDIA GeForce RTX 4090 = rtx-4090
NVIDIA GeForce RTX 4090 D = rtx-4090-d
NVIDIA GeForce RTX 5060 = rtx-5060
NVIDIA GeForce RTX 5060 Ti = rtx-5060-ti
NVIDIA GeForce RTX 5070 = rtx-5070
NVIDIA GeForce RTX 5070 Ti = rtx-5070-ti
NVIDIA GeForce RTX 5080 = rtx-5080
NVIDIA GeForce RTX 5090 = rtx-5090
NVIDIA RTX A4000 = rtx-a4000
NVIDIA RTX A5000 = rtx-a5000
NVIDIA RTX A6000 = rtx-a6000
NVIDIA RTX 4000 Ada Generation = rtx-4000-ada
NVIDIA RTX 5000 Ada Generation = rtx-5000-ada
NVIDIA RTX 6000 Ada Generation = rtx-6000-ada
NVIDIA RTX PRO 6000 Blackwell Server Edition = rtx-pro-6000
NVIDIA RTX PRO 6000 Blackwell Workstation Edition = rtx-pro-6000
NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition = rtx-pro-6000-max-q
NVIDIA TITAN RTX = titan-rtx
TITAN RTX = titan-rtx
NVIDIA TITAN V = titan-v
TITAN V = titan-v
Quadro RTX 6000 = quadro-rtx-6000
Quadro RTX 8000 = quadro-rtx-8000
Tesla P4 = p4
Tesla P40 = p40
Tesla P100-PCIE-16GB = p100-pcie-16
Tesla P100-SXM2-16GB = p100-sxm2
Tesla T4 = t4
Tesla V100-PCIE-16GB = v100-pcie-16
Tesla V100-PCIE-32GB = v100-pcie-32
Tesla V100-SXM2-16GB = v100-sxm2
Tesla V100-SXM2-32GB = v100-sxm2
Tesla V100S-PCIE-32GB = v100s-pcie
Orin = jetson-agx-orin-64
AMD Instinct MI210 = mi210
AMD Instinct MI250X = mi250x/device
AMD Instinct MI250X / MI250 = mi250x/device
AMD Instinct MI300X = mi300x
AMD Instinct MI300X VF = mi300x
AMD Instinct MI300A = mi300a
AMD Instinct MI308X = mi308x
AMD Instinct MI325X = mi325x
AMD Instinct MI350X = mi350x
AMD Instinct MI355X = mi355x
AMD Radeon RX 7900 XTX = rx-7900-xtx
Radeon RX 7900 XTX = rx-7900-xtx
AMD Radeon RX 9070 XT = rx-9070-xt
AMD Radeon PRO W7900 = radeon-pro-w7900
"""
NAMES = [tuple(line.split(" = ")) for line in NAMED.strip().splitlines()]


@every(("name", "chip"), NAMES)
def test_a_device_of_the_catalogue_is_found_by_its_name_alone(name: str, chip: str) -> None:
    machine = of_device(Device(id=0, name=name))
    assert machine.name == chip
    assert machine.ceiling("hbm") is not None
    assert not any("identified" in note or "family" in note for note in machine.notes)


def test_one_name_is_never_two_chips() -> None:
    assert len(NAMES) > 100
    assert len({name for name, _ in NAMES}) == len(NAMES)


# Not in the catalogue: vendor, compute capability, cores, MHz, GiB, GB/s, and FLOP per core and cycle of fp16 products.
OUTSIDE = [
    ("Tesla K80", "NVIDIA", "3.7", 13, 823.5, 11.2, 240, None),
    ("NVIDIA GeForce GTX 1060 6GB", "NVIDIA", "6.1", 10, 1708.5, 6, 192, None),
    ("NVIDIA GeForce GTX 1660 Ti", "NVIDIA", "7.5", 24, 1770, 6, 288, None),
    ("NVIDIA GeForce RTX 3050", "NVIDIA", "8.6", 20, 1777, 8, 224, 512),
    ("NVIDIA GeForce RTX 3060 Laptop GPU", "NVIDIA", "8.6", 30, 1425, 6, 336, 512),
    ("NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA", "8.9", 76, 2505, 16, 576, 512),
    ("NVIDIA GeForce RTX 5090 Laptop GPU", "NVIDIA", "12.0", 82, 2160, 24, 896, 512),
    ("NVIDIA RTX A2000 12GB", "NVIDIA", "8.6", 26, 1200, 12, 288, 1024),
    ("NVIDIA RTX 4500 Ada Generation", "NVIDIA", "8.9", 60, 2580, 24, 432, 1024),
    ("NVIDIA RTX PRO 4500 Blackwell", "NVIDIA", "12.0", 82, 2407, 32, 896, 1024),
    ("AMD Radeon RX 7800 XT", "AMD", "11.0", 30, 2430, 16, 624, 1024),
    ("AMD Radeon RX 9060 XT", "AMD", "12.0", 16, 3130, 16, 320, 2048),
    ("AMD Radeon RX 6900 XT", "AMD", "10.3", 40, 2250, 16, 512, None),
]


@every(("name", "vendor", "capability", "cores", "mhz", "gib", "gbs", "products"), OUTSIDE)
def test_a_device_outside_the_catalogue_is_derived_from_its_hardware(
    name: str, vendor: str, capability: str, cores: int, mhz: float, gib: float, gbs: float, products: int | None
) -> None:
    hardware = Hardware(
        vendor=vendor, capability=capability, cores=cores, clock_hz=mhz * 1e6, memory_bytes=gib * 2**30, bandwidth=gbs * 1e9
    )
    machine = of_device(Device(id=0, name=name, hardware=hardware))
    assert machine.name not in names()
    assert {ceiling.provenance for ceiling in machine.ceilings} == {"derived"}
    if products is None:  # no matrix unit: products run on the vector unit, by rule
        assert machine.matrix_unit is False
        assert machine.rate("matrix/fp16") == machine.rate("vector/fp16")
    else:
        assert machine.rate("matrix/fp16") == pytest.approx(cores * mhz * 1e6 * products)
    assert machine.rate("hbm") == pytest.approx(gbs * 1e9)
    with pytest.raises(MachineError, match="--chip"):
        of_device(Device(id=0, name=name))


@every(
    ("chip", "resource", "rate"),
    [
        ("l20", "matrix/bf16", 119.5e12),  # and not the 237 TFLOP/s of 92 SMs at 2.52 GHz
        ("l40", "matrix/bf16", 181.05e12),  # half of the L40S
        ("a10g", "matrix/bf16", 80 * 1.71e9 * 512),  # 69.5 measured
        ("h200-nvl", "matrix/bf16", 835.5e12),
        ("h200-nvl", "hbm", 4.8e12),
        ("gh200-144", "hbm", 4.9e12),
        ("gh200", "hbm", 4e12),
        ("rtx-4090-d", "matrix/bf16", 114 * 2.52e9 * 512),
        ("rtx-5060", "hbm", 448e9),
        ("rtx-5060-ti", "matrix/fp4", 36 * 2.572e9 * 4096),
        ("rx-7900-xtx", "vector/fp32", 61.44e12),
        ("rx-9070-xt", "matrix/fp8", 64 * 2.97e9 * 2048),
        ("mi308x", "matrix/bf16", 80 * 2.1e9 * 2048),
    ],
)
def test_a_newer_chip_has_the_rate_of_its_sources(chip: str, resource: str, rate: float) -> None:
    assert load(chip).rate(resource) == pytest.approx(rate, rel=1e-3)
