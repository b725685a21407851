"""Placement: a cost on a machine. The whole model is these four lines.

time on unit u   t_u = sum over its resources r of cost[r] / rate[r]
floor            T_min = max over units t_u          (perfect overlap)
serial time      T_max = sum over units t_u          (no overlap)
efficiency       T_min / measured time               (1.0 is on the roof)

>>> toy = Machine.of("toy", {"matrix/bf16": 100, "hbm": 10})
>>> placed = place(Cost.of({"matrix/bf16": 50, "hbm": 10}), toy, time_s=2.0)
>>> placed.bound, placed.floor_s, placed.serial_s, placed.efficiency
('hbm', 1.0, 1.5, 0.5)
"""

from collections.abc import Mapping

from msgspec import Struct

from .cost import NOTHING, Cost
from .errors import MachineError, UsageError, did_you_mean, expect
from .machine import LATENCY, Machine
from .resource import COMPUTE_UNITS, HBM, Resource


class Corrections(Struct, frozen=True, kw_only=True):
    """What keeps real programs off the ideal roof, each off by default, applied in this order.

    1. rates times a ``sustained`` fraction, one for all or by resource or unit;
    2. roofs of the chip itself times (1 − ``communication``), the fraction of time spent communicating;
    3. T = T_min + (1 − ``overlap``)(T_max − T_min);
    4. at least ``launches`` x the machine's launch latency.
    """

    sustained: float | Mapping[str, float] | None = None
    communication: float = 0.0
    overlap: float = 1.0
    launches: float = 0

    def __post_init__(self) -> None:
        if not 0 <= self.communication < 1:
            raise UsageError(f"communication fraction {self.communication:g} is not in [0, 1)")
        if not 0 <= self.overlap <= 1:
            raise UsageError(f"overlap {self.overlap:g} is not in [0, 1]")
        if not self.launches >= 0:
            raise UsageError(f"{self.launches:g} launches; give 0 or more")

    def lower(self, machine: Machine) -> Machine:
        """The machine with the first two corrections in its rates."""
        if self.sustained is not None:
            every = (
                {ceiling.resource.unit: self.sustained for ceiling in machine.ceilings}
                if isinstance(self.sustained, (int, float))
                else self.sustained
            )
            for name in every:
                if not any(name in (c.resource.name, c.resource.unit) for c in machine.ceilings):
                    words = {word: None for c in machine.ceilings for word in (c.resource.unit, c.resource.name)}
                    known = did_you_mean(name, words) or f"; known: {', '.join(words)}"
                    raise UsageError(f"sustained fraction for {name!r}: {machine.name} has no rate for it{known}")
            machine = machine.scaled(every, "sustained fraction")
        if self.communication:
            own = {c.resource.unit: 1 - self.communication for c in machine.ceilings if not c.resource.is_link}
            machine = machine.scaled(own, "communication fraction")
        return machine

    def expect(self, floor_s: float, serial_s: float, machine: Machine) -> float:
        """The time to expect after the last two corrections."""
        return max(floor_s + (1 - self.overlap) * (serial_s - floor_s), self.launches * machine.launch_latency_s)


IDEAL = Corrections()


class Placement(Struct, frozen=True, kw_only=True):
    """A cost on a machine: its time on each unit, bound and efficiency.

    ``times`` are seconds on each unit of hardware, longest first; ``roofs`` the rated resources that the work ran under after
    fallbacks; ``compute`` the arithmetic that takes the most time; ``unrated`` are resources without a known rate;
    ``unknown`` those of unknown amount. With either, ``floor_s`` may be too low.
    """

    machine: Machine
    cost: Cost
    time_s: float | None = None
    executions: float = 1
    times: tuple[tuple[str, float], ...] = ()
    expected_s: float = 0.0
    compute: Resource | None = None
    roofs: tuple[Resource, ...] = ()
    unrated: tuple[Resource, ...] = ()
    unknown: tuple[Resource, ...] = ()

    @property
    def floor_s(self) -> float:
        """T_min: the longest time on any unit, if all overlap."""
        return self.times[0][1] if self.times else 0.0

    @property
    def is_unknown(self) -> bool:
        """Whether no resource has both a known amount and a rate, so that ``floor_s`` is 0 but not a minimum."""
        return not self.times and bool(self.unrated or self.unknown)

    @property
    def serial_s(self) -> float:
        """T_max: the sum over units, if nothing overlaps."""
        return sum(seconds for _, seconds in self.times)

    @property
    def unit(self) -> str | None:
        """The unit of hardware with the longest time; ``None`` when an unrated one may take longer."""
        if not self.times or (self.unrated and self.may_bind):
            return None
        unit, seconds = self.times[0]
        return unit if seconds > 0 else None

    @property
    def may_bind(self) -> tuple[Resource, ...]:
        """The unrated resources that may take the longest."""
        return tuple(resource for resource in self.unrated if may_bind(resource, self.machine))

    @property
    def bound(self) -> str | None:
        """The bound: a unit's name, ``latency``, or ``None`` when the cost is empty or an unrated unit may be the bound.

        Where an amount is unknown the minimum is too; it is at most the measured time, and latency is the bound only where that is below
        one launch.
        """
        if self.unrated and self.may_bind:
            return None
        each = self.executions or 1
        if self.time_s is not None:
            minimum_s = max(self.floor_s, self.time_s) if self.unknown else self.floor_s
            if self.machine.launch_binds(minimum_s / each, self.time_s / each):
                return LATENCY
        return self.unit

    @property
    def efficiency(self) -> float | None:
        """T_min over the measured time; above 1 is never clipped."""
        return self.floor_s / self.time_s if self.time_s and self.unit else None

    @property
    def headroom_s(self) -> float | None:
        """Seconds that a perfect kernel would save."""
        return self.time_s - self.floor_s if self.time_s is not None and self.unit else None

    @property
    def utilization(self) -> dict[str, float]:
        """The share of the measured time for which each unit had to be busy."""
        return {unit: seconds / self.time_s for unit, seconds in self.times} if self.time_s else {}

    def intensity(self, level: Resource | str = HBM) -> float | None:
        """FLOP per byte over one memory level or link."""
        return self.cost.intensity(level)

    def ridge(self, level: Resource | str = HBM) -> float | None:
        """The intensity at which the unit that does the arithmetic would meet the roof of a memory level or link."""
        if self.compute is None or self.machine.resolve(level) is None:
            return None
        return self.machine.ridge(self.compute, level)

    @property
    def attainable(self) -> float | None:
        """The best FLOP/s: all arithmetic in the floor's time; ``None`` when an unrated unit may take longer."""
        return float(self.cost.flops) / self.floor_s if self.cost.flops and self.unit else None

    @property
    def achieved(self) -> float | None:
        """The measured FLOP/s."""
        return float(self.cost.flops) / self.time_s if self.cost.flops is not None and self.time_s else None


def place(cost: Cost, machine: Machine, time_s: float | None = None, corrections: Corrections = IDEAL, executions: float = 1) -> Placement:
    """Minimum time, serial time and bound of a cost on a machine, and the efficiency of a measured time if there is one.

    Cost and time are totals over all ``executions``. The minimum uses the units that have a rate; it is an error only when none has.
    """
    expect(cost, Cost, "rl.Cost.of({'hbm': 3e9}), or the cost of a formula: rl.formulas.matmul(512, 512, 512).cost")
    expect(machine, Machine, "rl.chip('h100')")
    found = place_op(cost, machine, time_s, corrections, executions)
    if found.unrated and not found.times:
        asked = ", ".join(map(str, found.unrated))
        rated = ", ".join(ceiling.resource.name for ceiling in machine.ceilings)
        raise MachineError(f"{machine.name} has no known rate for {asked}; known: {rated}; add one with --set {found.unrated[0]}=…")
    return found


def place_op(
    cost: Cost, machine: Machine, time_s: float | None = None, corrections: Corrections = IDEAL, executions: float = 1
) -> Placement:
    """Like `place`, for one op of many: where no unit has a rate, the result has no times (`Placement.is_unknown`) instead of an error."""
    if time_s is not None and not time_s >= 0:
        raise UsageError(f"measured time of {time_s:g} s; give 0 or more")
    machine = corrections.lower(machine)
    times: dict[str, float] = {}
    heaviest: tuple[float, Resource] | None = None
    unrated, roofs = [], set()
    for resource, amount in cost.amounts:
        ceiling = machine.resolve(resource)
        if ceiling is None:
            unrated.append(resource)
            continue
        seconds = float(amount / ceiling.rate)
        roofs.add(ceiling.resource)
        times[ceiling.resource.unit] = times.get(ceiling.resource.unit, 0.0) + seconds
        if resource.is_compute and (heaviest is None or seconds > heaviest[0]):
            heaviest = (seconds, resource)
    ordered = tuple(sorted(times.items(), key=lambda item: (-item[1], tie_order(item[0]))))
    floor, serial = (ordered[0][1], sum(times.values())) if ordered else (0.0, 0.0)
    return Placement(
        machine=machine,
        cost=cost,
        time_s=time_s,
        executions=executions,
        times=ordered,
        expected_s=corrections.expect(floor, serial, machine),
        compute=heaviest[1] if heaviest else None,
        roofs=tuple(sorted(roofs, key=_name)),
        unrated=tuple(unrated),
        unknown=tuple(sorted(cost.unknown)),
    )


class MinimumTimes:
    """The minimum times of costs on a machine, each computed once: layers of a program have equal costs."""

    def __init__(self, machine: Machine, corrections: Corrections = IDEAL) -> None:
        self._machine = corrections.lower(machine)
        self._known: dict[Cost, float] = {NOTHING: 0.0}

    def __call__(self, cost: Cost) -> float:
        known = self._known.get(cost)
        if known is None:
            known = self._known[cost] = place_op(cost, self._machine).floor_s
        return known


def may_bind(resource: Resource, machine: Machine) -> bool:
    """Whether work on an unrated resource may take the longest: matrix units, main memory, links, vector units if no compute is rated.

    On-chip memories are faster than main memory, and hops are latency, not a unit.
    """
    if resource.is_compute:
        return resource.unit == "matrix" or not machine.compute
    return resource == HBM or (resource.is_link and resource.measure == "B")


def _name(resource: Resource) -> str:
    return resource.name


def tie_order(unit: str) -> tuple[bool, str]:
    """Sort key for units with equal times: the compute unit first, so that a point at the ridge is compute-bound."""
    return unit not in COMPUTE_UNITS, unit


class Fit(Struct, frozen=True):
    """Whether work fits in a memory: what it needs, what there is, and what is left over (negative when it does not fit)."""

    level: Resource
    needed: float
    capacity: float

    @property
    def fits(self) -> bool:
        return self.needed <= self.capacity

    @property
    def spare(self) -> float:
        return self.capacity - self.needed


def fit(needed: float, machine: Machine, level: Resource | str = HBM) -> Fit | None:
    """Whether a footprint in bytes fits into a memory; ``None`` when its capacity is not known."""
    capacity = machine.capacity(level)
    if capacity is None:
        return None
    return Fit(level if isinstance(level, Resource) else Resource(level), float(needed), capacity)
