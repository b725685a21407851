"""What the processes of `roofline serve` do: read and analyze one run, or compare two reports."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..analysis import open_report
from ..comparison import compare
from ..errors import SourceError
from ..files.input_limits import Limits, set_limits
from ..render.comparison import comparison_with_checks
from ..render.export import to_json
from ..render.page.large_reports import shortened, shortened_comparison
from ..render.page.words import words_json
from ..report import Report
from ..serve.jobs import Answer
from ..serve.runs import Run
from ..sources.files import all_of
from ..workers import end_with_caller, limit
from .options import machine_of, names_machine

NICENESS = 5  # lower priority than the server, which must respond quickly


def read_run(
    args: argparse.Namespace, limits: Limits, memory: int | None, run: Run, *, progress: Callable[[int, int], None] | None = None
) -> Answer:
    """The report on a run, for the machine of the server's options and with at most ``memory`` bytes."""
    _begin(memory)
    set_limits(limits)
    if gone := next((file for file in run.files if not file.exists()), None):
        raise SourceError(f"{gone}: no longer exists; reload the list of runs")
    paths: list[str | Path] = list(run.files) if run.kind == "profile" else [run.path]
    opened = open_report(paths, machine_of(args), again=names_machine(args), timeline=True, progress=progress)
    # A stored report keeps its exact bytes.
    return _answer(opened.report, all_of(run.path) if opened.recording is None else to_json(opened.report))


def compare_reports(
    memory: int | None, before: str, after: str, old: bytes, new: bytes, *, progress: Callable[[int, int], None] | None = None
) -> Answer:
    """The comparison of the reports of two runs with these names."""
    _begin(memory)
    reports = msgspec.json.decode(old, type=Report), msgspec.json.decode(new, type=Report)
    comparison = compare(*reports, (before, after))
    short = shortened_comparison(comparison)
    body = to_json(comparison_with_checks(comparison))
    words = words_json(shortened(reports[1]), shortened(reports[0]), short)
    return Answer(body=body, page=b"" if short is comparison else to_json(short), words=words)


def _begin(memory: int | None) -> None:
    """Lowers this process's priority, limits its memory, and lets it end with the server."""
    end_with_caller()
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    limit(memory)


def _answer(report: Report, body: bytes) -> Answer:
    """A report as JSON, with what the page shows of it if that differs."""
    short = shortened(report)
    return Answer(body=body, page=b"" if short is report else to_json(short), words=words_json(short), summary=_summary(report))


def _summary(report: Report) -> dict[str, object]:
    """What the list of runs shows of a report."""
    points = {point.scope: point for point in report.points if point.infeed_outfeed and point.scope in ("total", "average")}
    total, step = points.get("total"), points.get("average")
    return {
        "device": ", ".join(dict.fromkeys(device.name for device in report.input.devices)) or None,
        "devices": len(report.input.devices),
        "machine": report.machine.name,
        "time_s": total.time_s if total else None,
        "efficiency": total.efficiency if total else None,
        "step_s": step.time_s if step else None,
        "step_efficiency": step.efficiency if step else None,
        "op_efficiency": total.op_efficiency if total else None,
        "ops": len(report.ops),
        "format": report.input.format,
    }
