"""Output to the terminal, files and standard output."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..errors import OutputError, UsageError, clean
from ..files.output_files import write_file
from ..render.export import Row, op_rows, to_csv, to_json, to_parquet
from ..render.tables import Paper
from ..report import Report
from .options import is_markdown, is_page
from .streams import discard_output, is_closed, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def paper() -> Paper:
    """The terminal's width, and whether it shows colour: not if ``NO_COLOR`` is set or the output is a pipe."""
    if not sys.stdout.isatty():
        return Paper()
    colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Paper(width=text_width(), colour=colour, blocks="utf" in (sys.stdout.encoding or "").lower())


def emit(args: argparse.Namespace, text: Callable[[Paper], str], value: object, rows: Callable[[], Sequence[Row]]) -> None:
    """Write the result to the requested outputs, and as text to standard output unless data is written there."""
    wanted = [(option, getattr(args, option)) for option in ("json", "csv", "parquet")]
    to_stdout = [f"--{option}" for option, target in wanted if target == "-"]
    if len(to_stdout) > 1:
        raise UsageError(f"{' and '.join(to_stdout)} both go to standard output; give one of them a file")
    makers: dict[str, Callable[[], bytes]] = {
        "json": lambda: to_json(value),
        "csv": lambda: to_csv(rows()).encode(),
        "parquet": lambda: to_parquet(rows()),
    }
    for option, target in wanted:
        if target is not None:
            write(target, makers[option]())
    if not to_stdout:
        page = paper()
        written = clean(text(page), styled=page.colour) + "\n"
        try:
            sys.stdout.write(written)
        except BrokenPipeError:  # the files must still be written
            discard_output()


def emit_report(
    args: argparse.Namespace,
    report: Report,
    text: Callable[[Paper], str],
    rows: Callable[[], Sequence[Row]] | None = None,
    markdown: Callable[[], str] | None = None,
    drawn: Report | None = None,
) -> None:
    """Write a report to the requested outputs, including its page, ``markdown`` or figure.

    ``markdown`` has the report's own rows by default, and a figure shows the part of the report that is ``drawn``, by default all of it.
    """
    emit(args, text, report, rows or (lambda: op_rows(report.ops)))
    if args.output and is_page(args.output):
        from ..render.page.large_reports import left_out
        from ..render.page.report_page import report_page  # takes 10 ms to import

        write_page(args, report_page(report))
        if note := left_out(report):
            write_message(note)
    elif args.output and is_markdown(args.output):
        from ..render.markdown import to_markdown

        write_page(args, clean(markdown() if markdown else to_markdown(report)))
    elif args.output:
        from ..render.plot import roofline_chart

        draw(args, roofline_chart(drawn or report, theme=args.theme))


def shared(args: argparse.Namespace, *reports: Report) -> tuple[Report, ...]:
    """The reports, anonymized if requested."""
    if not args.anonymize:
        return reports
    from ..analysis.anonymizing import REMAINS, anonymized

    write_message(f"anonymized; what remains: {REMAINS}")
    return tuple(anonymized(report, args.anonymize_key or "") for report in reports)


def draw(args: argparse.Namespace, axes: "Axes") -> None:
    """Write a figure to the file in the options."""
    from ..render.plot import save

    save(axes, args.output)
    write_message(f"wrote {args.output}")


def write_page(args: argparse.Namespace, page: str) -> None:
    """Write a page or Markdown to the file in the options."""
    write(args.output, page.encode())
    write_message(f"wrote {args.output}")


def write(target: str, data: bytes) -> None:
    """Write bytes to a file, atomically, or for ``-`` to standard output, without control characters if it is a terminal."""
    if target != "-":
        write_file(target, data)
        return
    if is_closed(sys.stdout):
        raise OutputError("cannot write to standard output: it is closed")
    if sys.stdout.isatty():
        data = clean(data.decode("utf-8", "replace")).encode()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_message(message: str) -> None:
    """Write a message to standard error."""
    sys.stderr.write(f"roofline: {clean(message)}\n")
