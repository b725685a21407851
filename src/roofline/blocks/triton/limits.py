"""What limits a predicted kernel most, in one of the words of `blocks.results.LIMITS`."""

import math
from collections.abc import Mapping

from .times import Estimate

# limit -> the parts of the time that it covers; all other units are vector units
COVERS: Mapping[str, tuple[str, ...]] = {
    "matrix": ("matrix",),
    "core memory": ("shared", "l1", "l2 port"),
    "issue": ("issue",),
    "memory": ("hbm",),
    "dispatch": ("dispatch",),
    "launch": ("launch",),
    "latency": ("alone",),
}
SPILLING = 0.3  # share of the longest part that spilled registers take where they are the limit
LAST_WAVE = 0.8  # of the cores' places that are filled, below which the last wave is the limit
OF_CORES = ("matrix", "core memory", "issue", "vector", "latency")


def limit_of(estimate: Estimate) -> str:
    """The longest of the parts that overlap; or what makes it as long as it is."""
    covered = {part for parts in COVERS.values() for part in parts} | {"spills"}
    longest = {limit: max(estimate.parts.get(part, 0.0) for part in parts) for limit, parts in COVERS.items()}
    longest["vector"] = max((time for part, time in estimate.parts.items() if part not in covered), default=0.0)
    limit, seconds = max(longest.items(), key=lambda pair: pair[1])
    if limit in OF_CORES and estimate.parts.get("spills", 0.0) > SPILLING * seconds:
        return "spills"
    if limit in OF_CORES and estimate.waves / math.ceil(estimate.waves) < LAST_WAVE:
        return "waves"
    if limit == "latency" and estimate.occupancy.limit in ("registers", "shared memory"):
        return "occupancy"
    return limit
