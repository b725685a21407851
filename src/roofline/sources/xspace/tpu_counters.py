"""Hardware counters of TPUs: the share of time for which the profiler saw the matrix unit and main memory busy.

If counters were enabled, libtpu writes two stats on the plane of the host, ``matrix_unit_utilization_percent`` and
``hbm_utilization_percent``, over the whole profile and all its chips. They give the program's point of scope ``hardware``. The registers
themselves (events with a ``counter_value``) are ignored: their numbers are public for v6e and v7x, but the unit of a count is public only
for main memory and ICI (in bytes), not for FLOP, and no profile with registers was available to check them.
"""

from .scan import Space

HOST_PLANE = "/host:CPU"
STATS = {"matrix_unit_utilization_percent": "matrix", "hbm_utilization_percent": "hbm"}
REGISTER = "counter_value"
NOT_USED = "TPU counter registers in this profile are ignored: the unit of most of them is not public"
PERCENT = 100


def measured(space: Space) -> tuple[tuple[str, float], ...]:
    """The share of time, 0 to 1, for which counters saw each unit busy; empty if counters were not enabled."""
    host = next((plane for plane in space.planes if plane.name == HOST_PLANE), None)
    found = {unit: host.stat(name) for name, unit in STATS.items()} if host is not None else {}
    return tuple(
        (unit, percent / PERCENT) for unit, percent in found.items() if isinstance(percent, (int, float)) and 0 <= percent <= PERCENT
    )


def register_notes(space: Space, prefix: str) -> list[str]:
    """Notes about registers on the planes whose names begin with ``prefix``."""
    has = any(REGISTER in plane.stat_ids for plane in space.planes if plane.name.startswith(prefix))
    return [NOT_USED] if has else []
