"""A measured GPU: the answers of its experiments as a `Card`, on top of the catalogue's chip."""

import math
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import harmonic_mean, median
from typing import Any

from msgspec.structs import replace

from ...errors import MachineError
from ...machine import Capacity, Ceiling, Figure, Machine
from ...resource import HBM, Resource
from ...units import percent, show
from ...workload import Device, Hardware
from ..catalogue import catalogue_card
from ..chip_specs import Card, Sweep
from ..detection import of_device
from ..local import MEASURED
from ..machine_file import DIGITS, Spec, Sustained
from .finished_experiments import FinishedExperiments
from .gpu_plan import BIG, LATE, QUICK_S, SMALL, Tell, plan, rates, run_plan
from .gpu_worker import Accelerator
from .measurement import spread_of
from .memory_levels import plateaus

ABOVE = 1.01  # times the datasheet: higher rates get a note
INNER = ("l2", "l1")  # caches, the outermost first
FASTER_THAN_L2 = 1.3  # times the L2's rate: faster reads of a core's own share come from its L1


def measure_gpu(target: Path, *, quick: bool = False, kind: str = "gpu", framework: str = "", tell: Tell = lambda d, t: None) -> Card:
    """Measure the GPU or TPU of this computer; finished experiments are stored next to ``target`` until `finish`."""
    began = time.monotonic()
    with Accelerator(kind, framework) as worker:
        kept = FinishedExperiments(target, {"quick": quick, **worker.device})
        resumed = len(kept.answers)
        found = run_plan(worker, kept, plan(worker.device, quick), tell, until=began + QUICK_S if quick else math.inf)
        device = worker.device
    conditions = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": str(device["device"]),
        "libraries": ", ".join(str(device[key]) for key in ("framework", "libraries") if key in device)
        + (f", Triton {device['triton']}" if "triton" in device else ""),
        **{name: value for name, value in found["conditions"].items() if name not in ("power", "clock")},
        **{f"{name} under load": found["under load"][name] for name in ("clock", "power", "temperature") if name in found["under load"]},
        "operands": "random (normal); zeros beside them",
        "duration": show(time.monotonic() - began, "s", 3) + (f", {resumed} experiments from an earlier run" if resumed else ""),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    return gpu_card(device, found["answers"], conditions)


def chip_of(device: Mapping[str, Any]) -> Machine | None:
    """The catalogue's chip with the device's name, cores and memory."""
    hardware = Hardware(cores=device.get("cores"), memory_bytes=device.get("memory"), capability=device.get("capability", ""))
    try:
        return of_device(Device(id=0, name=str(device["device"]), hardware=hardware)) if "memory" in device else None
    except MachineError:
        return None


def gpu_card(device: Mapping[str, Any], answers: Mapping[str, Any], conditions: Mapping[str, str]) -> Card:
    """The measured figures as a card that extends the catalogue's chip, if that is known."""
    chip = chip_of(device)
    ceilings, sustained = _products(answers, chip)
    ceilings += _vectors(answers)
    sustained = [_with_fraction(each, ceilings) for each in sustained]
    levels, capacities = _memories(device, answers)
    ceilings += levels
    ceilings += _host(answers, chip)
    if not any(each.resource == HBM for each in ceilings):
        raise MachineError("the device could not be measured: no bandwidth of its memory was found")
    floors = [median(found["seconds"]) for kind in SMALL for _, found in rates(answers, f"small/{kind}")]
    graph = next((median(found["seconds"]) for _, found in rates(answers, "launch/graph")), None)
    extends = chip.name if chip and _in_catalogue(chip.name) else ""
    title = f"{chip.title if chip else conditions['device']}, measured"
    machine = Machine(
        name=f"{(extends or 'gpu').removesuffix('/device')}{MEASURED}",
        title=title,
        kind=chip.kind if chip else "gpu",
        vendor=chip.vendor if chip else "",
        arch=chip.arch if chip else "",
        ceilings=tuple(ceilings),
        capacities=tuple(capacities),
        cores=1,
        scope=chip.scope if chip else "chip",
        launch_floor_s=median(floors) if floors else None,
        notes=tuple(_notes(ceilings, chip, answers, conditions)),
        conditions=tuple(conditions.items()),
    )
    machine = replace(machine, launch_latency_s=graph) if graph else machine
    sweep = tuple(Sweep(pattern=p, bytes=s, rate=r) for p in ("read", "write", "copy", "per_core") for s, r in swept(answers, p))
    return Card(machine=machine, where=machine.name, extends=extends, sustained=tuple(sustained), specs=_specs(answers), sweep=sweep)


def _in_catalogue(name: str) -> bool:
    try:
        return catalogue_card(name).machine.name == name
    except MachineError:
        return False


def swept(answers: Mapping[str, Any], pattern: str) -> list[tuple[float, float]]:
    """The sweep of a pattern: bytes of the working set, and the median rate."""
    return sorted((float(found["bytes"]), median(found["rates"])) for _, found in rates(answers, f"stream/{pattern}/"))


def _ceiling(resource: str, found: Mapping[str, Any], note: str = "", others: Sequence[Figure] = ()) -> Ceiling:
    spread = spread_of(found["rates"])
    cited = f"{found['how']}: 95th percentile of {len(found['rates']):,}"
    return Ceiling(
        resource=Resource(resource), rate=spread.p95, provenance="measured", citation=cited, note=note, spread=spread, others=tuple(others)
    )


def _products(answers: Mapping[str, Any], chip: Machine | None) -> tuple[list[Ceiling], list[Sustained]]:
    """The ceilings of the matrix unit from bursts with random operands (zeros as other figures), and the sustained rates."""
    ceilings: list[Ceiling] = []
    lower: list[Sustained] = []
    for rest, found in rates(answers, "product/"):
        number, mode, values = rest.split("/")
        known = chip.resolve(f"matrix/{number}") if chip else None
        resource = known.resource if known else Resource(f"matrix/{number}")
        rate = spread_of(found["rates"])
        if (mode, values) == ("burst", "random") and resource.unit == "matrix":
            zeros = [
                Figure(middle(other["rates"]), f"{other['how']}: {word}", "zeros take less power")
                for key, middle, word in (("burst", median, "median"), ("held", harmonic_mean, "work over time"))
                for _, other in rates(answers, f"product/{number}/{key}/zeros")
            ]
            ceilings.append(_ceiling(resource.name, found, others=zeros))
        elif values == "random":  # sustained, or on the vector unit
            what = f"{number} products {'held' if mode == 'held' else 'in bursts'}"
            limit = "held" if mode == "held" else "matrix product"
            limit = f"matrix product, {limit}" if mode == "held" and resource.unit != "matrix" else limit
            note = f"p5 {show(rate.p5, 'FLOP/s', 4)}, p50 {show(rate.p50, 'FLOP/s', 4)}, p95 {show(rate.p95, 'FLOP/s', 4)}"
            # Power control alternates between two rates about once a second, so a median would be either of them.
            usual = harmonic_mean(found["rates"]) if mode == "held" else rate.p50
            written = show(usual, "FLOP/s", DIGITS)
            lower.append(Sustained(what=what, rate=written, resource=resource, limit=limit, source=found["how"], note=note))
    return ceilings, lower


def _with_fraction(each: Sustained, ceilings: Sequence[Ceiling]) -> Sustained:
    """A sustained rate with its share of the measured ceiling; without a share if it is above the ceiling."""
    roof = next((ceiling for ceiling in ceilings if ceiling.resource == each.resource), None)
    share = each.per_second / roof.rate if roof else None
    return replace(each, fraction=float(f"{share:.{DIGITS}g}") if share and share <= 1 else None)


def _vectors(answers: Mapping[str, Any]) -> list[Ceiling]:
    counted = {"transcendental": "each exponential counts as one"}
    return [_ceiling(f"vector/{number}", found, counted.get(number, "")) for number, found in rates(answers, "vector/")]


def _memories(device: Mapping[str, Any], answers: Mapping[str, Any]) -> tuple[list[Ceiling], list[Capacity]]:
    """The memory levels in the sweep of reads: main memory and caches."""
    levels = list(plateaus(swept(answers, "read")))
    if not levels:
        return [], []
    streams = dict(rates(answers, "stream/"))
    ceilings = [_main_memory(streams)]
    capacities = [_capacity("hbm", device["memory"], "as the driver reports")] if device.get("memory") else []
    for name, level in zip(INNER, reversed(levels[:-1]), strict=False):
        inside = _at(streams, "read", level.first, level.last)
        others = [
            Figure(spread_of(best["rates"]).p50, f"{best['how']} of {show(best['bytes'], 'B', 3)}", pattern)
            for pattern in ("write", "copy")
            if (best := max(_at(streams, pattern, level.first, level.last), key=_middle, default=None))
        ]
        note = f"plateau from {show(level.first, 'B', 3)} to {show(level.last, 'B', 3)}"
        ceilings.append(_of_size(name, inside, note, others))
        driver = [Figure(float(device["l2"]), "the driver", "its L2 size")] if name == "l2" and device.get("l2") else []
        capacities.append(replace(_capacity(name, level.serves, "the largest part of a working set that it serves"), others=tuple(driver)))
    l2 = next((each for each in ceilings if each.resource.name == "l2"), None)
    own = plateaus(swept(answers, "per_core"))
    if own and l2 and own[0].rate > FASTER_THAN_L2 * l2.rate and not any(each.resource.name == "l1" for each in ceilings):
        inside = _at(streams, "per_core", own[0].first, own[0].last)
        ceilings.append(_of_size("l1", inside, f"plateau up to {show(own[0].last, 'B', 3)}, of all cores"))
        if own[0].holds:
            capacities.append(_capacity("l1", own[0].holds, "where the sweep leaves its plateau, of all cores"))
    return ceilings, capacities


def _main_memory(streams: Mapping[str, Any]) -> Ceiling:
    """Main memory: its fastest pattern over working sets larger than any cache, with the other patterns as other figures."""
    largest = max(found["bytes"] for found in streams.values())
    big = [found for rest, found in streams.items() if not rest.startswith("per_core") and found["bytes"] >= min(BIG, largest) * 0.99]
    best = max(big, key=_middle)
    others, patterns = [], {next(rest.partition("/")[0] for rest, found in streams.items() if found is best)}
    for rest, found in sorted(streams.items(), key=lambda each: -each[1]["bytes"]):
        pattern = rest.partition("/")[0]
        if found in big and found is not best and pattern not in patterns:
            patterns.add(pattern)
            others.append(Figure(spread_of(found["rates"]).p50, f"{found['how']} of {show(found['bytes'], 'B', 3)}: median", pattern))
    return _of_size("hbm", [best], "bytes read and written", others)


def _at(streams: Mapping[str, Any], pattern: str, first: float, last: float) -> list[dict[str, Any]]:
    return [found for rest, found in streams.items() if rest.startswith(pattern + "/") and first <= found["bytes"] <= last]


def _middle(found: Mapping[str, Any]) -> float:
    return float(median(found["rates"]))


def _of_size(level: str, found: Sequence[Mapping[str, Any]], note: str, others: Sequence[Figure] = ()) -> Ceiling:
    """A memory level: the rate of the working set with the median rate on its plateau, because the fastest one differs from run to run."""
    usual = sorted(found, key=_middle)[len(found) // 2]
    return _ceiling(level, {**usual, "how": f"{usual['how']} of {show(usual['bytes'], 'B', 3)}"}, note, others)


def _capacity(level: str, size: float | None, how: str) -> Capacity:
    return Capacity(level=Resource(level), bytes=float(size or 0), provenance="measured", citation=how)


def _host(answers: Mapping[str, Any], chip: Machine | None) -> list[Ceiling]:
    """Copies to and from the host over PCIe: the faster direction from pinned memory; the others as other figures."""
    found = [each for _, each in rates(answers, "host/")]
    best = max(found, key=_middle, default=None)
    if best is None:
        return []
    others = [Figure(spread_of(each["rates"]).p50, f"{each['how']}: median") for each in found if each is not best]
    known = chip.ceiling("pcie") if chip else None
    made = _ceiling("pcie", best, "one direction", others)
    return [replace(made, count=known.count) if known else made]


def _specs(answers: Mapping[str, Any]) -> dict[str, Spec]:
    """Specs that are not ceilings: launches, synchronisation, the smallest ops and exchanges between devices."""
    words = {
        "graph": "null kernel in a graph",
        "stream": "null kernel launched alone",
        "sync": "synchronisation",
        "round trip": "launch and synchronisation",
        "dispatch": "dispatch of a program",
        "program round trip": "program dispatched and waited for",
    }
    specs = {}
    keys = [*((f"launch/{kind}", name) for kind, name in words.items()), *((f"small/{kind}", f"smallest {kind}") for kind in SMALL)]
    for key, name in keys:
        for _, found in rates(answers, key):
            spread = spread_of(found["seconds"])
            note = f"p5 {show(spread.p5, 's', 3)}, p95 {show(spread.p95, 's', 3)}"
            specs[name] = Spec(value=show(spread.p50, "s", 4), provenance="measured", source=found["how"], note=note)
    for _, found in rates(answers, "peer"):
        spread = spread_of(found["rates"])
        note = f"p5 {show(spread.p5, 'B/s', 3)}, p95 {show(spread.p95, 'B/s', 3)}; over whichever link connects them"
        specs["copy to another device"] = Spec(value=show(spread.p50, "B/s", 4), provenance="measured", source=found["how"], note=note)
    return specs | dict(_all_reduces(answers))


def _all_reduces(answers: Mapping[str, Any]) -> Iterator[tuple[str, Spec]]:
    """All-reduces over all devices; in a ring each device sends 2 (n - 1) / n times the bytes that it holds."""
    for _, found in rates(answers, "all-reduce/"):
        spread, count = spread_of(found["seconds"]), found["devices"]
        sent = 2 * (count - 1) / count * found["bytes"]
        percentiles = f"p5 {show(spread.p5, 's', 3)}, p95 {show(spread.p95, 's', 3)}"
        note = f"{percentiles}; {show(sent / spread.p50, 'B/s', 3)} sent by each device in a ring"
        name = f"all-reduce of {show(found['bytes'], 'B', 3)} over {count} devices"
        yield name, Spec(value=show(spread.p50, "s", 4), provenance="measured", source=found["how"], note=note)


def _notes(ceilings: Sequence[Ceiling], chip: Machine | None, answers: Mapping[str, Any], conditions: Mapping[str, str]) -> list[str]:
    """Notes: the date, rates above the datasheet, and what could not be measured."""
    notes = [f"{conditions['device']}, measured on {conditions['date'].partition('T')[0]}"]
    for each in ceilings:
        paper = chip.ceiling(each.resource) if chip else None
        if paper and paper.provenance != "measured" and each.rate > ABOVE * paper.rate:
            notes.append(
                f"{each.resource} is measured at {percent(each.rate / paper.rate)} of the catalogue's "
                f"{show(paper.rate, each.resource.per)}: kept as measured; the datasheet assumes a lower clock, "
                "or a cache held part of the data"
            )
    lacking = [key for key, found in answers.items() if found.get("absent", LATE) != LATE and key.endswith("burst/random")]
    if lacking:
        notes.append(f"this device or its library has no matmuls in {', '.join(key.split('/')[1] for key in lacking)}")
    if (reason := answers.get("launch/graph", {}).get("absent", LATE)) != LATE:
        notes.append(f"no kernel in a graph was measured: {reason}")
    if late := sum(found.get("absent") == LATE for found in answers.values()):
        notes.append(f"{late} of {len(answers)} experiments were skipped because time ran out: measure without --quick")
    return notes


def compare_with_catalogue(card: Card, base: Card) -> list[str]:
    """A comparison of this card with the catalogue's chip, and with other measurements of such chips. ``base`` is the chip's own card."""
    lines = []
    for each in card.machine.ceilings:
        paper = base.machine.ceiling(each.resource)
        if paper is None or not math.isfinite(paper.rate) or not paper.rate:
            continue
        share = each.rate / (paper.peak or paper.rate)
        typical = [
            known.per_second / (paper.peak or paper.rate)
            for known in base.sustained
            if known.resource == each.resource and known.per_second <= (paper.peak or paper.rate) * (paper.count or 1)
        ]
        words = f"{each.resource}: {percent(share)} of the catalogue's {show(paper.peak or paper.rate, each.resource.per, 4)}"
        sustained = next((one for one in card.sustained if one.resource == each.resource and one.limit == "held"), None)
        if sustained:
            words += f" in bursts, {percent(sustained.per_second / paper.rate)} held"
        if typical:
            low, high = min(typical), max(typical)
            measured = percent(low) if high - low < 0.005 else f"{percent(low)} to {percent(high)}"
            words += f"; others measured {measured}"
        lines.append(words)
    return lines
