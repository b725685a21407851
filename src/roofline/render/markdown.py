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
        f"# {_escaped(report.heading)}",
        "\n".join(f"- {label}: {_escaped(text)}" for label, text in program_facts(report) if text),
        _table([column(name).header for name in names], op_cells(report, report.ops[:top], names)),
        _section("Findings", (finding.message for finding in report.findings)),
        _section("Notes", dict.fromkeys((*report.input.notes, *report.machine.notes))),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(headers: Sequence[str], rows: Iterable[Sequence[str | Cell]]) -> str:
    lines = [[_escaped(cell.text if isinstance(cell, Cell) else cell) for cell in row] for row in (headers, *rows)]
    lines.insert(1, ["---", *("---:" for _ in headers[1:])])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _section(title: str, items: Iterable[str]) -> str:
    listed = [f"- {_escaped(item)}" for item in items]
    return "\n".join([f"## {title}", "", *listed]) if listed else ""


def _escaped(text: str) -> str:
    """Text that is shown as it is: no markup, no cell that ends early, no line break."""
    plain = " ".join(text.split())
    return "".join(f"\\{character}" if character in "\\`*_{}[]<>|#" else character for character in plain)
