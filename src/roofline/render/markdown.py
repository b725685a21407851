"""Reports as Markdown, for a pull request, an issue or a wiki."""

import re
from collections.abc import Iterable, Sequence

from ..grouping import GroupTable
from ..grouping.folding import TableRows, by_loss, table_rows
from ..report import Report
from .collectives import HEADERS as COLLECTIVES
from .collectives import collective_cells, collectives_line
from .op_table import headers, op_cells, usual_columns
from .program_facts import program_facts
from .screen import ROOM, ROWS, advice, finding_cells, fine_line, told_findings
from .tables import Cell
from .text import group_cells
from .time_bar import Part, bar_text, time_parts


def to_markdown(
    report: Report,
    top: int | None = None,
    rows: TableRows | None = None,
    grouped: GroupTable | None = None,
    *,
    columns: Sequence[str] = (),
) -> str:
    """The sentences, where the time went, the findings, the ops that lose most or groups of them, and the program's facts.

    The table is that of `report_text` with the same arguments.
    """
    names = columns or usual_columns(report)
    rows, top = rows or by_loss(table_rows(report)), ROWS if top is None else top
    listed_rows = len(rows.rows) if grouped is None else len(grouped.groups)
    cells = (headers(names, rows.per), op_cells(report, rows, names, top)) if grouped is None else group_cells(grouped, top)
    facts = [(label, text) for label, text in program_facts(report, devices=grouped.devices if grouped else rows.devices) if text]
    parts = [
        *(f"**{with_escapes(line)}**" for line in (report.summary or report.heading).splitlines()),
        _bar(time_parts(report.main_point)),
        _findings(report),
        "### Ops" if grouped is None else f"### Ops by {grouped.by}",
        markdown_table(*cells, code=True),
        f"… and {listed_rows - top:,} more" if listed_rows > top else "",
        _collectives(report, top),
        listed("Program", (f"{label}: {text}" for label, text in facts), level=3),
        listed("Notes", dict.fromkeys((*report.input.notes, *report.machine.notes)), level=3),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _bar(parts: Sequence[Part]) -> str:
    """The bar as a code block, which keeps its columns, and its legend as text."""
    return f"```text\n{bar_text(parts)}\n```" if parts else ""


def _findings(report: Report) -> str:
    """The findings as a table, each with its first lever, or with what it says where it saves nothing."""
    told, most = told_findings(report), ROOM[0][0]
    parts = []
    if told:
        headers, *rows = finding_cells(report, told[:most])
        cells = [[*row, advice(finding)] for row, finding in zip(rows, told, strict=False)]
        parts += ["### What to do next", markdown_table([*headers, "change"], cells)]
    parts += [f"… and {len(told) - most:,} more in the JSON report"] if len(told) > most else []
    return "\n\n".join([*parts, *([with_escapes(fine_line(report))] if fine_line(report) else [])])


def _collectives(report: Report, top: int) -> str:
    """The collectives as a table, each with why it is there."""
    every = report.collectives
    if not every:
        return ""
    rows = [(*cells, one.why) for cells, one in zip(collective_cells(every[:top]), every, strict=False)]
    more = [f"… and {len(every) - top:,} more"] if len(every) > top else []
    return "\n\n".join(["### Collectives", with_escapes(collectives_line(report)), markdown_table([*COLLECTIVES, "why"], rows), *more])


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[str | Cell]], *, code: bool = False) -> str:
    """A table with the first column left-aligned, and formatted as code with ``code``."""
    lines = [[with_escapes(cell.text if isinstance(cell, Cell) else cell) for cell in row] for row in (headers, *rows)]
    if code:
        lines[1:] = [[_as_code(first), *rest] for first, *rest in lines[1:]]
    lines.insert(1, ["---", *("---:" for _ in headers[1:])])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _as_code(escaped: str) -> str:
    """Escaped text as inline code, so that ``*`` and ``×`` are shown literally; unchanged where inline code cannot contain it."""
    plain = re.sub(r"\\(.)", r"\1", escaped)
    return escaped if set("`|\\") & set(plain) else f"`{plain}`"


def listed(title: str, items: Iterable[str], level: int = 2) -> str:
    """A section with a list; empty without items."""
    listed = [f"- {with_escapes(item)}" for item in items]
    return "\n".join([f"{'#' * level} {title}", "", *listed]) if listed else ""


def with_escapes(text: str) -> str:
    """Text escaped so that it is shown literally in a table cell: no markup, no pipe, no line break."""
    plain = " ".join(text.split())
    return "".join(f"\\{character}" if character in "\\`*_{}[]<>|#" else character for character in plain)
