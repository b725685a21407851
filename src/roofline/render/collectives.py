"""The collectives of a program as text: what each moves over which axes, what of it is exposed, and why it is there."""

from collections.abc import Sequence

from ..report import CollectiveInfo, Report
from ..units import number_of, percent, plain, rounded, show
from .op_table import NOTHING, more
from .tables import PLAIN, Cell, Paper, table

HEADERS = ("", "collective", "axes", "times", "bytes", "in flight", "exposed", "hidden")
LEAST = 0.01  # of the time in flight: less that is exposed is as good as hidden


def collectives_text(report: Report, paper: Paper = PLAIN, top: int = 10) -> str:
    """A row for each collective with the longest exposed time first, and below it why it is there."""
    title = paper.paint("Collectives", "bold")
    every = report.collectives
    if not every:
        return f"{title}\nnone"
    names = {op.id: op.name for op in report.ops}
    header, *lines = table(HEADERS, collective_cells(every[:top]), paper, left=3, elastic=2).splitlines()
    shown = [header]
    for line, one in zip(lines, every, strict=False):
        shown += [line, paper.paint(paper.paragraph(f"{one.why} ({names.get(one.op, '')})", "   ", "   "), "dim")]
    return "\n".join([f"{title}: {collectives_line(report)}", *shown]) + more(len(every) - top)


def collectives_line(report: Report) -> str:
    """How many collectives there are, how long they are in flight, and what of that is exposed."""
    exposed, flying = (sum(getattr(one, name) or 0.0 for one in report.collectives) for name in ("exposed_s", "time_s"))
    whole = report.main_point.time_s if report.main_point else None
    share = f", {percent(exposed / whole)} of the step" if whole else ""
    return f"{number_of(len(report.collectives), 'collective')}, {_seconds(flying)} in flight, {_seconds(exposed)} exposed{share}"


def collective_cells(every: Sequence[CollectiveInfo]) -> list[Sequence[str | Cell]]:
    """A row for each collective, numbered."""
    return [_cells(place, one) for place, one in enumerate(every, start=1)]


def _cells(place: int, one: CollectiveInfo) -> Sequence[str | Cell]:
    share = None if one.exposed_s is None or not one.time_s else 1 - min(one.exposed_s / one.time_s, 1.0)
    return (
        str(place),
        one.kind,
        ", ".join(one.axes) or NOTHING,
        plain(one.count),
        show(rounded(one.bytes, 3), "B"),
        _seconds(one.time_s),
        Cell(_seconds(one.exposed_s), "red" if share is not None and share < 1 - LEAST else ""),
        NOTHING if share is None else percent(share),
    )


def _seconds(seconds: float | None) -> str:
    return NOTHING if seconds is None else show(rounded(seconds, 3), "s")
