"""A report as a file, a figure, text or rows: the public functions for output."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError, clean, did_you_mean
from ..files.output_files import write_file
from ..report import Report
from .export import Row, op_rows, to_csv, to_json, to_parquet
from .markdown import to_markdown
from .page.report_page import report_page
from .screen import report_text
from .tables import Paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIGURES = ("svg", "png", "pdf")
WRITERS: dict[str, Callable[[Report], bytes]] = {
    "html": lambda report: report_page(report).encode(),
    "json": to_json,
    "csv": lambda report: to_csv(rows(report)).encode(),
    "parquet": lambda report: to_parquet(rows(report)),
    "md": lambda report: clean(to_markdown(report)).encode(),
    "txt": lambda report: f"{text(report)}\n".encode(),
}


def save(report: Report, path: str | Path, *, theme: str = "light") -> Path:
    """Write a report to a file; the extension selects the format.

    A page (html), a figure (svg, png, pdf, for a ``light`` or ``dark`` background), the report as JSON, one row per op as CSV or Parquet,
    or a summary as Markdown or text (md, txt).
    """
    target = Path(path)
    kind = target.suffix.lower().removeprefix(".")
    if kind in FIGURES:
        from .plot import save as save_figure

        return save_figure(plot(report, theme=theme), target)
    if kind not in WRITERS:
        known = (*WRITERS, *FIGURES)
        raise UsageError(f"{target}: no format named {kind!r}{did_you_mean(kind, known) or '; formats: ' + ', '.join(known)}")
    write_file(target, WRITERS[kind](report))
    return target


def plot(report: Report, ax: "Axes | None" = None, *, theme: str = "light") -> "Axes":
    """Draw every op on the roofline of its machine, on these axes or on new ones, which are returned."""
    from .plot import roofline_chart

    return roofline_chart(report, ax=ax, theme=theme)


def text(report: Report, *, width: int = 100, top: int | None = None, details: bool = False) -> str:
    """What `roofline analyze` prints: the findings, and ``top`` of the ops that lose the most, or as many as fit one screen.

    ``details`` adds the findings in whole sentences, and all facts and notes.
    """
    return clean(report_text(report, Paper(width=width), top, details=details))


def rows(report: Report) -> list[Row]:
    """One dictionary per op, with a key for each resource, for ``polars.DataFrame(rows)`` or ``pandas.DataFrame(rows)``."""
    return op_rows(report.ops, report)
