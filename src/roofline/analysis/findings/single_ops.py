"""What limits single ops, and suspect figures: rules that each look at one op, or at all of a program, and return evidence or ``None``.

The first of `PRIMARY` that applies names what limits the op; each of `EXTRA` may add something. Of a program that was measured, only the
doubts are told: times below the minimum, units without a rate, unknown costs. Ops that share a kind share a finding; a few have one each.

    >>> from roofline.cost import Cost
    >>> from roofline.machine import Machine
    >>> from roofline.placement import place
    >>> toy = Machine.of("toy", {"matrix/bf16": 100, "hbm": 10})
    >>> found = explain(place(Cost.of({"matrix/bf16": 50, "hbm": 10}), toy, time_s=5.0), "copy")
    >>> found.kind, found.saving_s
    ('memory-far', 4.0)
    >>> found.message
    'copy is memory-bound (hbm) at 20% of its roofline: 5 s, minimum 1 s.'
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import overload

from msgspec import Struct
from msgspec.structs import replace

from ...cost import sum_of_known
from ...machine import LATENCY, Ceiling, Machine
from ...operation import Product, width
from ...placement import Placement, may_bind
from ...prediction.calibration import LATENCY_REGIME_S
from ...quantities import CLOSE, FAR, NOTABLE, ROUNDING
from ...report import Finding
from ...resource import COMPUTE_UNITS, HBM, Resource, bound_words, named
from ...rules.words.explanation import explanation
from ...workload import UNPRICED, Fact, Op, is_upper_bound
from .evidence import Evidence
from .writing import LISTED, Writer, listed, short_name

FAR_BELOW = 0.1  # of the roofline (a choice)
ABOVE_ROOF, BETWEEN_ROOFS, UNRATED, UNKNOWN = "above-roof", "between-roofs", "unrated", "unknown"
ONE_OP = "one op"  # the group of words about one op, of kinds that also are about all of a program
SEPARATE = 5  # ops of one kind that get a finding each; more are merged into one
NEAR_RIDGE = 1.25  # of the shorter of compute and memory time: if the longer is at most this, the op is near the ridge (a choice)
SERIAL_BAND = 0.1  # a time within this share of the serial time means that nothing overlaps (a choice)
WORTHWHILE = 2  # low-batch is reported only if the rows of a compute-bound product take at most this many times as long
LONGER = 1.05  # times as long: what takes less is said to take the same time

# Words for a matrix product in names and categories: dot_general, sgemm, conv2d, but not convert.
PRODUCT = r"(?<![a-z])(matmul|dot|[a-z]?gemm|bmm|addmm|einsum|conv(olution|\d?d)?)(?![a-z])"


class Placed(Struct, frozen=True):
    """An op of a program with its placement and, if it is known, its expected time; its id is the one that findings name."""

    id: int
    op: Op
    placement: Placement
    expected_s: float | None = None


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


Rule = Callable[[Placed], Evidence | None]


def above_roof(one: Placed) -> Evidence | None:
    """Efficiency above 1: never clipped, always reported, unless the cost is an upper bound."""
    placement, efficiency = one.placement, one.placement.efficiency
    if efficiency is None or efficiency <= 1 + ROUNDING or is_upper_bound(one.op.notes):
        return None

    return _about(one, ABOVE_ROOF, {"time": placement.time_s, "least": placement.floor_s, "unit": placement.unit})


def between_roofs(one: Placed) -> Evidence | None:
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

    facts: dict[str, Fact | None] = {"achieved": needed, "main": main, "memory": roof.resource.name, "faster": roof.rate}
    return _about(one, BETWEEN_ROOFS, facts, max(placement.time_s - max(moved / roof.rate, others), 0.0))


def faster_memories(machine: Machine) -> list[Ceiling]:
    """The memories that are faster than the main memory."""
    return [ceiling for ceiling in machine.memories if ceiling.rate > machine.rate(HBM)]


def latency(one: Placed) -> Evidence | None:
    """Less work per launch than the launch itself takes."""
    placement, took = one.placement, one.placement.time_s
    if not took or placement.bound != LATENCY or placement.unit is None:
        return None

    facts: dict[str, Fact | None] = {"each": took / placement.executions, "needed": placement.floor_s / placement.executions}
    return _about(one, LATENCY, facts, _headroom(one), group=ONE_OP)


def too_small(one: Placed) -> Evidence | None:
    """Not measured, and expected to take far longer than its work, which is too little for a launch."""
    placement, expected = one.placement, one.expected_s
    if placement.time_s is not None or placement.unit is None or expected is None:
        return None
    needed = placement.floor_s / placement.executions
    if needed >= LATENCY_REGIME_S or placement.floor_s >= FAR_BELOW * expected:
        return None

    return _about(one, LATENCY, {"each": expected / placement.executions, "needed": needed}, group=ONE_OP, cause="expected")


def no_overlap(one: Placed) -> Evidence | None:
    """A time near the serial time and a low efficiency: the units do not overlap."""
    placement = one.placement
    if len(placement.times) < 2 or not placement.time_s or placement.efficiency is None or placement.efficiency >= CLOSE:
        return None
    paths = _paths(placement)
    serial_s = sum(seconds for _, seconds in paths)
    if len(paths) < 2 or abs(placement.time_s / serial_s - 1) > SERIAL_BAND:
        return None

    units = " + ".join(unit for unit, _ in paths)
    facts: dict[str, Fact | None] = {"time": placement.time_s, "serial": serial_s, "least": placement.floor_s, "units": units}
    return _about(one, "no-overlap", facts, _headroom(one))


def _paths(placement: Placement) -> list[tuple[str, float]]:
    """The units that could overlap, longest first; the levels of one memory hierarchy count as one, the slowest."""
    used = [(unit, seconds) for unit, seconds in placement.times if seconds]
    slowest = next((unit for unit, _ in used if named(unit).is_memory), None)
    return [(unit, seconds) for unit, seconds in used if unit == slowest or not named(unit).is_memory]


def far_below(one: Placed) -> Evidence | None:
    """Below a tenth of the roofline: rarely caused by the kernel itself, mostly by host overhead."""
    placement, efficiency = one.placement, one.placement.efficiency
    if efficiency is None or efficiency >= FAR_BELOW:
        return None

    facts: dict[str, Fact | None] = {"reached": efficiency, "unit": placement.unit, "time": placement.time_s, "least": placement.floor_s}
    return _about(one, "far-below", facts, _headroom(one))


def bound(one: Placed) -> Evidence | None:
    """The bound and the efficiency of an op."""
    placement, unit, efficiency = one.placement, one.placement.unit, one.placement.efficiency
    if unit is None:
        return None
    resource = named(unit)
    family = "network" if resource.is_link else "memory" if resource.is_memory else "compute"

    facts: dict[str, Fact | None] = {"bound": bound_words(unit), "least": placement.floor_s}
    if efficiency is None:
        return _about(one, f"{family}-bound", facts | _intensity_and_ridge(placement), cause="unmeasured")
    kind = "network-bound" if family == "network" else f"{family}-{_zone(efficiency)}"
    return _about(one, kind, facts | {"reached": efficiency, "time": placement.time_s}, _headroom(one))


def near_ridge(one: Placed) -> Evidence | None:
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

    facts: dict[str, Fact | None] = {"computing": computing[1], "computing_s": computing[0], "moving": moving[1], "moving_s": moving[0]}
    return _about(one, "near-ridge", facts | _intensity_and_ridge(placement))


def vector_instead_of_matrix(one: Placed) -> Evidence | None:
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

    formats = ", ".join(resource.kind or resource.name for resource in billed)
    facts: dict[str, Fact | None] = {
        "flops": flops,
        "formats": formats,
        "least": placement.floor_s,
        "roof": roof.resource.name,
        "then_s": floor,
    }
    return _about(one, "vector-instead-of-matrix", facts, max(placement.floor_s - floor, 0.0) if placement.time_s else None)


def low_batch(one: Placed) -> Evidence | None:
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

    facts: dict[str, Fact | None] = {
        "intensity": intensity,
        "ridge": ridge,
        "compute": compute.name,
        "assumed": share is None,
        "rows": more,
    }
    return _about(one, "low-batch", facts | ({"times": longer} if longer >= LONGER else {"same": True}), group=ONE_OP)


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


def unrated(program: Program) -> Evidence | None:
    """Work on resources without a known rate, which minimum times do not include; except hops, of which few chips have a known latency."""
    found = {id: left for id, missing in program.unrated.items() if (left := [one for one in missing if one.measure != "hop"])}
    if not found:
        return None
    if not program.machine.ceilings:
        return Evidence(kind=UNRATED, group="no chip", ops=sorted(found))
    resources = {resource for missing in found.values() for resource in missing}
    facts: dict[str, Fact | None] = {
        "machine": program.machine.name,
        "resources": ", ".join(sorted(resource.name for resource in resources)),
        "undecided": any(may_bind(resource, program.machine) for resource in resources),
    }
    return Evidence(kind=UNRATED, ops=sorted(found), facts=facts)


def unknown(program: Program) -> Evidence | None:
    """The share of time, or of ops, whose cost is not known."""
    ops = sorted(program.unpriced, key=lambda id: (-(program.times[id] or 0.0), id))
    total = program.time_s
    spent = sum([program.times[id] or 0.0 for id in ops])
    if not ops or (total and spent < NOTABLE * total):
        return None
    distinct = [*dict.fromkeys(program.names[id] for id in ops)]
    facts: dict[str, Fact | None] = {"names": listed([*map(short_name, distinct[:LISTED])], len(distinct))}
    facts |= {"share": spent / total, "seconds": spent} if total else {"unpriced": len(ops), "all": program.count}
    return Evidence(kind=UNKNOWN, ops=ops, facts=facts, ways=_recorded_by(program))


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


def op_evidence(placed: Iterable[Placed], machine: Machine) -> list[Evidence]:
    """The evidence about the ops of hand formulas, in any order. The order of the ops does not matter."""
    ops = sorted(placed, key=lambda one: one.id)
    program = Program(
        names={one.id: one.op.name for one in ops},
        times={one.id: one.placement.time_s for one in ops},
        unrated={one.id: one.placement.unrated for one in ops if one.placement.unrated},
        unpriced=[one.id for one in ops if not one.op.priced],
        machine=machine,
        count=len(ops),
        time_s=sum(one.placement.time_s or 0.0 for one in ops),
        notes={one.id: one.op.notes for one in ops if not one.op.priced},
    )
    found = [evidence for one in ops for evidence in _of_op(one) if _matters(evidence, program.time_s)]
    return [*_merged(found), *_of_all(program)]


def doubts(program: Program, too_fast: Mapping[int, str], placed: Callable[[int], Placed]) -> list[Evidence]:
    """The evidence about suspect figures of a program: times below the minimum, units without a rate, unknown costs.

    ``too_fast`` has the kind of doubt of each op that is faster than its roofline allows; ``placed`` gives an op by its id.
    """
    alike: dict[str, list[int]] = {}
    for id, kind in too_fast.items():
        alike.setdefault(kind, []).append(id)
    found: list[Evidence] = []
    for kind, ids in alike.items():
        if len(ids) > SEPARATE:
            found.append(Evidence(kind=kind, ops=sorted(ids)))
        else:
            found += [replace(evidence, headroom_s=None) for id in ids for evidence in _of_op(placed(id)) if evidence.kind == kind]
    return [*found, *_of_all(program)]


def doubt(one: Placed) -> str | None:
    """The kind of doubt about an op that is faster than its roofline allows."""
    return next((evidence.kind for rule in DOUBTS if (evidence := rule(one))), None)


@overload
def explain(what: str) -> str: ...
@overload
def explain(what: Placement, name: str = "it") -> Finding | None: ...
def explain(what: Placement | str, name: str = "it") -> Finding | str | None:
    """The main finding about a single piece of work, measured or not: its bound and what to do about it; or, of the kind of a finding, what
    it means, how it is recognised and what to do, in Markdown.
    """
    if isinstance(what, str):
        return explanation(what)
    placement = what
    one = Placed(0, Op(name=name, cost=placement.cost, time_s=placement.time_s), placement)
    rules = (near_ridge, *PRIMARY) if placement.time_s is None else PRIMARY
    found = next((evidence for rule in rules if (evidence := rule(one))), None)
    return replace(Writer((placement.machine.kind,), names=[name]).finding(found), ops=()) if found else None


def _of_op(one: Placed) -> list[Evidence]:
    """The evidence about one op. Where its cost is not fully known, the minimum is too low, and only a time below even that is reported."""
    main = next((evidence for rule in (PRIMARY if one.op.priced else DOUBTS) if (evidence := rule(one))), None)
    found = [main] if main else []
    if not one.op.priced or (main and main.kind in (ABOVE_ROOF, BETWEEN_ROOFS)):
        return found
    return [*found, *(evidence for rule in EXTRA if (evidence := rule(one)))]


def _of_all(program: Program) -> list[Evidence]:
    """The evidence of the rules that look at all ops at once."""
    return [evidence for rule in (unrated, unknown) if (evidence := rule(program))]


def _matters(evidence: Evidence, total: float) -> bool:
    """Whether to show evidence: ops at a middling efficiency only where they take a notable share of the time."""
    return not evidence.kind.endswith("-middle") or (evidence.headroom_s or 0.0) >= NOTABLE * total


def _merged(found: Iterable[Evidence]) -> list[Evidence]:
    """One piece of evidence for each kind that many ops share, the largest saving first; a few ops of a kind have one each."""
    alike: dict[str, list[Evidence]] = {}
    for evidence in found:
        alike.setdefault(evidence.kind, []).append(evidence)
    merged: list[Evidence] = []
    for each in alike.values():
        if len(each) <= SEPARATE:
            merged += each
            continue
        each.sort(key=lambda evidence: (-(evidence.headroom_s or 0.0), evidence.ops[0]))
        headroom_s = sum_of_known(evidence.headroom_s for evidence in each)
        merged.append(Evidence(kind=each[0].kind, group=each[0].group, ops=[evidence.ops[0] for evidence in each], headroom_s=headroom_s))
    return merged


def _about(
    one: Placed, kind: str, facts: Mapping[str, Fact | None], headroom_s: float | None = None, *, group: str = "", cause: str = ""
) -> Evidence:
    """The evidence about one op."""
    return Evidence(kind=kind, group=group, cause=cause, facts=facts, ops=(one.id,), headroom_s=headroom_s)


def _zone(efficiency: float) -> str:
    return "close" if efficiency >= CLOSE else "far" if efficiency < FAR else "middle"


def _intensity_and_ridge(placement: Placement) -> dict[str, Fact | None]:
    """The intensity and the ridge, where both are known."""
    intensity, ridge = placement.intensity(), placement.ridge()
    return {"intensity": intensity, "ridge": ridge} if intensity and ridge else {}


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
