"""Merges columns: of the sections of a trace, and of a trace and the captures of its graphs."""

import numpy as np

from .columns import ANNOTATION, HOST_COLUMNS, LAUNCH_COLUMNS, NONE, Columns


def append(columns: Columns, other: Columns) -> None:
    """Appends another section of the same trace."""
    names, threads, grids, arguments, extras, queues = (
        np.array([*(ours[entry] for entry in theirs), NONE])  # the last is for `NONE`, which is -1
        for ours, theirs in (
            (columns.names, other.names),
            (columns.threads, other.threads),
            (columns.grids, other.grids),
            (columns.arguments, other.arguments),
            (columns.extras, other.extras),
            (columns.queues, other.queues),
        )
    )
    kernels = np.array(
        [*(columns.kernels[int(names[name]), kind, int(grids[grid]), moved] for name, kind, grid, moved in other.kernels), NONE]
    )
    new = {"name": names, "thread": threads, "arguments": arguments, "extra": extras, "queue": queues, "kernel": kernels}
    columns.merge_peaks(other)
    columns.unread |= other.unread
    columns.functions.update(other.functions)
    for ours, theirs in ((columns.host, other.host), (columns.launches, other.launches), (columns.device, other.device)):
        ours.append(theirs, new)


def absorb(columns: Columns, other: Columns) -> None:
    """Adds the launches of another recording that did not run on a device, which are graph captures, and the ops around them.

    They get threads of their own and times before this recording. Annotations are left out, as they are not steps of this recording.
    """
    names, arguments, extras = (
        np.array([*(ours[entry] for entry in theirs), NONE])
        for ours, theirs in ((columns.names, other.names), (columns.arguments, other.arguments), (columns.extras, other.extras))
    )
    columns.merge_peaks(other)  # a replay uses the memory that was allocated while its graph was captured
    threads = np.array([columns.threads["captured", *thread] for thread in other.threads], np.int64)
    columns.captured.update(threads.tolist())
    shift = columns.begin() - other.end() - 1
    host = {name: other.host.take(name) for name in HOST_COLUMNS}
    kept = host["kind"] != ANNOTATION
    columns.host.extend(
        thread=threads[host["thread"]][kept],
        start=host["start"][kept] + shift,
        length=host["length"][kept],
        name=names[host["name"]][kept],
        kind=host["kind"][kept],
        arguments=arguments[host["arguments"]][kept],
        sequence=np.full(int(kept.sum()), NONE),
        extra=extras[host["extra"]][kept],
        external=np.full(int(kept.sum()), NONE),
    )
    calls = {name: other.launches.take(name) for name in LAUNCH_COLUMNS}
    captured = ~np.isin(calls["correlation"], other.device.take("correlation"))
    columns.launches.extend(
        thread=threads[calls["thread"]][captured],
        start=calls["start"][captured] + shift,
        length=calls["length"][captured],
        name=names[calls["name"]][captured],
        correlation=np.full(int(captured.sum()), NONE),
        extra=extras[calls["extra"]][captured],
    )
