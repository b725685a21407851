"""The source for PyTorch profiler traces: one file is one rank of a run."""

from collections.abc import Callable, Iterable
from mmap import mmap
from pathlib import Path
from typing import Any

from ...workload import Recording
from ..parts import Part
from ..target import Target
from .read.capture_files import capture_files, execution_trace_files
from .recognition import looks_like_trace

FORMAT = "torch"


def sniff(head: bytes, path: Path | str) -> bool:
    """Whether the first (unpacked) bytes of a file are those of a trace."""
    return looks_like_trace(head)


def read_part(
    path: Path | str,
    target: Target | None = None,
    *,
    data: bytes | mmap | None = None,
    salvage: bool = False,
    shared: bool = False,
    timeline: bool = False,
    known: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> Part:
    """Reads one trace, or its ``data`` if they are already in memory, into a part."""
    from .read.reading import read_trace

    trace = read_trace(path, data, salvage=salvage, progress=progress, alone=shared)
    from .assembly import part_of  # imports numpy, which recognising a file does not need
    from .read.captures import with_captures

    if _replays_unknown_graphs(trace.columns.names):
        trace.notes += with_captures(trace, capture_files(path))
    if trace.columns.functions:
        from .lower.execution_trace import best_of

        trace.observed, notes = best_of(execution_trace_files(path), {process for process, *_ in trace.columns.threads})
        trace.notes += notes
    return part_of(trace, target, timeline=timeline)


def companion_files(path: Path | str) -> tuple[tuple[str, int, int], ...]:
    """The other files that are read with a trace, with their modification times and sizes, for the key of the cache."""
    files = (*capture_files(path), *execution_trace_files(path))
    return tuple((str(file), (state := file.stat()).st_mtime_ns, state.st_size) for file in files)


def _replays_unknown_graphs(names: Iterable[str]) -> bool:
    """Whether the trace launches graphs but has no capture."""
    return any("GraphLaunch" in name for name in names) and not any("StreamBeginCapture" in name for name in names)


def merge(parts: Iterable[Part]) -> Recording:
    """The recording of a run, from the parts of its ranks."""
    from ..merging import merge as merge_parts
    from .ranks import with_waiting

    return merge_parts(with_waiting(list(parts)), FORMAT)
