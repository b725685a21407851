"""Reports as Markdown, for a pull request, an issue or a wiki."""

from collections.abc import Iterable, Sequence

from ..report import Report
from .op_table import column, op_cells, usual_columns
from .tables import Cell
from .text import program_facts

TOP = 20


def to_markdown(report: Report, top: int = TOP) -> str:
    """The program, its longest ops, the findings and the notes."""
    names = usual_columns(report)
    parts = [
        f"# {with_escapes(report.heading)}",
        "\n".join(f"- {label}: {with_escapes(text)}" for label, text in program_facts(report) if text),
        markdown_table([column(name).header for name in names], op_cells(report, report.ops[:top], names)),
        listed("Findings", (finding.message for finding in report.findings)),
        listed("Notes", dict.fromkeys((*report.input.notes, *report.machine.notes))),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[str | Cell]]) -> str:
    """A table with the first column to the left."""
    lines = [[with_escapes(cell.text if isinstance(cell, Cell) else cell) for cell in row] for row in (headers, *rows)]
    lines.insert(1, ["---", *("---:" for _ in headers[1:])])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def listed(title: str, items: Iterable[str]) -> str:
    """A section of some lines; nothing without any."""
    listed = [f"- {with_escapes(item)}" for item in items]
    return "\n".join([f"## {title}", "", *listed]) if listed else ""


def with_escapes(text: str) -> str:
    """Text that is shown as it is: no markup, no cell that ends early, no line break."""
    plain = " ".join(text.split())
    return "".join(f"\\{character}" if character in "\\`*_{}[]<>|#" else character for character in plain)
