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
from .options import Parser, chosen_machine, limit_options, machine_options, machine_to_read, names_machine

NICENESS = 5  # lower priority than the server, which must respond quickly
PR_SET_PDEATHSIG = 1  # from linux/prctl.h
SLACK = 1.25  # times the limit: close to a hard limit, allocation becomes too slow to finish
STEPS = 100  # progress messages per file


def main(words: Sequence[str]) -> int:
    """Read one request from standard input; write its answer to standard output and messages to standard error."""
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
        _send(f"roofline: {error}")
        return 1
    _send(f"page {len(page)}")
    sys.stdout.buffer.write(answer + page)
    return 0


def _die_with_parent() -> None:
    """Let Linux kill this process when the server ends, even while it computes; on other systems only `_end_with_server` does so."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_with_server() -> None:
    """End this process and its children when standard input is closed, that is when the server has ended."""
    try:
        while os.read(0, 1):
            continue
    except OSError:
        pass
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _limit_memory(limit: int | None) -> None:
    """Limit this process's memory. The server checks only periodically; macOS accepts this limit but ignores it."""
    if limit is not None and sys.platform == "linux":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = int(SLACK * limit)
        soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _report(request: dict[str, Any], args: argparse.Namespace) -> tuple[bytes, bytes]:
    """The JSON of a report, and the JSON for its page, if that differs."""
    path, files = Path(request["path"]), [Path(file) for file in request["files"]]
    if gone := [file for file in files if not file.exists()]:
        raise SourceError(f"{gone[0]}: no longer exists; reload the list of runs")
    # A stored report keeps its machine and its exact bytes, unless another machine is requested.
    if request["kind"] == "report" and not names_machine(args):
        report = read_report(path)
        _send_summary(report)
        return all_of(path), _page_of(report)
    what = files if request["kind"] == "profile" else path
    recording = read(what, machine_to_read(args), timeline=True, progress=_ProgressMessages())
    report = analyze(recording, chosen_machine(args, recording.devices))
    _send_summary(report)
    return to_json(report), _page_of(report)


def _page_of(report: Report) -> bytes:
    short = shortened(report)
    return b"" if short is report else to_json(short)


def _comparison(request: dict[str, Any], blobs: Sequence[bytes]) -> tuple[bytes, bytes]:
    """The JSON of a comparison, and the JSON for its page, if that differs."""
    before, after = (msgspec.json.decode(blob, type=Report) for blob in blobs)
    first, second = request["names"]
    names = (first, second)
    found = compare(before, after, names)
    short = shortened_comparison(found)
    whole = to_json(comparison_with_changes(found, report_changes([before], [after], names)))
    return whole, b"" if short is found else to_json(short)


class _ProgressMessages:
    """Progress messages, one per hundredth."""

    def __init__(self) -> None:
        self._told = -1

    def __call__(self, done: int, total: int) -> None:
        step = STEPS * done // total if total else STEPS
        if step > self._told:
            self._told = step
            _send(f"progress {step / STEPS:.2f}")


def _send_summary(report: Report) -> None:
    total, step = (
        next((one for one in report.points if one.scope == scope and one.infeed_outfeed), None) for scope in ("total", "average")
    )
    summary = {
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
    _send(f"summary {json.dumps(summary)}")


def _send(words: str) -> None:
    sys.stderr.write(words + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
