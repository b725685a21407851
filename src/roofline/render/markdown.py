"""Reports as Markdown, for a pull request, an issue or a wiki."""

import re
from collections.abc import Iterable, Sequence

from ..folding import TableRows, table_rows
from ..grouping import GroupTable
from ..report import Report
from .op_table import headers, op_cells, usual_columns
from .program_facts import program_facts
from .tables import Cell
from .text import fine_line, group_cells, is_fine, saving_text
from .time_bar import Part, bar_text, main_point, time_parts

TOP = 20
FINDINGS = 5


def to_markdown(
    report: Report,
    top: int = TOP,
    rows: TableRows | None = None,
    grouped: GroupTable | None = None,
    *,
    columns: Sequence[str] = (),
) -> str:
    """The sentence, where the time went, the findings, the longest ops or groups of them, and the program's facts.

    The table is that of `report_text` with the same arguments.
    """
    names = columns or usual_columns(report)
    rows = rows or table_rows(report)
    listed_rows = len(rows.rows) if grouped is None else len(grouped.groups)
    cells = (headers(names, rows.per), op_cells(report, rows, names, top)) if grouped is None else group_cells(grouped, top)
    facts = [(label, text) for label, text in program_facts(report, devices=grouped.devices if grouped else rows.devices) if text]
    parts = [
        f"**{with_escapes(report.summary or report.heading)}**",
        _bar(time_parts(main_point(report))),
        _findings(report),
        "### Ops" if grouped is None else f"### Ops by {grouped.by}",
        markdown_table(*cells, code=True),
        f"… and {listed_rows - top:,} more" if listed_rows > top else "",
        listed("Program", (f"{label}: {text}" for label, text in facts), level=3),
        listed("Notes", dict.fromkeys((*report.input.notes, *report.machine.notes)), level=3),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _bar(parts: Sequence[Part]) -> str:
    """The bar as a code block, which keeps its columns, and its legend as text."""
    return f"```text\n{bar_text(parts)}\n```" if parts else ""


def _findings(report: Report) -> str:
    """The findings as a numbered list, what each saves in bold."""
    fine = fine_line(report)
    shown = [finding for finding in report.findings if not (fine and is_fine(finding))]
    lines = []
    for number, finding in enumerate(shown[:FINDINGS], start=1):
        saving = saving_text(finding)
        lead = f"**{with_escapes(saving)}**: " if saving else ""
        lever = f" *{with_escapes(finding.levers[0])}*" if finding.levers else ""
        lines.append(f"{number}. {lead}{with_escapes(finding.message)}{lever}")
    parts = ["### What to do next", "\n".join(lines)] if lines else []
    parts += [f"… and {len(shown) - FINDINGS:,} more in the JSON report"] if len(shown) > FINDINGS else []
    return "\n\n".join([*parts, *([with_escapes(fine)] if fine else [])])


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
