"""How the times of devices or hosts differ, as text."""

from collections.abc import Sequence

from ..analysis.findings.stragglers import SLOWER, Spread
from ..units import plain, show
from .op_table import NOTHING, more
from .tables import PLAIN, Cell, Paper, table


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
