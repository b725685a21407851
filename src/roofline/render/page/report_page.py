"""Reports as pages: what the command line, the server and notebooks call to get one HTML file, its catalogue of chips included."""

from functools import lru_cache
from pathlib import PurePath

import msgspec

from ...analysis import describe
from ...comparison import compare
from ...machines import catalogue as chips
from ...report import Report
from ..export import to_json
from .data import catalogue_json
from .html import Live, page
from .large_reports import shortened, shortened_comparison


def report_page(report: Report, *, title: str | None = None, live: Live | None = None) -> str:
    """The page of one report; of very many ops it has the longest."""
    return page(to_json(shortened(report)), title=title or title_of(report), catalogue=catalogue(), live=live)


def comparison_page(
    before: Report,
    after: Report,
    *,
    title: str | None = None,
    written: tuple[bytes | None, bytes | None] = (None, None),
    live: Live | None = None,
) -> str:
    """The page of two reports: the later one, with arrows from where its ops stood in the earlier one.

    ``written`` are their bytes where they are known: a report read back need not be written with the same digits. Of very many ops
    the page has the longest, and the largest changes.
    """
    named = title or f"{title_of(before)} → {title_of(after)}"
    old, new = (_held(report, data) for data, report in zip(written, (before, after), strict=True))
    return page(new, title=named, before=old, comparison=compared(before, after), catalogue=catalogue(), live=live)


def _held(report: Report, written: bytes | None) -> bytes:
    """The JSON of a report that a page holds: the bytes that were written, unless there are too many ops."""
    short = shortened(report)
    return written if written and short is report else to_json(short)


def title_of(report: Report) -> str:
    """What a report is about: its first file and how many more; without files its only op, or its machine."""
    files = [PurePath(name).name for name in report.input.files]
    if not files:
        return report.ops[0].name if len(report.ops) == 1 else report.machine.title or report.machine.name
    return files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


def compared(before: Report, after: Report) -> bytes:
    """The comparison of two reports, as a page has it, as compact JSON."""
    return msgspec.json.encode(shortened_comparison(compare(before, after)))


@lru_cache(maxsize=1)
def catalogue() -> bytes:
    """Every chip of the catalogue as JSON, with what a page needs to put work under its roofs: rates and where they come from."""
    return catalogue_json(map(describe, chips()))
