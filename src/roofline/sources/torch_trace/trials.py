"""Trials of kernels: a convolution of cuDNN or MIOpen that times its kernels for new shapes, to choose the fastest.

A trial is a run of some kernels, a second one that is timed, and a wait for the event at its end. What such a convolution launches besides
is its own work.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from .host import Host, Launches
from .linking import Work
from .read.arrays import Flags
from .read.columns import NONE, OP

LEAST_TRIALS = 3  # kernels that a convolution times by events, one after the other
_CONVOLVES = re.compile(r"aten::(?:cudnn_|miopen_)\w*conv\w*|aten::convolution_backward$")
_WAITS = re.compile(r"(?:cuda|hip)EventSynchronize")


def trying_convolutions(host: Host, launches: Launches, names: Sequence[Any]) -> frozenset[int]:
    """The convolutions in which the host waits for several events."""
    calls = np.flatnonzero(np.isin(launches.name, _waits(names)))
    waited: dict[int, int] = {}
    for place in host.enclosing(launches.thread[calls], launches.start[calls]).tolist():
        for op in host.around(place):
            if host.kind[op] == OP and _CONVOLVES.match(str(names[host.name[op]])):
                waited[op] = waited.get(op, 0) + 1
    return frozenset(op for op, count in waited.items() if count >= LEAST_TRIALS)


def tried_events(work: Work, host: Host, launches: Launches, names: Sequence[Any]) -> Flags:
    """Whether each event of the devices is part of a trial."""
    tried, waits = np.zeros(len(work), bool), _waits(names)
    for op in trying_convolutions(host, launches, names):
        events = np.flatnonzero((work.op == op) & (work.launch != NONE))
        events = events[np.argsort(work.launch[events], kind="stable")]
        first, last = np.searchsorted(launches.thread, (host.thread[op], host.thread[op] + 1))
        begin, end = first + np.searchsorted(launches.start[first:last], (host.start[op], host.end[op]))
        waited = begin + np.flatnonzero(np.isin(launches.name[begin:end], waits))
        for launched in np.split(events, np.searchsorted(work.launch[events], waited))[:-1]:  # what is after the last wait is no trial
            tried[launched[len(launched) - 2 * _repeated(work.kernel[launched].tolist()) :]] = True
    return tried


def _repeated(kernels: Sequence[int]) -> int:
    """How many of the last kernels are the same as the ones before them; the most, if it is several numbers.

    >>> _repeated([7, 1, 2, 1, 2]), _repeated([7, 1, 2]), _repeated([3, 3, 3, 3])
    (2, 0, 2)
    """
    return next((size for size in range(len(kernels) // 2, 0, -1) if kernels[-size:] == kernels[-2 * size : -size]), 0)


def _waits(names: Sequence[Any]) -> list[int]:
    """The numbers of the names of calls that wait for an event."""
    return [number for number, name in enumerate(names) if _WAITS.match(str(name))]
