"""Hardware counters compared with the model, as text."""

from collections.abc import Sequence
from itertools import groupby

from ..analysis.counters import Comparison
from ..units import plain, show
from .op_table import NOTHING, more
from .tables import PLAIN, Cell, Paper, table

AGREES, DIFFERS = 0.05, 0.25  # differences of counted over modelled from 1 at which the colour changes


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
