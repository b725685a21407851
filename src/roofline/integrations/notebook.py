"""Reports in notebooks: Jupyter, Colab and VS Code show a `Report` as its page, terminals as its table.

The page runs in a frame with an origin of its own, so that neither can reach into the other, and asks the network for nothing. VS Code
forbids frames in a notebook the scripts that the page consists of; there a figure and a table stand in its place.
"""

import html
import os
import sys
import tempfile
import webbrowser
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from ..errors import RooflineError
from ..folding import table_rows
from ..render.op_table import headers, op_cells, usual_columns
from ..render.tables import Cell, Paper, shorten
from ..render.text import report_text
from ..render.views import save
from ..report import Report

MOST_OPS = 2000  # of a page in a notebook, which is saved with every output in it
TABLE_OPS, LONGEST_NAME = 20, 80  # of the table in place of a page
HEIGHT_PX = 760
_VS_CODE = ("VSCODE_PID", "VSCODE_CWD")  # what VS Code sets for the kernels that it starts


def bundle(report: Report, variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a front end may choose from: HTML, or plain text for a terminal and for those who show no HTML."""
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
    folder = tempfile.mkdtemp(prefix="roofline-")  # left behind: the browser reads it after this returns
    page = save(report, Path(folder, "report.html"))
    webbrowser.open(page.as_uri())


def _shortened(report: Report) -> tuple[Report, str]:
    """The report with no more ops than a notebook should keep, and a word about those left out."""
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

    # In single quotes an attribute keeps the double ones of JSON, which are most of a page.
    document = report_page(report).replace("&", "&amp;").replace("'", "&#39;")
    return (
        f"<iframe title='{html.escape(title_of(report))}' sandbox='allow-scripts allow-downloads allow-popups' "
        f"style='width: 100%; height: {HEIGHT_PX}px; border: 0' srcdoc='{document}'></iframe>"
    )


def _static(report: Report) -> str:
    """A figure and the longest ops, without a script."""
    names, table = usual_columns(report), table_rows(report)
    heads = "".join(_cell("th", header) for header in headers(names, table.per))
    rows = "".join(f"<tr>{''.join(_cell('td', cell) for cell in row)}</tr>" for row in op_cells(report, table, names, TABLE_OPS))
    return f"{_figure(report)}<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _figure(report: Report) -> str:
    """The chart as SVG; a machine without a roof has none, and says why."""
    from ..render.plot import roofline_chart
    from ..render.plot import save as save_figure

    with tempfile.TemporaryDirectory(prefix="roofline-") as folder:
        try:
            path = save_figure(roofline_chart(report), Path(folder) / "roofline.svg")
        except RooflineError as error:
            return f"<p>no chart: {html.escape(str(error))}</p>"
        drawn = path.read_text("utf-8")
    return f"<div>{drawn[drawn.index('<svg') :]}</div>"


def _cell(tag: str, held: str | Cell) -> str:
    text = held.text if isinstance(held, Cell) else held
    return f"<{tag} style='text-align: right; padding: 0 0.6em'>{html.escape(shorten(text, LONGEST_NAME))}</{tag}>"
