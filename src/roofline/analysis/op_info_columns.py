"""The rows of ops in columns, many at a time; see `op_info` for one, against which they are tested."""

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from ..cost import moves
from ..lazy_rows import at, column, mappings
from ..report import OpInfo
from ..resource import HBM, Resource, named
from .placed_ops import PlacedOps

# The fields that are columns already.
_KNOWN = (
    *("id", "rank", "name", "category", "module", "scope", "location", "phase", "label", "count", "kernels", "time_s", "self_time_s"),
    *("flops", "dtype", "floor_s", "bound", "lost_s", "roofs", "notes"),
)
_TIME, _FLOPS, _FLOOR = (_KNOWN.index(name) for name in ("time_s", "flops", "floor_s"))
_SECONDS = itemgetter(1)


def plain_rows(placed: PlacedOps, ids: Sequence[int], field: Callable[[str], Any]) -> Iterator[OpInfo]:
    """The rows of ops of which the columns say all (`PlacedOps.plain`), by their ids; ``field`` gives a field of all of them."""
    works, moved_bytes, hops, times = (mappings(field(name), len(ids)) for name in ("work", "bytes", "hops", "times"))
    main_memory = [name for name in field("bytes") if moves(named(name), HBM.name)]
    computes = at(placed.compute, ids)
    ridges = {compute: _ridge(placed, compute) for compute in {*computes}}
    origins = zip(*(at(column(placed.ops, f"{name}_provenance"), ids) for name in ("work", "bytes")), strict=True)
    known = zip(*map(field, _KNOWN), strict=True)
    each = zip(known, works, moved_bytes, hops, times, at(placed.unit, ids), computes, origins, strict=True)
    for row, work, moved, hop, seconds, unit, compute, (of_work, of_bytes) in each:
        time_s, flops, floor_s = row[_TIME], row[_FLOPS], row[_FLOOR]
        levels = {level: amount for level, amount in moved.items() if amount is not None}
        traffic = [moved[level] for level in main_memory if level in moved]
        hbm = None if None in traffic else sum(traffic)
        longest_first = dict(sorted(seconds.items(), key=_SECONDS, reverse=True))
        yield OpInfo(
            **dict(zip(_KNOWN, row, strict=True)),
            work=work,
            unit=compute.unit if compute else None,
            bytes=moved,
            hops=hop,
            intensity=flops / hbm if hbm and flops is not None else None,
            intensities={level: flops / amount for level, amount in levels.items()} if flops else {},
            rate=flops / time_s if flops is not None and time_s else None,
            bandwidth={level: amount / time_s for level, amount in levels.items()} if time_s else {},
            ridge=ridges[compute],
            attainable=flops / floor_s if flops and unit else None,
            serial_s=None if floor_s is None else sum(longest_first.values()),
            expected_s=floor_s,  # nothing is corrected
            efficiency=floor_s / time_s if time_s and unit else None,
            times=longest_first,
            utilization={unit: busy_s / time_s for unit, busy_s in longest_first.items()} if time_s else {},
            provenance={"work": of_work, "bytes": of_bytes},
        )


def _ridge(placed: PlacedOps, compute: Resource | None) -> float | None:
    machine = placed.machine
    return machine.ridge(compute) if compute and machine.resolve(HBM) else None
