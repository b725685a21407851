"""Executions: all kernels, copies and memsets that one op launched on one device."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct, field

from .context import NOWHERE, Context
from .linking import Work
from .read.arrays import Flags, Integers
from .read.columns import NONE

Key = tuple[int, int, int]  # the op, the launch where there is no op or a graph was launched, and the device


class Execution(Struct, gc=False):
    """One execution: the op that launched it (`NONE` if no op did), its launch, its events on one device, the step of the launch, and
    the context of the op.

    ``replayed`` is whether a graph launched it. If it was launched before the recording began, ``twins`` are the twins of its events, and
    ``whole`` is false if less than half of it was recorded.
    """

    op: int
    launch: int
    device: int
    mark: int
    replayed: bool = False
    whole: bool = True
    events: list[int] = field(default_factory=list)
    twins: list[int] = field(default_factory=list)
    context: Context = NOWHERE


class Executions(Struct):
    """Executions in columns, as traces have millions. The events of execution i are ``events[bounds[i] : bounds[i + 1]]``."""

    op: Integers
    launch: Integers
    device: Integers
    mark: Integers
    replayed: Flags
    whole: Flags
    events: Integers
    bounds: Integers

    def __len__(self) -> int:
        return len(self.op)

    def __iter__(self) -> Iterator[Execution]:
        """The executions one by one, without twins."""
        events, bounds = self.events.tolist(), self.bounds.tolist()
        columns = [column.data for column in (self.op, self.launch, self.device, self.mark, self.replayed, self.whole)]
        for (begin, end), op, launch, device, mark, replayed, whole in zip(pairwise(bounds), *columns, strict=True):
            yield Execution(op, launch, device, mark, replayed, whole, events[begin:end])

    @property
    def counts(self) -> Integers:
        """The number of events of each."""
        return np.diff(self.bounds)

    def events_of(self, place: int) -> list[int]:
        events: list[int] = self.events[self.bounds[place] : self.bounds[place + 1]].tolist()
        return events

    def take(self, places: Integers) -> "Executions":
        """The executions at some places."""
        counts = self.counts[places]
        bounds = np.concatenate(([0], np.cumsum(counts)))
        events = self.events[np.repeat(self.bounds[places] - bounds[:-1], counts) + np.arange(bounds[-1])]
        return Executions(
            op=self.op[places],
            launch=self.launch[places],
            device=self.device[places],
            mark=self.mark[places],
            replayed=self.replayed[places],
            whole=self.whole[places],
            events=events,
            bounds=bounds,
        )

    def with_more(self, more: Sequence[Execution]) -> "Executions":
        """These executions, with more appended."""
        if not more:
            return self
        added = {name: [getattr(execution, name) for execution in more] for name in ("op", "launch", "device", "mark", "replayed", "whole")}
        added["events"] = [event for execution in more for event in execution.events]
        added["bounds"] = (self.bounds[-1] + np.cumsum([len(execution.events) for execution in more], dtype=np.int64)).tolist()
        columns = {name: getattr(self, name) for name in self.__struct_fields__}
        return Executions(**{name: np.append(column, np.array(added[name], column.dtype)) for name, column in columns.items()})


def executions_of(
    work: Work, marks: Integers, twins: Integers, captured: Mapping[int, int], replayed: Flags, tried: Flags
) -> tuple[Executions, list[Execution]]:
    """Groups events into executions, in order of time: those with a recorded launch, and those launched before the recording.

    ``twins`` are the events that the latter repeat; ``captured`` has, for events of a graph's replay, the ops they were captured from, if
    that was recorded; ``replayed`` is whether a graph launched an event; ``tried`` whether it is part of a trial of kernels, which is not
    part of the op's own execution.
    """
    op = np.where(replayed, NONE, work.op)
    op[list(captured)] = list(captured.values())
    launch = np.where(replayed | (op == NONE), work.launch, NONE)
    lost = work.launch == NONE
    alone = np.flatnonzero(lost | (replayed & (op == NONE)))
    launch[alone] = -2 - alone  # an event without a launch, or of a replay whose capture is not known, is an execution by itself
    launch[tried] = -2 - len(work)  # unlike all others
    inherited = lost & (twins != NONE)
    recorded = np.flatnonzero(~inherited)
    return _grouped(work, marks, op, launch, replayed, recorded), _inherited(work, op, twins, replayed, np.flatnonzero(inherited))


def _grouped(work: Work, marks: Integers, op: Integers, launch: Integers, replayed: Flags, events: Integers) -> Executions:
    """Executions of the events with the same op, launch and device, in the order of their first events."""
    keys = [column[events] for column in (work.device, launch, op)]
    order = np.lexsort(keys)
    begins = np.ones(len(order), bool)
    begins[1:] = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    firsts = np.flatnonzero(begins)
    bounds = np.append(firsts, len(order))
    events = events[order]
    first = events[firsts]
    executions = Executions(
        op=op[first],
        launch=work.launch[first],
        device=work.device[first],
        mark=marks[first],
        replayed=replayed[first],
        whole=np.ones(len(first), bool),
        events=events,
        bounds=bounds,
    )
    return executions.take(np.argsort(first, kind="stable"))


def _inherited(work: Work, op: Integers, twins: Integers, replayed: Flags, events: Integers) -> list[Execution]:
    """Executions of events without a launch, from the ops and launches of their twins."""
    executions: list[Execution] = []
    open_: dict[tuple[int, int], tuple[Key, Execution]] = {}  # the current execution of each queue
    for event, twin in zip(events.tolist(), twins[events].tolist(), strict=True):
        device, queue, launch = int(work.device[event]), int(work.queue[event]), int(work.launch[twin])
        graph, owner = bool(replayed[twin]), int(op[twin])
        part = NONE
        if graph or owner == NONE:
            part = -2 - twin if graph and owner == NONE else launch
        key = (owner, part, int(work.device[twin]))
        before = open_.get((device, queue))
        if before is None or before[0] != key or twin <= before[1].twins[-1]:
            before = open_[device, queue] = (key, Execution(key[0], launch, device, NONE, replayed=graph))
            executions.append(before[1])
        before[1].events.append(event)
        before[1].twins.append(twin)
    return executions
