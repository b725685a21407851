"""Ops of programs that the TPU compiler made: the compiler's own cycles, held between the limits of the chip's units.

matrix unit   sum of FLOP / share of the unit that the sizes fill / (share of the peak that products sustain)
main memory   bytes / sustained bandwidth: lower where the op computes a product at the same time
core          vector unit, functions, transposes, and VMEM but beside a product: their time at the peak / the share that a core sustains
limit         the longest of these, plus the first load and the last store of a product, as much as a window in VMEM holds, plus the
              latency of a copy from main memory, or of an instruction if the op is on scalars alone
time          the compiler's cycles / clock, at most the limit and at least the longest unit at its peak rate; the limit where the cycles
              leave out the unit of the minimum

The cycles are right to a few per cent for plain large products and streams. For products that compute their operands in the same kernel
they are 1.1 to 1.8 times too long, for attention scores, narrow convolutions, pads, fills and sums in place 1.3 to 6 times, so that the
limit is nearer. Copies and fills within VMEM have 100 cycles or less whatever their size, which is below the stores that they need. The
interval is from the longest unit to the cycles.
"""

from collections.abc import Mapping

from ..cost import Cost
from ..machine import Machine
from ..operation import Compiled
from ..placement import Placement
from ..resource import HBM, Resource, matrix
from .calibration import Calibration, Family
from .terms import Estimate

NAME = "compiled"  # of the family in calibrations
MATRIX = "matrix"
VMEM = ("vmem.read", "vmem.write")
_LEAST = 0.95  # of the minimum: cycles are estimates to a few per cent
_SCALARS = 64  # bytes, or FLOP, of an op on scalars
_OTHERWISE = (1.0, 1.4)  # interval around an op without cycles: between its limits at peak rates, and this times its time


def compiled_time(
    placed: Placement, cost: Cost, compiled: Compiled, machine: Machine, family: Family, calibration: Calibration
) -> tuple[Estimate, tuple[float, float]]:
    """The time of one execution, and its interval in seconds."""
    peak = dict(placed.times)
    filled = _matrix_s(cost, compiled, machine)
    terms = _sustained(peak, filled, family)
    longest = max([filled, *(seconds for unit, seconds in peak.items() if unit != MATRIX)])
    limit = max(terms.values(), default=0.0)
    if HBM.name in peak and _is_scalar(cost):
        limit += family.values["scalar"]
    elif HBM.name in peak:
        start = min(peak[HBM.name], family.values["window"] / machine.rate(HBM)) if filled else 0.0
        limit += family.values["floor"] + start
    cycles_s = compiled.cycles / calibration.clock_hz if compiled.cycles and calibration.clock_hz else None
    stated = terms if cycles_s is None else {**terms, "cycles": cycles_s}
    if cycles_s is None or leaves_out(cycles_s, placed):
        return Estimate(limit, stated), (max(placed.floor_s, longest) * _OTHERWISE[0], limit * _OTHERWISE[1])
    seconds = max(min(cycles_s, limit), placed.floor_s)
    return Estimate(seconds, stated), (min(longest, seconds), cycles_s if cycles_s > placed.floor_s else max(limit, seconds))


def _is_scalar(cost: Cost) -> bool:
    """Whether an op works on scalars alone, such as the counter of a loop: these are in the scalar unit's own memory."""
    return all(float(amount) <= _SCALARS for _, amount in cost.amounts)


def leaves_out(cycles_s: float, placed: Placement) -> bool:
    """Whether the compiler's cycles leave out the unit that bounds an op: they are below its minimum."""
    return cycles_s < _LEAST * placed.floor_s


def padded_flops(compiled: Compiled, machine: Machine) -> dict[Resource, float]:
    """The FLOP of one execution that the matrix unit spends on padding, by number format.

    None where the compiler's own estimate is shorter than the padded products would take: it has found another way to fill the unit.
    """
    side = machine.matrix_side
    if not side:
        return {}
    padded: dict[Resource, float] = {}
    for product in compiled.products:
        unit = matrix(product.compute)
        padded[unit] = padded.get(unit, 0.0) + product.flops * (1 / product.fill(side) - 1)
    if compiled.cycles and machine.clock_hz:
        whole = [(product.flops / product.fill(side), machine.resolve(matrix(product.compute))) for product in compiled.products]
        least_s = sum(flops / ceiling.rate for flops, ceiling in whole if ceiling)
        return padded if compiled.cycles / machine.clock_hz >= least_s else {}
    return padded


def _matrix_s(cost: Cost, compiled: Compiled, machine: Machine) -> float:
    """The seconds of the matrix unit at its peak, padding included."""
    work = [(resource, float(amount)) for resource, amount in cost.amounts if resource.unit == MATRIX]
    ceilings = [(machine.resolve(resource), flops) for resource, flops in (*work, *padded_flops(compiled, machine).items())]
    return sum(flops / ceiling.rate for ceiling, flops in ceilings if ceiling)


def _sustained(peak: Mapping[str, float], filled: float, family: Family) -> dict[str, float]:
    """The seconds of each unit at the rate that it sustains."""
    values = family.values
    memory = values["beside"] if filled else values["memory"]
    beside = VMEM if filled else ()  # loads and stores that products stream
    terms = {unit: seconds / (1 if unit in beside else values["core"]) for unit, seconds in peak.items() if unit not in (MATRIX, HBM.name)}
    if filled:
        terms[MATRIX] = filled / values["compute"]
    if HBM.name in peak:
        terms[HBM.name] = peak[HBM.name] / memory
    return terms
