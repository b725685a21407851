"""Placement of very many ops in columns with numpy; equal to `placement.place_op` of each."""

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from ..columns.cost_columns import Bools, Columns, Floats, place_columns, words_of
from ..columns.lazy_rows import column
from ..columns.op_columns import OpColumns, shared_costs
from ..cost import Cost
from ..machine import Machine
from ..resource import Resource
from ..workload import Op

_EXACT = 2**53  # integers below it are exact as floats
_INFINITE = float("inf")
_BITS = 62  # bits of an integer that are used as flags for resources


class Many(Struct, frozen=True, kw_only=True):
    """The placements of many ops by their ids, in columns as `PlacedOps` has them.

    ``idle`` are ops that use no resource with a rate, ``alone`` those that arrays cannot represent exactly and that are placed one by one.
    """

    floor_s: list[float]
    unit: list[str | None]
    bound: list[str | None]
    compute: list[Resource | None]
    roofs: list[tuple[str, ...]]
    times: dict[str, list[float]]
    unrated: dict[int, tuple[Resource, ...]]
    idle: list[int]
    alone: list[int]


def place_many(ops: Sequence[Op], machine: Machine) -> Many | None:
    """Many ops on a machine with corrected rates; ``None`` where nothing can be placed from arrays."""
    resources, amounts, alone = _amounts(ops)
    ceilings = {row: ceiling for row, resource in enumerate(resources) if (ceiling := machine.resolve(resource))}
    rated = list(ceilings)
    if not rated or len(resources) > _BITS:
        return None
    time_s = np.array(column(ops, "time_s"), dtype=np.float64)  # an unknown one is a NaN
    timed = ~np.isnan(time_s)
    time_s[~timed] = 0.0
    launches = np.array(column(ops, "launches"), dtype=np.float64)
    unknown = np.broadcast_to(~np.array(column(ops, "priced"), dtype=np.bool_), amounts.shape)
    placed = place_columns(Columns(resources, amounts, unknown, time_s, timed, launches), machine)
    used = amounts > 0
    alone |= used[rated].any(axis=0) & (placed.floor_s == 0)  # underflow
    bits = (used[rated] * np.left_shift(1, np.array(rated))[:, None]).sum(axis=0)
    keys, key_of_each = np.unique(bits, return_inverse=True)
    roofs = [tuple(sorted({ceilings[row].resource.name for row in rated if key >> row & 1})) for key in keys.tolist()]
    unrated: dict[int, tuple[Resource, ...]] = {}
    for row in sorted({*range(len(resources))} - {*rated}):
        for id in np.flatnonzero(used[row] & ~alone).tolist():
            unrated[id] = (*unrated.get(id, ()), resources[row])
    return Many(
        floor_s=placed.floor_s.tolist(),
        unit=words_of([*placed.units, None], placed.longest),
        bound=placed.bound,
        compute=_heaviest(resources, amounts, [row for row in rated if resources[row].is_compute], machine.rate),
        roofs=words_of(roofs, key_of_each),
        times={unit: seconds.tolist() for unit, seconds in zip(placed.units, placed.times, strict=True)},
        unrated=unrated,
        idle=np.flatnonzero((bits == 0) & ~alone).tolist(),
        alone=np.flatnonzero(alone).tolist(),
    )


def _heaviest(resources: Sequence[Resource], amounts: Floats, rows: list[int], rate: Callable[[Resource], float]) -> list[Resource | None]:
    """The compute resource of each op that takes the most time."""
    if not rows:
        return [None] * amounts.shape[1]
    seconds = np.array([amounts[row] / rate(resources[row]) for row in rows])
    longest = np.where(seconds.any(axis=0), seconds.argmax(axis=0), -1)
    return words_of([*(resources[row] for row in rows), None], longest)


def _amounts(ops: Sequence[Op]) -> tuple[tuple[Resource, ...], Floats, Bools]:
    """The known amounts of ops, one row per resource in order of name, and which ops have amounts that are not floats."""
    if isinstance(ops, OpColumns):
        known = np.array([np.array(amounts, dtype=np.float64) for amounts in ops.amounts.values()])  # an unknown one is a NaN
        return tuple(ops.amounts), np.nan_to_num(known, copy=False, nan=0.0), np.zeros(len(ops), dtype=np.bool_)
    costs, number_of_each = shared_costs(ops)
    cost_of_each = np.array(number_of_each, dtype=np.intp)
    odd_costs = np.array([not _is_plain(cost) for cost in costs], dtype=np.bool_)
    odd_times = [time_s is not None and not 0 <= time_s < _INFINITE for time_s in column(ops, "time_s")]
    alone = odd_costs[cost_of_each] | np.array(odd_times, dtype=np.bool_)
    columns: dict[Resource, tuple[list[int], list[float]]] = {}
    for number in np.unique(cost_of_each[~alone]).tolist():
        for resource, amount in costs[number].amounts:
            numbers, amounts = columns.setdefault(resource, ([], []))
            numbers.append(number)
            amounts.append(amount)
    made = np.zeros((len(columns), len(costs)))
    for row, resource in enumerate(sorted(columns)):
        numbers, amounts = columns[resource]
        made[row, numbers] = amounts
    of_each = made[:, cost_of_each]
    of_each[:, alone] = 0.0
    return tuple(sorted(columns)), of_each, alone


def _is_plain(cost: Cost) -> bool:
    """Whether a float array represents the amounts of a cost exactly."""
    for _, amount in cost.amounts:
        if not (0 < amount < _INFINITE if type(amount) is float else type(amount) is int and 0 < amount < _EXACT):
            return False
    return True
