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
from .words import words_json


def report_page(report: Report, *, title: str | None = None, live: Live | None = None) -> str:
    """The page of one report; of very many ops it has the longest."""
    shown = shortened(report)
    return page(to_json(shown), words=words_json(shown), title=title or title_of(report), catalogue=catalogue(), live=live)


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
    named = title or " → ".join(_titles(before, after))
    old, new = (_held(report, data) for data, report in zip(written, (before, after), strict=True))
    comparison = shortened_comparison(compare(before, after))
    words = words_json(shortened(after), shortened(before), comparison)
    return page(new, words=words, title=named, before=old, comparison=msgspec.json.encode(comparison), catalogue=catalogue(), live=live)


def _held(report: Report, written: bytes | None) -> bytes:
    """The JSON of a report that a page holds: the bytes that were written, unless there are too many ops."""
    short = shortened(report)
    return written if written and short is report else to_json(short)


def title_of(report: Report) -> str:
    """What a report is about: its run or first file, and how many more files; without files its only op, or its machine."""
    files = report.input.files
    if not files:
        return report.ops[0].name if len(report.ops) == 1 else report.machine.title or report.machine.name
    if run := _run(files[0]):
        return run
    first = PurePath(files[0]).name
    return first if len(files) == 1 else f"{first} and {len(files) - 1} more"


def _run(file: str) -> str:
    """The folder that a profiler wrote a run into, RUN/plugins/profile/TIME/HOST, for profiles of one host have one name; else empty."""
    parts = PurePath(file).parts
    place = next((place for place in range(len(parts) - 1) if parts[place : place + 2] == ("plugins", "profile")), 0)
    return parts[place - 1].strip("/") if place else ""


def _titles(before: Report, after: Report) -> list[str]:
    """The titles of two reports; where they are equal, the first parts in which the paths of their files differ."""
    titles = [title_of(before), title_of(after)]
    paths = [PurePath(report.input.files[0]).parts if report.input.files else () for report in (before, after)]
    different = next((list(pair) for pair in zip(*paths, strict=False) if pair[0] != pair[1]), None)
    return different if different and titles[0] == titles[1] else titles


@lru_cache(maxsize=1)
def catalogue() -> bytes:
    """Every chip of the catalogue as JSON, with what a page needs to put work under its roofs: rates and where they come from."""
    return catalogue_json(map(describe, chips()))
