"""How long each op is expected to take, and by how much it took longer."""

from ..calibration import Calibration
from ..placement import Placement
from ..prediction import Prediction, predict
from ..report import Expected
from ..workload import Op


def expectation(op: Op, placement: Placement, calibration: Calibration) -> Prediction | None:
    """The prediction of all executions of an op; ``None`` where its cost is not wholly known."""
    if not op.priced or not op.count or placement.is_unknown:
        return None
    cost = op.cost if op.count == 1 else op.cost * (1 / op.count)
    kernels = max(op.launches / op.count, 1.0)
    return predict(op.operation, cost, placement.machine, calibration, count=op.count, kernels=kernels)


def expected_info(found: Prediction) -> Expected:
    """A prediction as the report has it."""
    return Expected(
        time_s=found.time_s,
        low_s=found.low_s,
        high_s=found.high_s,
        terms=dict(found.terms),
        evidence=found.evidence,
        family=found.family,
    )


def split_time(own_s: float, floor_s: float, found: Prediction | None) -> tuple[float, float]:
    """The time of an op above its minimum: what is inherent in its shape on this chip, and the excess beyond the interval."""
    excess = own_s - max(found.time_s, floor_s) if found is not None and own_s > found.high_s else 0.0
    return max(own_s - floor_s - excess, 0.0), excess
