"""Rules of advice about single ops: each looks at one op, or at all of a program, and returns a draft, a finding or ``None``.

The first of `PRIMARY` that applies names what limits the op; each of `EXTRA` may add something; `PROGRAM` looks at all ops at once.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from math import inf

from msgspec import Struct

from ..machine import LATENCY, Ceiling, Machine
from ..operation import Product, width
from ..placement import Placement, may_bind
from ..prediction.calibration import LATENCY_REGIME_S
from ..report import Finding
from ..resource import COMPUTE_UNITS, HBM, Resource, bound_words, named
from ..units import percent, plain, rounded, show
from ..workload import UNPRICED, Op, is_upper_bound
from .advice_kinds import CLOSE, FAR, FAR_BELOW, KINDS
from .platform_kinds import ADVICE as TPU_ADVICE

NEAR_RIDGE = 1.25  # of the shorter of compute and memory time: if the longer is at most this, the op is near the ridge (a choice)
SERIAL_BAND = 0.1  # a time within this share of the serial time means that nothing overlaps (a choice)
NOTABLE = 0.01  # of the program's time: ops with less are not shown for a middling efficiency or an unknown cost
LISTED = 3  # op names listed in a finding about many ops
WORTHWHILE = 2  # low-batch is reported only if the rows of a compute-bound product take at most this many times as long
ROUNDING = 1e-9  # efficiencies this close above 1 count as 1

# Words for a matrix product in names and categories: dot_general, sgemm, conv2d, but not convert.
PRODUCT = r"(?<![a-z])(matmul|dot|[a-z]?gemm|bmm|addmm|einsum|conv(olution|\d?d)?)(?![a-z])"


class Placed(Struct, frozen=True):
    """An op of a program with its placement and, if it is known, its expected time; its id is the one that findings name."""

    id: int
    op: Op
    placement: Placement
    expected_s: float | None = None


class Draft(Struct, frozen=True):
    """A finding about one op before it is written: its kind, the op's id, and ``write``, which returns the sentence after the op's name."""

    kind: str
    id: int
    write: Callable[[], str] | None = None
    saving_s: float | None = None


class Program(Struct, frozen=True):
    """All ops of a program: names and times by id, their number, and their total time.

    ``unrated`` has, for the ops that use any, the resources without a known rate; ``unpriced`` are the ops whose cost is not fully known,
    and ``notes`` are the notes on these.
    """

    names: Mapping[int, str] | Sequence[str]
    times: Mapping[int, float | None] | Sequence[float | None]
    unrated: Mapping[int, tuple[Resource, ...]]
    unpriced: Sequence[int]
    machine: Machine
    count: int
    time_s: float
    notes: Mapping[int, tuple[str, ...]] = {}


Rule = Callable[[Placed], Draft | None]
ProgramRule = Callable[[Program], Finding | None]


def above_roof(one: Placed) -> Draft | None:
    """Efficiency above 1: never clipped, always reported, unless the cost is an upper bound."""
    placement, efficiency = one.placement, one.placement.efficiency
    if efficiency is None or efficiency <= 1 + ROUNDING or is_upper_bound(one.op.notes):
        return None

    def write() -> str:
        took = f"{show(placement.time_s, 's')}, minimum {show(placement.floor_s, 's')} on {placement.unit}"
        return f"is faster than the roofline allows ({took}): check the count and the ceiling."

    return Draft("above-roof", one.id, write)


def between_roofs(one: Placed) -> Draft | None:
    """Faster than main memory allows, but not than the next faster memory: part of the data stays there."""
    placement = one.placement
    if is_upper_bound(one.op.notes):  # it may have moved less
        return None
    if (placement.efficiency or 0) <= 1 + ROUNDING or placement.unit != HBM.name or placement.time_s is None:
        return None
    others = max((seconds for unit, seconds in placement.times if unit != HBM.name), default=0.0)
    moved, main = float(placement.cost.known(HBM)), placement.machine.rate(HBM)
    needed = moved / placement.time_s
    roofs = [ceiling for ceiling in faster_memories(placement.machine) if ceiling.rate >= needed]
    if others > placement.time_s * (1 + ROUNDING) or not roofs:
        return None
    roof = min(roofs, key=lambda ceiling: (ceiling.rate, ceiling.resource))

    def write() -> str:
        return (
            f"achieves {show(needed, 'B/s')}, between the bandwidth of {HBM} ({show(main, 'B/s')}) and {roof.resource} "
            f"({show(roof.rate, 'B/s')}): part of its data stays on chip; improve its tiling."
        )

    return Draft("between-roofs", one.id, write, max(placement.time_s - max(moved / roof.rate, others), 0.0))


def faster_memories(machine: Machine) -> list[Ceiling]:
    """The memories that are faster than the main memory."""
    return [ceiling for ceiling in machine.memories if ceiling.rate > machine.rate(HBM)]


def latency(one: Placed) -> Draft | None:
    """Less work per launch than the launch itself takes."""
    placement, took = one.placement, one.placement.time_s
    if not took or placement.bound != LATENCY or placement.unit is None:
        return None

    def write() -> str:
        each, needed = took / placement.executions, placement.floor_s / placement.executions
        return f"is latency-bound: {show(each, 's')} per launch, of which the work needs {show(needed, 's')}."

    return Draft("latency", one.id, write, _headroom(one))


def too_small(one: Placed) -> Draft | None:
    """Not measured, and expected to take far longer than its work, which is too little for a launch."""
    placement, expected = one.placement, one.expected_s
    if placement.time_s is not None or placement.unit is None or expected is None:
        return None
    needed = placement.floor_s / placement.executions
    if needed >= LATENCY_REGIME_S or placement.floor_s >= FAR_BELOW * expected:
        return None

    def write() -> str:
        each = show(rounded(expected / placement.executions, 3), "s")
        return f"is latency-bound: about {each} per launch, of which the work needs {show(needed, 's')}."

    return Draft("latency", one.id, write)


def no_overlap(one: Placed) -> Draft | None:
    """A time near the serial time and a low efficiency: the units do not overlap."""
    placement = one.placement
    if len(placement.times) < 2 or not placement.time_s or placement.efficiency is None or placement.efficiency >= CLOSE:
        return None
    paths = _paths(placement)
    serial_s = sum(seconds for _, seconds in paths)
    if len(paths) < 2 or abs(placement.time_s / serial_s - 1) > SERIAL_BAND:
        return None

    def write() -> str:
        units = " + ".join(unit for unit, _ in paths)
        serial, floor = show(serial_s, "s"), show(placement.floor_s, "s")
        return f"takes {show(placement.time_s, 's')}, about its serial time on {units} ({serial}; minimum {floor}): nothing overlaps."

    return Draft("no-overlap", one.id, write, _headroom(one))


def _paths(placement: Placement) -> list[tuple[str, float]]:
    """The units that could overlap, longest first; the levels of one memory hierarchy count as one, the slowest."""
    used = [(unit, seconds) for unit, seconds in placement.times if seconds]
    slowest = next((unit for unit, _ in used if named(unit).is_memory), None)
    return [(unit, seconds) for unit, seconds in used if unit == slowest or not named(unit).is_memory]


def far_below(one: Placed) -> Draft | None:
    """Below a tenth of the roofline: rarely caused by the kernel itself, mostly by host overhead."""
    placement, efficiency = one.placement, one.placement.efficiency
    if efficiency is None or efficiency >= FAR_BELOW:
        return None

    def write() -> str:
        took, least = show(placement.time_s, "s"), show(placement.floor_s, "s")
        return f"runs at {percent(efficiency)} of its roofline ({placement.unit}): {took}, minimum {least}."

    return Draft("far-below", one.id, write, _headroom(one))


def bound(one: Placed) -> Draft | None:
    """The bound and the efficiency of an op."""
    placement, unit, efficiency = one.placement, one.placement.unit, one.placement.efficiency
    if unit is None:
        return None
    resource = named(unit)
    family = "network" if resource.is_link else "memory" if resource.is_memory else "compute"

    def write() -> str:
        least = show(placement.floor_s, "s")
        if efficiency is None:
            return f"is {bound_words(unit)}{_intensity_and_ridge(placement)}: minimum time {least}."
        return f"is {bound_words(unit)} at {percent(efficiency)} of its roofline: {show(placement.time_s, 's')}, minimum {least}."

    if efficiency is None:
        return Draft(f"{family}-bound", one.id, write)
    return Draft("network-bound" if family == "network" else f"{family}-{_zone(efficiency)}", one.id, write, _headroom(one))


def near_ridge(one: Placed) -> Draft | None:
    """Compute and data movement within a factor of 1.25 of each other."""
    placement = one.placement
    if len(placement.times) < 2:
        return None
    # Times come longest first, so the first of each side is its longest.
    computing = next(((seconds, unit) for unit, seconds in placement.times if unit in COMPUTE_UNITS), None)
    moving = next(((seconds, unit) for unit, seconds in placement.times if unit not in COMPUTE_UNITS), None)
    if not computing or not moving or not min(computing[0], moving[0]):
        return None
    if max(computing[0], moving[0]) > NEAR_RIDGE * min(computing[0], moving[0]):
        return None

    def write() -> str:
        times = f"{computing[1]} needs {show(computing[0], 's')}, {moving[1]} {show(moving[0], 's')}"
        return f"is near the ridge point{_intensity_and_ridge(placement)}: {times}."

    return Draft("near-ridge", one.id, write)


def vector_instead_of_matrix(one: Placed) -> Draft | None:
    """A matrix product on the vector unit of a machine that has a matrix unit."""
    placement, machine = one.placement, one.placement.machine
    if placement.unit != "vector":
        return None
    named = re.search(PRODUCT, f"{one.op.name} {one.op.category}".lower())
    asked = [resource for resource in placement.cost if resource.is_arithmetic and (resource.unit == "matrix" or named)]
    billed = [resource for resource in asked if unit_of(machine, resource) == "vector" and resource.kind not in ("fp64", "int64")]
    roof = _matrix_roof(machine, billed[0].kind) if billed else None
    if roof is None:
        return None
    flops = sum(float(placement.cost.known(resource)) for resource in billed)
    spared = sum(float(placement.cost.known(resource)) / machine.rate(resource) for resource in billed)
    times = dict(placement.times)
    floor = max(
        times["vector"] - spared, times.get("matrix", 0.0) + flops / roof.rate, *(s for u, s in times.items() if u != "vector"), 0.0
    )

    def write() -> str:
        formats = ", ".join(resource.kind or resource.name for resource in billed)
        least = f"minimum {show(placement.floor_s, 's')}, on {roof.resource} {show(floor, 's')}"
        return f"does {show(flops, 'FLOP')} of {formats} matmuls on the vector unit: {least}."

    return Draft("vector-instead-of-matrix", one.id, write, max(placement.floor_s - floor, 0.0) if placement.time_s else None)


def low_batch(one: Placed) -> Draft | None:
    """A matrix product that reads its weights for too few rows: memory-bound, at half the ridge or less, where more rows help."""
    placement, compute = one.placement, one.placement.compute
    if compute is None or placement.unit != HBM.name or unit_of(placement.machine, compute) != "matrix":
        return None
    intensity, ridge = placement.intensity(), placement.ridge()
    if not intensity or not ridge or 2 * intensity > ridge:
        return None
    share = _weights_share(one.op)
    # With r times the rows, compute takes r times as long; weights are still read once, everything else r times.
    weights = 1.0 if share is None else share
    spare = intensity / ridge - (1 - weights)
    more = weights / spare if spare > 0 else inf
    longer = weights + (1 - weights) * more if weights < 1 else 1.0
    if longer > WORTHWHILE:
        return None

    def write() -> str:
        has = f"has {show(intensity, 'FLOP/B')}, far below the {compute} ridge at {show(ridge, 'FLOP/B')}"
        assuming = "if nearly all its bytes are weights, " if share is None else ""
        time = f"{plain(longer, 2)} times as long" if longer >= 1.05 else "the same time"
        return f"{has}: {assuming}about {plain(more, 2)} times as many rows would take {time}."

    return Draft("low-batch", one.id, write)


def _weights_share(op: Op) -> float | None:
    """The share of an op's bytes that does not grow with the rows: its weights; ``None`` where its operands are unknown."""
    if op.ledger is not None:
        rows = [row for row in op.ledger.rows if row.level == HBM]
        return float(sum(row.bytes for row in rows if row.reads_parameter) / sum(row.bytes for row in rows))
    product = op.operation
    if product is None:
        return None
    if not isinstance(product, Product) or product.batch > 1:  # the operands of many products are rarely weights
        return 0.0
    left, right = (width(one) * float(size) for one, size in ((product.left, product.m), (product.right, product.n)))
    largest = max(left, right * max(float(product.groups), 1.0)) * float(product.k)
    return min(largest * op.count / float(op.cost.known(HBM)), 1.0)


def unrated(program: Program) -> Finding | None:
    """Work on resources without a known rate, which minimum times do not include; except hops, of which few chips have a known latency."""
    found = {id: left for id, missing in program.unrated.items() if (left := [one for one in missing if one.measure != "hop"])}
    mine = sorted(found)
    if not mine:
        return None
    if not program.machine.ceilings:
        message = "The chip is not known, so no op has a minimum time."
        return Finding(kind="unrated", message=message, ops=tuple(mine), levers=("choose the chip with --chip",))
    resources = {resource for missing in found.values() for resource in missing}
    missing = ", ".join(sorted(resource.name for resource in resources))
    names = listed([short_name(program.names[id]) for id in mine[:LISTED]], len(mine))
    undecided = any(may_bind(resource, program.machine) for resource in resources)
    lost = "excludes it, and the bound is not known" if undecided else "excludes it"
    message = f"{program.machine.name} has no known rate for {missing}: the minimum time of {names} {lost}."
    return Finding(kind="unrated", message=message, ops=tuple(mine), levers=KINDS["unrated"].levers)


def unknown(program: Program) -> Finding | None:
    """The share of time, or of ops, whose cost is not known."""
    mine = sorted(program.unpriced, key=lambda id: (-(program.times[id] or 0.0), id))
    total = program.time_s
    spent = sum([program.times[id] or 0.0 for id in mine])
    if not mine or (total and spent < NOTABLE * total):
        return None
    distinct = [*dict.fromkeys(program.names[id] for id in mine)]
    names = listed([*map(short_name, distinct[:LISTED])], len(distinct))
    if total:
        message = f"Ops with {percent(spent / total)} of the measured time ({show(spent, 's')}) have no known cost: {names}."
    else:
        message = f"The cost of {len(mine):,} of {program.count:,} ops is not known: {names}."
    return Finding(
        kind="unknown", message=message, ops=tuple(mine), levers=(*_recorded_by(program), *levers_on("unknown", program.machine))
    )


def levers_on(kind: str, machine: Machine) -> tuple[str, ...]:
    """The levers of a kind of advice, in the terms of the machine."""
    return TPU_ADVICE.get(kind, KINDS[kind].levers) if machine.kind == "tpu" else KINDS[kind].levers


def _recorded_by(program: Program) -> list[str]:
    """How to record what is not known, first what tells most of the time."""
    spent: dict[str, float] = {}
    for id, notes in program.notes.items():
        for note in notes:
            if note.startswith(UNPRICED):
                way = note.removeprefix(UNPRICED)
                spent[way] = spent.get(way, 0.0) + (program.times[id] or 0.0)
    return sorted(spent, key=lambda way: -spent[way])


DOUBTS: tuple[Rule, ...] = (between_roofs, above_roof)
PRIMARY: tuple[Rule, ...] = (*DOUBTS, latency, too_small, no_overlap, far_below, bound)
EXTRA: tuple[Rule, ...] = (near_ridge, vector_instead_of_matrix, low_batch)
PROGRAM: tuple[ProgramRule, ...] = (unrated, unknown)


def _zone(efficiency: float) -> str:
    return "close" if efficiency >= CLOSE else "far" if efficiency < FAR else "middle"


def _intensity_and_ridge(placement: Placement) -> str:
    """The intensity and the ridge, where both are known."""
    intensity, ridge = placement.intensity(), placement.ridge()
    return f" at {show(intensity, 'FLOP/B')} (ridge {show(ridge, 'FLOP/B')})" if intensity and ridge else ""


def _headroom(one: Placed) -> float:
    return max(one.placement.headroom_s or 0.0, 0.0)


def _matrix_roof(machine: Machine, kind: str) -> Ceiling | None:
    """The matrix ceiling that a product of this format could use: its own, tf32 for fp32, else the default one."""
    best = machine.best_matrix
    usual = best if best and best.resource.unit == "matrix" else None
    return machine.ceiling(f"matrix/{kind}") or (machine.ceiling("matrix/tf32") if kind == "fp32" else None) or usual


def unit_of(machine: Machine, resource: Resource) -> str | None:
    """The unit of hardware that work on a resource runs on, after fallbacks."""
    ceiling = machine.resolve(resource)
    return ceiling.resource.unit if ceiling else None


def listed(names: Sequence[str], count: int) -> str:
    """The first three names, and how many more of ``count`` there are."""
    if count > LISTED:
        return f"{', '.join(names[:LISTED])} and {count - LISTED:,} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def short_name(name: str) -> str:
    """A name shortened for findings: names of C++ kernels can be very long."""
    return name if len(name) <= 60 else f"{name[:59]}…"
