"""Finds the recordings of graph captures for a trace: servers capture their graphs at start, long before the steps that are profiled.

A file in the trace's folder with ``capture`` in its name, or any file in a folder ``capture_traces`` there, may have the captures of the
graphs that the trace replays. `roofline capture` names them after the process, as it does the trace, and numbers them.

A file with ``et`` or ``execution_trace`` among the words of its name may be that of an `ExecutionTraceObserver`.
"""

import re
from pathlib import Path

FOLDER, WORD = "capture_traces", "capture"
MOST_FILES = 8
MOST_OF_ONE_PROCESS = 64
_NAMES = (".json", ".json.gz")
_EXECUTION = re.compile(r"(?:.*[._-])?(?:et|execution[._-]?traces?)(?:[._-].*)?\.json(?:\.gz)?", re.IGNORECASE)
_STAMP = r"\.\d+\.pt\.trace\.json(\.gz)?$"


def is_capture(file: Path) -> bool:
    """Whether a file, by its name, is a recording of graph captures."""
    return WORD in file.name or file.parent.name == FOLDER


def capture_files(path: Path | str) -> list[Path]:
    """The recordings of captures for a trace: those of the same process, or else all in its folder."""
    trace = Path(path)
    if is_capture(trace) or not trace.is_file():
        return []
    beside = [file for file in sorted(trace.parent.iterdir()) if WORD in file.name and file.is_file()]
    inside = sorted((trace.parent / FOLDER).iterdir()) if (trace.parent / FOLDER).is_dir() else []
    files = [file for file in (*beside, *inside) if file.name.endswith(_NAMES)]
    process = re.sub(_STAMP, "", trace.name)
    of_it = [file for file in files if file.name.startswith(f"{process}.")]
    return of_it[:MOST_OF_ONE_PROCESS] or files[:MOST_FILES]


def execution_trace_files(path: Path | str) -> list[Path]:
    """The files beside a trace that may be execution traces, by their names."""
    trace = Path(path)
    if is_capture(trace) or not trace.is_file():
        return []
    return [file for file in sorted(trace.parent.iterdir()) if _EXECUTION.fullmatch(file.name) and file != trace and file.is_file()]
