"""Very many ops placed from arrays, with the same columns as one by one."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..columns import Bools, Columns, Floats, place_columns
from ..lazy_rows import column
from ..op_columns import OpColumns
from ..resource import Resource
from ..workload import Op

if TYPE_CHECKING:
    from .placed_ops import PlacedOps

_EXACT = 2**53  # whole numbers below it are the same as floats
_INFINITE = float("inf")
_BITS = 62


def place_many(found: "PlacedOps") -> list[int]:
    """Fill in the columns of these ops, but for those that arrays do not hold exactly: gives their ids."""
    ops, machine = found.ops, found.machine
    resources, amounts, alone = _amounts(ops)
    rated = [place for place, resource in enumerate(resources) if machine.resolve(resource)]
    if not rated or len(resources) > _BITS:
        return list(range(len(ops)))
    times = column(ops, "time_s")
    timed = np.array([time_s is not None for time_s in times])
    time_s = np.array([time_s or 0.0 for time_s in times])
    launches = np.array(column(ops, "launches"), dtype=np.float64)
    placed = place_columns(Columns(resources, amounts, np.zeros_like(amounts, dtype=np.bool_), time_s, timed, launches), machine)
    used = amounts > 0
    alone |= (used[rated].any(axis=0)) & (placed.floor_s == 0)  # too little for a float
    found.floor_s = placed.floor_s.tolist()
    found.times = {unit: seconds.tolist() for unit, seconds in zip(placed.units, placed.times, strict=True)}
    units = [*placed.units, None]
    found.unit = [units[unit] for unit in placed.longest.tolist()]
    found.bound = placed.bound
    found.compute = _heaviest(resources, amounts, [place for place in rated if resources[place].is_compute], placed.machine.rate)
    names = {place: ceiling.resource.name for place in rated if (ceiling := machine.resolve(resources[place]))}
    patterns = np.left_shift(1, np.array(rated))[:, None]
    bits = (used[rated] * patterns).sum(axis=0)
    roofs = {key: tuple(sorted({names[place] for place in rated if key >> place & 1})) for key in np.unique(bits).tolist()}
    found.roofs = [roofs[key] for key in bits.tolist()]
    for place in sorted({*range(len(resources))} - {*rated}):
        for id in np.flatnonzero(used[place] & ~alone).tolist():
            found.unrated[id] = (*found.unrated.get(id, ()), resources[place])
    nothing = np.flatnonzero((bits == 0) & ~alone).tolist()
    found.blank = {id for id in nothing if id in found.unrated or not found.priced[id]}
    return np.flatnonzero(alone).tolist()


def _heaviest(resources: Sequence[Resource], amounts: Floats, rows: list[int], rate: Callable[[Resource], float]) -> list[Resource | None]:
    """The arithmetic of each op that takes the most time."""
    if not rows:
        return [None] * amounts.shape[1]
    seconds = np.array([amounts[row] / rate(resources[row]) for row in rows])
    longest = np.where(seconds.any(axis=0), seconds.argmax(axis=0), -1)
    words = [*(resources[row] for row in rows), None]
    return [words[place] for place in longest.tolist()]


def _amounts(ops: Sequence[Op]) -> tuple[tuple[Resource, ...], Floats, Bools]:
    """The known amounts of ops, a row a resource in order of name, and which ops hold numbers that are no floats."""
    alone = np.zeros(len(ops), dtype=np.bool_)
    if isinstance(ops, OpColumns):
        held = np.array([np.array(amounts, dtype=np.float64) for amounts in ops.amounts.values()])  # an unknown one is a NaN
        return tuple(ops.amounts), np.nan_to_num(held, copy=False, nan=0.0), alone
    columns: dict[Resource, tuple[list[int], list[float]]] = {}
    for id, op in enumerate(ops):
        if not _is_plain(op):
            alone[id] = True
            continue
        for resource, amount in op.cost.amounts:
            ids, amounts = columns.setdefault(resource, ([], []))
            ids.append(id)
            amounts.append(amount)  # type: ignore[arg-type]  # plain: no fractions
    made = np.zeros((len(columns), len(ops)))
    for row, resource in enumerate(sorted(columns)):
        ids, amounts = columns[resource]
        made[row, ids] = amounts
    return tuple(sorted(columns)), made, alone


def _is_plain(op: Op) -> bool:
    """Whether arrays hold its numbers exactly."""
    if op.time_s is not None and not 0 <= op.time_s < _INFINITE:
        return False
    for _, amount in op.cost.amounts:
        if not (0 < amount < _INFINITE if type(amount) is float else type(amount) is int and 0 < amount < _EXACT):
            return False
    return True
