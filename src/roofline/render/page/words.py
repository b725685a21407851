"""What Python says of the report on a page, and of two that are compared: sentences and figures that the page shows as they are."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ...analysis.findings.stragglers import slower_devices
from ...comparison.values import TIME, Comparison, Delta, Side
from ...quantities import NOTABLE
from ...report import Report
from ...resource import HBM
from ...rules.words.explanation import capital
from ...units import percent, plain, rounded, show
from ..comparison import figure_cells, folded, is_changed, verdict_text
from ..program_facts import WHOLE
from ..tables import Cell
from ..text import predicted_text, saving_text
from ..time_bar import SHOWN
from ..timeline import reason_text
from .data import DIFFERENCES

LONGEST_LABEL = 60  # letters of an op's label in a sentence
# Columns that only a comparison of measured times has, and only one of minimum times and costs.
_TIMED = ("before_s", "after_s", "change_s", "speedup", "before_efficiency", "after_efficiency")
_COUNTED = ("floor_change_s", *(f"{when}_{key}" for when in ("before", "after") for key in ("floor_s", "flops", "hbm", "launches")))


def words_json(report: Report, before: Report | None = None, comparison: Comparison | None = None) -> bytes:
    """The words of a page as compact JSON: about a report, or about two and their comparison."""
    return msgspec.json.encode(
        {
            "findings": [(capital(saving_text(finding)), predicted_text(finding)) for finding in report.findings],
            "idle": [reason_text(reason) for reason in report.idle],
            "stragglers": _stragglers(report) if len(report.input.devices) > 1 else {},
            "figures": _figures(report),
            "before_figures": [] if before is None else _figures(before),
            "comparison": None if comparison is None else _compared(comparison),
        }
    )


def _stragglers(report: Report) -> dict[str, list[tuple[str, str]]]:
    """What is said of each device, by its number, and of each host, by its name, that is slower than the others."""
    numbered = [replace(device, host="") for device in report.input.devices]  # devices without a host are called by their numbers
    slower = {
        "devices": slower_devices(report.ops, report.by_device, numbered, "device"),
        "hosts": slower_devices(report.ops, report.by_device, report.input.devices, "host"),
    }
    said = "straggler: takes {} times as long as the median"
    return {kind: [(place, said.format(plain(ratio, 3))) for place, ratio in places.items()] for kind, places in slower.items()}


def _figures(report: Report) -> list[tuple[str, str, str, str]]:
    """Key figures of the whole report: the word, the amount, a remark, and the key by which two reports' figures are paired."""
    found, memory, cover, predicted = [], report.memory, report.coverage, report.predicted
    if predicted is not None and not report.changes:
        low, high = (show(rounded(seconds, 3), "s") for seconds in (predicted.low_s, predicted.high_s))
        exposed = sum(op.exposed_s for op in report.ops)
        found.append(("Predicted", f"{low} to {high}", "not measured", "predicted"))
        found.append(("Exposed", show(rounded(exposed, 3), "s"), f"{percent(exposed / predicted.time_s)} of the time", "exposed"))
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


def _compared(comparison: Comparison) -> dict[str, object]:
    """The change in a few sentences, the quantities of both runs with their tone (green: better, red: worse), and the ops that changed."""
    rows = [_row(number, delta) for number, delta in enumerate(comparison.deltas) if is_changed(delta)]
    change = "change_s" if comparison.basis == TIME else "floor_change_s"
    return {
        "verdict": " ".join([f"{capital(verdict_text(comparison))}.", *_largest_changes(comparison)]),
        "figures": [_toned(figure_cells(figure, comparison.per)) for figure in comparison.figures],
        "columns": [key for key, *_ in DIFFERENCES if key not in (_COUNTED if comparison.basis == TIME else _TIMED)],
        "rows": sorted(rows, key=lambda row: ((row[change] or 0.0) <= 0, -abs(row[change] or 0.0))),  # what became slower first
    }


def _row(number: int, delta: Delta) -> dict[str, Any]:
    """The figures of an op in both runs by the keys of `DIFFERENCES`; a side without ops has none."""
    before, after = (side if side.ops else None for side in (delta.before, delta.after))
    sides = {f"{when}_{key}": value for when, side in (("before", before), ("after", after)) for key, value in _side(side).items()}
    speedup = before.time_s / after.time_s if before and after and before.time_s and after.time_s else None
    return {
        "kind": "pair",
        "id": number,
        "ops": delta.after.ops,
        "label": delta.label or delta.name,
        "matched": delta.matched.replace("module", "program"),
        "speedup": speedup,
        **{key: getattr(delta, key) for key in ("name", "category", "module", "share", "change_s", "floor_change_s")},
        **sides,
    }


def _side(side: Side | None) -> dict[str, Any]:
    return {
        "s": side.time_s if side else None,
        "floor_s": side.floor_s if side else None,
        "flops": side.flops if side else None,
        "hbm": side.bytes.get(HBM.name, 0.0) if side else None,
        "launches": side.launches if side else None,
        "efficiency": side.efficiency if side else None,
        "bound": side.bound if side else None,
    }


def _largest_changes(found: Comparison) -> list[str]:
    """The ops whose time grew most and shrank most, equal ops as one, where that is a notable part of the time."""
    if found.basis != TIME or not found.after.time_s:
        return []
    changes = [(one.change_s or 0.0, f"{one.where} {one.what or one.name}") for one in folded(found.deltas)]
    whole = f" per {found.per}" if found.per else " over the whole run" if found.speedup_of == "step" else ""
    said = []
    for word, (seconds, label) in (("increase", max(changes, default=(0.0, ""))), ("decrease", min(changes, default=(0.0, "")))):
        if abs(seconds) > NOTABLE * found.after.time_s and (seconds > 0) == (word == "increase"):
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
