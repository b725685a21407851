"""What if: a recording after some of its ops have changed, with predicted times.

The time of a changed op is scaled from its measured time: the model gives the effect of the shape, the measurement the error of the model
for this kernel. Part of that error is specific to the measured shape, so it counts less the larger the change:

    t1 = model(after) · (measured / model(before))^a,   a = 0.85^doublings

A streaming kernel keeps all of the error, because it comes from the access pattern, which is the same at any size; so does a product of
more matrices of the same sizes. An op that takes little more than its launch keeps the difference in seconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import log2

from msgspec import Struct
from msgspec.structs import replace

from ...cost import NOTHING, Cost
from ...operation import Operation
from ...prediction import Expected
from ...workload import Coverage, IdleReason, Op, Recording, Share, StepsOnDevice, Workload
from .changed_steps import changed_pairs, changed_steps, in_one_graph, longer, only_launching

# Weight of the model's measured error, per doubling of an op (52 pairs of recordings on an H200 are off by 4.8%, with 0.5 or 1 by 5%).
DECAY = 0.85
STREAMS = ("pointwise", "row-wise", "")  # families of streaming kernels, whose error comes from their access pattern
STREAMED = (0.75, 1.4)  # bounds of a streaming kernel that was measured in another size (XLA's on H200: 0.8 to 1.35 for 90% of 172)
SMALL = 0.25  # an op is small if its launch floor is a larger share of its time before (a choice)
# Share of the bounds' width, in logarithms, that remains for an op that changes but keeps its expected time. A choice: the ±20% of matmuls
# become ±6%, the spread between libraries on one chip.
LEAST_WIDTH = 0.3
MEASURED = 0.02  # relative repeatability of a measured time (a choice; it bounds the time of ops that do not change)
# Weight of a product's measured error for the product in another number format, which runs other kernels. A choice between 0, as if kernels
# had nothing in common, and 1, as if the slowness came from the shape alone.
OTHER_UNIT = 0.4
HELD = 0.15  # how much slower back-to-back matmuls are, at the chip's power limit, than others (H200: 688 of 820 TFLOP/s in bf16)
REFORMATTED = 1.4  # factor on the width of the bounds, in logarithms, of an op in another format (a choice: about √2, two errors)


class Changed(Struct, frozen=True, kw_only=True):
    """An op after a change: the seconds of all executions with bounds, its new cost, and the family of its prediction.

    ``times`` is the number of executions over that before.
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


def anchored(
    measured_s: float | None,
    before: Expected | None,
    after: Expected,
    doublings: float,
    counts: float = 1.0,
    *,
    uneven: bool = False,
    same_matrices: bool = False,
    unknown: bool = False,
) -> tuple[float, float, float]:
    """The time of a changed op and its bounds, from its measured time where there is one; never below its minimum.

    ``counts`` is the weight of the model's measured error, in logarithms, before it decays with the size of the change; for more of the
    ``same_matrices`` it does not decay. An op of ``uneven`` sizes is slower at all of its work, so its excess grows with the work even if
    the op is small. The excess of a kernel of ``unknown`` structure may come from idle cores, and does not grow with its work.
    """
    if measured_s is None or before is None or not before.time_s or not after.time_s:
        return after.time_s, after.low_s, after.high_s
    far = min(doublings, abs(log2(after.time_s / before.time_s)))
    ratio = (measured_s / before.time_s) ** (counts if same_matrices else counts * DECAY**far)
    floor, excess = before.terms.get("floor", 0.0), measured_s - before.time_s
    work, floor_then = before.time_s - floor, after.terms.get("floor", 0.0)
    streams = before.family in STREAMS
    if floor > SMALL * before.time_s and (unknown or not streams or excess <= floor):  # the excess does not grow with the work
        if uneven and excess > 0:
            excess *= max((after.time_s - floor_then) / work, 1.0) ** DECAY
        ratio = max(after.time_s + excess, 0.5 * after.time_s) / after.time_s
    elif streams:
        ratio = measured_s / before.time_s
        scales = not unknown or after.time_s < before.time_s
        if scales and measured_s > floor and work > 0:  # all of the work takes longer, but not the launch
            ratio = (floor_then + (after.time_s - floor_then) * (measured_s - floor) / work) / after.time_s
    known = max(min(far, 1.0), LEAST_WIDTH)  # the time of an op that hardly changes is known from its measurement
    low, high = (after.time_s * ratio * (each / after.time_s) ** known for each in _bounds(before, after))
    if measured_s > before.high_s:  # the excess may be specific to the measured shape
        low = min(low, after.time_s * ratio ** (1 - known))
    return max(after.time_s * ratio, after.floor_s), max(low, after.floor_s), max(high, after.floor_s)


def _bounds(before: Expected, after: Expected) -> tuple[float, float]:
    """The bounds of a prediction; for a streaming kernel (before and after the change) that is not small, no wider than `STREAMED`."""
    streams = before.family in STREAMS and after.family in STREAMS and "matrix" not in after.terms
    if not streams or after.terms.get("floor", 0.0) > SMALL * after.time_s:
        return after.low_s, after.high_s
    return max(after.low_s, STREAMED[0] * after.time_s), min(after.high_s, STREAMED[1] * after.time_s)


def bounds(ops: Iterable[tuple[str, float, float, float]]) -> tuple[float, float]:
    """The uncertainty of a sum of times, below and above, from each op's family, time and bounds.

    Errors of one family are common to its ops, so they add up; those of different families are independent.
    """
    below: dict[str, float] = {}
    above: dict[str, float] = {}
    for family, time_s, low_s, high_s in ops:
        below[family] = below.get(family, 0.0) + time_s - low_s
        above[family] = above.get(family, 0.0) + high_s - time_s
    low, high = (sum(each * each for each in side.values()) ** 0.5 for side in (below, above))
    return low, high


def slowed(before: Recording, after: Recording) -> float:
    """The share by which the device may slow down after a change because more of its time is matmuls, which take the most power."""
    was, now = (_matrix_share(each.workload.ops, each.idle) for each in (before, after))
    return HELD * (now - was) / (1 - was) * now if now > was else 0.0


def _matrix_share(ops: Iterable[Op], idle: Iterable[IdleReason]) -> float:
    """The share of the time, idle time included, in which ops with matmuls run."""
    busy = [(op.time_s or 0.0, any(resource.unit == "matrix" for resource, _ in op.cost.amounts)) for op in ops]
    whole = sum(seconds for seconds, _ in busy) + sum(reason.time_s for reason in idle)
    return min(sum(seconds for seconds, is_matrix in busy if is_matrix) / whole, 1.0) if whole else 0.0


def applied(
    recording: Recording,
    changed: Mapping[int, Changed],
    added: Sequence[Op] = (),
    *,
    no_idle: bool = False,
    one_graph: bool = False,
) -> Recording:
    """The recording with some ops ``changed``, by index; the others keep their measured times.

    ``added`` are new ops; their shares of steps and devices are parts of their own times. Idle time changes as in `changed_steps`; with
    ``no_idle`` only the time that the host needs to launch a step remains, with ``one_graph`` of dispatch and launches only the dispatch of
    the first step, and with both none.
    """
    ops = tuple(changed_op(op, changed[index]) if index in changed else op for index, op in enumerate(recording.workload.ops))
    after = (*ops, *added)
    idle = recording.idle
    if no_idle:
        idle = () if one_graph else only_launching(recording, after)
    elif one_graph:
        idle = in_one_graph(recording, after)
    steps = changed_steps(recording, after, idle, waits_for_host=not no_idle and not one_graph)
    spent = sum(new.own_s - (old.own_s if old else 0.0) for old, new in changed_pairs(recording.workload.ops, after))
    saved = sum(one.time_s for one in recording.idle) - sum(one.time_s for one in idle)
    return replace(
        recording,
        workload=Workload(after),
        steps=steps,
        idle=idle,
        coverage=_coverage(recording.coverage, spent, saved, len(recording.devices)),
        timeline=(),
    )


def changed_op(op: Op, new: Changed) -> Op:
    """An op with its new cost and time, divided among steps and devices as before."""
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


def _coverage(cover: Coverage, spent: float, saved: float, devices: int) -> Coverage:
    return replace(
        cover,
        wall_s=longer(cover.wall_s, spent - saved),
        run_s=longer(cover.run_s, (spent - saved) / max(devices, 1)),
        busy_s=longer(cover.busy_s, spent),
        attributed_s=longer(cover.attributed_s, spent),
        priced_s=longer(cover.priced_s, spent),
        counted_s=None,
    )
