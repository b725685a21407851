"""What if: the steps of a recording after some of its ops have changed.

A step takes the longer of host time and device time. Where most steps wait for dispatch, that idle time shrinks as device time grows, and
vice versa: the host takes as long as before, less the removed launches. Where the host runs ahead of the device, its launches limit how
short a step can get (`host_pace`). Other idle time is unchanged, and so is the time between ops on a CPU, which is host work.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from ...workload import IdleReason, Op, Recording, Share, Step
from .host_pace import HOST_VARIATION, HOST_VARIATION_XLA, pace_of, paced, recovery

# Added to the upper bound of a step: the device's wait until the host is ahead of it, over all steps of a recording. A choice, 0.3 ms in
# five steps: of 39 recordings on H200s, those whose later steps do not wait have first waits of at most 0.02 ms.
FIRST_WAIT_S = 60e-6
DISPATCH = "dispatch"
LONG_GAP_S = 20e-6  # longer than a launch takes (`USUAL_CALL_S`): the host was late
CAUGHT_UP = 0.9  # of the host's time: a device that is busy for longer no longer waits for the host (a choice, below 1 as host times vary)
SET_ARGUMENTS_S = 4.5e-6  # XLA's time to set the arguments of one kernel of a graph (JAX, profiled, on hosts of H200s: 3 to 6 µs)
# Of the time of steps: the most that the device may wait for other reasons than launches where launches are said to limit it (a choice:
# less than the 3% by which recordings differ).
OTHER_WAITS = 0.02
Average = Callable[[Sequence[float]], float]


class _Change(Struct, frozen=True):
    """By step key, the additional busy time of the device and the time it waited for launches; and the share of launches that remains.

    ``host_variation`` is the factor by which the host may be slower or faster in another recording.
    """

    more: Mapping[int, float]
    waiting: Mapping[int, float]
    launches: float
    host_variation: float

    @classmethod
    def of(cls, recording: Recording, ops: Sequence[Op]) -> "_Change":
        devices, pairs = max(len(recording.devices), 1), changed_pairs(recording.workload.ops, ops)
        idle = () if recording.is_on_host else recording.idle
        return cls(
            {step.step: _additional_device_s(step.step, pairs) / devices for step in recording.steps},
            {step.step: sum(_launch_wait_s(one, step.step) for one in idle) / devices for step in recording.steps},
            min(_launches(ops) / max(_launches(recording.workload.ops), 1), 1.0),
            HOST_VARIATION_XLA if _launches_programs(recording.workload.ops) else HOST_VARIATION,
        )

    @property
    def is_host_bound(self) -> bool:
        """Whether the device waits for the host in most steps, not counting the first, in which it always does."""
        later = list(self.waiting.values())[1:] or list(self.waiting.values())
        return 2 * sum(map(bool, later)) >= len(later)


def changed_pairs(old: Sequence[Op], ops: Sequence[Op]) -> list[tuple[Op | None, Op]]:
    """Each op that differs between ``old`` and ``ops``, before (``None`` if added) and after."""
    changed: list[tuple[Op | None, Op]] = [(one, new) for one, new in zip(old, ops, strict=False) if one is not new]
    return changed + [(None, op) for op in ops[len(old) :]]


def changed_steps(
    recording: Recording, ops: Sequence[Op], idle: tuple[IdleReason, ...], *, waits_for_host: bool = True
) -> tuple[Step, ...]:
    """The steps with these ``ops`` and this ``idle`` time, adjusted for the effect of the new op times on waiting for the host.

    ``waits_for_host`` is false for a device without idle time and for a step that is one graph.
    """
    devices = max(len(recording.devices), 1)
    gone = _removed_idle_s(recording.idle, idle, devices)
    change = _Change.of(recording, ops)
    longer = None
    if waits_for_host and any(change.more.values()) and not change.is_host_bound and _waits_for_launches(recording.idle, recording.steps):
        longer = _paced(recording.steps, change)
    if longer is None:
        host_s = median([step.time_s or 0.0 for step in recording.steps] or [0.0]) * change.launches
        longer = {step.step: _additional_s(step, change, host_s, gone) for step in recording.steps}
    more = {step.step: (change.more[step.step], longer.get(step.step, change.more[step.step])) for step in recording.steps}
    return tuple(_extended(step, *more[step.step], devices) for step in recording.steps)


def host_bounds(recording: Recording, after: Recording) -> tuple[float, float] | None:
    """The seconds by which the average step may be shorter or longer because the host is faster or slower than in the recording.

    ``None`` where its launches are not known, or the device also waits for other reasons.
    """
    change = _Change.of(recording, after.workload.ops)
    averaged = [step for step in recording.steps if step.steady and step.complete and step.followed]
    if not averaged or not any(change.more.values()) or not _waits_for_launches(recording.idle, recording.steps):
        return None
    fast, slow = _paced(recording.steps, change, 1 / change.host_variation), _paced(recording.steps, change, change.host_variation, median)
    if fast is None or slow is None:
        return None
    then = {step.step: step.time_s or 0.0 for step in after.steps}
    least, most = (
        sum((step.time_s or 0.0) + each[step.step] - then[step.step] for step in averaged) / len(averaged) for each in (fast, slow)
    )
    return max(-least, 0.0), max(most, 0.0)


def launching_bounds(recording: Recording, after: Recording) -> tuple[float, float] | None:
    """Like `host_bounds`, for a device that waits for nothing but launches; ``None`` if they are not known."""
    change = _Change.of(recording, after.workload.ops)
    hosts = {step.step: _launching_s(step, change) for step in recording.steps if step.steady}
    least = most = 0.0
    for step in (one for one in after.steps if one.steady):
        host, time_s = hosts.get(step.step), step.time_s or 0.0
        if host is None:
            return None
        least += time_s - max(step.busy_s or 0.0, min(host / change.host_variation, time_s))
        most += max(host * change.host_variation - time_s, 0.0)
    return (least / len(hosts), most / len(hosts)) if hosts else None


def only_launching(recording: Recording, ops: Sequence[Op]) -> tuple[IdleReason, ...]:
    """The idle time of a device that waits for nothing but the launches of these ``ops``, where those are known."""
    change, devices = _Change.of(recording, ops), max(len(recording.devices), 1)
    shares = []
    for step in recording.steps:
        left = (_launching_s(step, change) or 0.0) - (step.busy_s or 0.0) - change.more[step.step]
        if left > 0:
            shares.append(Share(key=step.step, count=1, time_s=left * devices))
    return _dispatch("launches", shares)


def _launching_s(step: Step, change: _Change) -> float | None:
    """The host's time from a step's first launch to its last, without other waits, during which the device is idle as well."""
    if step.launching_s is None or step.busy_s is None:
        return None
    return min(step.launching_s, step.busy_s + change.waiting[step.step]) * change.launches


def _waits_for_launches(idle: Sequence[IdleReason], steps: Sequence[Step]) -> bool:
    """Whether launches are nearly the only reason for idle time."""
    steady = {step.step for step in steps if step.steady}
    others = sum(share.time_s for one in idle if one.kind not in (DISPATCH, "latency") for share in one.by_step if share.key in steady)
    whole = sum(step.device_seconds or 0.0 for step in steps if step.steady)
    return bool(steady) and others <= OTHER_WAITS * whole


def _paced(steps: Sequence[Step], change: _Change, slower: float = 1.0, of: Average = min) -> dict[int, float] | None:
    """The additional seconds of each step, from the times of the host's launches; ``None`` where they are not known.

    A step that took longer than the host's pace explains was disturbed: the disturbance counts less the more the step changes, and not at
    all for a faster host.
    """
    steady = [step for step in steps if step.steady]
    pace = pace_of(steady, change.waiting, of)
    if pace is None:
        return None
    now = [(step.span_s or 0.0) - min(change.waiting[step.step], (step.span_s or 0.0) - (step.busy_s or 0.0)) for step in steady]
    then = [max(seconds + change.more[step.step], 0.0) for step, seconds in zip(steady, now, strict=True)]
    found = {}
    held_up = any(change.waiting[step.step] for step in steady)
    host = change.launches * slower * (1.0 if held_up else recovery(steady))
    for step, before, after in zip(steady, paced(pace, now, now), paced(pace, now, then, host), strict=True):
        disturbance = (step.time_s or 0.0) - before
        if disturbance > 0:
            disturbance = max(disturbance - abs(change.more[step.step]), 0.0) if slower >= 1 else 0.0
        found[step.step] = after + disturbance - (step.time_s or 0.0)
    return found


def in_one_graph(recording: Recording, ops: Sequence[Op]) -> tuple[IdleReason, ...]:
    """The idle time of a step that runs these ``ops`` as one graph: idle time for launches and dispatch goes, except for one dispatch.

    In the first step nothing hides it. In later steps the device waits as far as the host takes longer than the device: to dispatch the
    graph and, for XLA, to set the arguments of its kernels.
    """
    left = [one for one in recording.idle if one.kind not in (DISPATCH, "latency")]
    change, devices = _Change.of(recording, ops), max(len(recording.devices), 1)
    setting = SET_ARGUMENTS_S * _launches([op for op in ops if op.module]) / max(len(recording.steps) * devices, 1)
    shares = []
    for index, step in enumerate(recording.steps):
        waits = [share for one in recording.idle if one.kind == DISPATCH for share in one.by_step if share.key == step.step]
        dispatches = sum(share.count for share in waits) / devices
        dispatch = sum(share.time_s for share in waits) / devices / max(dispatches, 1)
        busy = (step.busy_s or 0.0) + change.more[step.step]
        wait = max(dispatch if index == 0 else 0.0, dispatch + setting - busy)
        if dispatch and wait > 0:
            shares.append(Share(key=step.step, count=1, time_s=wait * devices))
    return (*left, *_dispatch("graph", shares))


def _dispatch(activity: str, shares: Sequence[Share]) -> tuple[IdleReason, ...]:
    """The idle time of dispatch with these shares of steps, if there are any."""
    whole = sum(one.time_s for one in shares)
    return (IdleReason(kind=DISPATCH, activity=activity, time_s=whole, gaps=len(shares), by_step=tuple(shares)),) if shares else ()


def _removed_idle_s(before: tuple[IdleReason, ...], after: tuple[IdleReason, ...], devices: int) -> dict[int, float]:
    """The idle seconds per device that are removed from each step."""
    gone: dict[int, float] = {}
    for idle, sign in ((before, 1), (after, -1)) if before is not after else ():
        for share in (share for one in idle for share in one.by_step):
            gone[share.key] = gone.get(share.key, 0.0) + sign * share.time_s / devices
    return gone


def _additional_s(step: Step, change: _Change, host_s: float, gone: Mapping[int, float]) -> float:
    """The additional seconds of a step where launches are not known.

    ``host_s`` is the host's time per step if most steps wait for it. A step in which the host took longer becomes like the others only if
    there is less to launch, or if the device becomes the slower of the two.
    """
    more, waited, time_s = change.more[step.step], change.waiting[step.step], step.time_s or 0.0
    if not waited or not more or not change.is_host_bound or step.step in gone:
        return more - gone.get(step.step, 0.0)
    typical = change.launches < 1 or (step.busy_s or 0.0) + more >= CAUGHT_UP * host_s
    return max(more - waited, min(host_s - time_s, 0.0) if typical else 0.0)  # the longer of device and host


def _extended(step: Step, more: float, change: float, devices: int) -> Step:
    """A step extended by some seconds, of which its device is busy for ``more``."""
    return replace(
        step,
        time_s=longer(step.time_s, change),
        slowest_s=longer(step.slowest_s, change),
        span_s=longer(step.span_s, change),
        busy_s=longer(step.busy_s, more),
        device_seconds=longer(step.device_seconds, change * devices),
    )


def longer(seconds: float | None, by: float) -> float | None:
    """A time that is extended, or shortened down to 0."""
    return None if seconds is None else max(seconds + by, 0.0)


def host_wait_s(recording: Recording) -> float:
    """How long the device waits for the host in a step, on average."""
    if not recording.steps:
        return 0.0
    waits = sum(_launch_wait_s(one, step.step) for one in recording.idle for step in recording.steps)
    return waits / len(recording.steps) / max(len(recording.devices), 1)


def _launches(ops: Sequence[Op]) -> float:
    """How many kernels these ops launch; removed ops launch none."""
    return sum(op.launches for op in ops if op.time_s)


def _launches_programs(ops: Sequence[Op]) -> bool:
    """Whether most kernels are launched by XLA programs, without Python between them."""
    return 2 * _launches([op for op in ops if op.module]) > _launches(ops)


def _launch_wait_s(one: IdleReason, key: int) -> float:
    """The idle seconds of a step in which the device waited for the host to launch: those of dispatch, and long gaps between kernels."""
    return sum(share.time_s for share in one.by_step if share.key == key and (one.kind == DISPATCH or _is_long(one, share)))


def _is_long(one: IdleReason, share: Share) -> bool:
    return one.kind == "latency" and share.time_s > LONG_GAP_S * max(share.count, 1)


def _additional_device_s(key: int, pairs: Sequence[tuple[Op | None, Op]]) -> float:
    """The additional device-seconds of a step's ops."""
    total = 0.0
    for old, new in pairs:
        whole = old or new
        if whole.time_s:
            share = sum(share.time_s for share in whole.by_step if share.key == key) / whole.time_s
            total += share * (new.own_s - (old.own_s if old else 0.0))
    return total
