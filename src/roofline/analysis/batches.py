"""Batches: very many ops placed from arrays, with the same rows and findings as one by one.

A batch is ops that use the same resources, spend their times on the same units in the same order, and are either all timed or none: what
is left to differ are numbers. Ops about which there is more to say (unknown or unrated amounts, counters, a ledger, a time below the
minimum) are placed one by one, as are those of which there are few.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from ..columns import Columns, Floats, place_columns
from ..machine import Machine
from ..placement import Corrections, hold
from ..report import OpInfo
from ..resource import HBM, Resource
from ..workload import Op
from .advice import ROUNDING, Placed
from .losses import cause_of
from .op_info import by_shape, plain_label
from .program_points import number

FEW = 64  # ops: fewer are placed one by one
_EXACT = 2**53  # whole numbers below it are the same as floats
_INFINITE = float("inf")


class Batch(Struct, frozen=True, kw_only=True):
    """Plain ops that differ only in numbers. ``units`` and ``times`` are longest first; ``times`` has one row a unit."""

    machine: Machine
    corrections: Corrections
    resources: tuple[Resource, ...]
    units: tuple[str, ...]
    compute: Resource | None
    timed: bool
    ids: list[int]
    ops: list[Op]
    times: Floats
    time_s: Floats
    bounds: list[str | None]

    @property
    def floors(self) -> list[float]:
        """The minimum time of each."""
        floors: list[float] = self.times[0].tolist()
        return floors

    @property
    def causes(self) -> list[str]:
        """What the time of each above its minimum is lost to."""
        known = {bound: cause_of(bound) for bound in {*self.bounds}}
        return [known[bound] for bound in self.bounds]

    @property
    def efficiency(self) -> Floats:
        found: Floats = self.times[0] / self.time_s
        return found

    def placed(self, place: int) -> Placed:
        """One of them, placed by itself."""
        op = self.ops[place]
        return Placed(self.ids[place], op, hold(op.cost, self.machine, op.time_s, self.corrections, op.launches))

    @property
    def amounts(self) -> list[list[float]]:
        """The amounts of each resource, op by op, as they were given."""
        return [[op.cost.amounts[row][1] for op in self.ops] for row in range(len(self.resources))]  # type: ignore[misc]  # plain: no fractions

    def rows(self, ranks: Mapping[int, int]) -> Iterator[OpInfo]:
        """The rows of a batch in a report; see `op_info` for the same of one op."""
        lowered = self.corrections.lower(self.machine)
        each = list(zip(self.resources, self.amounts, strict=True))
        work, moved, hops = ({one.name: held for one, held in each if one.measure == measure} for measure in ("FLOP", "B", "hop"))
        flops = self._sums([held for one, held in each if one.is_arithmetic])
        main = [held for one, held in each if one.measure == "B" and (one.unit == "hbm" or one.unit.startswith("hbm."))]
        ceilings = [ceiling for resource in self.resources if (ceiling := lowered.resolve(resource))]
        roofs = tuple(sorted({ceiling.resource.name for ceiling in ceilings}))
        compute = self.compute
        unit, dtype = (compute.unit, compute.kind) if compute else (None, None)
        ridge = lowered.ridge(compute, HBM) if compute is not None and lowered.resolve(HBM) is not None else None
        done = np.array(flops, dtype=np.float64)
        sent = {level: np.array(held, dtype=np.float64) for level, held in moved.items()}
        busy = dict(zip(self.units, self.times, strict=True))
        in_turn = self._sums([busy[name].tolist() for name in dict.fromkeys(ceiling.resource.unit for ceiling in ceilings)])
        work_rows, moved_rows, hop_rows, busy_rows = map(self._by_name, (work, moved, hops, busy))
        intensity = self._column(done / np.array(self._sums(main), dtype=np.float64) if main else None)
        intensities = self._by_name({level: done / amount for level, amount in sent.items()})
        rates = self._column(done / self.time_s if self.timed else None)
        bandwidths = self._by_name({level: amount / self.time_s for level, amount in sent.items()} if self.timed else {})
        attainable, floors, serial = (done / self.times[0]).tolist(), self.floors, self._sums(self.times.tolist())
        efficiency = self._column(self.times[0] / self.time_s if self.timed else None)
        utilization = self._by_name({name: seconds / self.time_s for name, seconds in busy.items()} if self.timed else {})
        provenances: dict[tuple[str, str], dict[str, str]] = {}
        nothing: dict[str, float] = {}
        for place, op in enumerate(self.ops):
            floor, time_s, arithmetic, id = floors[place], op.time_s, flops[place], self.ids[place]
            origin = (op.work_provenance, op.bytes_provenance)
            yield OpInfo(
                id=id,
                rank=ranks[id],
                name=op.name,
                category=op.category,
                module=op.module,
                scope=op.scope,
                location=op.location,
                phase=op.phase,
                label=op.label or plain_label(op),
                count=op.count,
                kernels=op.kernels,
                time_s=time_s,
                self_time_s=op.self_time_s,
                work=work_rows[place],
                flops=number(arithmetic),
                unit=unit,
                dtype=dtype,
                bytes=moved_rows[place],
                hops=hop_rows[place],
                known=nothing,
                intensity=intensity[place],
                intensities=intensities[place] if arithmetic else nothing,
                rate=rates[place],
                bandwidth=bandwidths[place],
                ridge=ridge,
                attainable=attainable[place] if arithmetic else None,
                floor_s=floor,
                serial_s=serial[place],
                expected_s=self.corrections.expect(floor, in_turn[place], lowered),
                bound=self.bounds[place],
                efficiency=efficiency[place],
                times=busy_rows[place],
                utilization=utilization[place],
                by_shape=by_shape(op) if op.operation or op.takes else nothing,
                provenance=provenances.setdefault(origin, {"work": origin[0], "bytes": origin[1]}),
                lost_s=max((time_s if op.self_time_s is None else op.self_time_s) - floor, 0.0) if time_s else None,
                roofs=roofs,
                notes=op.notes,
            )

    def _column(self, numbers: Floats | None) -> Sequence[float | None]:
        """A number for each op; ``None`` for each without them."""
        return [None] * len(self.ids) if numbers is None else numbers.tolist()

    def _by_name(self, columns: Mapping[str, Floats | list[float]]) -> Sequence[dict[str, Any]]:
        """For each op its number in each of these columns, by name."""
        names = list(columns)
        lists = [column if isinstance(column, list) else column.tolist() for column in columns.values()]
        if not lists:
            return [{}] * len(self.ids)
        if len(lists) == 1:
            return [{names[0]: one} for one in lists[0]]
        if len(lists) == 2:
            return [{names[0]: one, names[1]: other} for one, other in zip(*lists, strict=True)]
        return [dict(zip(names, numbers, strict=True)) for numbers in zip(*lists, strict=True)]

    def _sums(self, columns: list[list[float]]) -> list[float]:
        """For each op the sum of its numbers in these columns."""
        if not columns:
            return [0] * len(self.ids)
        return columns[0] if len(columns) == 1 else list(map(sum, zip(*columns, strict=True)))


def split(ops: Sequence[Op], machine: Machine, corrections: Corrections) -> tuple[list[Batch], list[int]]:
    """The batches that ops fall into, and the ids of those that are placed one by one."""
    lowered = corrections.lower(machine)
    alike: dict[tuple[bool, tuple[str, ...]], list[int]] = {}
    rest: list[int] = []
    for id, op in enumerate(ops):
        if _is_plain(op):
            alike.setdefault((op.time_s is not None, tuple([resource.name for resource, _ in op.cost.amounts])), []).append(id)
        else:
            rest.append(id)
    found: list[Batch] = []
    for (timed, _), ids in alike.items():
        resources = tuple(resource for resource, _ in ops[ids[0]].cost.amounts)
        if len(ids) < FEW or not all(lowered.resolve(resource) for resource in resources):
            rest += ids
            continue
        for batch in _ranked(resources, timed, ids, [ops[id] for id in ids], machine, corrections):
            if isinstance(batch, Batch):
                found.append(batch)
            else:
                rest += batch
    return found, sorted(rest)


def _is_plain(op: Op) -> bool:
    """Whether its numbers say all about an op, and are such that arrays hold them exactly."""
    cost = op.cost
    if not cost.amounts or cost.unknown or op.counters is not None or op.ledger is not None:
        return False
    if op.time_s is not None and not 0 < op.time_s < _INFINITE:
        return False
    for _, amount in cost.amounts:
        if not (0 < amount < _INFINITE if type(amount) is float else type(amount) is int and 0 < amount < _EXACT):
            return False
    return True


def _ranked(
    resources: tuple[Resource, ...], timed: bool, ids: list[int], ops: list[Op], machine: Machine, corrections: Corrections
) -> Iterator[Batch | list[int]]:
    """The batches of ops on the same resources, by the order of their units and their heaviest arithmetic; and ids for one by one."""
    amounts = np.array([[op.cost.amounts[row][1] for op in ops] for row in range(len(resources))], dtype=np.float64)
    time_s = np.array([op.time_s or 0.0 for op in ops])
    columns = Columns(
        resources,
        amounts,
        np.zeros(amounts.shape, dtype=np.bool_),
        time_s,
        np.full(len(ops), timed),
        np.array([op.launches for op in ops], dtype=np.float64),
    )
    placed = place_columns(columns, machine, corrections)
    doubtful = (placed.times <= 0).any(axis=0) | (timed & (placed.floor_s > time_s * (1 + ROUNDING)))
    order = np.argsort(-placed.times, axis=0, kind="stable")
    arithmetic = [row for row, resource in enumerate(resources) if resource.is_compute]
    rates = np.array([[placed.machine.rate(resources[row])] for row in arithmetic])
    heaviest = (amounts[arithmetic] / rates).argmax(axis=0) if arithmetic else np.zeros(len(ops), dtype=np.intp)
    kinds = np.vstack([doubtful, heaviest, order])
    bounds = placed.bound
    for kind in np.unique(kinds, axis=1).T:
        (places,) = np.nonzero((kinds == kind[:, None]).all(axis=0))
        mine = places.tolist()
        if kind[0] or len(mine) < FEW:
            yield [ids[place] for place in mine]
            continue
        yield Batch(
            machine=machine,
            corrections=corrections,
            resources=resources,
            units=tuple(placed.units[unit] for unit in kind[2:]),
            compute=resources[arithmetic[kind[1]]] if arithmetic else None,
            timed=timed,
            ids=[ids[place] for place in mine],
            ops=[ops[place] for place in mine],
            times=placed.times[:, places][kind[2:]],
            time_s=time_s[places],
            bounds=[bounds[place] for place in mine],
        )
