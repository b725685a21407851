"""Stragglers: how the time of each op differs between devices and hosts, and which one delays the others.

An op's time on a device is its mean over the executions there, so that devices which ran it more often can be compared. Synchronized
devices wait for the slowest:

    spread    slowest / median
    waiting   sum over devices of executions x (slowest − own)      in device-seconds

In a collective it is the other way round: the device that arrives last waits least, so the fastest one is the straggler.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from ...report import Device, DeviceShare, OpInfo
from ...resource import SCALE_UP
from ...workload import Fact
from .evidence import Evidence

KIND = "straggler"
# Choices: lower thresholds would report devices that are slow by chance.
SLOWER = 1.05  # times the median: smaller differences are noise
CONSISTENT = 0.75  # of the op time: a straggler is slower in at least this share
WAITS_LESS = 0.75  # of the median wait in collectives: a device that waits less arrived late
_EXCHANGE = re.compile(r"all-reduce|all-gather|reduce-scatter|all-to-all|collective|\bsend\b|\brecv\b|ragged")


class Spread(Struct, frozen=True, kw_only=True):
    """The time of one op on the devices (or hosts) that ran it: seconds per execution, and seconds waited in total."""

    op: int
    name: str
    category: str
    exchange: bool
    places: int
    fastest: str
    fastest_s: float
    median_s: float
    slowest: str
    slowest_s: float
    waiting_s: float

    @property
    def spread(self) -> float | None:
        """Slowest over median."""
        return self.slowest_s / self.median_s if self.median_s else None


def median(times: Iterable[float]) -> float:
    """The middle one, or the mean of the middle two. Every report needs it, and to import `statistics` takes 5 ms."""
    order = sorted(times)
    half = len(order) // 2
    return order[half] if len(order) % 2 else (order[half - 1] + order[half]) / 2


def is_exchange(op: OpInfo) -> bool:
    """Whether the op is a collective or a transfer between devices, in which they wait for each other."""
    return bool(_EXCHANGE.search(op.category)) or op.bound in (*SCALE_UP, "dcn")


def spreads(ops: Iterable[OpInfo], shares: Iterable[DeviceShare], devices: Sequence[Device], by: str = "device") -> tuple[Spread, ...]:
    """The spread of each op that several devices (or hosts) ran; the longest waits first."""
    labels = _labels(devices, by)
    table = _table(shares, labels)
    found = []
    for op in ops:
        means = {place: time_s / count for place, (count, time_s) in table.get(op.id, {}).items() if count}
        if len(means) < 2:
            continue
        order = sorted(means, key=lambda place: (means[place], place))
        slowest = means[order[-1]]
        found.append(
            Spread(
                op=op.id,
                name=op.name,
                category=op.category,
                exchange=is_exchange(op),
                places=len(means),
                fastest=order[0],
                fastest_s=means[order[0]],
                median_s=median(means.values()),
                slowest=order[-1],
                slowest_s=slowest,
                waiting_s=sum(table[op.id][place][0] * (slowest - mean) for place, mean in means.items()),
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.waiting_s, one.op)))


def straggler(ops: Sequence[OpInfo], shares: Sequence[DeviceShare], devices: Sequence[Device]) -> Evidence | None:
    """The evidence about one host, or else one device, that is slower than the others throughout, or late at every collective."""
    for by in ("host", "device"):
        labels = _labels(devices, by)
        if len(set(labels.values())) < 2:
            continue
        table = _table(shares, labels)
        found = _slow(ops, table, by) or _late(ops, table, by)
        if found is not None:
            return found
    return None


def slower_devices(ops: Sequence[OpInfo], shares: Sequence[DeviceShare], devices: Sequence[Device], by: str) -> dict[str, float]:
    """The devices (or hosts) that are slower than the others throughout: how many times as long as the median they take."""
    labels = _labels(devices, by)
    mine = [op for op in ops if not is_exchange(op)]
    return {place: one.ratio for place, one in _slower(_against_medians(mine, _table(shares, labels))).items()}


def _slower(standing: Mapping[str, "_AgainstMedian"]) -> dict[str, "_AgainstMedian"]:
    """The places that are slower than the others in most of their time, unless most of them are."""
    slow = {place: one for place, one in standing.items() if one.ratio >= SLOWER and one.slower >= CONSISTENT * one.seconds}
    return slow if len(slow) <= len(standing) // 2 else {}


def _slow(ops: Sequence[OpInfo], table: Mapping[int, Mapping[str, tuple[float, float]]], by: str) -> Evidence | None:
    """The host or device that is slower in its own work."""
    mine = [op for op in ops if not is_exchange(op)]
    standing = _against_medians(mine, table)
    slow = _slower(standing)
    if not slow:
        return None
    place = max(sorted(slow), key=lambda name: slow[name].ratio)
    waiting = sum(max(slow[place].ratio - one.ratio, 0.0) * one.expected for one in standing.values())
    facts: dict[str, Fact | None] = {
        "by": by,
        "place": place,
        "others": ", ".join(name for name in sorted(slow) if name != place),
        "times": slow[place].ratio,
        "share": slow[place].slower / slow[place].seconds,
    }
    ids = tuple(op.id for op in mine if place in table.get(op.id, {}))
    return Evidence(kind=KIND, facts=facts, ops=ids, headroom_s=waiting)


def _late(ops: Sequence[OpInfo], table: Mapping[int, Mapping[str, tuple[float, float]]], by: str) -> Evidence | None:
    """The host or device that is not slower in its own work, but arrives last at collectives."""
    meetings = [op for op in ops if is_exchange(op)]
    standing = _against_medians(meetings, table)
    if len(standing) < 2:
        return None
    place = min(sorted(standing), key=lambda name: standing[name].ratio)
    late = standing[place]
    rest = [one.ratio for name, one in standing.items() if name != place]
    if late.ratio > WAITS_LESS * median(rest) or late.slower > (1 - CONSISTENT) * late.seconds:
        return None
    waiting = sum(max(one.ratio - late.ratio, 0.0) * one.expected for one in standing.values())
    facts = {"by": by, "place": place, "collectives": ", ".join(op.name for op in meetings[:3])}
    return Evidence(kind=KIND, cause="late", facts=facts, ops=tuple(op.id for op in meetings), headroom_s=waiting)


class _AgainstMedian(Struct, frozen=True, kw_only=True):
    """A device or host in ops that several ran: its seconds, the summed medians, and its seconds in ops above the median."""

    seconds: float
    expected: float
    slower: float

    @property
    def ratio(self) -> float:
        return self.seconds / self.expected if self.expected else 1.0


def _against_medians(ops: Iterable[OpInfo], table: Mapping[int, Mapping[str, tuple[float, float]]]) -> dict[str, _AgainstMedian]:
    sums: dict[str, list[float]] = {}
    for op in ops:
        row = {place: share for place, share in table.get(op.id, {}).items() if share[0]}
        if len(row) < 2:
            continue
        middle = median([time_s / count for count, time_s in row.values()])
        for place, (count, time_s) in row.items():
            mine = sums.setdefault(place, [0.0, 0.0, 0.0])
            mine[0] += time_s
            mine[1] += count * middle
            mine[2] += time_s if time_s > count * middle else 0.0
    return {place: _AgainstMedian(seconds=own, expected=usual, slower=above) for place, (own, usual, above) in sums.items()}


def _labels(devices: Sequence[Device], by: str) -> dict[int, str]:
    """The label of each device: its number, with its host where there are several, or only its host."""
    if by == "host":
        return {one.id: one.host for one in devices if one.host}
    several = len({one.host for one in devices}) > 1
    return {one.id: f"{one.id} on {one.host}" if several and one.host else str(one.id) for one in devices}


def _table(shares: Iterable[DeviceShare], labels: Mapping[int, str]) -> dict[int, dict[str, tuple[float, float]]]:
    """Executions and seconds of each op on each device or host."""
    table: dict[int, dict[str, tuple[float, float]]] = {}
    for share in shares:
        if share.device in labels:
            row = table.setdefault(share.op, {})
            count, time_s = row.get(labels[share.device], (0, 0.0))
            row[labels[share.device]] = (count + share.count, time_s + share.time_s)
    return table
