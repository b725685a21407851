"""The rows of many ops at a time, from columns; equal to `op_info` of each op, which the tests check."""

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from ..columns.lazy_rows import ABSENT, Entries, column, mappings, values_at
from ..cost import moves
from ..report import OpInfo
from ..resource import HBM, Resource, named
from .placed_ops import PlacedOps

# The fields that exist as columns already.
_KNOWN = (
    *("id", "rank", "name", "category", "module", "scope", "location", "phase", "label", "count", "kernels", "time_s", "self_time_s"),
    *("flops", "dtype", "floor_s", "bound", "lost_s", "roofs", "notes"),
)
_SECONDS = itemgetter(1)


def plain_rows(placed: PlacedOps, ids: Sequence[int], field: Callable[[str], Any]) -> Iterator[OpInfo]:
    """The rows of ops that are fully described by columns (`PlacedOps.plain`), by id; ``field`` returns one field of all of them."""
    columns = {name: field(name) for name in _KNOWN}
    works, moved, hops, seconds = (mappings(field(name), len(ids)) for name in ("work", "bytes", "hops", "times"))
    computes, units = values_at(placed.compute, ids), values_at(placed.unit, ids)
    times, flops, floors = columns["time_s"], columns["flops"], columns["floor_s"]
    ridges = {compute: _ridge(placed, compute) for compute in {*computes}}
    main_memory = _main_memory(field("bytes"), len(ids))
    levels = [{level: amount for level, amount in each.items() if amount is not None} if None in each.values() else each for each in moved]
    busy = [each if len(each) < 2 else dict(sorted(each.items(), key=_SECONDS, reverse=True)) for each in seconds]  # longest first
    columns |= {
        "work": works,
        "unit": [compute.unit if compute else None for compute in computes],
        "bytes": moved,
        "hops": hops,
        "intensity": [flop / size if size and flop is not None else None for flop, size in zip(flops, main_memory, strict=True)],
        "intensities": [
            {level: flop / amount for level, amount in each.items()} if flop else {} for flop, each in zip(flops, levels, strict=True)
        ],
        "rate": [flop / time_s if flop is not None and time_s else None for flop, time_s in zip(flops, times, strict=True)],
        "bandwidth": _over(levels, times),
        "ridge": [ridges[compute] for compute in computes],
        "attainable": [flop / floor_s if flop and unit else None for flop, floor_s, unit in zip(flops, floors, units, strict=True)],
        "serial_s": [None if floor_s is None else sum(each.values()) for floor_s, each in zip(floors, busy, strict=True)],
        "expected_s": floors,  # without corrections
        "efficiency": [floor_s / time_s if time_s and unit else None for floor_s, time_s, unit in zip(floors, times, units, strict=True)],
        "times": busy,
        "utilization": _over(busy, times),
        "provenance": mappings(
            {name: list(values_at(column(placed.ops, f"{name}_provenance"), ids)) for name in ("work", "bytes")}, len(ids)
        ),
    }
    names = tuple(columns)
    for row in zip(*columns.values(), strict=True):
        yield OpInfo(**dict(zip(names, row, strict=True)))


def _main_memory(moved: Entries, count: int) -> list[float | None]:
    """The bytes that each op moves over main memory, ``None`` where they are not fully known."""
    over = [[0 if amount is ABSENT else amount for amount in each] for name, each in moved.items() if moves(named(name), HBM.name)]
    return [None if None in amounts else sum(amounts) for amounts in zip(*over, strict=True)] if over else [0] * count


def _over(amounts: Sequence[dict[str, float]], times: Sequence[float | None]) -> list[dict[str, float]]:
    """Amounts per second of each op's time; empty where the time is unknown."""
    return [{name: amount / time_s for name, amount in each.items()} if time_s else {} for each, time_s in zip(amounts, times, strict=True)]


def _ridge(placed: PlacedOps, compute: Resource | None) -> float | None:
    machine = placed.machine
    return machine.ridge(compute) if compute and machine.resolve(HBM) else None
