"""Points: a program as a whole under the roof, all of it, its average step, and each of its steps."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from .advice import Placed
from .cost import NOTHING, Amount, Cost
from .machine import Machine
from .placement import Corrections, hold, place
from .report import Amounts, Point
from .workload import Recording

_EXACT_INT = 2**53  # beyond this a JSON reader may lose digits of an integer, so larger ones are written as floats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Some of a program's work: its cost, the sum of its ops' floors, and the time it took."""

    cost: Cost
    floors_s: float
    time_s: float | None
    busy_s: float | None


def points(recording: Recording, placed: Sequence[Placed], machine: Machine, corrections: Corrections) -> tuple[Point, ...]:
    """The whole program, then its average step and every complete step, where the recording saw steps.

    Each stands with infeed and outfeed, and once more without them in a program that has any.
    """
    if not placed:
        return ()
    made = []
    for whole in (True, False) if any(map(_feeds, placed)) else (True,):
        ops = placed if whole else [one for one in placed if not _feeds(one)]
        fed = sum(one.op.self_time_s or one.op.time_s or 0.0 for one in placed if not whole and _feeds(one))
        made.append(_point("total", None, _total(recording, ops, fed), machine, corrections, whole))
        steps = [(step.key, _step(ops, step.key, step.wall_s, step.busy_s)) for step in recording.steps if step.complete]
        if steps:
            made.append(_point("average", None, _average([part for _, part in steps]), machine, corrections, whole))
            made += [_point("step", key, part, machine, corrections, whole) for key, part in steps]
    return tuple(made)


def _feeds(one: Placed) -> bool:
    """Whether an op only brings data in or out."""
    return "infeed" in one.op.category or "outfeed" in one.op.category


def _total(recording: Recording, ops: Iterable[Placed], fed_s: float) -> _Part:
    """All of it: wall time if the source has a clock, else the sum of the ops' times."""
    kept = list(ops)
    wall = recording.coverage.wall_s
    if wall is None:
        times = [one.op.time_s for one in kept if one.op.time_s is not None]
        wall = sum(times) if times else None
    elif fed_s:
        wall -= fed_s
    busy = recording.coverage.busy_s
    cost: Cost = sum((one.op.cost for one in kept), NOTHING)
    floors = sum(one.placement.floor_s for one in kept)
    return _Part(cost=cost, floors_s=floors, time_s=wall, busy_s=busy if busy is None else busy - fed_s)


def _step(ops: Iterable[Placed], key: int, wall_s: float | None, busy_s: float | None) -> _Part:
    """One step: each op by the share of its executions that fell into it."""
    cost, floors = NOTHING, 0.0
    for one in ops:
        count = sum(share.count for share in one.op.by_step if share.key == key)
        if count:
            part = Fraction(count) / Fraction(one.op.count)
            cost += one.op.cost * part
            floors += one.placement.floor_s * float(part)
    return _Part(cost=cost, floors_s=floors, time_s=wall_s, busy_s=busy_s)


def _average(parts: Sequence[_Part]) -> _Part:
    """The mean of complete steps; a time that one of them lacks is unknown."""
    share = Fraction(1, len(parts))
    cost: Cost = sum((part.cost for part in parts), NOTHING)
    times = [part.time_s for part in parts if part.time_s is not None]
    busy = [part.busy_s for part in parts if part.busy_s is not None]
    return _Part(
        cost=cost * share,
        floors_s=sum(part.floors_s for part in parts) / len(parts),
        time_s=sum(times) / len(times) if len(times) == len(parts) else None,
        busy_s=sum(busy) / len(busy) if len(busy) == len(parts) else None,
    )


def _point(scope: str, step: int | None, part: _Part, machine: Machine, corrections: Corrections, whole: bool) -> Point:
    # A whole program that no unit is rated for is an error; a step of one is not.
    found = (place if scope == "total" else hold)(part.cost, machine, part.time_s, corrections)
    return Point(
        scope=scope,
        step=step,
        infeed_outfeed=whole,
        time_s=part.time_s,
        busy_s=part.busy_s,
        work=amounts(part.cost, "FLOP"),
        flops=number(part.cost.flops),
        bytes=amounts(part.cost, "B"),
        intensity=found.intensity(),
        bound=found.bound,
        floor_s=found.floor_s,
        serial_s=found.serial_s,
        efficiency=found.efficiency,
        op_efficiency=part.floors_s / part.time_s if part.time_s and part.floors_s else None,
        utilization=found.utilization,
    )


def amounts(cost: Cost, measure: str) -> Amounts:
    """The amounts of a cost that are counted in FLOP, B or hop, by name."""
    return {resource.name: number(cost[resource]) for resource in cost if resource.measure == measure}


def number(amount: Amount | None) -> float | None:
    """An exact amount as JSON can carry it: whole numbers as integers while they are exact there, anything else as a float."""
    if isinstance(amount, Fraction) and amount.denominator == 1:
        amount = amount.numerator
    if isinstance(amount, int) and amount < _EXACT_INT:
        return amount
    return None if amount is None else float(amount)
