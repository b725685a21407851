"""Ops of a TPU: a core runs one at a time, while its operands stream through VMEM.

product      floor + max(math / share of the peak + min(memory, exposed), memory)
streaming    floor + max(memory, other units)
collective   floor + max(link / share of its rate, other units)

Memory is the bytes over the sustained bandwidth. ``exposed`` is how long the matrix unit waits at most: for the first windows of the
operands and, at the end, for the last of the result. Other units (vector, functions, cross-lane) count at their rates.
"""

from ..operation import Collective, Operation, Product, RowWise, Streamed
from ..placement import Placement
from ..resource import DCN, HBM, PCIE, named
from .calibration import Calibration, Family
from .terms import Estimate, floor_of

MATRIX = "matrix"


def tpu_time(operation: Operation | None, placed: Placement, calibration: Calibration) -> tuple[Family | None, Estimate | None]:
    """The family of an op and the time of one execution; ``None`` where nothing was fitted to such ops."""
    times = dict(placed.times)
    links = {unit for unit in times if named(unit).is_link}
    if placed.unrated or not placed.cost.is_known:
        return None, None
    if links:
        kind = operation.kind if isinstance(operation, Collective) else ""
        family = None if links <= {PCIE.name, DCN.name} else calibration.family("collectives", kind)
        return (family, _collective(times, links, family, calibration)) if family else (None, None)
    if isinstance(operation, Product):
        family = calibration.family("products", operation.quantize, operation.compute) if MATRIX in times and not operation.groups else None
        return (family, _product(times, family, calibration)) if family else (None, None)
    if isinstance(operation, Streamed | RowWise) and MATRIX not in times and HBM.name in times:
        family = calibration.family("pointwise", operation.kind)
        return (family, _stream(times, family, calibration)) if family else (None, None)
    return None, None


def _product(times: dict[str, float], family: Family, calibration: Calibration) -> Estimate:
    values = family.values
    math, memory = times[MATRIX] / values["compute"], times.get(HBM.name, 0.0) / values["memory"]
    exposed, floor = min(memory, values["exposed"]), floor_of(family, calibration)
    return Estimate(
        floor + max(math + exposed, memory, _others(times)), {"floor": floor, "math": math, "memory": memory, "exposed": exposed}
    )


def _stream(times: dict[str, float], family: Family, calibration: Calibration) -> Estimate:
    floor, memory, others = floor_of(family, calibration), times[HBM.name] / family.values["memory"], _others(times)
    return Estimate(floor + max(memory, others), {"floor": floor, "memory": memory, "vector": others})


def _collective(times: dict[str, float], links: set[str], family: Family, calibration: Calibration) -> Estimate:
    link = max(times[unit] for unit in links) / family.values["link"]
    floor, others = floor_of(family, calibration), max((times[unit] for unit in times if unit not in links), default=0.0)
    return Estimate(floor + max(link, others), {"floor": floor, "link": link})


def _others(times: dict[str, float]) -> float:
    """The longest time of a unit that is neither the matrix unit nor main memory."""
    return max((seconds for unit, seconds in times.items() if unit not in (MATRIX, HBM.name)), default=0.0)
