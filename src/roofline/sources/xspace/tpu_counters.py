"""Hardware counters of TPUs: the share of time for which the profiler saw the matrix unit and main memory busy.

Where counters were on, libtpu writes two stats on the plane of the host, ``matrix_unit_utilization_percent`` and
``hbm_utilization_percent``, over the whole profile and all its chips. They become the program's point by hardware. Registers themselves
(events with a ``counter_value``) are left alone: their numbers are public for v6e and v7x, what one count is in bytes for main memory and
ICI alone and in FLOP for nothing, and no profile with them was there to check it on.
"""

from .scan import Space

HOST_PLANE = "/host:CPU"
STATS = {"matrix_unit_utilization_percent": "matrix", "hbm_utilization_percent": "hbm"}
REGISTER = "counter_value"
NOT_USED = "TPU counter registers in this profile are ignored: the unit of most of them is not public"
PERCENT = 100


def measured(space: Space) -> tuple[tuple[str, float], ...]:
    """The share of time, 0 to 1, for which each unit was busy by counters; nothing where none were on."""
    host = next((plane for plane in space.planes if plane.name == HOST_PLANE), None)
    found = {unit: host.stat(name) for name, unit in STATS.items()} if host is not None else {}
    return tuple(
        (unit, percent / PERCENT) for unit, percent in found.items() if isinstance(percent, (int, float)) and 0 <= percent <= PERCENT
    )


def register_notes(space: Space, prefix: str) -> list[str]:
    """Notes about registers on the planes whose names begin with ``prefix``."""
    has = any(REGISTER in plane.stat_ids for plane in space.planes if plane.name.startswith(prefix))
    return [NOT_USED] if has else []
