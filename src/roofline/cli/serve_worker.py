"""The worker of `roofline serve`, one process per request: ``python -m roofline.cli.serve_worker [--chip …]``.

The protocol is described in `roofline.serve.workers`.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from errno import ENOMEM
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec

from ..analysis import analyze
from ..checking.report_changes import report_changes
from ..comparison import compare
from ..errors import RooflineError, SourceError
from ..render.comparison import comparison_with_changes
from ..render.export import to_json
from ..render.page.large_reports import shortened, shortened_comparison
from ..report import Report
from ..sources import read
from ..sources.files import all_of
from ..sources.report_json import read_report
from .options import Parser, chosen_machine, limit_options, machine_options, names_machine

NICENESS = 5  # below the server, whose answers users wait for
PR_SET_PDEATHSIG = 1  # of linux/prctl.h
SLACK = 1.25  # above the limit: just below one, allocating becomes so slow that nothing would end
STEPS = 100  # a word of progress for each hundredth


def main(words: Sequence[str]) -> int:
    """One request from standard input, its answer to standard output, talk to standard error."""
    parser = Parser("serve", "", "")
    machine_options(parser)
    limit_options(parser)
    args = parser.parse_args(words)
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    _die_with_parent()
    request = json.loads(sys.stdin.buffer.readline())
    blobs = [sys.stdin.buffer.read(length) for length in request.get("lengths", [])]
    Thread(target=_end_with_server, daemon=True).start()
    _limit_memory(request.get("memory"))
    try:
        answer, page = _comparison(request, blobs) if request["verb"] == "compare" else _report(request, args)
    except MemoryError:
        return ENOMEM
    except RooflineError as error:
        _say(f"roofline: {error}")
        return 1
    _say(f"page {len(page)}")
    sys.stdout.buffer.write(answer + page)
    return 0


def _die_with_parent() -> None:
    """Have Linux end this process with the server, even while it computes; elsewhere `_end_with_server` is all there is."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_with_server() -> None:
    """End this process, and those that it started, when the server is gone: nobody holds the other end of standard input then."""
    try:
        while os.read(0, 1):
            continue
    except OSError:
        pass
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _limit_memory(limit: int | None) -> None:
    """Refuse to allocate much more than this. The server looks only now and then; and macOS accepts this limit and ignores it."""
    if limit is not None and sys.platform == "linux":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = int(SLACK * limit)
        soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _report(request: dict[str, Any], args: argparse.Namespace) -> tuple[bytes, bytes]:
    """The JSON of a report, and what a page has in its place, if that is another."""
    path, files = Path(request["path"]), [Path(file) for file in request["files"]]
    if gone := [file for file in files if not file.exists()]:
        raise SourceError(f"{gone[0]}: no longer exists; reload the list of runs")
    # A report keeps its machine and its exact bytes, unless another machine is asked for.
    if request["kind"] == "report" and not names_machine(args):
        report = read_report(path)
        _say_summary(report)
        return all_of(path), _page_of(report)
    what = files if request["kind"] == "profile" else path
    recording = read(what, lambda: chosen_machine(args), timeline=True, progress=_Telling())
    report = analyze(recording, chosen_machine(args, recording.devices))
    _say_summary(report)
    return to_json(report), _page_of(report)


def _page_of(report: Report) -> bytes:
    short = shortened(report)
    return b"" if short is report else to_json(short)


def _comparison(request: dict[str, Any], blobs: Sequence[bytes]) -> tuple[bytes, bytes]:
    """The JSON of a comparison, and what a page has in its place, if that is another."""
    before, after = (msgspec.json.decode(blob, type=Report) for blob in blobs)
    first, second = request["names"]
    names = (first, second)
    found = compare(before, after, names)
    short = shortened_comparison(found)
    whole = to_json(comparison_with_changes(found, report_changes([before], [after], names)))
    return whole, b"" if short is found else to_json(short)


class _Telling:
    """Progress as words, one for each hundredth."""

    def __init__(self) -> None:
        self._told = -1

    def __call__(self, done: int, total: int) -> None:
        step = STEPS * done // total if total else STEPS
        if step > self._told:
            self._told = step
            _say(f"progress {step / STEPS:.2f}")


def _say_summary(report: Report) -> None:
    total = next((point for point in report.points if point.scope == "total" and point.infeed_outfeed), None)
    told = {
        "device": ", ".join(dict.fromkeys(device.name for device in report.input.devices)) or None,
        "devices": len(report.input.devices),
        "machine": report.machine.name,
        "time_s": total.time_s if total else None,
        "efficiency": total.efficiency if total else None,
        "op_efficiency": total.op_efficiency if total else None,
        "ops": len(report.ops),
        "format": report.input.format,
    }
    _say(f"summary {json.dumps(told)}")


def _say(words: str) -> None:
    sys.stderr.write(words + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
