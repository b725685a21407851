"""What Python says of the report on a page, and of two that are compared: sentences and figures that the page shows as they are."""

import re
from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...analysis.findings.stragglers import slower_devices
from ...comparison import TIME, Comparison
from ...report import DeviceShare, Finding, IdleInfo, InputInfo, OpInfo
from ...units import percent, plain, rounded, show
from ...workload import NO_COVERAGE, Coverage, PeakMemory
from ..comparison import figure_cells, folded, verdict_text
from ..program_facts import WHOLE
from ..tables import Cell
from ..text import predicted_text, saving_text
from ..time_bar import SHOWN
from ..timeline import reason_text
from .data import NOTABLE_CHANGE

LONGEST_LABEL = 60  # letters of an op's label in a sentence
_BEFORE = re.compile(r" \(before: .*?\)(?=  |$)")  # what the op was before, in the label of a change


class _Report(Struct, frozen=True):
    """The parts of a report that sentences are about; reading them skips its ops."""

    input: InputInfo | None = None
    coverage: Coverage = NO_COVERAGE
    findings: tuple[Finding, ...] = ()
    idle: tuple[IdleInfo, ...] = ()
    memory: PeakMemory | None = None


class _Devices(Struct, frozen=True):
    """The parts of a report that say how its devices differ."""

    input: InputInfo
    ops: tuple[OpInfo, ...] = ()
    by_device: tuple[DeviceShare, ...] = ()


def words_json(report: bytes, before: bytes | None = None, comparison: bytes | None = None) -> bytes:
    """The words of a page as compact JSON, from the JSON of what it shows: a report, or two and their comparison."""
    found = msgspec.json.decode(report, type=_Report)
    return msgspec.json.encode(
        {
            "findings": [(_capital(saving_text(one)), predicted_text(one)) for one in found.findings],
            "idle": [reason_text(one) for one in found.idle],
            "stragglers": _stragglers(report) if found.input and len(found.input.devices) > 1 else {},
            "figures": _figures(found),
            "before_figures": [] if before is None else _figures(msgspec.json.decode(before, type=_Report)),
            "comparison": None if comparison is None else _compared(msgspec.json.decode(comparison, type=Comparison)),
        }
    )


def _stragglers(report: bytes) -> dict[str, list[tuple[str, str]]]:
    """What is said of each device, by its number, and of each host, by its name, that is slower than the others."""
    found = msgspec.json.decode(report, type=_Devices)
    numbered = [replace(one, host="") for one in found.input.devices]  # devices without a host are called by their numbers
    slower = {
        "devices": slower_devices(found.ops, found.by_device, numbered, "device"),
        "hosts": slower_devices(found.ops, found.by_device, found.input.devices, "host"),
    }
    said = "straggler: takes {} times as long as the median"
    return {kind: [(place, said.format(plain(ratio, 3))) for place, ratio in places.items()] for kind, places in slower.items()}


def _figures(report: _Report) -> list[tuple[str, str, str, str]]:
    """Key figures of the whole report: the word, the amount, a remark, and the key by which two reports' figures are paired."""
    found, memory, cover = [], report.memory, report.coverage
    if memory:
        capacity = memory.capacity_bytes
        room = f"{percent(memory.peak_bytes / capacity)} of {show(capacity, 'B')}" if capacity else memory.method
        found.append(("Peak memory", show(memory.peak_bytes, "B"), room if memory.fits else f"does not fit: {room}", "memory"))
    for space in memory.spaces if memory else ():
        if space.capacity_bytes:
            room = f"{percent(space.peak_bytes / space.capacity_bytes)} of {show(space.capacity_bytes, 'B')}"
            found.append((f"Peak {space.space.upper()}", show(space.peak_bytes, "B"), room, space.space))
    if cover.busy_s and cover.priced_s is not None and cover.priced_s < WHOLE * cover.busy_s:
        found.append(("Known cost", percent(cover.priced_s / cover.busy_s), "of busy time", "priced"))
    if cover.busy_s and cover.dma_stall_s and cover.dma_stall_s > SHOWN * cover.busy_s:
        found.append(("Stalled by DMA", percent(cover.dma_stall_s / cover.busy_s), "of busy time", "stalled"))
    return found


def _compared(found: Comparison) -> dict[str, object]:
    """The change in a few sentences, and the quantities of both runs with their tone: green is better, red is worse."""
    figures = [_toned(figure_cells(one, found.per)) for one in found.figures]
    return {"verdict": " ".join([f"{_capital(verdict_text(found))}.", *_largest_changes(found)]), "figures": figures}


def _largest_changes(found: Comparison) -> list[str]:
    """The ops whose time grew most and shrank most, equal ops as one, where that is a notable part of the time."""
    if found.basis != TIME or not found.after.time_s:
        return []
    changes = [(one.change_s or 0.0, _BEFORE.sub("", one.label or one.name)) for one in folded(found.deltas)]
    whole = f" per {found.per}" if found.per else " over the whole run" if found.speedup_of == "step" else ""
    said = []
    for word, (seconds, label) in (("increase", max(changes, default=(0.0, ""))), ("decrease", min(changes, default=(0.0, "")))):
        if abs(seconds) > NOTABLE_CHANGE * found.after.time_s and (seconds > 0) == (word == "increase"):
            said.append(f"Largest {word}: {_short(label)}, {show(rounded(abs(seconds), 2), 's')}{whole}.")
    return said


def _toned(cells: Sequence[str | Cell]) -> tuple[list[str], str]:
    """The texts of some cells, and the colour of the last."""
    last = cells[-1]
    return [one.text if isinstance(one, Cell) else one for one in cells], last.style if isinstance(last, Cell) else ""


def _short(label: str) -> str:
    """A label without its middle, if it is long: both ends tell ops apart."""
    words = " ".join(label.split())
    half = (LONGEST_LABEL - 1) // 2
    return words if len(words) <= LONGEST_LABEL else f"{words[: LONGEST_LABEL - 1 - half]}…{words[-half:]}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
