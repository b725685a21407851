"""The ops of a program placed on a machine: one by one, or from arrays where there are very many."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from ..columns.lazy_rows import column
from ..columns.op_columns import MANY, OpColumns, known_amounts
from ..machine import Machine
from ..placement import IDEAL, Corrections, Placement, place_op
from ..resource import HBM, Resource
from ..workload import AUTOTUNING, Op
from .cache_hits import COMPULSORY, TOLERANCE, with_cache_hits
from .findings.single_ops import ROUNDING, Placed, doubt, faster_memories
from .losses import UNPRICED, cause_of


class PlacedOps:
    """Ops placed on a machine, in columns by id; the full `Placement` of an op is computed on demand.

    ``bound``, ``unit`` and ``floor_s`` are as in a placement, ``compute`` is the compute resource that takes the most time, ``roofs`` the
    rated resources used; ``unrated`` has the ops that use resources without a known rate, ``blank`` those without a minimum. ``moved`` are
    ops whose bytes a cache served, with the corrected bytes. ``times`` are seconds by unit, where there are very many ops.
    """

    def __init__(self, ops: Sequence[Op], machine: Machine, corrections: Corrections) -> None:
        self.ops, self.machine = ops, corrections.lower(machine)
        self._corrections = replace(corrections, sustained=None, communication=0.0)  # the corrections that are not in the rates
        count = len(ops)
        self.floor_s: list[float] = [0.0] * count
        self.unit: list[str | None] = [None] * count
        self.bound: list[str | None] = [None] * count
        self.compute: list[Resource | None] = [None] * count
        self.roofs: list[tuple[str, ...]] = [()] * count
        self.unrated: dict[int, tuple[Resource, ...]] = {}
        self.blank: set[int] = set()
        self.times: dict[str, list[float]] = {}
        self.priced: list[bool] = column(ops, "priced")
        self.time_s: list[float | None] = column(ops, "time_s")
        self._alone: dict[int, Placement] = {}
        moved = {id: op for id in (self._place_many() if count > MANY else range(count)) if (op := self._place(id))}
        for id in self._too_fast_for_memory():
            if id not in self._alone and (op := self._place(id)):
                moved[id] = op
        self.moved: Mapping[int, Op] = dict(sorted(moved.items()))
        if moved:
            self.ops = ops.recounted(moved) if isinstance(ops, OpColumns) else [moved.get(id, op) for id, op in enumerate(ops)]

    def __getitem__(self, id: int) -> Placed:
        """One op, placed by itself."""
        op = self.ops[id]
        return Placed(id, op, self._alone.get(id) or self._placement_of(op))

    def plain(self, ids: Iterable[int]) -> list[int]:
        """The ops that are fully described by these columns: placed from arrays, with rated resources only."""
        if not isinstance(self.ops, OpColumns) or self._corrections != IDEAL:
            return []
        return [id for id in ids if id not in self._alone and id not in self.unrated]

    @property
    def causes(self) -> list[str]:
        """The cause to which the time of each op above its minimum is lost."""
        known = {bound: cause_of(bound) for bound in {*self.bound}}
        if not self.unrated and all(self.priced):
            found = list(map(known.__getitem__, self.bound))
        else:
            found = [
                UNPRICED if not priced or (unit is None and id in self.unrated) else known[bound]
                for id, (bound, unit, priced) in enumerate(zip(self.bound, self.unit, self.priced, strict=True))
            ]
        categories = column(self.ops, "category")
        if AUTOTUNING in categories:
            return [AUTOTUNING if category == AUTOTUNING else cause for category, cause in zip(categories, found, strict=True)]
        return found

    def expected_s(self, floor_s: float, serial_s: float) -> float:
        """The time of an op after corrections."""
        return self._corrections.expect(floor_s, serial_s, self.machine)

    def _above_roof(self) -> list[int]:
        """The ops that took less than their minimum time."""
        each = enumerate(zip(self.floor_s, self.time_s, self.unit, strict=True))
        return [id for id, (floor_s, time_s, unit) in each if time_s and floor_s / time_s > TOLERANCE and unit]

    def doubts(self) -> dict[int, str]:
        """The kind of doubt about each op that is faster than its roofline allows; see `doubt` for one."""
        ids = self._above_roof()
        if len(self.ops) <= MANY:
            return {id: kind for id in ids if (kind := doubt(self[id]))}
        fastest = max([memory.rate for memory in faster_memories(self.machine)], default=0.0) if HBM.name in self.unit else 0.0
        others = [seconds for unit, seconds in self.times.items() if unit != HBM.name]
        found = {}
        for id, moved in zip(ids, known_amounts(self.ops, HBM, ids), strict=True):
            time_s = self.time_s[id] or 0.0
            longest = max([seconds[id] for seconds in others], default=0.0)
            between = self.unit[id] == HBM.name and moved / time_s <= fastest and longest <= time_s * (1 + ROUNDING)
            found[id] = "between-roofs" if between else "above-roof"
        return found

    def _too_fast_for_memory(self) -> list[int]:
        """The ops that are too fast for main memory to have served their bytes."""
        origins = column(self.ops, "bytes_provenance")
        return [id for id in self._above_roof() if origins[id] in COMPULSORY] if {*COMPULSORY} & {*origins} else []

    def _place_many(self) -> Iterable[int]:
        """Place from arrays the ops that arrays represent exactly. Returns the other ops."""
        from .placed_columns import place_many  # imports numpy, which only very many ops need

        found = place_many(self.ops, self.machine)
        if found is None:
            return range(len(self.ops))
        self.floor_s, self.unit, self.bound, self.compute, self.roofs = found.floor_s, found.unit, found.bound, found.compute, found.roofs
        self.times, self.unrated = found.times, found.unrated
        self.blank = {id for id in found.idle if id in found.unrated or not self.priced[id]}
        return found.alone

    def _place(self, id: int) -> Op | None:
        """Place one op. Returns it with its bytes counted on the cache that served them, if one did."""
        op = self.ops[id]
        placement = self._placement_of(op)
        cached = with_cache_hits(op, placement)
        self._alone[id] = placement = self._placement_of(cached) if cached else placement
        self.floor_s[id], self.unit[id], self.bound[id] = placement.floor_s, placement.unit, placement.bound
        for each in self.times.values():
            each[id] = 0.0
        for unit, seconds in placement.times if len(self.ops) > MANY else ():
            if unit not in self.times:
                self.times[unit] = [0.0] * len(self.ops)
            self.times[unit][id] = seconds
        self.compute[id], self.roofs[id] = placement.compute, tuple(resource.name for resource in placement.roofs)
        if placement.unrated:
            self.unrated[id] = placement.unrated
        if placement.is_unknown:
            self.blank.add(id)
        return cached

    def _placement_of(self, op: Op) -> Placement:
        return place_op(op.cost, self.machine, op.time_s, self._corrections, op.launches)
