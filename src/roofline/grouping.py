"""Grouping: the ops of a report summed by what they have in common, longest first, or by where they ran."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from .cost import sum_of_known
from .errors import UsageError, did_you_mean
from .report import Amounts, OpInfo, Report
from .resource import main_bound
from .selection import Words, device_ids, narrow, stem, step_keys
from .workload import is_upper_bound

PLACES = ("step", "device", "host")  # keys that split an op into parts
KEYS: Mapping[str, Callable[[OpInfo], str]] = {
    "category": lambda op: op.category,
    "scope": lambda op: op.scope,
    "location": lambda op: op.location,
    "phase": lambda op: op.phase,
    "dtype": lambda op: op.dtype or "",
    "name": lambda op: stem(op.name),
    "module": lambda op: op.module,
    "unit": lambda op: op.unit or "",
    "bound": lambda op: op.bound or "",
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


def group(ops: Iterable[OpInfo], by: str, *, depth: int | None = None) -> tuple[Group, ...]:
    """The ops summed by one of `KEYS`, longest first; ``depth`` keeps that many levels of a scope."""
    by = "module" if by == "program" else by
    if by not in KEYS:
        raise UsageError(f"cannot group by {by!r}{did_you_mean(by, KEYS) or '; choose ' + ', '.join(KEYS)}")
    if depth is not None and (by != "scope" or depth < 1):
        raise UsageError(f"--depth {depth} with --by {by}: a depth is 1 or more and needs --by scope")
    key = KEYS[by]
    members: dict[str, list[OpInfo]] = {}
    for op in ops:
        found = key(op)
        members.setdefault("/".join(found.split("/")[:depth]) if depth else found, []).append(op)
    groups = [_sum(name, mine) for name, mine in members.items()]
    return tuple(sorted(groups, key=lambda one: (-(one.time_s or 0.0), -(one.floor_s or 0.0), one.key)))


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
    for key, chosen in _places(report, by, step, device, host):
        mine = [op for op in chosen if op.id in wanted]
        if mine:
            groups.append(_sum(key, mine))
    return tuple(groups)


def _places(
    report: Report, by: str, step: Sequence[str | int] | None, device: Sequence[int] | None, host: Words
) -> Iterable[tuple[str, Sequence[OpInfo]]]:
    if by == "step":
        labels = {one.step: one.title for one in report.steps}
        keys = {share.step for share in report.by_step} if step is None else step_keys(report, step)
        for key in sorted(keys):
            yield labels.get(key, str(key)), narrow(report, step=[key], device=device, host=host)
        return
    everywhere = device is None and host is None
    ran = {share.device for share in report.by_device} if everywhere else device_ids(report, device, host)
    if by == "device":
        hosts = {one.id: one.host for one in report.input.devices}
        several = len(set(hosts.values())) > 1
        for id in sorted(ran):
            yield f"{id} ({hosts[id]})" if several and id in hosts else str(id), narrow(report, step=step, device=[id])
    else:
        for name in dict.fromkeys(one.host for one in report.input.devices):
            ids = [one.id for one in report.input.devices if one.host == name and one.id in ran]
            if ids:
                yield name, narrow(report, step=step, device=ids)


def _sum(key: str, ops: list[OpInfo]) -> Group:
    work, missing_work = _added(op.work for op in ops)
    moved, missing_bytes = _added(op.bytes for op in ops)
    time = sum_of_known(op.time_s for op in ops)
    self_time = sum_of_known(op.time_s if op.self_time_s is None else op.self_time_s for op in ops)
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
