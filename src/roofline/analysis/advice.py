"""Advice: what a placement means and what to do next, as small pure rules.

A rule looks at one op and returns a finding or ``None``. The first of `PRIMARY` that speaks says what holds the op back; each
of `EXTRA` may add something; `PROGRAM` looks at all ops at once. Doubt comes first (an op above its roof: a count or a
ceiling is wrong), then the seconds a change could save. Every kind of finding has its levers in `KINDS`.

    >>> from roofline.cost import Cost
    >>> from roofline.placement import place
    >>> toy = Machine.of("toy", {"matrix/bf16": 100, "hbm": 10})
    >>> found = explain(place(Cost.of({"matrix/bf16": 50, "hbm": 10}), toy, time_s=5.0), "copy")
    >>> found.kind, found.saving_s
    ('memory-far', 4.0)
    >>> found.message
    'copy is hbm bound and far from that roof: 20% of it, 5 s where 1 s would do.'
"""

import re
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ..machine import LATENCY, Ceiling, Machine
from ..placement import Placement
from ..report import Finding
from ..resource import COMPUTE_UNITS, HBM, Resource, named
from ..units import percent, plain, show
from ..workload import Op

CLOSE = 0.7  # of the roof
FAR = 0.4
FAR_BELOW = 0.1
NEAR_RIDGE = 1.25
SERIAL_BAND = 0.1  # a time within this of T_max means that nothing overlaps
NOTABLE = 0.01  # of the program's time: below that the middle zone and the unknown are not worth a line
SEPARATE = 5  # ops of one kind that get a line each; more share one
ROUNDING = 1e-9  # efficiencies this close above 1 are on the roof

# Words for a matrix product in names and categories: dot_general, sgemm, conv2d, but not convert.
PRODUCT = re.compile(r"(?<![a-z])(matmul|dot|[a-z]?gemm|bmm|addmm|einsum|conv(olution|\d?d)?)(?![a-z])")


class Placed(Struct, frozen=True):
    """An op of a program and where it stands; its id is the one that findings name."""

    id: int
    op: Op
    placement: Placement


class Kind(Struct, frozen=True):
    """What ops with one kind of finding have in common, and what can be done about it."""

    phrase: str
    levers: tuple[str, ...]


KINDS: dict[str, Kind] = {
    "above-roof": Kind(
        "run faster than their roof allows",
        (
            "check the count: bytes served by a cache, work that was skipped, executions counted twice",
            "check the ceiling: the right chip, a whole chip or one device of it, the right number format",
            "check the time: does it cover every kernel of the op?",
        ),
    ),
    "between-roofs": Kind(
        "run above the main-memory roof and below that of a faster memory",
        (
            "tile so that more of the working set stays in the faster memory",
            "order the work so that neighbouring tiles find their data still there",
            "count bytes per memory level, to see which roof is the true one",
        ),
    ),
    "latency": Kind(
        "are too small to fill the time of their launch",
        (
            "batch small operations into one, or fuse them with a neighbour",
            "compile or capture the sequence (a jitted step, a graph) so that no Python runs between kernels",
            "use a persistent kernel that takes many pieces of work in one launch",
        ),
    ),
    "no-overlap": Kind(
        "take as long as all their units one after the other",
        (
            "prefetch: load the next tile or weight while this one is computed (double buffering, asynchronous copies)",
            "start communication early and let it run under independent work",
            "give the scheduler more independent work: more tiles or blocks in flight",
        ),
    ),
    "far-below": Kind(
        "are far below every roof",
        (
            "look for the host: Python between small kernels, synchronisations and transfers leave the device idle",
            "launch fewer, larger kernels: batch, fuse, or make them persistent",
            "look at access patterns: strided or irregular access lowers the bandwidth itself",
            "check that the work fills the device: enough blocks, no long tail",
        ),
    ),
    "network-bound": Kind(
        "wait for a link",
        (
            "overlap the exchange with work that does not need it",
            "send fewer bytes: a sharding that exchanges less, a narrower number format for what is sent",
            "keep the chattiest axis inside the fastest domain; shard over the slow network only what talks little",
            "use more links at once: a collective that follows the topology",
        ),
    ),
    "memory-far": Kind(
        "are memory bound and far from that roof",
        (
            "make access contiguous and wide: coalesced loads, a layout without transposes or padding",
            "put more loads in flight: occupancy, larger blocks, asynchronous copies",
            "fuse with neighbours, so that intermediates never reach memory",
        ),
    ),
    "memory-middle": Kind(
        "are memory bound and some way from that roof",
        (
            "tune tiles, vector width and loads in flight before changing the algorithm",
            "fuse with neighbours, so that intermediates never reach memory",
        ),
    ),
    "memory-close": Kind(
        "are memory bound and close to that roof, so only fewer bytes help",
        (
            "fuse with neighbours, so that intermediates never reach memory",
            "narrow what is stored: bf16, fp8, int8 or int4 weights",
            "reuse more per byte: tiling, a larger batch",
            "use a faster tier: keep the data on chip, or a chip with more bandwidth",
        ),
    ),
    "compute-far": Kind(
        "are compute bound and far from that roof",
        (
            "fill the unit: shapes in multiples of its tile, more blocks than units, no tail",
            "raise occupancy or instruction parallelism, so that the unit never waits",
            "check that the matrix unit is used, in the number format that was meant",
        ),
    ),
    "compute-middle": Kind(
        "are compute bound and some way from that roof",
        (
            "tune tile sizes and pipelining; try the vendor's kernel or an autotuned one",
            "check clocks and power: a chip at its power limit runs below its peak",
        ),
    ),
    "compute-close": Kind(
        "are compute bound and close to that roof, so only less work or more hardware helps",
        (
            "do fewer FLOP: sparsity, low rank, a better algorithm, less recomputation",
            "use a narrower number format with a higher roof, where accuracy allows",
            "spread it over more devices, if the links permit",
        ),
    ),
    "memory-bound": Kind(
        "are bound by memory",
        (
            "raise the intensity: a larger batch, tiling, fusion with neighbours",
            "narrow what is stored: bf16, fp8, int8 or int4 weights",
            "use a faster tier: keep the data on chip, or a chip with more bandwidth",
        ),
    ),
    "compute-bound": Kind(
        "are bound by compute",
        (
            "do fewer FLOP: sparsity, low rank, a better algorithm",
            "use a unit or number format with a higher roof",
            "spread it over more devices, if the links permit",
        ),
    ),
    "near-ridge": Kind(
        "stand near the ridge, where compute and memory take the same time",
        (
            "watch both: a small change of batch, tiling or number format flips what binds",
            "make them overlap: here a kernel without overlap takes nearly twice as long",
        ),
    ),
    "vector-instead-of-matrix": Kind(
        "multiply matrices on the vector unit",
        (
            "use a number format that the matrix unit takes (tf32, bf16, fp16, fp8) for the product",
            "write it as a matrix product that the compiler recognises; pad small or odd dimensions",
        ),
    ),
    "low-batch": Kind(
        "multiply too few rows for each weight they read",
        (
            "batch more rows (requests, tokens, examples): each weight is read once for all of them",
            "quantize the weights (int8, int4): half the bytes need half the batch",
        ),
    ),
    "unrated": Kind(
        "use a resource that the machine has no rate for",
        (
            "give the rate with --set, or in a machine file",
            "measure it with a small benchmark",
        ),
    ),
    "straggler": Kind(
        "wait for one device or host that is slower than the others",
        (
            "compare its clocks, power and temperature with the others': a throttled device is slower in every op by the same factor",
            "look at its host: input pipeline, other processes, launches that come late",
            "check the partition: the same shapes everywhere, no device with more experts, longer sequences or more padding",
            "exchange it for a spare, and measure again",
        ),
    ),
    "unknown": Kind(
        "have a cost that nobody knows",
        (
            "give their FLOP and bytes by hand, or by a formula",
            "collect hardware counters for them",
        ),
    ),
}

Rule = Callable[[Placed], Finding | None]
ProgramRule = Callable[[Sequence[Placed], Machine], Finding | None]


def advise(placed: Iterable[Placed], machine: Machine) -> tuple[Finding, ...]:
    """Every finding about a program: doubt first, then by seconds saved. The order of the ops does not matter."""
    ops = sorted(placed, key=lambda one: one.id)
    total = sum(one.placement.time_s or 0.0 for one in ops)
    found = [finding for one in ops for finding in _about(one) if _matters(finding, total)]
    names = {one.id: _short(one.op.name) for one in ops}
    whole = [finding for program_rule in PROGRAM if (finding := program_rule(ops, machine))]
    return in_order([*_merged(found, names), *whole])


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Doubt first, then by seconds saved."""
    return tuple(sorted(findings, key=_order))


def explain(placement: Placement, name: str = "it") -> Finding | None:
    """The one finding about a single piece of work, measured or not: what binds it and which levers there are."""
    one = Placed(0, Op(name=name, cost=placement.cost, time_s=placement.time_s), placement)
    rules = (near_ridge, *PRIMARY) if placement.time_s is None else PRIMARY
    found = next((finding for rule in rules if (finding := rule(one))), None)
    return replace(found, ops=()) if found else None


def _about(one: Placed) -> list[Finding]:
    """What one op gets told. Of an op that nobody can price the floor is too low: only a time below even that says something."""
    main = next((finding for rule in (PRIMARY if one.op.priced else DOUBTS) if (finding := rule(one))), None)
    if not one.op.priced or (main and main.kind in ("above-roof", "between-roofs")):
        return [main] if main else []
    extra = [finding for rule in EXTRA if (finding := rule(one))]
    return [main, *extra] if main else extra


def above_roof(one: Placed) -> Finding | None:
    """Efficiency above 1: never clipped, always doubted."""
    placement, efficiency = one.placement, one.placement.efficiency
    if efficiency is None or efficiency <= 1 + ROUNDING:
        return None
    least, took = show(placement.floor_s, "s"), show(placement.time_s, "s")
    return _finding(
        "above-roof",
        one,
        f"runs at {percent(efficiency)} of its {placement.unit} roof: {took} where {least} is the least; do not trust it yet.",
    )


def between_roofs(one: Placed) -> Finding | None:
    """Faster than main memory allows, but not than the next faster memory: the data stays there in part."""
    placement = one.placement
    if (placement.efficiency or 0) <= 1 + ROUNDING or placement.unit != HBM.name or placement.time_s is None:
        return None
    others = max((seconds for unit, seconds in placement.times if unit != HBM.name), default=0.0)
    moved, main = float(placement.cost.known(HBM)), placement.machine.rate(HBM)
    needed = moved / placement.time_s
    roofs = [ceiling for ceiling in placement.machine.memories if ceiling.rate > main and ceiling.rate >= needed]
    if others > placement.time_s * (1 + ROUNDING) or not roofs:
        return None
    roof = min(roofs, key=lambda ceiling: (ceiling.rate, ceiling.resource))
    return _finding(
        "between-roofs",
        one,
        f"moves its bytes at {show(needed, 'B/s')}, above {HBM} ({show(main, 'B/s')}) and below {roof.resource} "
        f"({show(roof.rate, 'B/s')}): part of its data stays on chip, and tiling is the lever.",
        saving=max(placement.time_s - max(moved / roof.rate, others), 0.0),
    )


def latency(one: Placed) -> Finding | None:
    """Work smaller than the launch that starts it, launch by launch."""
    placement = one.placement
    if not placement.time_s or placement.unit is None or placement.bound != LATENCY:
        return None
    each, needed = placement.time_s / placement.executions, placement.floor_s / placement.executions
    return _finding(
        "latency",
        one,
        f"is too small for its launch: {show(each, 's')} a launch, of which the work needs {show(needed, 's')}.",
        _headroom(one),
    )


def no_overlap(one: Placed) -> Finding | None:
    """A time near T_max and not close to the roof: the units wait for one another."""
    placement = one.placement
    if not placement.time_s or placement.efficiency is None or placement.efficiency >= CLOSE:
        return None
    paths = _paths(placement)
    serial_s = sum(seconds for _, seconds in paths)
    if len(paths) < 2 or abs(placement.time_s / serial_s - 1) > SERIAL_BAND:
        return None
    units = " + ".join(unit for unit, _ in paths)
    serial, floor = show(serial_s, "s"), show(placement.floor_s, "s")
    return _finding(
        "no-overlap",
        one,
        f"takes {show(placement.time_s, 's')}, about the sum of its times on {units} ({serial}) and not the longest ({floor}): "
        "nothing overlaps.",
        _headroom(one),
    )


def _paths(placement: Placement) -> list[tuple[str, float]]:
    """The units that could wait for one another, longest first; the levels of one memory hierarchy are one path, its slowest."""
    used = [(unit, seconds) for unit, seconds in placement.times if seconds]
    slowest = next((unit for unit, _ in used if named(unit).is_memory), None)
    return [(unit, seconds) for unit, seconds in used if unit == slowest or not named(unit).is_memory]


def far_below(one: Placed) -> Finding | None:
    """Below a tenth of the roof: seldom the kernel itself, mostly what surrounds it."""
    efficiency = one.placement.efficiency
    if efficiency is None or efficiency >= FAR_BELOW:
        return None
    took, least = show(one.placement.time_s, "s"), show(one.placement.floor_s, "s")
    message = f"is far below everything: {percent(efficiency)} of its {one.placement.unit} roof, {took} where {least} would do."
    return _finding("far-below", one, message, _headroom(one))


def bound(one: Placed) -> Finding | None:
    """What binds, and how far from that roof the op is: the middle of every decision table."""
    unit, efficiency = one.placement.unit, one.placement.efficiency
    if unit is None:
        return None
    resource = named(unit)
    family = "network" if resource.is_link else "compute" if resource.is_compute else "memory"
    if efficiency is None:
        return _finding(f"{family}-bound", one, f"is {unit} bound: {show(one.placement.floor_s, 's')} at least{_against(one.placement)}.")
    zone, words = _zone(efficiency)
    took, least = show(one.placement.time_s, "s"), show(one.placement.floor_s, "s")
    message = f"is {unit} bound and {words} that roof: {percent(efficiency)} of it, {took} where {least} would do."
    return _finding("network-bound" if family == "network" else f"{family}-{zone}", one, message, _headroom(one))


def near_ridge(one: Placed) -> Finding | None:
    """Compute and data movement within a factor of 1.25 of each other."""
    placement = one.placement
    # Times come longest first, so the first of each side is its longest.
    computing = next(((seconds, unit) for unit, seconds in placement.times if unit in COMPUTE_UNITS), None)
    moving = next(((seconds, unit) for unit, seconds in placement.times if unit not in COMPUTE_UNITS), None)
    if not computing or not moving or not min(computing[0], moving[0]):
        return None
    if max(computing[0], moving[0]) > NEAR_RIDGE * min(computing[0], moving[0]):
        return None
    times = f"{computing[1]} needs {show(computing[0], 's')} and {moving[1]} {show(moving[0], 's')}"
    return _finding("near-ridge", one, f"stands near the ridge{_against(placement)}: {times}.")


def vector_instead_of_matrix(one: Placed) -> Finding | None:
    """A matrix product that the vector unit does, on a machine that has a matrix unit."""
    placement, machine = one.placement, one.placement.machine
    if placement.unit != "vector":
        return None
    named = PRODUCT.search(f"{one.op.name} {one.op.category}".lower())
    asked = [resource for resource in placement.cost if resource.is_arithmetic and (resource.unit == "matrix" or named)]
    billed = [resource for resource in asked if _unit(machine, resource) == "vector" and resource.kind not in ("fp64", "int64")]
    roof = _matrix_roof(machine, billed[0].kind) if billed else None
    if roof is None:
        return None
    flops = sum(float(placement.cost.known(resource)) for resource in billed)
    spared = sum(float(placement.cost.known(resource)) / machine.rate(resource) for resource in billed)
    times = dict(placement.times)
    floor = max(
        times["vector"] - spared, times.get("matrix", 0.0) + flops / roof.rate, *(s for u, s in times.items() if u != "vector"), 0.0
    )
    return _finding(
        "vector-instead-of-matrix",
        one,
        f"does {show(flops, 'FLOP')} of products in {', '.join(r.kind or r.name for r in billed)} on the vector unit; on {roof.resource} "
        f"its floor would be {show(floor, 's')} instead of {show(placement.floor_s, 's')}.",
        saving=max(placement.floor_s - floor, 0.0) if placement.time_s else None,
    )


def low_batch(one: Placed) -> Finding | None:
    """A matrix product that reads its weights for too few rows: main memory binds, at half the ridge or less."""
    placement = one.placement
    if placement.unit != HBM.name or placement.compute is None or _unit(placement.machine, placement.compute) != "matrix":
        return None
    intensity, ridge = placement.intensity(), placement.ridge()
    if not intensity or not ridge or 2 * intensity > ridge:
        return None
    more = plain(ridge / intensity, 2)
    message = (
        f"does {show(intensity, 'FLOP/B')} where the {placement.compute} ridge is {show(ridge, 'FLOP/B')}: about {more} times the rows "
        "per weight would take the same time."
    )
    return _finding("low-batch", one, message)


def unrated(ops: Sequence[Placed], machine: Machine) -> Finding | None:
    """Work on resources the machine has no rate for: floors leave it out."""
    mine = [one for one in ops if one.placement.unrated]
    if not mine:
        return None
    missing = ", ".join(sorted({resource.name for one in mine for resource in one.placement.unrated}))
    message = f"{machine.name} has no rate for {missing}: the floors of {_listed([_short(one.op.name) for one in mine])} leave it out."
    return Finding(kind="unrated", message=message, ops=tuple(one.id for one in mine), levers=KINDS["unrated"].levers)


def unknown(ops: Sequence[Placed], machine: Machine) -> Finding | None:
    """The share of time, or of ops, that nobody can price."""
    mine = sorted((one for one in ops if not one.op.priced), key=lambda one: (-(one.placement.time_s or 0.0), one.id))
    total = sum(one.placement.time_s or 0.0 for one in ops)
    spent = sum(one.placement.time_s or 0.0 for one in mine)
    if not mine or (total and spent < NOTABLE * total):
        return None
    names = _listed([_short(one.op.name) for one in mine])
    share = f"{percent(spent / total)} of the measured time ({show(spent, 's')})" if total else f"{len(mine)} of {len(ops)} ops"
    message = f"{share} cannot be priced: the cost of {names} is not known."
    return Finding(kind="unknown", message=message, ops=tuple(one.id for one in mine), levers=KINDS["unknown"].levers)


DOUBTS: tuple[Rule, ...] = (between_roofs, above_roof)
PRIMARY: tuple[Rule, ...] = (*DOUBTS, latency, no_overlap, far_below, bound)
EXTRA: tuple[Rule, ...] = (near_ridge, vector_instead_of_matrix, low_batch)
PROGRAM: tuple[ProgramRule, ...] = (unrated, unknown)


def _finding(kind: str, one: Placed, says: str, saving: float | None = None) -> Finding:
    return Finding(kind=kind, message=f"{_short(one.op.name)} {says}", ops=(one.id,), saving_s=saving, levers=KINDS[kind].levers)


def _zone(efficiency: float) -> tuple[str, str]:
    if efficiency >= CLOSE:
        return "close", "close to"
    return ("far", "far from") if efficiency < FAR else ("middle", "some way from")


def _against(placement: Placement) -> str:
    """The intensity beside the ridge, where both are known."""
    intensity, ridge = placement.intensity(), placement.ridge()
    return f", at {show(intensity, 'FLOP/B')} against a ridge of {show(ridge, 'FLOP/B')}" if intensity and ridge else ""


def _headroom(one: Placed) -> float:
    return max(one.placement.headroom_s or 0.0, 0.0)


def _matrix_roof(machine: Machine, kind: str) -> Ceiling | None:
    """The matrix roof a product of this format could run under: its own, tf32 for fp32, else the usual one."""
    best = machine.best_matrix
    usual = best if best and best.resource.unit == "matrix" else None
    return machine.ceiling(f"matrix/{kind}") or (machine.ceiling("matrix/tf32") if kind == "fp32" else None) or usual


def _unit(machine: Machine, resource: Resource) -> str | None:
    ceiling = machine.resolve(resource)
    return ceiling.resource.unit if ceiling else None


def _matters(finding: Finding, total: float) -> bool:
    """The middle zone is worth a line only where its seconds are."""
    return not finding.kind.endswith("-middle") or (finding.saving_s or 0.0) >= NOTABLE * total


def _merged(findings: Sequence[Finding], names: dict[int, str]) -> list[Finding]:
    """One finding for each kind that many ops share, largest saving first; few stay apart."""
    kinds: dict[str, list[Finding]] = {}
    for finding in findings:
        kinds.setdefault(finding.kind, []).append(finding)
    merged = []
    for kind, mine in kinds.items():
        if len(mine) <= SEPARATE:
            merged += mine
            continue
        mine.sort(key=lambda finding: (-(finding.saving_s or 0.0), finding.ops))
        ops = tuple(id for finding in mine for id in finding.ops)
        savings = [finding.saving_s for finding in mine if finding.saving_s is not None]
        saving = sum(savings) if savings else None
        tail = f"; together they could save {show(saving, 's')}" if saving else ""
        message = f"{len(mine)} ops {KINDS[kind].phrase}: {_listed([names[id] for id in ops])}{tail}."
        merged.append(Finding(kind=kind, message=message, ops=ops, saving_s=saving, levers=KINDS[kind].levers))
    return merged


def _order(finding: Finding) -> tuple[bool, float, str, tuple[int, ...]]:
    return finding.kind != "above-roof", -(finding.saving_s or 0.0), finding.kind, finding.ops


def _listed(names: Sequence[str]) -> str:
    """The first three names, and how many more."""
    if len(names) > 3:
        return f"{', '.join(names[:3])} and {len(names) - 3} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _short(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:59]}…"
