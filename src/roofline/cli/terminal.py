"""Options of commands that draw the roofline chart as text in their output."""

import argparse
import sys

from msgspec.structs import replace

from ..grouping.folding import TableRows
from ..render.tables import Paper
from ..report import Report


def chart_options(parser: argparse.ArgumentParser) -> None:
    """Whether to draw a chart in the terminal, and with which characters."""
    group = parser.add_argument_group("chart in the terminal")
    group.add_argument("--chart", action="store_true", help="draw the roofline as text; ops are numbered as in the table")
    group.add_argument("--ascii", action="store_true", help="the chart in plain ASCII (automatic where the output is not UTF-8)")


def chart(args: argparse.Namespace, report: Report, rows: TableRows, page: Paper) -> str:
    """The chart of a report's table as text, if requested."""
    if not (args.chart or args.ascii):
        return ""
    from ..render.terminal import chart_text, glyphs_for  # takes 5 ms to import

    return chart_text(replace(report, ops=rows.rows), page, whole_s=rows.whole_s, glyphs=glyphs_for(sys.stdout.encoding, args.ascii))
