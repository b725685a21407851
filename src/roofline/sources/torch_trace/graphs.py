"""Replays of CUDA and HIP graphs: matches each event to the op that was captured into the graph.

All events of a replay have the same launch. If the capture was recorded, the launches between its begin and its end that have no event on a
device correspond in order to the events of a replay, and the op around each launch has the shapes. Launches of HIP name their kernels; for
CUDA only the kinds and the number of launches are compared. A model that was captured in parts is replayed in the order of capture.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from .host import Host, Launches
from .linking import Work
from .read.arrays import Flags, Integers
from .read.columns import KERNEL, MEMCPY, MEMSET, NONE, OP

_REPLAY = re.compile(r"(?:cu|cuda|hip)GraphLaunch")
BEGIN_CAPTURE, _END = re.compile(r"StreamBeginCapture"), re.compile(r"StreamEndCapture")
_KINDS = ((MEMSET, re.compile(r"Memset", re.IGNORECASE)), (MEMCPY, re.compile(r"Memcpy", re.IGNORECASE)), (KERNEL, re.compile(r"Launch")))


class Capture(Struct):
    """The launches captured into one graph: the op and kind of each, and the kernel's name if it was recorded."""

    ops: list[int]
    kinds: list[int]
    kernels: list[str]


class Replays(Struct):
    """Whether a graph launched each event, the ops that events were captured from, and the number of replays without a capture."""

    replayed: Flags
    ops: dict[int, int]
    unknown: int = 0


def replays_of(work: Work, host: Host, launches: Launches, names: Sequence[Any], extras: Sequence[Any]) -> Replays:
    """The replays of a trace, matched to the captures in it."""
    calls = _numbers(names, _REPLAY)
    replayed = np.zeros(len(work), bool)
    linked = work.launch != NONE
    replayed[linked] = np.isin(launches.name[work.launch[linked]], calls)
    replays = Replays(replayed, {})
    if not replayed.any():
        return replays
    captures = _captures(work, host, launches, names, extras)
    events = np.flatnonzero(replayed)
    order = np.argsort(work.launch[events], kind="stable")
    _, firsts = np.unique(work.launch[events][order], return_index=True)
    groups = sorted(np.split(events[order], firsts[1:]), key=lambda group: launches.start[work.launch[group[0]]])
    after = 0
    for group in groups:
        place = _fitting(captures, after, work, group, names)
        if place is None:
            replays.unknown += 1
            continue
        after = place + 1
        replays.ops.update(zip(group.tolist(), captures[place].ops, strict=True))
    return replays


def _numbers(names: Sequence[Any], pattern: "re.Pattern[str]") -> list[int]:
    return [number for number, name in enumerate(names) if isinstance(name, str) and pattern.search(name)]


def _captures(work: Work, host: Host, launches: Launches, names: Sequence[Any], extras: Sequence[Any]) -> list[Capture]:
    """The captures of a trace in order of time."""
    begins = np.sort(launches.start[np.isin(launches.name, _numbers(names, BEGIN_CAPTURE))])
    ends = np.sort(launches.start[np.isin(launches.name, _numbers(names, _END))])
    kinds = {
        number: kind for kind, pattern in reversed(_KINDS) for number in _numbers(names, pattern) if not _REPLAY.search(str(names[number]))
    }
    silent = np.flatnonzero(np.isin(launches.name, list(kinds)) & ~np.isin(np.arange(len(launches.start)), work.launch))
    silent = silent[np.argsort(launches.start[silent], kind="stable")]
    inside = host.nearest(host.enclosing(launches.thread[silent], launches.start[silent]), OP)
    starts = launches.start[silent]
    ranges = []
    for begin in begins.tolist():
        end = ends[np.searchsorted(ends, begin)] if np.searchsorted(ends, begin) < len(ends) else None
        if end is None:
            continue
        first, last = np.searchsorted(starts, (begin, end))
        events = silent[first:last]
        ranges.append(
            Capture(
                inside[first:last].tolist(),
                [kinds[number] for number in launches.name[events].tolist()],
                [extras[number][1] if number != NONE else "" for number in launches.extra[events].tolist()],
            )
        )
    return [capture for capture in ranges if capture.ops]


def _fitting(captures: Sequence[Capture], after: int, work: Work, group: Integers, names: Sequence[Any]) -> int | None:
    """The place of the next capture, in cyclic order, that matches a replay; ``None`` if none does."""
    for step in range(len(captures)):
        place = (after + step) % len(captures)
        capture = captures[place]
        if len(capture.ops) != len(group) or NONE in capture.ops:
            continue
        if capture.kinds == work.kind[group].tolist() and all(
            not kernel or kernel == str(names[number]) for kernel, number in zip(capture.kernels, work.name[group].tolist(), strict=True)
        ):
            return place
    return None
