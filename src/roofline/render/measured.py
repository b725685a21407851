"""Measurements as text: hardware counters compared with the model, and how devices differ."""

from collections.abc import Sequence
from itertools import groupby

from ..analysis.counters import Comparison
from ..analysis.stragglers import SLOWER, Spread
from ..units import plain, show
from .op_table import NOTHING, more
from .tables import PLAIN, Cell, Paper, table

AGREES, DIFFERS = 0.05, 0.25  # of counted over modelled from 1: where the colours change


def counters_text(rows: Sequence[Comparison], paper: Paper = PLAIN, top: int = 20) -> str:
    """The model and the counters, op by op: each unit's FLOP and each memory's bytes, and counted over modelled."""
    ops = [list(mine) for _, mine in groupby(rows, key=lambda row: row.op_index)]
    lines: list[list[str | Cell]] = []
    for mine in ops[:top]:
        for place, row in enumerate(mine):
            unit = "FLOP" if row.quantity in ("matrix", "vector") else "B"
            first = place == 0
            counted = "" if not first or row.launches is None else f"{row.launches:,} of {row.of:,}"
            amounts = [NOTHING if amount is None else show(amount, unit) for amount in (row.modelled, row.counted)]
            lines.append([row.name if first else "", row.quantity, *amounts, _ratio(row.ratio), counted])
    if not lines:
        return ""
    title = paper.paint("Model and hardware counters", "bold")
    headers = ["op", "resource", "model", "counters", "ratio", "launches"]
    return f"{title}\n{table(headers, lines, paper, left=2)}{more(len(ops) - top)}"


def _ratio(ratio: float | None) -> Cell:
    if ratio is None:
        return Cell(NOTHING)
    away = abs(ratio - 1)
    return Cell(plain(ratio, 3), "green" if away <= AGREES else "yellow" if away > DIFFERS else "")


def stragglers_text(rows: Sequence[Spread], by: str, paper: Paper = PLAIN, top: int = 20) -> str:
    """How the time of an execution differs between devices or hosts, op by op."""
    title = paper.paint(f"Time per execution across {by}s", "bold")
    if not rows:
        return f"{title}\nno op ran on more than one {by}"
    lines: list[list[str | Cell]] = [
        [
            one.name,
            "collective" if one.exchange else "",
            f"{one.places:,}",
            f"{show(one.fastest_s, 's')} on {one.fastest}",
            show(one.median_s, "s"),
            f"{show(one.slowest_s, 's')} on {one.slowest}",
            NOTHING if one.spread is None else Cell(plain(one.spread, 4), "red" if one.spread >= SLOWER else ""),
            show(one.waiting_s, "s"),
        ]
        for one in rows[:top]
    ]
    headers = ["op", "", f"{by}s", "fastest", "median", "slowest", "spread", "waiting"]
    foot = f"\ncollective: {by}s wait for each other, so the fastest arrived last" if any(one.exchange for one in rows[:top]) else ""
    return f"{title}\n{table(headers, lines, paper, left=2)}{more(len(rows) - top)}{foot}"
