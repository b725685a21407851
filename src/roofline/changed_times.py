"""What if: a recording after some of its ops have changed, with the times that are to be expected.

An op that changes is anchored on its measured time: the model says how its time changes with its shape, and the measurement how this kernel
differs from the model. Part of that difference is an accident of the one shape, so it counts less the farther the change goes:

    t1 = model(after) · (measured / model(before))^a,   a = 0.85^doublings

A kernel that streams differs by how it goes through memory, at any size, so it keeps all of the difference. An op that takes little more
than its launch keeps what it took longer in seconds.
"""

from collections.abc import Mapping, Sequence
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from .cost import NOTHING, Cost
from .operation import Operation
from .prediction import Prediction
from .workload import Coverage, IdleReason, Op, Recording, Share, Step, StepsOnDevice, Workload

DECAY = 0.85  # of an anchor's weight, each time that an op doubles
STREAMS = ("pointwise", "row-wise", "")  # families whose kernels differ by how they go through memory, at any size
SMALL = 0.25  # of the time before: an op whose floor is more than that is small
MEASURED = 0.02  # how well a measured time repeats
REFORMATTED = 1.4  # how much wider, in logarithms, the bounds of an op in another number format are
FIRST_WAIT_S = 60e-6  # of an average step: how long a recording's first steps wait until the host is ahead of the device
DISPATCH = "dispatch"
LONG_GAP_S = 20e-6  # longer than a launch takes: the host was late
Pairs = Sequence[tuple[Op | None, Op]]  # each op that changes before, if it was there, and after


class Changed(Struct, frozen=True, kw_only=True):
    """An op after a change: the seconds of all executions, their bounds, what it costs then, and the family of its prediction.

    ``times`` is how often it runs, compared with before.
    """

    time_s: float
    low_s: float
    high_s: float
    cost: Cost = NOTHING
    operation: Operation | None = None
    family: str = ""
    terms: Mapping[str, float] = {}
    evidence: str = ""
    times: float = 1.0


def anchored(measured_s: float | None, before: Prediction | None, after: Prediction, doublings: float) -> tuple[float, float, float]:
    """The time of a changed op and its bounds, from its measured time where there is one."""
    if measured_s is None or before is None or not before.time_s:
        return after.time_s, after.low_s, after.high_s
    ratio = (measured_s / before.time_s) ** (1.0 if before.family in STREAMS else DECAY**doublings)
    if before.terms.get("floor", 0.0) > SMALL * before.time_s:  # what it took longer is not a share of the work it will do
        ratio = max(after.time_s + measured_s - before.time_s, 0.5 * after.time_s) / after.time_s
    return after.time_s * ratio, after.low_s * ratio, after.high_s * ratio


def bounds(ops: Mapping[int, tuple[str, float, float, float]]) -> tuple[float, float]:
    """How far below and above a sum of times may be, from each op's family, time and bounds.

    Errors of one family are common to its ops, so they add up; those of different families are independent.
    """
    below: dict[str, float] = {}
    above: dict[str, float] = {}
    for family, time_s, low_s, high_s in ops.values():
        below[family] = below.get(family, 0.0) + time_s - low_s
        above[family] = above.get(family, 0.0) + high_s - time_s
    low, high = (sum(each * each for each in side.values()) ** 0.5 for side in (below, above))
    return low, high


def applied(
    recording: Recording,
    changed: Mapping[int, Changed],
    added: Sequence[Op] = (),
    *,
    no_idle: bool = False,
    one_graph: bool = False,
) -> Recording:
    """The recording after some of its ops, by their indices, have changed; the others keep their measured times.

    ``added`` are ops that were not there; their shares of steps and devices are parts of their own times.

    Where most steps wait for dispatch, a step is the longer of host and device, so that this idle time shrinks as device time grows, and
    grows as it shrinks; the host takes as long as in the typical step, less the launches that are gone. Other idle time stays. ``no_idle``
    leaves none, ``one_graph`` none of dispatch and launches but for the dispatch of the first step.
    """
    ops = tuple(changed_op(op, changed[index]) if index in changed else op for index, op in enumerate(recording.workload.ops))
    devices = max(len(recording.devices), 1)
    idle = recording.idle
    if no_idle or one_graph:
        idle = () if no_idle else _in_one_graph(recording)
    gone = _removed(recording.idle, idle, devices)
    pairs: list[tuple[Op | None, Op]] = [(old, new) for old, new in zip(recording.workload.ops, ops, strict=True) if old is not new]
    pairs += [(None, op) for op in added]
    launches = _launches((*ops, *added)) / max(_launches(recording.workload.ops), 1)
    waiting = {step.key: sum(_waiting(one, step.key) for one in recording.idle) / devices for step in recording.steps}
    is_host_bound = 2 * sum(map(bool, waiting.values())) >= len(waiting)
    host_s = median([step.time_s or 0.0 for step in recording.steps] or [0.0]) * min(launches, 1.0)
    steps = tuple(
        _step(step, _more(step.key, pairs) / devices, waiting[step.key] if is_host_bound else 0.0, host_s, devices, gone)
        for step in recording.steps
    )
    spent = sum(_own(new) - (_own(old) if old else 0.0) for old, new in pairs)
    saved = sum(one.time_s for one in recording.idle) - sum(one.time_s for one in idle)
    return replace(
        recording, workload=Workload((*ops, *added)), steps=steps, idle=idle, coverage=_coverage(recording, spent, saved), timeline=()
    )


def _own(op: Op) -> float:
    return (op.time_s or 0.0) if op.self_time_s is None else op.self_time_s


def changed_op(op: Op, new: Changed) -> Op:
    """An op with its new cost and time, which its steps and devices share as before."""
    ratio = new.time_s / op.time_s if op.time_s else 1.0

    def more(count: float) -> float:
        return count if new.times == 1 else count * new.times

    def scaled(shares: tuple[Share, ...]) -> tuple[Share, ...]:
        return tuple(replace(share, count=more(share.count), time_s=share.time_s * ratio) for share in shares)

    def spread(one: StepsOnDevice) -> StepsOnDevice:
        counts = tuple(map(more, one.counts))
        return replace(one, counts=counts, times_s=tuple(each * ratio for each in one.times_s))

    return replace(
        op,
        cost=new.cost,
        operation=new.operation,
        count=more(op.count),
        kernels=None if op.kernels is None else more(op.kernels),
        time_s=new.time_s,
        self_time_s=None if op.self_time_s is None else op.self_time_s * ratio,
        by_step=scaled(op.by_step),
        by_device=scaled(op.by_device),
        by_step_and_device=tuple(map(spread, op.by_step_and_device)),
        counters=None,
        avoidable=op.avoidable if new.cost == op.cost else (),
    )


def _in_one_graph(recording: Recording) -> tuple[IdleReason, ...]:
    """The idle time without that of launches and dispatch, but for the first step's, which nothing hides."""
    first = recording.steps[0].key if recording.steps else None
    left = []
    for one in recording.idle:
        shares = tuple(share for share in one.by_step if share.key == first)
        if one.kind == DISPATCH and shares:
            left.append(replace(one, time_s=sum(share.time_s for share in shares), by_step=shares))
        elif one.kind not in (DISPATCH, "latency"):
            left.append(one)
    return tuple(left)


def _removed(before: tuple[IdleReason, ...], after: tuple[IdleReason, ...], devices: int) -> dict[int, float]:
    """The idle seconds of each step that go away, on one device."""
    gone: dict[int, float] = {}
    for idle, sign in ((before, 1), (after, -1)) if before is not after else ():
        for share in (share for one in idle for share in one.by_step):
            gone[share.key] = gone.get(share.key, 0.0) + sign * share.time_s / devices
    return gone


def _step(step: Step, more: float, waiting: float, host_s: float, devices: int, gone: Mapping[int, float]) -> Step:
    """A step whose device works ``more`` seconds longer; it had ``waiting`` seconds for the host, which takes ``host_s`` a step."""
    if step.time_s is None:
        return step
    change = more - gone.get(step.key, 0.0)
    if waiting and more and step.key not in gone:  # the longer of device and host
        change = max(more - waiting, min(host_s - step.time_s, 0.0))

    def longer(seconds: float | None, by: float) -> float | None:
        return None if seconds is None else max(seconds + by, 0.0)

    return replace(
        step,
        time_s=longer(step.time_s, change),
        slowest_s=longer(step.slowest_s, change),
        span_s=longer(step.span_s, change),
        busy_s=longer(step.busy_s, more),
        device_seconds=longer(step.device_seconds, change * devices),
    )


def host_wait_s(recording: Recording) -> float:
    """How long the device waits for the host in a step, on average."""
    if not recording.steps:
        return 0.0
    waits = sum(_waiting(one, step.key) for one in recording.idle for step in recording.steps)
    return waits / len(recording.steps) / max(len(recording.devices), 1)


def _launches(ops: Sequence[Op]) -> float:
    """How many kernels these ops launch; those that are gone launch none."""
    return sum(op.launches for op in ops if op.time_s)


def _waiting(one: IdleReason, key: int) -> float:
    """The idle seconds of a step in which the device waited for the host to launch: those of dispatch, and long gaps between kernels."""
    return sum(share.time_s for share in one.by_step if share.key == key and (one.kind == DISPATCH or _is_long(one, share)))


def _is_long(one: IdleReason, share: Share) -> bool:
    return one.kind == "latency" and share.time_s > LONG_GAP_S * max(share.count, 1)


def _more(key: int, pairs: Pairs) -> float:
    """By how many device-seconds the ops of a step take longer."""
    total = 0.0
    for old, new in pairs:
        whole = old or new
        if whole.time_s:
            share = sum(share.time_s for share in whole.by_step if share.key == key) / whole.time_s
            total += share * (_own(new) - (_own(old) if old else 0.0))
    return total


def _coverage(recording: Recording, spent: float, saved: float) -> Coverage:
    cover, devices = recording.coverage, max(len(recording.devices), 1)

    def longer(seconds: float | None, by: float) -> float | None:
        return None if seconds is None else max(seconds + by, 0.0)

    return replace(
        cover,
        wall_s=longer(cover.wall_s, spent - saved),
        run_s=longer(cover.run_s, (spent - saved) / devices),
        busy_s=longer(cover.busy_s, spent),
        attributed_s=longer(cover.attributed_s, spent),
        priced_s=longer(cover.priced_s, spent),
        counted_s=None,
    )
