"""The expected time of each op, and its excess over it."""

from collections.abc import Iterable

from ..causes import COMPUTE, MEMORY
from ..machine import Machine
from ..prediction import Expected, predict
from ..prediction.calibration import Calibration
from ..workload import Op
from .op_times import OpTime


def predict_op(op: Op, machine: Machine, calibration: Calibration | None) -> Expected | None:
    """The prediction of all executions of an op; ``None`` where its cost is not fully known, or nothing can be predicted."""
    if calibration is None or not op.priced or not op.count:
        return None
    cost = op.cost if op.count == 1 else op.cost * (1 / op.count)
    kernels = max(op.launches / op.count, 1.0)
    return predict(op.operation, cost, machine, calibration, count=op.count, kernels=kernels, compiled=op.compiled)


def excess_of(op: Op, floor_s: float, prediction: Expected) -> float | None:
    """How much slower than expected an op ran; ``None`` where it was not timed."""
    own_s = op.time_s if op.self_time_s is None else op.self_time_s
    return None if own_s is None else split_time(own_s, floor_s, prediction)[1]


# Times the expected time: an op beyond this is reported as slow (in 340 recordings on an H200, 3% of 1,858 matmuls).
SLOW = 1.85
# The same for a compiler's fused kernels, whose times vary more: filling or joining arrays at a third of the bandwidth is usual (6% of
# 1,810 kernels that stream).
SLOW_FUSION, WIDE = 2.5, 1.3


def split_time(own_s: float, floor_s: float, found: Expected | None) -> tuple[float, float]:
    """The time of an op above its minimum, split into what is inherent in its shape on this chip, and the excess beyond the interval.

    With sustained rates alone, or another chip's calibration, the excess is unknown. Small excesses do not count: compilers and libraries
    have slower and faster kernels for one shape.
    """
    plain = found is not None and is_calibrated(found) and own_s > max(_slow(found) * found.time_s, found.high_s)
    excess = own_s - max(found.time_s, floor_s) if plain and found is not None else 0.0
    return max(own_s - floor_s - excess, 0.0), excess


def _slow(found: Expected) -> float:
    return SLOW_FUSION if found.family == "pointwise" and found.high_s > WIDE * found.time_s else SLOW


def is_calibrated(found: Expected | None) -> bool:
    """Whether a prediction is based on measurements of such ops on this chip."""
    return found is not None and bool(found.family) and not found.borrowed


def slower_than_expected(op_times: Iterable[OpTime]) -> dict[int, float]:
    """The ops that take longer than their upper bound, by id, with the seconds beyond the expected time.

    Ops that take little more than a launch are left out: launches differ from host to host.
    """
    found = {}
    for one in op_times:
        if one.prediction is None or one.cause not in (MEMORY, COMPUTE):
            continue
        _, excess = split_time(one.spent_s, one.floor_s, one.prediction)
        if excess > 0:
            found[one.id] = excess
    return found
