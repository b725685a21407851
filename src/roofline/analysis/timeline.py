"""The timeline: the seconds of each bucket of a device's time by cause, like `losses` for a whole program.

An op's self time in a bucket divides into minimum time, unneeded work and loss as all of its self time does. Ops of a bucket that are not
listed individually are divided in the same proportions as such ops in all buckets together, so a lane's sums are exact. The rest of a
bucket is idle.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import floor, log10

from ..causes import CAUSES, IDLE, NEEDED, UNNEEDED, UNPRICED
from ..report import LaneInfo
from ..workload import Lane
from .op_times import OpTime

MOST_OPS, OPS_IN_ALL = 8, 64  # most ops listed per bucket, and per bucket over all devices
DIGITS = 4  # digits after the first of a bucket's seconds: finer than any screen
Split = Mapping[str, float]  # shares of an op's time: at the roof and by cause


def timeline_info(lanes: Sequence[Lane], ops: Iterable[OpTime]) -> tuple[LaneInfo, ...]:
    """The lanes of a report, with seconds by cause."""
    splits = [_split(one) for one in ops]
    listed = max(1, min(MOST_OPS, OPS_IN_ALL // len({lane.device for lane in lanes})))
    return tuple(_lane(lane, splits, listed) for lane in lanes)


def _split(one: OpTime) -> Split:
    """The shares of an op's time by cause."""
    if not one.own_s:
        return {one.cause: 1.0}
    ran = min(one.floor_s, one.own_s)
    needed = min(one.needed.floor_s, ran) if one.needed and one.needed.floor_s is not None else ran
    shares = {NEEDED: needed / one.own_s, UNNEEDED: (ran - needed) / one.own_s}
    shares[one.cause] = shares.get(one.cause, 0.0) + 1 - ran / one.own_s
    return {part: share for part, share in shares.items() if share}


def _mix(spent: Iterable[tuple[int, float]], splits: Sequence[Split]) -> dict[str, float]:
    """The seconds of ops by cause."""
    found: dict[str, float] = {}
    for op, seconds in spent:
        for part, share in splits[op].items():
            found[part] = found.get(part, 0.0) + seconds * share
    return found


def _lane(lane: Lane, splits: Sequence[Split], listed: int) -> LaneInfo:
    others = _mix(lane.rest_s, splits)
    unlisted = sum(others.values())
    digits = DIGITS - floor(log10(lane.bucket_s))
    rows: dict[str, list[float]] = {part: [0] * len(lane.busy_s) for part in (NEEDED, *CAUSES)}
    for bucket, (busy, ops, seconds) in enumerate(zip(lane.busy_s, lane.ops, lane.ops_s, strict=True)):
        length = min(lane.bucket_s, lane.time_s - bucket * lane.bucket_s)
        if not busy and not ops:
            rows[IDLE][bucket] = round(length, digits + 1)
            continue
        found = _mix(zip(ops, seconds, strict=True), splits)
        rest = max(0.0, busy - sum(seconds))
        for part, mine in others.items() if unlisted else ((UNPRICED, 1.0),):
            found[part] = found.get(part, 0.0) + rest * mine / (unlisted or 1.0)
        found[IDLE] = max(0.0, length - busy)
        for part, mine in _rounded(found, length, digits).items():
            rows[part][bucket] = mine
    return LaneInfo(
        device=lane.device,
        step=lane.step,
        start_s=lane.start_s,
        time_s=lane.time_s,
        bucket_s=lane.bucket_s,
        at_roof_s=tuple(rows.pop(NEEDED)),
        causes={cause: tuple(seconds) for cause, seconds in rows.items() if any(seconds)},
        ops=tuple(ops[:listed] for ops in lane.ops),
        ops_s=tuple(tuple(round(one, digits) for one in seconds[:listed]) for seconds in lane.ops_s),
        host=lane.host,
    )


def _rounded(found: Mapping[str, float], length: float, digits: int) -> dict[str, float]:
    """The parts of a bucket, rounded; the largest absorbs the rounding errors, so that they sum to its length."""
    largest = max(found, key=lambda part: found[part])
    parts = {part: rounded for part, seconds in found.items() if part != largest and (rounded := round(seconds, digits))}
    return {**parts, largest: round(length - sum(parts.values()), digits + 1)}
