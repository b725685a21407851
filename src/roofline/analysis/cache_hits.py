"""Cache hits: traffic that must have been served by a cache, because main memory is too slow for it.

A compiler's count, or one from shapes, is the compulsory traffic of one launch and ignores what earlier launches left in a cache. A launch
that took less time than main memory needs for its bytes proves that some of them were cached. The outermost cache that is fast enough is
taken to have served them: all bytes cross it, and each slower memory is charged only with the bytes that do not fit in the cache before it:

    bytes over the cache            b
    bytes over a slower memory      max(0, b − capacity of the cache before it)      each launch
"""

from collections.abc import Mapping

from msgspec.structs import replace

from ..cost import Cost
from ..machine import Machine
from ..placement import Placement
from ..resource import HBM, Resource
from ..units import percent, show
from ..workload import COUNTED, Op

CACHES = ("l2", "l3", "slc", "infinity_cache")
CPU_CACHES = ("l1", *CACHES)  # a GPU's L1 is empty when a launch begins
COMPULSORY = ("compiler", "shape")  # origins of bytes that can be moved
TOLERANCE = 1.02  # of the roof: the accuracy of rates and clocks


def with_cache_hits(op: Op, placed: Placement) -> Op | None:
    """The op with its bytes on the cache that served them, and a note that says so; ``None`` where main memory can have served all.

    Only bytes counted by a compiler or from shapes are moved; those given by a user, a formula or a counter stay.
    """
    too_fast = placed.unit == HBM.name and (placed.efficiency or 0.0) > TOLERANCE
    if not too_fast or op.bytes_provenance not in COMPULSORY or not op.time_s:
        return None
    moved = op.cost.known(HBM)
    rate, crossed = placed.machine.rate, {HBM: moved}
    outer = HBM
    for cache, capacity in _caches(placed.machine).items():
        if cache in op.cost:
            return None
        crossed[outer] = max(0, moved - int(capacity * op.launches))
        crossed[cache] = moved
        outer = cache
        behind = all(amount <= rate(level) * op.time_s for level, amount in crossed.items() if level != cache)
        if behind and moved <= rate(cache) * op.time_s * TOLERANCE:
            each = show(float(moved / op.launches), "B")
            note = (
                f"{COUNTED}faster than {HBM} allows ({percent(placed.efficiency)}), so its {each} per launch count as {cache} traffic, "
                f"and only what does not fit there as {HBM} traffic"
            )
            others = {resource: op.cost[resource] for resource in op.cost if resource != HBM}
            return replace(op, cost=Cost.of({**others, **crossed}), notes=(*op.notes, note))
    return None


def cache_hits_note(moved: Mapping[int, Op]) -> str:
    """The note on ops whose bytes are counted on a cache, by their ids."""
    names = ", ".join([op.name for op in moved.values()][:3]) + (f" and {len(moved) - 3:,} more" if len(moved) > 3 else "")
    its = "its" if len(moved) == 1 else "their"
    return f"{names}: faster than {HBM} allows, so {its} data came from a cache: {its} bytes count as cache traffic"


def _caches(machine: Machine) -> Mapping[Resource, float]:
    """The caches that keep bytes from launch to launch and whose size is known, largest first."""
    names = CPU_CACHES if machine.kind == "cpu" else CACHES
    sizes = {
        ceiling.resource: capacity
        for ceiling in machine.memories
        if ceiling.resource.name in names and (capacity := machine.capacity(ceiling.resource)) is not None
    }
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))
