"""The timeline of a program that has not run: its schedule played on a machine's engines.

    core     runs ops in order, each for its time; at the end of asynchronous work it waits until that is done
    dma      copies between memories in the order of their starts, with the bandwidth that the op on the core leaves, at least a tenth
    host     copies to and from the host's memory, one after another
    links    collectives, each on the links that it uses, one after another; two directions of a ring are two engines

A loop is played once and taken as often as it trips; copies that were started before it go on beside it. State that one trip hands to the
next, and contention of collectives with memory, are not modelled.

    time = core + waits
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from ..schedule import Loop, Schedule, Turn

__all__ = ["CORE", "DMA", "HOST", "Load", "Played", "Repeat", "Stretch", "play"]

Key = TypeVar("Key")
CORE, DMA, HOST = "core", "dma", "host"
LEFT = 0.1  # of the bandwidth: the least that an op leaves for copies


class Load(Struct, frozen=True, kw_only=True):
    """What one execution of an op takes: its time alone, the part for which it keeps the memory busy, and the engines that it runs on.

    ``latency_s`` is the part of the time of a copy in which it moves nothing.
    """

    seconds: float
    memory_s: float = 0.0
    latency_s: float = 0.0
    engines: tuple[str, ...] = (CORE,)


class Stretch(Struct, frozen=True, gc=False):
    """A stretch of the core's time: an op that it ran or waited for, since the begin of the program or of the trip."""

    op: int
    begin_s: float
    time_s: float
    is_wait: bool = False


class Repeat(Struct, frozen=True):
    """A loop in the core's time: its trips, the time of one, and the stretches of one."""

    begin_s: float
    trips: int
    trip_s: float
    stretches: "tuple[Stretch | Repeat, ...]"


class Played(Struct, frozen=True, kw_only=True):
    """A schedule as it was played: its time, the time of each op on the core, waited for, and in flight; how long each engine was busy."""

    time_s: float
    core_s: Mapping[int, float]
    waited_s: Mapping[int, float]
    in_flight_s: Mapping[int, float]
    busy_s: Mapping[str, float]
    stretches: tuple[Stretch | Repeat, ...]


class _Copy(Struct):
    """A copy in the queue of the DMA engines: the seconds of bandwidth that it still needs, its start, and its earliest end."""

    op: int
    left_s: float
    begin_s: float
    least_s: float


class _Part(Struct):
    """A part of a schedule while it is played: the clock, the copies in flight, when each engine is free, and when work will be done."""

    loads: Sequence[Load]
    now_s: float = 0.0
    queue: list[_Copy] = []
    landed: dict[int, float] = {}
    free_s: dict[str, float] = {}
    due: dict[int, tuple[float, float]] = {}
    core_s: dict[int, float] = {}
    waited_s: dict[int, float] = {}
    in_flight_s: dict[int, float] = {}
    busy_s: dict[str, float] = {}
    memory_s: float = 0.0
    stretches: list[Stretch | Repeat] = []

    def take(self, turns: Iterable[Turn | Loop]) -> None:
        for turn in turns:
            if isinstance(turn, Loop):
                self._repeat(turn)
            elif turn.act == "runs":
                self._run(turn.op)
            elif turn.act == "starts":
                self._start(turn.op)
            else:
                self._await(turn.op)

    def _run(self, op: int) -> None:
        load = self.loads[op]
        links = [engine for engine in load.engines if engine != CORE]
        wait = max([self.free_s.get(engine, 0.0) - self.now_s for engine in links], default=0.0)
        if wait > 0:
            self._waits(op, wait)
        self._stretch(op, load.seconds, is_wait=False)
        _add(self.core_s, op, load.seconds)
        _add(self.in_flight_s, op, load.seconds)
        self._advance(load.seconds, load.memory_s)
        for engine in links:
            self.free_s[engine] = self.now_s
            _add(self.busy_s, engine, load.seconds)
        if not links:
            _add(self.busy_s, CORE, load.seconds)

    def _start(self, op: int) -> None:
        load = self.loads[op]
        if DMA in load.engines:
            self.queue.append(_Copy(op, load.seconds - load.latency_s, self.now_s, self.now_s + load.seconds))
            _add(self.busy_s, DMA, load.seconds - load.latency_s)
            return
        begin = max([self.now_s, *(self.free_s.get(engine, 0.0) for engine in load.engines)])
        for engine in load.engines:
            self.free_s[engine] = begin + load.seconds
            _add(self.busy_s, engine, load.seconds)
        self.due[op] = (self.now_s, begin + load.seconds)

    def _await(self, op: int) -> None:
        if op in self.due:
            begin, end = self.due.pop(op)
            if end > self.now_s:
                self._waits(op, end - self.now_s)
            _add(self.in_flight_s, op, end - begin)
            return
        copy = next((copy for copy in self.queue if copy.op == op), None)
        if copy is not None:
            before = self.queue[: self.queue.index(copy) + 1]
            self._waits(op, max(sum(waiting.left_s for waiting in before), copy.least_s - self.now_s))
            if copy in self.queue:
                self._land(copy)
        elif (least := self.landed.pop(op, 0.0)) > self.now_s:
            self._waits(op, least - self.now_s)

    def _waits(self, op: int, seconds: float) -> None:
        self._stretch(op, seconds, is_wait=True)
        _add(self.waited_s, op, seconds)
        self._advance(seconds, 0.0)

    def _stretch(self, op: int, seconds: float, is_wait: bool) -> None:
        if seconds > 0:
            self.stretches.append(Stretch(op, self.now_s, seconds, is_wait))

    def _advance(self, seconds: float, memory_s: float) -> None:
        """Moves the clock on; copies use the bandwidth that is left."""
        left = max(seconds - memory_s, LEFT * seconds)
        self.memory_s += memory_s
        self.now_s += seconds
        while self.queue and left > 0:
            copy = self.queue[0]
            part = min(left, copy.left_s)
            copy.left_s -= part
            left -= part
            if copy.left_s > 0:
                break
            self._land(copy)

    def _land(self, copy: _Copy) -> None:
        self.queue.remove(copy)
        end = max(self.now_s, copy.least_s)
        self.landed[copy.op] = end
        _add(self.in_flight_s, copy.op, end - copy.begin_s)

    def _repeat(self, loop: Loop) -> None:
        trip = _Part(self.loads)
        trip.take(loop.body)
        trip.finish()
        self.stretches.append(Repeat(self.now_s, loop.trips, trip.now_s, tuple(trip.stretches)))
        for mine, of_trip in ((self.core_s, trip.core_s), (self.waited_s, trip.waited_s), (self.in_flight_s, trip.in_flight_s)):
            for op, seconds in of_trip.items():
                _add(mine, op, loop.trips * seconds)
        for engine, seconds in trip.busy_s.items():
            _add(self.busy_s, engine, loop.trips * seconds)
        self._advance(loop.trips * trip.now_s, loop.trips * (trip.memory_s + trip.busy_s.get(DMA, 0.0)))

    def finish(self) -> None:
        """Counts the time in flight of work that nothing waited for."""
        for op, (begin, end) in self.due.items():
            _add(self.in_flight_s, op, end - begin)
        for copy in self.queue:
            _add(self.in_flight_s, copy.op, max(self.now_s, copy.least_s) - copy.begin_s)


def play(schedule: Schedule, loads: Sequence[Load]) -> Played:
    """A schedule played with the loads of its ops."""
    part = _Part(loads)
    part.take(schedule.turns)
    part.finish()
    return Played(
        time_s=part.now_s,
        core_s=part.core_s,
        waited_s=part.waited_s,
        in_flight_s=part.in_flight_s,
        busy_s=part.busy_s,
        stretches=tuple(part.stretches),
    )


def _add(sums: dict[Key, float], key: Key, seconds: float) -> None:
    sums[key] = sums.get(key, 0.0) + seconds
