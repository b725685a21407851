"""Reports in notebooks: Jupyter, Colab and VS Code show a `Report` as its page, terminals as its table.

The page runs in a sandboxed frame with its own origin, isolated from the notebook, and makes no network requests. VS Code does not allow
scripts in frames of a notebook; there a figure and a table replace the page, in the colours of the editor's theme.
"""

import html
import os
import sys
import tempfile
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from ..errors import RooflineError
from ..grouping.folding import table_rows
from ..render.op_table import headers, op_cells, usual_columns
from ..render.screen import report_text
from ..render.tables import Cell, Paper, shorten
from ..render.views import save
from ..report import Report

MOST_OPS = 2000  # most ops of a page in a notebook, because notebooks are saved with their outputs
TABLE_OPS, LONGEST_NAME = 20, 80  # of the table that replaces the page
HEIGHT_PX = 760
_VS_CODE = ("VSCODE_PID", "VSCODE_CWD")  # set by VS Code for its kernels
_DARK = ".vscode-dark, .vscode-high-contrast:not(.vscode-high-contrast-light)"  # classes of the document around an output cell of VS Code


def bundle(report: Report, variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """The MIME bundle: HTML, and plain text for terminals and front ends without HTML."""
    return {"text/html": to_html(report, variables), "text/plain": report_text(report, Paper(width=120))}


def to_html(report: Report, variables: Mapping[str, str] | None = None) -> str:
    """The report as HTML for an output cell: its page where scripts may run, else a figure and a table."""
    around = os.environ if variables is None else variables
    shown, note = _shortened(report)
    body = _static(shown) if any(name in around for name in _VS_CODE) else _frame(shown)
    return f"{body}<p>{html.escape(note)}</p>" if note else body


def show(report: Report) -> None:
    """Display a report in the notebook that runs this, or open its page in a browser."""
    ipython = sys.modules.get("IPython")
    if ipython and ipython.get_ipython():
        ipython.display.display(bundle(report), raw=True)
        return
    folder = tempfile.mkdtemp(prefix="roofline-")  # not removed, because the browser reads it after this returns
    page = save(report, Path(folder, "report.html"))
    webbrowser.open(page.as_uri())


def _shortened(report: Report) -> tuple[Report, str]:
    """The report with at most `MOST_OPS` ops, and a note about those left out."""
    if len(report.ops) <= MOST_OPS:
        return report, ""
    ops = report.ops[:MOST_OPS]
    kept = {op.id for op in ops}
    shorter = replace(
        report,
        ops=ops,
        by_step=tuple(share for share in report.by_step if share.op in kept),
        by_device=tuple(share for share in report.by_device if share.op in kept),
        by_step_and_device=tuple(share for share in report.by_step_and_device if share.op in kept),
        findings=tuple(replace(one, ops=tuple(op for op in one.ops if op in kept)) for one in report.findings),
    )
    return (
        shorter,
        f"The longest {MOST_OPS:,} of {len(report.ops):,} ops; for all of them: roofline analyze PATH -o report.html",
    )


def _frame(report: Report) -> str:
    from ..render.page.report_page import report_page, title_of

    # A single-quoted attribute needs no escapes for JSON's double quotes, which are most of a page.
    document = report_page(report).replace("&", "&amp;").replace("'", "&#39;")
    return (
        f"<iframe title='{html.escape(title_of(report))}' sandbox='allow-scripts allow-downloads allow-popups' "
        f"style='width: 100%; height: {HEIGHT_PX}px; border: 0' srcdoc='{document}'></iframe>"
    )


def _static(report: Report) -> str:
    """A figure and the longest ops, without a script."""
    names, table = usual_columns(report), table_rows(report)
    rows = "".join(_row("td", cells) for cells in op_cells(report, table, names, TABLE_OPS))
    return f"{_figure(report)}<table><thead>{_row('th', headers(names, table.per))}</thead><tbody>{rows}</tbody></table>"


def _figure(report: Report) -> str:
    """The chart as SVG in the colours of a light or dark editor, or the reason why the machine has no roofline."""
    from ..render.plot import roofline_chart
    from ..render.plot import save as save_figure

    with tempfile.TemporaryDirectory(prefix="roofline-") as folder:
        try:
            path = save_figure(roofline_chart(report), Path(folder) / "roofline.svg")
        except RooflineError as error:
            return f"<p>no chart: {html.escape(str(error))}</p>"
        drawn = path.read_text("utf-8")
    return _in_both_themes(drawn[drawn.index("<svg") :])


def _in_both_themes(drawn: str) -> str:
    """A drawing in the light theme whose colours are those of the dark theme where the document around it is dark."""
    from ..render.plot.style import DARK, LIGHT

    lights, darks = ((theme.background, theme.ink, theme.muted, theme.grid, *theme.series) for theme in (LIGHT, DARK))
    for number, colour in enumerate(lights):
        drawn = drawn.replace(colour.lower(), f"var(--roofline-{number}, {colour})")
    rule = "; ".join(f"--roofline-{number}: {colour}" for number, colour in enumerate(darks))
    return f"<style>:is({_DARK}) .roofline-figure {{ {rule} }}</style><div class='roofline-figure'>{drawn}</div>"


def _row(tag: str, cells: Sequence[str | Cell]) -> str:
    """A row of the table: the name is left-aligned, figures right-aligned."""
    made = []
    for place, cell in enumerate(cells):
        text = shorten(cell.text if isinstance(cell, Cell) else cell, LONGEST_NAME)
        made.append(f"<{tag} style='text-align: {'right' if place else 'left'}; padding: 0 0.6em'>{html.escape(text)}</{tag}>")
    return f"<tr>{''.join(made)}</tr>"
