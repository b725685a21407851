"""Options of commands that draw their chart as text, in front of what they say."""

import argparse
import sys
from collections.abc import Callable

from ..render.tables import Paper
from ..report import Report


def chart_options(parser: argparse.ArgumentParser) -> None:
    """Whether to draw a chart in the terminal, and with which characters."""
    group = parser.add_argument_group("chart in the terminal")
    group.add_argument(
        "--chart", action="store_true", help="draw the roofline as text, in a pipe too; ops have the number of their row in the table"
    )
    group.add_argument("--ascii", action="store_true", help="the same without braille, which is also what other encodings than UTF-8 get")


def charted(args: argparse.Namespace, report: "Report", text: "Callable[[Paper], str]") -> "Callable[[Paper], str]":
    """The text with the chart in front, if it was asked for."""
    if not (args.chart or args.ascii):
        return text

    def whole(page: "Paper") -> str:
        from ..render.terminal import chart_text, glyphs_for

        return f"{chart_text(report, page, glyphs=glyphs_for(sys.stdout.encoding, args.ascii))}\n\n{text(page)}"

    return whole
