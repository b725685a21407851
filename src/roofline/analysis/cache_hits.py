"""Residence: traffic that a cache must have served, because main memory cannot have.

A compiler's count is the compulsory traffic of one launch: it does not know what the launch before left in a cache. A launch that
took less time than main memory needs for its bytes is the proof that some of them were there. Its bytes all cross the cache; main
memory is charged only with what the cache cannot hold:

    bytes over the cache     b
    bytes over main memory   max(0, b − capacity)      each launch
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ..cost import Cost
from ..machine import Machine
from ..placement import Placement
from ..report import Finding
from ..resource import HBM, Resource
from ..units import percent, show
from ..workload import Op
from .advice import KINDS, Placed

KIND = "between-roofs"
CACHES = ("l2", "l3", "slc", "infinity_cache")
TOLERANCE = 1.02  # of the roof: rates and clocks are not known better than this


def resident(op: Op, placed: Placement) -> Op | None:
    """The op with its bytes on the cache that served them, and a note that says so; ``None`` where main memory can have served all.

    Only bytes that a compiler counted are moved: what a person, a formula or a counter says stands.
    """
    too_fast = placed.unit == HBM.name and (placed.efficiency or 0.0) > TOLERANCE
    if not too_fast or op.bytes_provenance != "compiler" or not op.time_s:
        return None
    moved = op.cost.known(HBM)
    for cache, capacity in _caches(placed.machine).items():
        outside = max(0, moved - int(capacity * op.launches))
        enough = outside <= placed.machine.rate(HBM) * op.time_s and moved <= placed.machine.rate(cache) * op.time_s * TOLERANCE
        if enough and cache not in op.cost:
            note = (
                f"faster than {HBM} allows ({percent(placed.efficiency)}), so its {show(float(moved / op.launches), 'B')} per launch are "
                f"counted on {cache}, and on {HBM} only what does not fit there"
            )
            others = {resource: op.cost[resource] for resource in op.cost if resource != HBM}
            return replace(op, cost=Cost.of({**others, HBM: outside, cache: moved}), notes=(*op.notes, note))
    return None


def served(moved: Sequence[Placed]) -> Finding:
    """The finding about ops whose bytes are counted on a cache."""
    names = ", ".join(one.op.name for one in moved[:3]) + (f" and {len(moved) - 3} more" if len(moved) > 3 else "")
    message = f"faster than {HBM} allows, so their bytes are counted on the cache: {names}."
    return Finding(kind=KIND, message=message, ops=tuple(one.id for one in moved), levers=KINDS[KIND].levers)


def _caches(machine: Machine) -> Mapping[Resource, float]:
    """The caches that keep bytes from launch to launch and whose size is known, largest first."""
    sizes = {
        ceiling.resource: capacity
        for ceiling in machine.memories
        if ceiling.resource.name in CACHES and (capacity := machine.capacity(ceiling.resource)) is not None
    }
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))
