"""A measured CPU: the results of its experiments as a `Card`, and the run of the measurement."""

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from msgspec.structs import replace

from ...errors import MachineError
from ...machine import Ceiling, Figure, Machine
from ...resource import HBM, TRANSCENDENTAL, Resource
from ...units import parse, percent, show
from ..catalogue import card as look_up
from ..chip_specs import Card, Sweep
from ..cpu import Cpu
from ..cpu_estimate import cpu_machine, estimate, narrow_products
from ..machine_file import DIGITS, Spec, Sustained
from .cpu_conditions import cpu_conditions
from .cpu_experiments import EXPONENTIALS, FORMATS, SMALL, SMALL_OPS, SWEPT, cpu_experiments
from .finished_experiments import FinishedExperiments
from .measurement import PATIENCE, Result, measure_all
from .memory_levels import plateaus

QUICK_S, FULL_S = parse("15 s", "s"), parse("60 s", "s")
FULL_PATIENCE = 4 * PATIENCE
MOST_EARLIER = 0.5  # of the budget at most for an earlier, interrupted run; the rest is used now, when the computer may be less busy
MATRIX_UNIT = 1.05  # times the vector rate: faster products run on a separate matrix unit (Apple's)
ABOVE = 1.02  # times the estimate: higher rates get a note
TOO_BUSY, PLAUSIBLE = 0.1, 0.6  # of the estimate: clocks never fall that far under load
USES_VECTORS = 0.5  # of the estimate: if lower, the multiply-adds were not compiled for the vector units
COUNTED = "bytes read and written by the program, without write-allocate"


def measure_cpu(
    cpu: Cpu,
    *,
    quick: bool = False,
    budget_s: float | None = None,
    target: Path | None = None,
    tell: Callable[[int, int], None] = lambda d, t: None,
) -> Card:
    """Measure this computer's CPU in at most ``budget_s`` seconds, not counting the warm-up.

    The tries are stored next to ``target`` until `finish`, so that an interrupted measurement can resume.
    """
    budget = budget_s or (QUICK_S if quick else FULL_S)
    began = time.monotonic()
    about = {"quick": quick, "cpu": cpu.model, "cores": cpu.cores, "threads": cpu.threads}
    kept = FinishedExperiments(target, about) if target else None
    earlier = dict(kept.answers) if kept else {}
    resumed = len(earlier)
    with cpu_experiments(cpu) as setup:
        results = measure_all(
            setup.experiments,
            budget_s=budget,
            clock=time.monotonic,
            tell=tell,
            patience=PATIENCE if quick else FULL_PATIENCE,
            earlier={key: found["rates"] for key, found in earlier.items()},
            earlier_s=min(max((found["spent_s"] for found in earlier.values()), default=0.0), budget * MOST_EARLIER),
            keep=(lambda key, rates, spent_s: kept.add(key, {"rates": list(rates), "spent_s": spent_s})) if kept else lambda *_: None,
        )
        blas = setup.blas
        under_load = {f"{name} under load" if name in ("clock", "temperature") else name: value for name, value in cpu_conditions().items()}
    conditions = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu.model,
        "cores": str(cpu.cores),
        "threads": str(cpu.threads),
        **under_load,
        "blas": blas,
        "operands": "random matrices",
        "duration": show(time.monotonic() - began, "s", 3) + (f", {resumed} experiments from an earlier run" if resumed else ""),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    return card_of(cpu, {result.key: result for result in results}, conditions)


def card_of(cpu: Cpu, results: Mapping[str, Result], conditions: Mapping[str, str]) -> Card:
    """The machine with the measured figures, and estimates of those that no experiment measures.

    An error when the computer was too busy for meaningful figures.
    """
    swept = {key: found for key, found in results.items() if key.startswith(f"{SWEPT}/")}
    results = {key: found for key, found in results.items() if key not in swept}
    guess = estimate(cpu)
    ceilings, sustained = _measured_rates(cpu, results, guess)
    fp32 = _rate(ceilings, "vector/fp32")
    if fp32 < TOO_BUSY * guess.rate("vector/fp32") or not any(each.resource == HBM for each in ceilings):
        raise MachineError("this computer is too busy to be measured; try again when nothing else runs")
    day = conditions["date"].partition("T")[0]
    notes = [f"this computer ({conditions['cpu']}, {conditions['cores']} cores), measured on {day}", *_doubts(ceilings, results, guess)]
    small = {kind: results[key] for kind in SMALL_OPS if (key := f"{SMALL}/{kind}") in results}
    floor_s = median(1 / found.rate for found in small.values()) if small else None
    sweep = tuple(Sweep(pattern="read", bytes=float(key.partition("/")[2]), rate=found.rate) for key, found in swept.items())
    return Card(
        machine=replace(cpu_machine(cpu, ceilings, notes, conditions), launch_floor_s=floor_s),
        where=cpu.name,
        sustained=tuple(sustained),
        specs={**dict(_found_levels(cpu, sweep)), **dict(_small_ops(small))},
        sweep=sweep,
    )


def _measured_rates(cpu: Cpu, results: Mapping[str, Result], guess: Machine) -> tuple[list[Ceiling], list[Sustained]]:
    """The rates of compute units and memories, and the sustained rates of matmuls."""
    ceilings: list[Ceiling] = []
    sustained: list[Sustained] = []
    for number in FORMATS:
        ceilings += _compute(number, results, guess)
        sustained += _sustained(number, results, ceilings)
    fp32 = _rate(ceilings, "vector/fp32")
    for number, times, how in narrow_products(cpu) if fp32 else ():
        note = f"not measured: {times:g} times the measured vector/fp32, {how}"
        ceilings.append(Ceiling(resource=Resource(f"matrix/{number}"), rate=fp32 * times, provenance="derived", note=note))
    if found := results.get(EXPONENTIALS):
        ceilings.append(replace(_ceiling(TRANSCENDENTAL.name, found), note="each exponential counts as one"))
    for level in ("hbm", *(f"l{cache.level}" for cache in cpu.caches)):
        ceilings += _memory(level, results)
    return ceilings, sustained


def _rate(ceilings: Sequence[Ceiling], resource: str) -> float:
    return next((each.rate for each in ceilings if each.resource.name == resource), 0.0)


def _doubts(ceilings: Sequence[Ceiling], results: Mapping[str, Result], guess: Machine) -> Iterator[str]:
    """Notes on a measurement that was disturbed, and on rates above what the hardware's figures give."""
    if unstable := sum(not result.stable for result in results.values()):
        yield f"{unstable} of {len(results)} experiments were not yet stable when time ran out: measure again when nothing else runs"
    fp32, expected = _rate(ceilings, "vector/fp32"), guess.rate("vector/fp32")
    if fp32 and fp32 < PLAUSIBLE * expected:
        yield (
            f"vector/fp32 is {percent(fp32 / expected)} of what cores, clock and vector width give, so something else was running: "
            "measure again when nothing else runs"
        )
    for each in ceilings:
        if each.provenance == "measured" and each.resource.is_compute and each.rate > ABOVE * guess.rate(each.resource):
            share = percent(each.rate / guess.rate(each.resource))
            yield f"{each.resource} is measured at {share} of what cores, clock and vector width give: kept, as clocks rise above it"


def _found_levels(cpu: Cpu, sweep: Sequence[Sweep]) -> Iterator[tuple[str, Spec]]:
    """The caches that the sweep of one thread shows, with their sizes according to the system."""
    system_sizes = {cache.level: cache.bytes for cache in cpu.caches}
    found = plateaus([(one.bytes, one.rate) for one in sweep], len(system_sizes) + 1 if system_sizes else None)
    for number, level in enumerate(found[:-1], start=1):
        system = f"the system reports {show(system_sizes[number], 'B', 3)}" if number in system_sizes else "unknown to the system"
        value = f"{show(level.holds, 'B', 3)} at {show(level.rate, 'B/s', 3)}"
        how = "where reads by one thread leave their plateau"
        yield f"cache level {number} found", Spec(value=value, provenance="measured", source=how, note=system)


def _small_ops(small: Mapping[str, Result]) -> Iterator[tuple[str, Spec]]:
    """The seconds of the smallest ops, from ops per second."""
    for kind, found in small.items():
        note = f"p5 {show(1 / found.spread.p95, 's', 3)}, p95 {show(1 / found.spread.p5, 's', 3)}"
        yield f"smallest {kind}", Spec(value=show(1 / found.rate, "s", 4), provenance="measured", source=found.words, note=note)


def _compute(number: str, results: Mapping[str, Result], guess: Machine) -> list[Ceiling]:
    """The compute ceiling in one number format: the rate of multiply-adds in registers, which products cannot exceed on the same unit.

    If products are faster, they run on a separate matrix unit, unless the multiply-adds were not compiled for the vector units.
    """
    fma, product = results.get(f"fma/{number}/all"), results.get(f"product/{number}/all")
    if fma is None and product is None:
        return []
    if fma is None or product is None:
        return [_ceiling(f"vector/{number}", fma or product)]  # type: ignore[arg-type]
    if product.rate <= fma.rate * MATRIX_UNIT:
        return [_ceiling(f"vector/{number}", max(fma, product, key=lambda each: each.rate))]
    if fma.rate < USES_VECTORS * guess.rate(f"vector/{number}"):
        return [_ceiling(f"vector/{number}", product)]
    return [_ceiling(f"matrix/{number}", product), _ceiling(f"vector/{number}", fma)]


def _sustained(number: str, results: Mapping[str, Result], ceilings: list[Ceiling]) -> list[Sustained]:
    """The rates of products on all cores and on one core, as lower ceilings."""
    found = []
    roofs = {each.resource.name: each for each in ceilings}
    for key, limit in (
        (f"product/{number}/all", "matrix product"),
        (f"product/{number}/one", "matrix product, one core"),
        (f"fma/{number}/one", "one core"),
    ):
        unit = "matrix" if "product" in key and f"matrix/{number}" in roofs else "vector"
        roof, result = roofs.get(f"{unit}/{number}"), results.get(key)
        if roof and result and result.rate <= roof.rate:
            spread = result.spread
            percentiles = ", ".join(f"{name} {show(getattr(spread, name), 'FLOP/s', 3)}" for name in ("p5", "p50", "p95"))
            found.append(
                Sustained(
                    what=limit,
                    rate=show(result.rate, "FLOP/s", DIGITS),
                    resource=roof.resource,
                    fraction=float(f"{result.rate / roof.rate:.{DIGITS}g}"),
                    limit=limit,
                    source=result.words,
                    note=percentiles,
                )
            )
    return found


def _memory(level: str, results: Mapping[str, Result]) -> list[Ceiling]:
    """A memory's ceiling: the rate of the fastest pattern, with those of the others as other figures."""
    best: dict[str, Result] = {}
    for key, result in results.items():
        where, _, rest = key.partition("/")
        pattern = rest.partition("/")[0]
        if where == level and (pattern not in best or result.rate > best[pattern].rate):
            best[pattern] = result
    if not best:
        return []
    (_, first), *others = sorted(best.items(), key=lambda each: -each[1].rate)
    figures = tuple(Figure(each.rate, each.words, pattern) for pattern, each in others)
    return [replace(_ceiling(level, first), note=COUNTED, others=figures)]


def _ceiling(resource: str, result: Result) -> Ceiling:
    return Ceiling(resource=Resource(resource), rate=result.rate, provenance="measured", citation=result.words, spread=result.spread)


def compare_cpu(card: Card, cpu: Cpu) -> list[str]:
    """A measured CPU compared with the catalogue's figures of its model, or with the estimate if the model is not in the catalogue."""
    try:
        base = look_up(cpu.model).machine
    except MachineError:
        base = None
    if base is None or base.kind != "cpu":
        guess = estimate(cpu)
        rated = [(one, guess.ceiling(one.resource)) for one in card.machine.ceilings if one.provenance == "measured"]
        lines = [f"{one.resource}: {_share(one, paper.rate)}, {paper.citation}" for one, paper in rated if paper]
        return [f"{cpu.model} is not in the catalogue; compared with what its units could do:", *lines]
    part = cpu.cores / base.cores if base.cores and cpu.cores < base.cores else 1.0
    lines = []
    for one in card.machine.ceilings:
        paper = base.ceiling(one.resource)
        if paper and one.provenance == "measured":
            times = part if one.resource.is_compute else 1.0  # some of the cores can still use the whole memory bandwidth
            of = f" for {cpu.cores} of {base.cores} cores" if times < 1 else ""
            lines.append(f"{one.resource}: {_share(one, paper.rate * times)}{of}")
    return [f"compared with the catalogue's {base.name}:", *lines] if lines else []


def _share(one: Ceiling, rate: float) -> str:
    return f"{percent(one.rate / rate)} of {show(rate, one.resource.per, 4)}" if rate else "not rated"
