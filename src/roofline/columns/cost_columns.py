"""Columns: the costs and times of very many ops, as arrays.

The scalar model in `placement` is the definition; `place_columns` computes the same for arrays and is tested against it. Unknown amounts
and times are marked in separate masks, never as NaN.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ..cost import Cost
from ..errors import FormulaError, MachineError
from ..machine import LATENCY, LATENCY_TIMES, Machine
from ..placement import may_bind, tie_order
from ..resource import Resource

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Columns(Struct, frozen=True):
    """One row per resource, one column per op: known amounts, which of them are not fully known, measured times, and executions (1)."""

    resources: tuple[Resource, ...]
    amounts: Floats
    unknown: Bools
    time_s: Floats
    timed: Bools
    executions: Floats | None = None

    def __post_init__(self) -> None:
        if self.amounts.shape != self.unknown.shape or self.amounts.shape[0] != len(self.resources):
            raise FormulaError(f"columns of shape {self.amounts.shape} do not match {len(self.resources)} resources")
        if (self.amounts < 0).any() or not np.isfinite(self.amounts).all():
            raise FormulaError("an amount is negative or not a number; amounts are 0 or more")

    def __len__(self) -> int:
        return int(self.amounts.shape[1])

    @classmethod
    def of(cls, costs: Iterable[Cost], times: Iterable[float | None] | None = None) -> "Columns":
        """Columns from scalar costs and times."""
        rows = tuple(costs)
        resources = tuple(sorted({resource for cost in rows for resource in cost}))
        index = {resource: place for place, resource in enumerate(resources)}
        amounts = np.zeros((len(resources), len(rows)))
        unknown = np.zeros(amounts.shape, dtype=np.bool_)
        for column, cost in enumerate(rows):
            for resource, amount in cost.amounts:
                amounts[index[resource], column] = float(amount)
            for resource in cost.unknown:
                unknown[index[resource], column] = True
        seconds = list(times) if times is not None else [None] * len(rows)
        timed = np.array([second is not None for second in seconds], dtype=np.bool_)
        return cls(resources, amounts, unknown, np.array([second or 0.0 for second in seconds]), timed)


class PlacedColumns(Struct, frozen=True, kw_only=True):
    """The placements of many ops: seconds by unit, T_min, T_max, and the index of the longest unit (−1 for none).

    ``undecided`` are the ops that an unrated unit may limit: they have no bound.
    """

    columns: Columns
    machine: Machine
    units: tuple[str, ...]
    times: Floats
    floor_s: Floats
    serial_s: Floats
    longest: NDArray[np.intp]
    undecided: Bools

    @property
    def priced(self) -> Bools:
        """Which ops have no unknown amount."""
        return np.logical_not(self.columns.unknown.any(axis=0))

    @property
    def efficiency(self) -> tuple[Floats, Bools]:
        """T_min over measured time, and for which ops that is known."""
        known: Bools = self.columns.timed & (self.columns.time_s > 0) & (self.longest >= 0)
        ratio = np.zeros_like(self.floor_s)
        np.divide(self.floor_s, self.columns.time_s, out=ratio, where=known)
        return ratio, known

    @property
    def bound(self) -> list[str | None]:
        """The bound of each op, by name."""
        latency = self.machine.launch_latency_s
        times, each = self.columns.executions, np.ones(len(self.columns))
        if times is not None:
            each = np.where(times == 0, 1.0, times)
        minimum_s = np.where(
            self.priced, self.floor_s, np.maximum(self.floor_s, self.columns.time_s)
        )  # an unknown minimum is at most the measured time
        small = self.columns.timed & (minimum_s / each < latency) & (self.columns.time_s / each < LATENCY_TIMES * latency)
        small &= ~self.undecided
        return words_of([*self.units, LATENCY, None], np.where(small, -2, self.longest))


def words_of(words: Sequence[Any], places: NDArray[np.intp]) -> list[Any]:
    """The word at each index; −1 is the last."""
    made = np.empty(len(words), dtype=object)
    made[:] = words
    return made[places].tolist()  # type: ignore[no-any-return]


def place_columns(columns: Columns, machine: Machine) -> PlacedColumns:
    """The placement of many ops at once; tested against `place`."""
    rated = [(index, ceiling) for index, resource in enumerate(columns.resources) if (ceiling := machine.resolve(resource))]
    if columns.resources and not rated:
        asked = ", ".join(map(str, columns.resources))
        raise MachineError(f"{machine.name} has no known rate for {asked}; add one with --set {columns.resources[0]}=…")
    units = tuple(sorted({ceiling.resource.unit for _, ceiling in rated}, key=tie_order))
    times = np.zeros((len(units), len(columns)))
    for index, ceiling in rated:
        times[units.index(ceiling.resource.unit)] += columns.amounts[index] / ceiling.rate
    floor = times.max(axis=0, initial=0.0)
    known = {index for index, _ in rated}
    unsure = [index for index, resource in enumerate(columns.resources) if index not in known and may_bind(resource, machine)]
    undecided = np.logical_or.reduce(columns.amounts[unsure] > 0, axis=0)
    longest = np.where((floor > 0) & ~undecided, times.argmax(axis=0) if units else -1, -1)
    return PlacedColumns(
        columns=columns,
        machine=machine,
        units=units,
        times=times,
        floor_s=floor,
        serial_s=times.sum(axis=0),
        longest=longest,
        undecided=undecided,
    )
