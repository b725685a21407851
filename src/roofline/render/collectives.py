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
    collectives = report.collectives
    if not collectives:
        return f"{title}\nnone"
    names = {op.id: op.name for op in report.ops}
    header, *lines = table(HEADERS, collective_cells(collectives[:top]), paper, left=3, elastic=2).splitlines()
    shown = [header]
    for line, collective in zip(lines, collectives, strict=False):
        shown += [line, paper.paint(paper.paragraph(f"{collective.why} ({names.get(collective.op, '')})", "   ", "   "), "dim")]
    return "\n".join([f"{title}: {collectives_line(report)}", *shown]) + more(len(collectives) - top)


def collectives_line(report: Report) -> str:
    """How many collectives there are, how long they are in flight, and what of that is exposed."""
    exposed, flying = (sum(getattr(collective, name) or 0.0 for collective in report.collectives) for name in ("exposed_s", "time_s"))
    whole = report.main_point.time_s if report.main_point else None
    share = f", {percent(exposed / whole)} of the step" if whole else ""
    return f"{number_of(len(report.collectives), 'collective')}, {_seconds(flying)} in flight, {_seconds(exposed)} exposed{share}"


def collective_cells(collectives: Sequence[CollectiveInfo]) -> list[Sequence[str | Cell]]:
    """A row for each collective, numbered."""
    return [_cells(place, collective) for place, collective in enumerate(collectives, start=1)]


def _cells(place: int, collective: CollectiveInfo) -> Sequence[str | Cell]:
    share = None if collective.exposed_s is None or not collective.time_s else 1 - min(collective.exposed_s / collective.time_s, 1.0)
    return (
        str(place),
        collective.kind,
        ", ".join(collective.axes) or NOTHING,
        plain(collective.count),
        show(rounded(collective.bytes, 3), "B"),
        _seconds(collective.time_s),
        Cell(_seconds(collective.exposed_s), "red" if share is not None and share < 1 - LEAST else ""),
        NOTHING if share is None else percent(share),
    )


def _seconds(seconds: float | None) -> str:
    return NOTHING if seconds is None else show(rounded(seconds, 3), "s")
