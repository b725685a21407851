"""Schedules: the order in which one core runs the ops of a program, as its compiler put them.

A turn runs an op on the core, starts one that goes on beside the core, or waits for the end of one that was started. Ops are numbers, so a
schedule does not know what they are. Played on a machine, a schedule gives the predicted time of its program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

Act = Literal["runs", "starts", "awaits"]


class Turn(Struct, frozen=True, gc=False):
    """One instruction of a schedule: an op, and whether the core runs it, starts it, or waits for it."""

    op: int
    act: Act = "runs"


class Loop(Struct, frozen=True):
    """A part of a schedule that is repeated."""

    trips: int
    body: tuple[Turn | Loop, ...]


class Schedule(Struct, frozen=True):
    """The turns of a program in order, on each of its ``devices``.

    ``unsure`` are the loops of which one trip is taken because their number is not known; ``live`` is the main memory in use while an op
    runs, in bytes, where it is known.
    """

    program: str
    turns: tuple[Turn | Loop, ...]
    unsure: tuple[str, ...] = ()
    devices: int = 1
    live: Mapping[int, int] = {}

    def moved(self, places: int) -> Schedule:
        """The same with the ops so many places further on."""
        live = {op + places: size for op, size in self.live.items()}
        return replace(self, turns=_moved(self.turns, places), live=live) if places else self


def _moved(turns: tuple[Turn | Loop, ...], places: int) -> tuple[Turn | Loop, ...]:
    return tuple(
        [Turn(turn.op + places, turn.act) if isinstance(turn, Turn) else Loop(turn.trips, _moved(turn.body, places)) for turn in turns]
    )


def executions(turns: tuple[Turn | Loop, ...], times: int = 1) -> Iterator[tuple[Turn, int]]:
    """The turns with how often each is taken.

    >>> list(executions((Turn(0), Loop(3, (Turn(1), Loop(2, (Turn(2),)))))))
    [(Turn(op=0, act='runs'), 1), (Turn(op=1, act='runs'), 3), (Turn(op=2, act='runs'), 6)]
    """
    for turn in turns:
        if isinstance(turn, Turn):
            yield turn, times
        else:
            yield from executions(turn.body, times * turn.trips)


class EngineUse(Struct, frozen=True, kw_only=True):
    """How long one engine of a device is busy in a program that was played, and its share of the time."""

    name: str
    busy_s: float
    share: float


class PredictedTime(Struct, frozen=True, kw_only=True):
    """The predicted time of a program that has not run, with its interval, what it rests on, and how long each engine is busy.

    It runs on so many ``devices``; the figures are of one.
    """

    time_s: float
    low_s: float
    high_s: float
    evidence: str
    engines: tuple[EngineUse, ...] = ()
    devices: int = 1
