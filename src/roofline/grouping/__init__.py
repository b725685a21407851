"""Grouping: the ops of a report summed by what they have in common, longest first, or by where they ran."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import fsum
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from ..cost import sum_of_known
from ..errors import UsageError, did_you_mean
from ..quantities import OP, OP_ALIASES
from ..report import Amounts, OpInfo, Report
from ..resource import main_bound
from ..selection import Words, chosen_devices, device_ids, narrow, stem, step_keys
from ..workload import is_upper_bound

PLACES = ("step", "device", "host")  # keys that split an op into parts
_SECONDS = ("time_s", "self_time_s", "priced_s", "floor_s", "serial_s")  # of a group
_GROUPED = ("category", "scope", "location", "phase", "dtype", "name", "program", "unit", "bound")  # of `quantities`
KEYS: Mapping[str, Callable[[OpInfo], str | None]] = {OP[name].key: attrgetter(OP[name].key) for name in _GROUPED} | {
    "name": lambda op: stem(op.name)
}


class Group(Struct, frozen=True, kw_only=True):
    """Ops with one key, summed.

    ``work``, ``flops`` and ``bytes`` sum the known amounts; ``unknown`` names the resources for which some op's amount is not known.
    ``efficiency`` is the summed minimum times over the summed time of the ops that were timed: ops of unknown cost have no minimum, and
    ``priced_s`` is the time of the ops with a known cost. ``upper_bound``: the cost of some op is one, so the efficiency is one too.
    """

    key: str
    ops: tuple[int, ...]
    count: float
    time_s: float | None
    self_time_s: float | None
    priced_s: float
    flops: float
    work: dict[str, float]
    bytes: dict[str, float]
    unknown: tuple[str, ...]
    floor_s: float | None
    serial_s: float | None
    efficiency: float | None
    bound: str | None
    upper_bound: bool = False


class GroupTable(Struct, frozen=True, kw_only=True):
    """The groups of a table by one key, and the share of each: of ``whole``, or of the rows of the same table of ops where that is empty.

    ``per`` is ``step`` where times and amounts are those of one step. They are means over so many ``devices``; ``None`` where their number
    differs from group to group.
    """

    by: str
    groups: Sequence[Group]
    shares: Sequence[float | None]
    whole: str = ""
    per: str = ""
    devices: int | None = 1


def group(ops: Iterable[OpInfo], by: str, *, depth: int | None = None) -> tuple[Group, ...]:
    """The ops summed by one of `KEYS`, longest first; ``depth`` keeps that many levels of a scope."""
    by = OP[OP_ALIASES.get(by, by)].key if OP_ALIASES.get(by, by) in OP else by
    if by not in KEYS:
        raise UsageError(f"cannot group by {by!r}{did_you_mean(by, KEYS) or '; choose ' + ', '.join(KEYS)}")
    if depth is not None and (by != "scope" or depth < 1):
        raise UsageError(f"{by}, {depth} levels: scopes alone have levels, 1 or more")
    key = KEYS[by]
    members: dict[str, list[OpInfo]] = {}
    for op in ops:
        found = key(op) or ""
        members.setdefault("/".join(found.split("/")[:depth]) if depth else found, []).append(op)
    groups = [_sum(name, mine) for name, mine in members.items()]
    return tuple(sorted(groups, key=lambda one: (-(one.time_s or 0.0), -(one.floor_s or 0.0), one.key)))


def group_table(by: str, groups: Sequence[Group], whole_s: float, *, per: str = "", devices: int = 1) -> GroupTable:
    """The groups as a table, with the share of each in the ``whole_s`` of all ops."""
    return GroupTable(by=by, groups=groups, shares=_shares(groups, whole_s), per=per, devices=devices)


def parts_table(
    report: Report,
    ops: Iterable[OpInfo],
    by: str,
    *,
    step: Sequence[str | int] | None = None,
    device: Sequence[int] | None = None,
    host: Words = None,
) -> GroupTable:
    """The groups of `group_parts` as means over the devices that ran them, and the share of each in the time of all that ran.

    That is the self time of all ops of the report, or of the selected steps and devices.
    """
    wanted, groups, devices = {op.id for op in ops}, list[Group](), list[int]()
    for key, chosen, count in _places(report, by, step, device, host):
        if mine := [op for op in chosen if op.id in wanted]:
            groups.append(_sum(key, mine))
            devices.append(count)
    whole_s = fsum(op.weight_s for op in narrow(report, step=step, device=device, host=host))
    return GroupTable(
        by=by,
        groups=[_over(one, count) for one, count in zip(groups, devices, strict=True)],
        shares=_shares(groups, whole_s),
        whole="op time" if step is None and device is None and host is None else "selected op time",
        devices=devices[0] if len({*devices}) == 1 else None,
    )


def _shares(groups: Sequence[Group], whole_s: float) -> list[float | None]:
    """The self time of each group over that of all ops, or its minimum time where nothing was timed."""
    timed = any(one.time_s for one in groups)
    seconds = [one.self_time_s if timed else one.floor_s for one in groups]
    return [mine / whole_s if mine is not None and whole_s else None for mine in seconds]


def _over(whole: Group, devices: int) -> Group:
    """A group as the mean over some devices."""
    if devices == 1:
        return whole
    times = {name: seconds / devices for name in _SECONDS if (seconds := getattr(whole, name)) is not None}
    work, moved = ({name: amount / devices for name, amount in amounts.items()} for amounts in (whole.work, whole.bytes))
    return replace(whole, count=whole.count / devices, flops=whole.flops / devices, work=work, bytes=moved, **times)


def group_parts(
    report: Report,
    ops: Iterable[OpInfo],
    by: str,
    *,
    step: Sequence[str | int] | None = None,
    device: Sequence[int] | None = None,
    host: Words = None,
) -> tuple[Group, ...]:
    """The parts of these ops that ran in each step, or on each device or host, summed, in the order of steps and devices.

    ``step``, ``device`` and ``host`` select some of them, as in `narrow`.
    """
    wanted = {op.id for op in ops}
    groups = []
    for key, chosen, _ in _places(report, by, step, device, host):
        mine = [op for op in chosen if op.id in wanted]
        if mine:
            groups.append(_sum(key, mine))
    return tuple(groups)


def _places(
    report: Report, by: str, step: Sequence[str | int] | None, device: Sequence[int] | None, host: Words
) -> Iterable[tuple[str, Sequence[OpInfo], int]]:
    """Each place, the parts of ops that ran there, and on how many devices."""
    if by == "step":
        labels = {one.step: one.title for one in report.steps}
        keys = {share.step for share in report.by_step} if step is None else step_keys(report, step)
        for key in sorted(keys):
            yield labels.get(key, str(key)), narrow(report, step=[key], device=device, host=host), chosen_devices(report, device, host)
        return
    everywhere = device is None and host is None
    ran = {share.device for share in report.by_device} if everywhere else device_ids(report, device, host)
    if by == "device":
        hosts = {one.id: one.host for one in report.input.devices}
        several = len(set(hosts.values())) > 1
        for id in sorted(ran):
            yield f"{id} ({hosts[id]})" if several and id in hosts else str(id), narrow(report, step=step, device=[id]), 1
    else:
        for name in dict.fromkeys(one.host for one in report.input.devices):
            ids = [one.id for one in report.input.devices if one.host == name and one.id in ran]
            if ids:
                yield name, narrow(report, step=step, device=ids), len(ids)


def _sum(key: str, ops: list[OpInfo]) -> Group:
    work, missing_work = _added(op.work for op in ops)
    moved, missing_bytes = _added(op.bytes for op in ops)
    time = sum_of_known(op.time_s for op in ops)
    self_time = sum_of_known(op.own_s for op in ops)
    timed_floor = sum(op.floor_s or 0.0 for op in ops if op.time_s)
    return Group(
        key=key,
        ops=tuple(op.id for op in ops),
        count=sum(op.count for op in ops),
        time_s=time,
        self_time_s=None if time is None else self_time,
        priced_s=sum(op.time_s or 0.0 for op in ops if op.efficiency is not None),
        flops=sum(op.flops or 0.0 for op in ops),
        work=work,
        bytes=moved,
        unknown=tuple(sorted(missing_work | missing_bytes)),
        floor_s=sum_of_known(op.floor_s for op in ops),
        serial_s=sum_of_known(op.serial_s for op in ops),
        efficiency=timed_floor / time if time and timed_floor else None,
        bound=main_bound((op.bound, op.time_s or op.floor_s or 0.0) for op in ops),
        upper_bound=any(is_upper_bound(op.notes) for op in ops),
    )


def _added(amounts: Iterable[Amounts]) -> tuple[dict[str, float], set[str]]:
    """The known parts by resource, and the resources with an unknown part."""
    total: dict[str, float] = {}
    unknown = set()
    for one in amounts:
        for resource, amount in one.items():
            if amount is None:
                unknown.add(resource)
            else:
                total[resource] = total.get(resource, 0) + amount
    return total, unknown
