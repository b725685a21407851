"""The ops of a program placed on a machine."""

from collections.abc import Sequence

from msgspec.structs import replace

from ..causes import UNPRICED, cause_of
from ..machine import Machine
from ..placement import Corrections, Placement, place_op
from ..resource import HBM, Resource
from ..workload import AUTOTUNING, Op
from .cache_hits import TOLERANCE, with_cache_hits
from .findings.single_ops import Placed, doubt


class PlacedOps:
    """Ops placed on a machine, and fields of their placements in columns, by id.

    ``unrated`` has the ops that use resources without a known rate. ``moved`` are the ops whose bytes a cache served, with the corrected
    bytes.
    """

    def __init__(self, ops: Sequence[Op], machine: Machine, corrections: Corrections) -> None:
        self.machine = corrections.lower(machine)
        self._corrections = replace(corrections, sustained=None, communication=0.0)  # the corrections that are not in the rates
        self.placements: list[Placement] = []
        self.moved: dict[int, Op] = {}
        known: dict[tuple[int, float | None, float], Placement] = {}  # ops of equal layers share their costs
        for number, op in enumerate(ops):
            key = (id(op.cost), op.time_s, op.launches)
            placement = known.get(key)
            if placement is None:
                placement = known[key] = self._placement_of(op)
            if placement.unit == HBM.name and (placement.efficiency or 0.0) > TOLERANCE and (cached := with_cache_hits(op, placement)):
                self.moved[number], placement = cached, self._placement_of(cached)
            self.placements.append(placement)
        self.ops = [self.moved.get(id, op) for id, op in enumerate(ops)] if self.moved else ops
        self.floor_s = [placement.floor_s for placement in self.placements]
        self.unit = [placement.unit for placement in self.placements]
        self.bound = [placement.bound for placement in self.placements]
        self.time_s = [op.time_s for op in self.ops]
        self.priced = [op.priced for op in self.ops]
        self.unrated: dict[int, tuple[Resource, ...]] = {
            id: placement.unrated for id, placement in enumerate(self.placements) if placement.unrated
        }

    def __getitem__(self, id: int) -> Placed:
        return Placed(id, self.ops[id], self.placements[id])

    @property
    def causes(self) -> list[str]:
        """The cause to which the time of each op above its minimum is lost."""
        of_bound = {bound: cause_of(bound) for bound in {*self.bound}}
        return [self._cause(id, op, of_bound[bound]) for id, (op, bound) in enumerate(zip(self.ops, self.bound, strict=True))]

    def _cause(self, id: int, op: Op, of_bound: str) -> str:
        if op.category == AUTOTUNING:
            return AUTOTUNING
        is_unsure = not self.priced[id] or (self.unit[id] is None and id in self.unrated)
        return UNPRICED if is_unsure else of_bound

    def doubts(self) -> dict[int, str]:
        """The kind of doubt about each op that is faster than its roofline allows; see `doubt` for one."""
        too_fast = [id for id, placement in enumerate(self.placements) if (placement.efficiency or 0.0) > TOLERANCE]
        return {id: kind for id in too_fast if (kind := doubt(self[id]))}

    def _placement_of(self, op: Op) -> Placement:
        return place_op(op.cost, self.machine, op.time_s, self._corrections, op.launches)
