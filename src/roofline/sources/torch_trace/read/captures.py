"""Adds graph captures that were recorded in other files than their replays (`capture_files`)."""

from pathlib import Path

from ....errors import SourceError
from .joining import absorb
from .properties import rank_of
from .reading import Trace, read_trace


def with_captures(trace: Trace, files: list[Path]) -> list[str]:
    """Adds the captures of the same rank to a trace; returns notes."""
    notes, used = [], []
    for file in files:
        try:
            other = read_trace(file)
        except SourceError as error:
            notes.append(f"{error}; the captures of graphs in it are missing")
            continue
        ranks = rank_of(trace.head), rank_of(other.head)
        if None in ranks or ranks[0] == ranks[1]:
            absorb(trace.columns, other.columns)
            used.append(file.name)
    if used:
        notes.append(f"captures of graphs are from {used[0]}" + (f" and {len(used) - 1:,} more" if len(used) > 1 else ""))
    return notes
