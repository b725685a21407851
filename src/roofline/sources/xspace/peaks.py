"""What a profile says of devices: their names, hardware and peak rates, and how busy hardware counters saw the units of TPUs.

If counters were enabled, libtpu writes two stats on the plane of the host, ``matrix_unit_utilization_percent`` and
``hbm_utilization_percent``, over the whole profile and all its chips. They give the program's point of scope ``hardware``. The registers
themselves (events with a ``counter_value``) are ignored: their numbers are public for v6e and v7x, but the unit of a count is public only
for main memory and ICI (in bytes), not for FLOP, and no profile with registers was available to check them.
"""

import re

from ...units import parse
from ...workload import Hardware
from .scan import Plane, Space

GIGABYTE_PER_S = parse("1 GB/s", "B/s")  # XProf's "gigabytes" are 10⁹ bytes
TERAFLOP_PER_S = parse("1 TFLOP/s", "FLOP/s")
KILOHERTZ = parse("1 kHz", "Hz")

# Plane stats of a TPU, per TensorCore. A rate of 0 means that the chip does not have that memory.
_TPU_RATES = {
    "peak_teraflops_per_second": ("matrix/bf16", TERAFLOP_PER_S),
    "peak_hbm_bw_gigabytes_per_second": ("hbm", GIGABYTE_PER_S),
    "peak_vmem_rd_bw_gigabytes_per_second": ("vmem.read", GIGABYTE_PER_S),
    "peak_vmem_wr_bw_gigabytes_per_second": ("vmem.write", GIGABYTE_PER_S),
    "peak_cmem_rd_bw_gigabytes_per_second": ("cmem.read", GIGABYTE_PER_S),
    "peak_cmem_wr_bw_gigabytes_per_second": ("cmem.write", GIGABYTE_PER_S),
}
# Usual names of chips that libtpu names otherwise.
_TPU_NAMES = {"TPU v5": "TPU v5p", "TPU v5 Lite": "TPU v5e", "TPU v6 Lite": "TPU v6e", "TPU v4 Lite": "TPU v4i", "TPU7x": "TPU v7x"}
_ORDINAL = re.compile(r":(\d+)")
HOST_PLANE = "/host:CPU"
STATS = {"matrix_unit_utilization_percent": "matrix", "hbm_utilization_percent": "hbm"}
REGISTER = "counter_value"
NOT_USED = "TPU counter registers in this profile are ignored: the unit of most of them is not public"
PERCENT = 100


def ordinal(plane: Plane) -> int:
    """The number of a device in its plane's name: 3 of ``/device:GPU:3``."""
    found = _ORDINAL.search(plane.name)
    return int(found[1]) if found else 0


def tpu_name(plane: Plane) -> str:
    """The usual name of a TPU."""
    name = _text(plane, "device_type_string") or "TPU"
    return _TPU_NAMES.get(name, name)


def tpu_rates(plane: Plane) -> dict[str, float]:
    """The peaks a TPU reports."""
    return {
        resource: rate * unit for stat, (resource, unit) in _TPU_RATES.items() if (rate := _number(plane, stat)) is not None and rate > 0
    }


def gpu_name(plane: Plane) -> str:
    """A GPU's name as its driver gives it, else its vendor's."""
    return _text(plane, "gpu_device_name") or f"{_vendor(plane)} GPU".strip()


def gpu_hardware(plane: Plane) -> Hardware:
    """A GPU's cores, clock, memory and compute capability.

    Old ROCm collectors leave out a minor version of 0. ROCm counts one memory transfer per cycle, but there are two.
    """
    major, minor = _number(plane, "compute_cap_major"), _number(plane, "compute_cap_minor")
    cores, clock = _number(plane, "core_count"), _number(plane, "clock_rate")
    bandwidth = _number(plane, "memory_bandwidth")
    return Hardware(
        vendor=_vendor(plane),
        capability=f"{major:.0f}.{minor or 0:.0f}" if major else "",
        cores=int(cores) if cores else None,
        clock_hz=clock * KILOHERTZ if clock else None,
        memory_bytes=_number(plane, "memory_size") or None,
        bandwidth=bandwidth * (2 if _vendor(plane) == "AMD" else 1) if bandwidth else None,
    )


def _vendor(plane: Plane) -> str:
    vendor = _text(plane, "device_vendor")
    return {"Nvidia": "NVIDIA"}.get(vendor, vendor)


def gpu_rates(plane: Plane) -> dict[str, float]:
    """The bandwidth that a GPU reports, and a peak if a tool added one.

    ROCm reports half the true bandwidth (one transfer per memory cycle instead of two), so its figure is left out.
    """
    rates: dict[str, float] = {}
    bandwidth, peak = _number(plane, "memory_bandwidth"), _number(plane, "peak_teraflops_per_second")
    if bandwidth and _text(plane, "device_vendor") != "AMD":
        rates["hbm"] = float(bandwidth)
    if peak:
        rates["matrix/bf16"] = peak * TERAFLOP_PER_S
    return rates


def _text(plane: Plane, stat: str) -> str:
    value = plane.stat(stat)
    return value if isinstance(value, str) else ""


def _number(plane: Plane, stat: str) -> float | None:
    value = plane.stat(stat)
    return float(value) if isinstance(value, (int, float)) else None


def measured(space: Space) -> tuple[tuple[str, float], ...]:
    """The share of time, 0 to 1, for which counters saw each unit busy; empty if counters were not enabled."""
    host = next((plane for plane in space.planes if plane.name == HOST_PLANE), None)
    shares = {unit: host.stat(name) for name, unit in STATS.items()} if host is not None else {}
    return tuple(
        (unit, percent / PERCENT) for unit, percent in shares.items() if isinstance(percent, (int, float)) and 0 <= percent <= PERCENT
    )


def register_notes(space: Space, prefix: str) -> list[str]:
    """Notes about registers on the planes whose names begin with ``prefix``."""
    has = any(REGISTER in plane.stat_ids for plane in space.planes if plane.name.startswith(prefix))
    return [NOT_USED] if has else []
