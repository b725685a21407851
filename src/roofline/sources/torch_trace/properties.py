"""What a trace says of its devices: names, cores, memory and compute capability; no clocks and no rates."""

from typing import Any

from ...workload import Hardware
from .events import Head

NVIDIA, AMD = "NVIDIA", "AMD"
_AMD_WARP = 64
_NOT_A_NAME = ("AMD Radeon Graphics",)  # what the driver calls chips it has no name for


def device_of(head: Head, number: int, alone: bool) -> tuple[str, Hardware]:
    """The name and hardware of a device. AMD numbers devices otherwise in events: one alone is the first that is described."""
    described = [one for one in head.devices if isinstance(one, dict)] if isinstance(head.devices, list) else []
    mine = next((one for one in described if one.get("id") == number), None)
    if mine is None and described and (alone or len({_name(one) for one in described}) == 1):
        mine = described[0]
    if mine is None:
        return "GPU", Hardware()
    vendor = AMD if mine.get("warpSize") == _AMD_WARP else NVIDIA if mine.get("warpSize") else ""
    major, minor = mine.get("computeMajor"), mine.get("computeMinor")
    hardware = Hardware(
        vendor=vendor,
        capability=f"{major}.{minor}" if isinstance(major, int) and isinstance(minor, int) else "",
        cores=_number(mine.get("numSms")),
        memory_bytes=_number(mine.get("totalGlobalMem")),
    )
    return _name(mine) or f"{vendor} GPU".strip(), hardware


def _name(described: dict[str, Any]) -> str:
    """A device's name; a virtual function of a chip (``VF``) is that chip."""
    said = described.get("name")
    if not isinstance(said, str) or said.strip() in _NOT_A_NAME:
        return ""
    return said.strip().removesuffix(" VF")


def _number(said: Any) -> int | None:
    return said if isinstance(said, int) and said > 0 else None


def rank_of(head: Head) -> int | None:
    """Which rank of a distributed run wrote the trace."""
    rank = head.distributed.get("rank") if isinstance(head.distributed, dict) else None
    return rank if isinstance(rank, int) else None


def world_size_of(head: Head) -> int | None:
    """How many ranks the run has."""
    size = head.distributed.get("world_size") if isinstance(head.distributed, dict) else None
    return size if isinstance(size, int) and size > 0 else None


def unrecorded_steps(head: Head) -> tuple[float, float, int] | None:
    """The seconds that a step took the host before the recording, those with its work, and of how many steps (`roofline capture`)."""
    said = head.unrecorded
    if not isinstance(said, list) or len(said) != 3 or not all(isinstance(one, (int, float)) and one > 0 for one in said):
        return None
    return float(said[0]), float(said[1]), int(said[2])
