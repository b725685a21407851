"""Executions: what one op launched in one go on one device, whatever number of kernels, copies and memsets that is."""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, field

from .arrays import Integers
from .columns import NONE
from .linking import Work

Key = tuple[int, int, int]  # the op, or the launch where there is no op or a graph was launched; and the device


class Execution(Struct, gc=False):
    """One execution: the op that launched it (`NONE` if no op did), its launch, its events on one device, and the step of the launch.

    ``replayed`` is whether a graph launched it. One that was launched before the recording began has the ``twins`` of its events; it is not
    ``whole`` if less than half of it was recorded.
    """

    op: int
    launch: int
    device: int
    mark: int
    replayed: bool = False
    whole: bool = True
    events: list[int] = field(default_factory=list)
    twins: Sequence[int] = ()


def executions_of(work: Work, marks: Integers, twins: Integers, captured: Mapping[int, int], replayed: Integers) -> list[Execution]:
    """Every event in the execution it belongs to, in order of time.

    ``twins`` are the events that inherited ones repeat, ``captured`` the ops that the events of a graph's replay were captured from, where
    that was recorded, ``replayed`` whether a graph launched an event.
    """
    # By the op, where only that tells, by the launch below zero; else by both, and by the event itself where it has no launch.
    found: dict[Key | tuple[int] | int, Execution] = {}
    lost: dict[tuple[int, int], tuple[Key, Execution]] = {}  # the inherited execution that each queue is in
    columns = (work.device, work.queue, work.launch, work.op, marks, twins, replayed)
    inherited: list[Execution] = []
    alone = len(np.unique(work.device)) == 1
    for event, (device, queue, launch, op, mark, twin, graph) in enumerate(zip(*(column.data for column in columns), strict=True)):
        if launch == NONE and twin != NONE:
            key = _key(work, twin, captured, bool(replayed[twin]))
            before = lost.get((device, queue))
            if before is None or before[0] != key or twin <= before[1].twins[-1]:
                made = Execution(key[0], int(work.launch[twin]), device, NONE, replayed=bool(replayed[twin]), twins=[])
                before = lost[device, queue] = (key, made)
                inherited.append(made)
            before[1].events.append(event)
            before[1].twins.append(twin)  # type: ignore[attr-defined]
            continue
        own = captured.get(event, NONE) if graph else op
        if launch == NONE:
            place: Key | tuple[int] | int = (event,)  # like no other, whatever numbers launches and devices have
        elif alone and not graph:
            place = own if own != NONE else -2 - launch
        else:
            place = (own, launch if graph or own == NONE else NONE, device)
        one = found.get(place)
        if one is None:
            found[place] = Execution(own, launch, device, mark, replayed=bool(graph), events=[event])
        else:
            one.events.append(event)
    return [*inherited, *found.values()]


def _key(work: Work, event: int, captured: Mapping[int, int], replayed: bool) -> Key:
    op = captured.get(event, NONE) if replayed else int(work.op[event])
    return op, int(work.launch[event]) if replayed or op == NONE else NONE, int(work.device[event])
