"""Properties of devices and of the run that a trace records. It has no clocks and no rates of devices."""

from typing import Any

from ....workload import Hardware
from .events import Head

NVIDIA, AMD = "NVIDIA", "AMD"
_AMD_WARP = 64
_NOT_A_NAME = ("AMD Radeon Graphics",)  # the driver's name for chips that it does not know


def device_of(head: Head, number: int, alone: bool) -> tuple[str, Hardware]:
    """The name and hardware of a device. On AMD, events number devices differently: a single device is the first one described."""
    described = [device for device in head.devices if isinstance(device, dict)] if isinstance(head.devices, list) else []
    card = next((device for device in described if device.get("id") == number), None)
    if card is None and described and (alone or len({_name(device) for device in described}) == 1):
        card = described[0]
    if card is None:
        return "GPU", Hardware()
    vendor = NVIDIA if card.get("warpSize") else ""
    if card.get("warpSize") == _AMD_WARP:
        vendor = AMD
    major, minor = card.get("computeMajor"), card.get("computeMinor")
    hardware = Hardware(
        vendor=vendor,
        capability=f"{major}.{minor}" if isinstance(major, int) and isinstance(minor, int) else "",
        cores=_number(card.get("numSms")),
        memory_bytes=_number(card.get("totalGlobalMem")),
    )
    return _name(card) or f"{vendor} GPU".strip(), hardware


def _name(described: dict[str, Any]) -> str:
    """A device's name; a virtual function of a chip (``VF``) is named as the chip."""
    name = described.get("name")
    if not isinstance(name, str) or name.strip() in _NOT_A_NAME:
        return ""
    return name.strip().removesuffix(" VF")


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def rank_of(head: Head) -> int | None:
    """The rank that wrote the trace, in a distributed run."""
    rank = head.distributed.get("rank") if isinstance(head.distributed, dict) else None
    return rank if isinstance(rank, int) else None


def world_size_of(head: Head) -> int | None:
    """How many ranks the run has."""
    size = head.distributed.get("world_size") if isinstance(head.distributed, dict) else None
    return size if isinstance(size, int) and size > 0 else None


def unrecorded_steps(head: Head) -> tuple[float, float, int] | None:
    """Durations before the recording, if `roofline capture` stored them: seconds of a step on the host alone, seconds including its work
    on the device, and the number of steps measured.
    """
    stored = head.unrecorded
    if not isinstance(stored, list) or len(stored) != 3 or not all(isinstance(part, (int, float)) and part > 0 for part in stored):
        return None
    return float(stored[0]), float(stored[1]), int(stored[2])
