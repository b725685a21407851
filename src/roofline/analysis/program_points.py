"""Points: the whole program on the roofline: in total, by hardware counters, its average step, and each of its steps."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from ..causes import CAUSES, UNNEEDED
from ..cost import Amount, Cost, part_of, sum_of_known, tidy
from ..machine import Machine
from ..placement import Corrections, place, place_op
from ..quantities import ROUNDING
from ..report import Amounts, Point
from ..resource import Resource, named
from ..workload import Coverage, Op, Recording, Share, Step, averaged, feeds
from .counters import Hardware, hardware, launches_kernels
from .link_directions import busier_way, directed
from .losses import Losses, OpLoss, split_losses
from .needed_work import Needed
from .op_times import OpTime, OpTimes, values_at

_EXACT_INT = 2**53  # beyond this a JSON reader may lose digits of an integer, so larger ones are written as floats


class _Work(Struct, frozen=True):
    """The executed work, the needed work, the unneeded work by class, and the FLOP as other counters count them."""

    cost: Cost
    needed: Cost
    unneeded: Mapping[str, Amount] = {}
    conventions: Mapping[str, Amount] = {}


_StepWork = dict[tuple[tuple[int, float], ...], _Work]  # by ops and counts, because most steps run the same work


class _Part(Struct, frozen=True, kw_only=True):
    """A part of a program on all devices: its work, the sum of its ops' minimum times, its device-seconds, and the losses.

    ``devices`` is the number of devices that ran it: device-seconds over it are the mean wall time.
    """

    work: _Work
    floors_s: float = 0.0
    time_s: float | None
    busy_s: float | None
    losses: Losses | None = None
    devices: float = 1
    slowest_s: float | None = None
    span_s: float | None = None


def points(recording: Recording, ops: OpTimes, machine: Machine, corrections: Corrections) -> tuple[Point, ...]:
    """The whole program, by the model and by counters where there are any, then its average step and every complete step.

    Each is given with infeed and outfeed, and in a program that has any, also without them, except for counters, which cannot be separated.
    """
    if not len(ops):
        return ()
    made = []
    shares = _shares(ops) if recording.steps else {}
    done: _StepWork = {}
    cover = recording.coverage
    for whole in (True, False) if any(map(feeds, {*ops.category})) else (True,):
        total = _total(ops, cover, len(recording.devices), whole)
        made.append(_point("total", None, total, machine, corrections, whole))
        if whole:
            if any(op.counters for op in recording.workload.ops):
                counted = hardware(recording.workload, launches_kernels(recording.kernels) or None)
                made += [] if counted is None else [_hardware(counted, total, machine, corrections)]
            elif recording.measured and total.time_s:
                made.append(_measured(recording.measured, total))
        is_all = _is_attributed(cover)
        steps = {step.step: _step(shares.get(step.step, ()), step, whole, done, is_all) for step in recording.steps if step.complete}
        if steps:
            average = _average([steps[step.step] for step in averaged(recording.steps)])
            made.append(_point("average", None, average, machine, corrections, whole))
            made += [_point("step", key, part, machine, corrections, whole) for key, part in steps.items()]
    return tuple(made)


def _is_attributed(cover: Coverage) -> bool:
    """Whether the ops account for all busy time."""
    return cover.attributed_s is not None and bool(cover.busy_s) and cover.attributed_s >= (1 - ROUNDING) * (cover.busy_s or 0)


def _total(every: OpTimes, cover: Coverage, devices: int, whole: bool) -> _Part:
    """The whole program, with or without infeed and outfeed: wall time over all devices if the source has it, else the sum of op times."""
    fed_in = frozenset() if whole else {category for category in {*every.category} if feeds(category)}
    kept = [id for id, category in enumerate(every.category) if category not in fed_in] if fed_in else range(len(every))
    fed = 0.0 if whole else sum([seconds for seconds, category in zip(every.own_s, every.category, strict=True) if category in fed_in])
    devices = max(devices, 1) if cover.run_s is not None else 1
    wall = less(cover.wall_s if cover.run_s is None else cover.run_s * devices, fed)
    if wall is None:
        wall = sum_of_known([op.time_s for op in values_at(every.ops, kept)])
    busy = less(cover.busy_s, fed)
    least = {id: needed.floor_s for id, needed in every.needed.items()}
    return _Part(
        work=_whole_work(every, kept),
        floors_s=sum(values_at(every.waited_s, kept)),
        time_s=wall,
        busy_s=busy,
        losses=None if wall is None else _losses(every, kept, least, wall, busy),
        devices=devices,
        slowest_s=None if cover.run_s is None or wall is None else wall / devices,
        span_s=None if cover.run_s is None or wall is None else wall / devices,
    )


def _losses(every: OpTimes, kept: Sequence[int], least: Mapping[int, float], wall_s: float, busy_s: float | None) -> Losses:
    """The losses of some ops; ``least`` is the minimum time of an op's needed work, where that is less than all of its work."""
    return split_losses(((every.own_s[id], every.floor_s[id], every.cause[id], least.get(id)) for id in kept), wall_s, busy_s)


def less(seconds: float | None, fed_s: float) -> float | None:
    """A time without that of infeed and outfeed; ``None`` stays."""
    return None if seconds is None else max(seconds - fed_s, 0.0)


def _shares(ops: Iterable[OpTime]) -> dict[int, list[tuple[OpTime, Share]]]:
    """The ops and counts of each step."""
    found: dict[int, list[tuple[OpTime, Share]]] = {}
    for one in ops:
        for share in one.op.by_step:
            if share.count:
                found.setdefault(share.key, []).append((one, share))
    return found


def _step(shares: Iterable[tuple[OpTime, Share]], step: Step, whole: bool, done: _StepWork, is_all: bool) -> _Part:
    """One step: each op's work by the share of its executions in the step, its self time by the share of its time."""
    floors, fed, losses, kept = 0.0, 0.0, [], []
    for one, share in shares:
        own = one.own_s * (share.time_s / one.op.time_s) if one.op.time_s else 0.0
        if not whole and feeds(one.op.category):
            fed += own
            continue
        part = share.count / one.op.count
        floors += one.floor_s * part
        losses.append(OpLoss(own, one.floor_s * part, one.cause, one.needed.floor_s * part if one.needed else None))
        kept.append((one, share.count))
    seconds = step.time_s if step.device_seconds is None else step.device_seconds
    devices = max(1, round(seconds / step.time_s)) if seconds and step.time_s else 1
    wall, busy = less(seconds, fed), less(None if step.busy_s is None else step.busy_s * devices, fed)
    ran = tuple([(one.id, count) for one, count in kept])
    if ran not in done:
        done[ran] = _work([(one.op, one.needed, count) for one, count in kept])
    return _Part(
        work=done[ran],
        floors_s=floors,
        time_s=wall,
        busy_s=busy,
        losses=None if wall is None else split_losses(losses, wall, busy, is_all=is_all),
        devices=devices,
        slowest_s=None if fed else step.slowest_s,  # infeed and outfeed time per device is not known
        span_s=less(step.span_s, fed / devices),
    )


def _work(ran: Sequence[tuple[Op, Needed | None, float]]) -> _Work:
    """The work of these executions of ops, and the needed work where that is less."""
    whole = [(directed(op), count, op.count) for op, _, count in ran]
    done = _sum(whole)
    conventions: dict[str, Amount] = {}
    for op, count in [(op, count) for op, _, count in ran if op.conventions]:
        for name, flops in op.conventions.items():
            conventions[name] = conventions.get(name, 0) + part_of(flops, count, op.count)
    less = [(needed, count, op.count) for op, needed, count in ran if needed]
    if not less:
        return _Work(done, done, conventions=conventions)
    unneeded: dict[str, Amount] = {}
    for needed, count, of in less:
        for kind, amount in needed.unneeded.items():
            unneeded[kind] = unneeded.get(kind, 0) + part_of(amount, count, of)
    kept = _sum([(needed.cost, count, op.count) if needed else part for part, (op, needed, count) in zip(whole, ran, strict=True)])
    return _Work(done, kept, unneeded, conventions)


def _whole_work(ops: OpTimes, kept: Sequence[int]) -> _Work:
    """The work of all executions of some ops."""
    return _work([(op, ops.needed.get(id), op.count) for id, op in zip(kept, values_at(ops.ops, kept), strict=True)])


def _sum(parts: Sequence[tuple[Cost, float, float]]) -> Cost:
    """The sum of costs, each scaled by the share of its executions. Equal ones, as of equal layers, are added at once."""
    amounts: dict[str, Amount] = {}  # by the name of the resource
    unknown: set[Resource] = set()
    for (cost, count, of), times in _repeated(parts):
        if cost.unknown:
            unknown |= cost.unknown
        for resource, amount in cost.amounts:
            part = amount if count == of else part_of(amount, count, of)
            amounts[resource.name] = amounts.get(resource.name, 0) + (part if times == 1 else part * times)
    return busier_way(Cost(tuple((named(name), amounts[name]) for name in sorted(amounts)), frozenset(unknown)))


def _repeated(parts: Sequence[tuple[Cost, float, float]]) -> Iterable[tuple[tuple[Cost, float, float], int]]:
    """Parts of costs with their multiplicity. Sums of floats depend on the order, so those parts keep theirs."""
    keys = [id(cost) if count == of else (id(cost), count, of) for cost, count, of in parts]
    first = dict(zip(keys, parts, strict=True))
    if any(isinstance(amount, float) for cost, _, _ in first.values() for _, amount in cost.amounts):
        return ((part, 1) for part in parts)
    return zip(first.values(), Counter(keys).values(), strict=True)


def _average(parts: Sequence[_Part]) -> _Part:
    """The mean of complete steps; a time that one of them lacks is unknown."""
    cost, needed = (Cost.total(costs) for costs in zip(*((part.work.cost, part.work.needed) for part in parts), strict=True))
    unneeded: dict[str, Amount] = {}
    conventions: dict[str, Amount] = {}
    for part in parts:
        for kind, amount in part.work.unneeded.items():
            unneeded[kind] = unneeded.get(kind, 0) + part_of(amount, 1, len(parts))
        for name, flops in part.work.conventions.items():
            conventions[name] = conventions.get(name, 0) + part_of(flops, 1, len(parts))
    losses = [part.losses for part in parts if part.losses is not None]
    time_s = _mean([part.time_s for part in parts])
    wall = _mean([None if part.time_s is None else part.time_s / part.devices for part in parts])
    return _Part(
        work=_Work(_share(cost, len(parts)), _share(needed, len(parts)), unneeded, conventions),
        floors_s=sum(part.floors_s for part in parts) / len(parts),
        time_s=time_s,
        busy_s=_mean([part.busy_s for part in parts]),
        losses=_mean_losses(losses) if len(losses) == len(parts) else None,
        devices=time_s / wall if time_s and wall else 1,
        slowest_s=_mean([part.slowest_s for part in parts]),
        span_s=_mean([part.span_s for part in parts]),
    )


def _share(cost: Cost, of: int) -> Cost:
    return Cost(tuple((resource, part_of(amount, 1, of)) for resource, amount in cost.amounts), cost.unknown)


def _mean(seconds: Sequence[float | None]) -> float | None:
    known = [one for one in seconds if one is not None]
    return sum(known) / len(known) if known and len(known) == len(seconds) else None


def _mean_losses(losses: Sequence[Losses]) -> Losses:
    return Losses(
        sum(one.at_roof_s for one in losses) / len(losses),
        {cause: sum(one.lost[cause] for one in losses) / len(losses) for cause in CAUSES},
    )


def _hardware(counted: Hardware, total: _Part, machine: Machine, corrections: Corrections) -> Point:
    """The program by hardware counters of its kernels.

    Its time is the program's when every op that launches kernels was counted; else that of the ops that were.
    """
    time_s, busy_s = (total.time_s, total.busy_s) if counted.covers_all else (counted.time_s, counted.time_s)
    devices = total.devices if counted.covers_all else 1
    part = _Part(work=_Work(counted.cost, counted.cost), time_s=time_s, busy_s=busy_s, devices=devices)
    return _point("hardware", None, part, machine, corrections, True)


def _measured(busy: Mapping[str, float], total: _Part) -> Point:
    """The point from measured utilization: a unit that was busy for a share of the time needs that time. Amounts stay unknown."""
    assert total.time_s is not None
    wall = total.time_s / total.devices
    times = {unit: share * wall for unit, share in busy.items()}
    bound = max(sorted(times), key=lambda unit: times[unit])
    return Point(
        scope="hardware",
        time_s=wall,
        busy_s=_over(total.busy_s, total.devices),
        device_seconds=total.time_s,
        work={unit: None for unit in busy if named(unit).is_compute},
        bytes={unit: None for unit in busy if not named(unit).is_compute},
        bound=bound,
        floor_s=times[bound],
        serial_s=sum(times.values()),
        efficiency=busy[bound],
        utilization=dict(busy),
    )


def _point(scope: str, step: int | None, part: _Part, machine: Machine, corrections: Corrections, whole: bool) -> Point:
    # If no unit has a rate, that is an error for a whole program without a time, about which there is nothing else to report.
    cost = part.work.cost
    found = (place if scope == "total" and part.time_s is None else place_op)(cost, machine, part.time_s, corrections)
    return Point(
        scope=scope,
        step=step,
        infeed_outfeed=whole,
        time_s=_over(part.time_s, part.devices),
        slowest_s=part.slowest_s,
        span_s=part.span_s,
        busy_s=_over(part.busy_s, part.devices),
        device_seconds=part.time_s,
        work=amounts(cost, "FLOP"),
        flops=number(cost.flops),
        bytes=amounts(cost, "B"),
        hops=amounts(cost, "hop"),
        known=known_parts(cost),
        intensity=found.intensity(),
        bound=found.bound,
        floor_s=None if found.is_unknown else found.floor_s / part.devices,
        serial_s=None if found.is_unknown else found.serial_s / part.devices,
        efficiency=found.efficiency,
        op_efficiency=_op_efficiency(part),
        utilization=found.utilization,
        at_roof_s=part.losses.at_roof_s / part.devices if part.losses else None,
        floors_s=part.floors_s / part.devices if part.floors_s else None,
        lost={cause: seconds / part.devices for cause, seconds in part.losses.lost.items()} if part.losses else {},
        mfu=_utilization(part.work.needed, machine, part.time_s),
        hfu=_utilization(cost, machine, part.time_s),
        needed=amounts(part.work.needed, "FLOP") if part.work.unneeded else None,
        unneeded={kind: number(amount) or 0 for kind, amount in part.work.unneeded.items()},
        flops_by_convention={name: number(tidy(flops)) or 0 for name, flops in part.work.conventions.items()},
    )


def _op_efficiency(part: _Part) -> float | None:
    """The share of the time that the ops' minimum times take, where ops that overlap share the time in which they ran."""
    if not part.time_s or not part.floors_s or part.losses is None:
        return None
    return (part.losses.at_roof_s + part.losses.lost[UNNEEDED]) / part.time_s


def _utilization(cost: Cost, machine: Machine, time_s: float | None) -> float | None:
    """The time that matrix work takes at its peak rates, over the time."""
    matrix = [(resource, amount) for resource, amount in cost.amounts if resource.unit == "matrix" and machine.resolve(resource)]
    return sum(float(amount) / machine.rate(resource) for resource, amount in matrix) / time_s if time_s and matrix else None


def _over(seconds: float | None, devices: float) -> float | None:
    return None if seconds is None else seconds / devices


def amounts(cost: Cost, measure: str) -> Amounts:
    """The amounts of a cost that are counted in FLOP, B or hop, by name."""
    return {resource.name: number(amount) for resource, amount in cost.items() if resource.measure == measure}


def known_parts(cost: Cost) -> dict[str, float]:
    """The known part of each amount that is not fully known."""
    return {resource.name: number(amount) or 0 for resource, amount in cost.amounts if resource in cost.unknown} if cost.unknown else {}


def number(amount: Amount | None) -> float | None:
    """An exact amount as JSON can carry it: whole numbers as integers while they are exact there, anything else as a float."""
    if amount is None or type(amount) is float or (type(amount) is int and amount < _EXACT_INT):
        return amount
    whole = tidy(amount)
    return whole if isinstance(whole, int) and whole < _EXACT_INT else float(whole)
