"""Prediction: the expected time of an op on a chip, its interval, its terms, and the evidence for it.

The roofline is a lower bound of the time; a prediction is fitted to measurements of ops of the same family and never below the bound. See
`docs/prediction.md` for the errors of each family.
"""

from functools import cache

from ..cost import Cost
from ..machine import Machine
from ..operation import UNSTATED, Attention, Collective, Compiled, Operation, Product, RowWise, Streamed
from ..placement import Placement, place_op
from ..reported_op import Expected as Expected
from ..resource import HBM, TRANSCENDENTAL
from ..units import show
from .attention import decode_time, prefill_time
from .calibration import BORROWED, LATENCY_REGIME_S, WIDE, Calibration, Family
from .collectives import collective_time
from .compiled_programs import NAME as COMPILED
from .compiled_programs import compiled_time, leaves_out
from .products import product_time
from .streams import pointwise_time, row_time
from .terms import Estimate, Hardware
from .tpu import tpu_time

SUSTAINED = {"matrix": 0.75, "vector": 0.6, "hbm": 0.8}  # default fractions of the peaks
MEASURED_LIMITS = ("held", "matrix product")  # names of a measured machine's limits that products sustain
OTHERWISE = 0.7


def predict(
    operation: Operation | None,
    cost: Cost,
    machine: Machine,
    calibration: Calibration,
    *,
    count: float = 1,
    kernels: float = 1,
    compiled: Compiled = UNSTATED,
) -> Expected | None:
    """The expected time of ``count`` executions of an op; ``None`` where the cost of one is not known.

    ``cost`` is that of one; ``kernels`` is how many kernels it launches, ``compiled`` what a compiled program says of it.
    """
    placed = place_op(cost, machine)
    least = placed.floor_s
    stated = calibration.family(COMPILED) if placed.times and cost.is_known else None
    crosses = any(resource.is_link for resource, _ in cost.amounts)
    if stated is not None and compiled != UNSTATED and not crosses:
        return _of_compiled(placed, compiled, machine, stated, calibration, count)
    if machine.kind == "tpu":
        family, found = tpu_time(operation, placed, calibration)
    else:
        family, found = _estimate(operation, cost, machine, calibration)
    if found is None:
        if not placed.times or placed.unrated or not cost.is_known:
            return None
        if stated is not None and not crosses:
            return _of_compiled(placed, compiled, machine, stated, calibration, count)
        found = _sustained(placed, calibration, kernels)
    seconds = max(found.seconds, least)
    low, high = _interval(family, calibration, placed)
    measured = family is None and any(_measured_share(placed, unit) for unit, _ in placed.times)
    return Expected(
        time_s=seconds * count,
        low_s=max(seconds * low, least) * count,
        high_s=max(seconds * high, least) * count,
        terms={name: term * count for name, term in found.terms.items() if term},
        evidence=_evidence(family, calibration, measured),
        family=family.family if family else "",
        borrowed=bool(calibration.borrowed),
        floor_s=least * count,
    )


def _of_compiled(
    placed: Placement, compiled: Compiled, machine: Machine, family: Family, calibration: Calibration, count: float
) -> Expected:
    """The prediction of an op of a program that the TPU compiler made."""
    made, (low_s, high_s) = compiled_time(placed, placed.cost, compiled, machine, family, calibration)
    cycles = "the compiler's cycles within the limits of the units" if compiled.cycles else "the limits of the units at sustained rates"
    if compiled.cycles and leaves_out(made.terms["cycles"], placed):
        stated = show(made.terms["cycles"], "s")
        cycles = f"the limit of {placed.unit} at its sustained rate, which the compiler's own estimate ({stated}) leaves out"
    return Expected(
        time_s=max(made.seconds, placed.floor_s) * count,
        low_s=max(low_s, placed.floor_s) * count,
        high_s=max(high_s, placed.floor_s) * count,
        terms={name: term * count for name, term in made.terms.items() if term},
        evidence=f"{cycles}; {family.source}",
        family=family.family,
        floor_s=placed.floor_s * count,
    )


def _estimate(operation: Operation | None, cost: Cost, machine: Machine, calibration: Calibration) -> tuple[Family | None, Estimate | None]:
    """The family of an op and its estimate; ``None`` where the chip has no calibration for it."""
    bandwidth = machine.resolve(HBM)
    if not calibration.families or bandwidth is None:
        return None, None
    if isinstance(operation, Collective):
        return _collective(operation, machine, calibration)
    rate = machine.resolve(f"matrix/{operation.compute if isinstance(operation, Product) else 'bf16'}")
    chip = Hardware(rate.rate if rate else 0.0, bandwidth.rate, calibration.cores, calibration.clock_hz)
    if isinstance(operation, Product) and rate is not None:
        name = "grouped" if operation.groups else "products"
        family = calibration.family(name, operation.quantize, operation.compute)
        return (family, product_time(operation, family, chip, calibration, float(cost.known(HBM)))) if family else (None, None)
    if isinstance(operation, Attention):
        return _attention(operation, machine, chip, calibration)
    if not cost.is_known or any(resource.unit == "matrix" or resource.is_link for resource, _ in cost.amounts):
        return None, None
    moved = float(cost.known(HBM))
    if not moved:
        return None, None
    functions = float(cost.known(TRANSCENDENTAL))
    if isinstance(operation, RowWise):
        family = calibration.family("row-wise", operation.kind)
        return (family, row_time(operation, moved, family, chip, calibration)) if family else (None, None)
    family = calibration.family("pointwise", operation.kind) if isinstance(operation, Streamed) else None
    if family is None or not isinstance(operation, Streamed):
        return None, None
    integers = sum(float(amount or 0) for resource, amount in cost.amounts if resource.unit == "vector" and resource.kind.startswith("int"))
    return family, pointwise_time(moved, functions, integers, operation, family, chip, calibration)


def _attention(operation: Attention, machine: Machine, chip: Hardware, calibration: Calibration) -> tuple[Family | None, Estimate | None]:
    rate = machine.resolve(f"matrix/{operation.dtype}")
    if rate is None:
        return None, None
    chip = Hardware(rate.rate, chip.bandwidth, chip.cores, chip.clock_hz)
    family = calibration.family("decode" if operation.is_decode else "prefill", operation.library)
    if family is None:
        return None, None
    made = (decode_time if operation.is_decode else prefill_time)(operation, family, chip, calibration)
    return family, made


def _collective(operation: Collective, machine: Machine, calibration: Calibration) -> tuple[Family | None, Estimate | None]:
    link = machine.resolve(operation.link) if operation.link else None
    family = calibration.family("collectives", operation.kind)
    if family is None or link is None or operation.link != "nvlink" or operation.devices < 2:
        return None, None
    return family, collective_time(operation, (link.peak or link.rate) * link.count, family, calibration)


def _sustained(placed: Placement, calibration: Calibration, kernels: float) -> Estimate:
    """The estimate for any op: the times of its resources at sustained rates, overlapped, plus a launch per kernel."""
    floor = (placed.machine.launch_latency_s if calibration.floor_s is None else calibration.floor_s) * kernels
    terms = {unit: seconds / (_measured_share(placed, unit) or SUSTAINED.get(unit, OTHERWISE)) for unit, seconds in placed.times}
    return Estimate(floor + max(terms.values(), default=0.0), {"floor": floor, **terms})


def _measured_share(placed: Placement, unit: str) -> float | None:
    """The share of its measured rate that a unit sustains (products over seconds, main-memory copies); ``None`` if not measured."""
    machine = placed.machine
    shares = []
    for roof in machine.ceilings:
        if roof.provenance == "measured" and roof.resource.unit == unit and roof.resource in placed.roofs:
            shares += [limit.fraction for limit in machine.limits if limit.resource == roof.resource and limit.name in MEASURED_LIMITS]
            shares += [other.value / roof.rate for other in roof.others if roof.resource == HBM and other.citation.startswith("copy")]
    return min(1.0, *shares) if shares else None


def regime_of(placed: Placement) -> str:
    """The regime of an op by its bound alone: ``latency``, ``memory`` or ``compute``."""
    if placed.floor_s < LATENCY_REGIME_S:
        return "latency"
    return "memory" if placed.unit == HBM.name else "compute"


def _interval(family: Family | None, calibration: Calibration, placed: Placement) -> tuple[float, float]:
    if family is None:
        return WIDE
    low, high = family.within(regime_of(placed))
    return (low**BORROWED, high**BORROWED) if calibration.borrowed else (low, high)


def _evidence(family: Family | None, calibration: Calibration, measured: bool) -> str:
    if family is None:
        of = f"no calibration of this family for {calibration.name}" if calibration.families else "no calibration for this chip"
        if not measured:
            rates = "sustained rates and a launch"
        elif calibration.floor_s is None:
            rates = "sustained rates as measured on this machine, and a launch"
        else:
            rates = "sustained rates and floor as measured on this machine"
        return f"{of}: {rates}, so a wide interval"
    return _fitted(calibration.borrowed, calibration.other_card, family.source, family.rows, family.timed, calibration.floor_s is not None)


@cache
def _fitted(borrowed: str, other_card: bool, source: str, rows: int, timed: str, floor_measured: bool) -> str:
    own = f"borrowed from {borrowed}, so a wider interval; " if borrowed else ""
    own += "on other cards of this chip, not on the one measured here: " if other_card else ""
    counted = f", {rows:,} rows" if rows else ""
    how = f", timed {timed}" if timed else ""
    return f"{own}fitted on {source}{counted}{how}; floor {'measured' if floor_measured else 'as fitted'}"
