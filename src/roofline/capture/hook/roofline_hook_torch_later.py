"""How long the steps after a recording take; faster ones than those in it show that these did work that is done once: loading kernels."""

import time
from typing import Any

STEADY = 3  # steps in a row
SPREAD = 1.15  # the longest of steady steps over the shortest
FASTER, JITTER_S = 0.9, 100e-6  # of the time of the steps that were recorded, and what a host takes longer now and then


class LaterSteps:
    """Times of the steps after a recording of steps that took ``step_s``; only of ``shapes`` that earlier steps had: others are other work.

    The host may be ahead of the device, so a time below ``step_s`` is checked: the next steps are timed between two waits for the device.
    """

    def __init__(self, step_s: float, shapes: "set[Any]", wait: Any) -> None:
        self.step_s, self.shapes, self.wait = step_s, shapes, wait
        self.ended_s: list[float] = []
        self.checking = False
        self.measured_s = 0.0  # of steps between two waits for the device; 0 if none were steady yet
        self.pause, self.next_pause = 0, STEADY  # steps until the next check, after one that failed

    def ended(self, now_s: float, shapes: Any, compiled: bool) -> float:
        """Called at the end of a step. Returns the time of steady faster steps once it is known, else 0."""
        if compiled or shapes not in self.shapes:
            self.ended_s, self.checking = [], False
            return 0.0
        self.ended_s = [*self.ended_s[-STEADY:], now_s]
        if self.pause:
            self.pause -= 1
        elif self.checking:
            return self._checked()
        elif self._are_steady() and (not self.measured_s or self._seem_faster()):
            self.wait()
            self.ended_s, self.checking = [time.monotonic()], True
        return 0.0

    def _times(self) -> "list[float]":
        return [self.ended_s[step + 1] - self.ended_s[step] for step in range(len(self.ended_s) - 1)]

    def _are_steady(self) -> bool:
        times = self._times()
        return len(times) == STEADY and max(times) <= SPREAD * min(times)

    def _seem_faster(self) -> bool:
        return self._is_faster(max(self._times()))

    def _checked(self) -> float:
        if len(self.ended_s) <= STEADY:
            return 0.0
        self.wait()
        step_s = self.measured_s = (time.monotonic() - self.ended_s[0]) / STEADY
        if self._is_faster(step_s):
            return step_s
        self.ended_s, self.checking = [], False
        self.pause, self.next_pause = self.next_pause, 2 * self.next_pause
        return 0.0

    def _is_faster(self, step_s: float) -> bool:
        return step_s <= min(FASTER * self.step_s, self.step_s - JITTER_S)
