"""The fourth and fifth acceptance checks: thresholds computed from the machine's rates, compared with those of the chip's datasheet.

With weights of half the width, a product becomes compute-bound at half the batch; with both operands halved, the threshold stays the same
on chips that compute twice as fast in that format. Two chips that split the contracted dimension D become compute-bound at D = 2 x peak /
link.
"""

from collections.abc import Iterator, Sequence

from ...errors import MachineError
from ...machine import Machine
from ...machines import load
from ...machines.local import MEASURED
from ...report import CeilingInfo, MachineInfo, OpInfo, Report
from ...resource import SCALE_UP, Resource
from ...units import number_of, plain, show
from .acceptance import DISTRIBUTED, FORMATS, AcceptanceCheck, Problem, made_check

APART = 0.02  # by how much a rate may differ from the datasheet's (a choice: datasheets round to two or three digits)
WORDS = (
    "all-reduce",
    "all-gather",
    "all-to-all",
    "reduce-scatter",
    "collective-permute",
    "allreduce",
    "allgather",
    "reducescatter",
    "nccl",
)
WIDE, NARROW = ("matrix/bf16", "matrix/fp16"), ("matrix/int8", "matrix/fp8")


def format_thresholds(report: Report) -> AcceptanceCheck:
    """The batch from which products are compute-bound, in 16 bits, with 8-bit weights and in 8 bits, against the datasheet's."""
    chip, rates = _datasheet(report.machine), _rates(report.machine)
    wide = next((name for name in WIDE if name in rates), None)
    problems = list(_wrong_peaks(report.machine, chip)) if chip else []
    if wide is None or "hbm" not in rates:
        return made_check(FORMATS, "thresholds of the datasheet", "no rates in 16 bits", problems, checked=bool(problems))
    narrow = next((name for name in NARROW if name in rates), None)
    saw = _thresholds(rates, wide, narrow)
    found = f"compute-bound from a batch of {plain(saw[0], 3)}, {plain(saw[1], 3)} with 8-bit weights"
    found += f", {plain(saw[2], 3)} all in 8 bits" if saw[2] else ""
    if chip is None:
        return made_check(FORMATS, "the weights' width to halve the threshold", found, problems, ("no datasheet to compare with",))
    paper = _thresholds({str(one.resource): one.rate for one in chip.ceilings}, wide, narrow)
    expected = f"about {plain(paper[0], 3)} and {plain(paper[1], 3)}" + (f", and {plain(paper[2], 3)} all in 8 bits" if paper[2] else "")
    return made_check(FORMATS, f"{expected} ({chip.name}'s datasheet)", found, problems)


def distributed_flip(report: Report) -> AcceptanceCheck:
    """Collectives that have bytes on a link, and the size at which two chips become compute-bound against the datasheet's."""
    devices = len(report.input.devices)
    exchanges = [op for op in report.ops if _is_collective(op)]
    problems = list(_without_bytes(exchanges)) if devices != 1 else []
    rates, chip = _rates(report.machine), _datasheet(report.machine)
    wide = next((name for name in WIDE if name in rates), None)
    link = next((one.resource for one in report.machine.ceilings if one.resource in SCALE_UP), None)
    expected, saw = "exchanges with bytes on a link", f"{len(exchanges):,} exchanges on {number_of(devices or 1, 'device')}"
    if wide and link:
        saw += f"; two chips are compute-bound from D = {plain(2 * rates[wide] / rates[link], 4)} ({link})"
        paper, peak = (chip.ceiling(link), chip.ceiling(wide)) if chip else (None, None)
        if chip and paper and peak:
            expected += f", and D = {plain(2 * peak.rate / paper.rate, 4)} by {chip.name}'s datasheet"
            is_known = _near(rates[link], paper.rate) or _near(rates[link], paper.peak or paper.rate)
            if not is_known and not _is_measured(report.machine, link):
                message = f"{link}: {show(rates[link], 'B/s')}, but {chip.name} has {show(paper.rate, 'B/s')} per link and direction"
                problems.append(Problem(input="communication", message=message))
    notes = ("one device: nothing is exchanged",) if devices <= 1 and not exchanges else ()
    return made_check(DISTRIBUTED, expected, saw, problems, notes, checked=bool(exchanges) or bool(problems) or devices > 1)


def _without_bytes(exchanges: Sequence[OpInfo]) -> Iterator[Problem]:
    """The collectives that have no bytes on a link, not even unknown ones."""
    empty = [op for op in exchanges if not any(Resource(name).is_link and amount != 0 for name, amount in op.bytes.items())]
    if empty:
        names = ", ".join(op.label or op.name for op in empty[:3])
        message = f"{names}: an exchange without bytes on any link"
        yield Problem(input="communication", message=message, ops=tuple(op.id for op in empty))


def _datasheet(machine: MachineInfo) -> Machine | None:
    """The catalogue's chip of this name, one device of it where the report is of one."""
    name = machine.name.removesuffix("/device").removesuffix(MEASURED)
    try:
        chip = load(name)
    except MachineError:
        return None
    if chip.kind == "cpu":
        return None
    return chip.per_device() if machine.scope == "device" and chip.scope != "device" else chip


def _rates(machine: MachineInfo) -> dict[str, float]:
    return {one.resource: float(one.rate) for one in machine.ceilings}


def _thresholds(rates: dict[str, float], wide: str, narrow: str | None) -> tuple[float, float, float | None]:
    """Threshold batches: a product of batch B reads its weights once and does 2B FLOP per weight."""
    ridge = rates[wide] / rates["hbm"]
    return ridge, ridge / 2, rates[narrow] / rates["hbm"] / 2 if narrow and narrow in rates else None


def _wrong_peaks(machine: MachineInfo, chip: Machine) -> Iterator[Problem]:
    """Compute and memory rates that differ from the datasheet's, usually because they are those of another format."""
    for one in machine.ceilings:
        paper = chip.ceiling(one.resource)
        if paper is None or _is_measured(machine, one.resource) or _near(one.rate, paper.rate) or _is_scaled(one):
            continue
        if (one.provenance, paper.provenance) == ("profile", "derived"):  # the device knows better than slots times a clock
            continue
        other = next((each.resource for each in chip.compute if each.resource != paper.resource and _near(one.rate, each.rate)), None)
        if one.provenance == "user" and other is None and not _near(one.rate, paper.sparse or 0.0):
            continue  # a rate that a person chose
        whose = f"the rate of {other}" if other else "the sparse rate" if _near(one.rate, paper.sparse or 0.0) else "not the datasheet's"
        per = paper.resource.per
        yield Problem(
            input="peak", message=f"{one.resource}: {show(one.rate, per)} is {whose}; {chip.name} has {show(paper.rate, per)} for it"
        )


def _is_measured(machine: MachineInfo, resource: str) -> bool:
    return any(one.resource == resource and one.provenance == "measured" for one in machine.ceilings)


def _is_scaled(one: CeilingInfo) -> bool:
    return one.fraction < 1


def _near(rate: float, other: float) -> bool:
    return abs(rate - other) <= APART * other


def _is_collective(op: OpInfo) -> bool:
    words = f"{op.category} {op.name}".lower().replace("_", "-")
    return any(word in words for word in WORDS) or any(op.bytes.get(link) for link in SCALE_UP)
