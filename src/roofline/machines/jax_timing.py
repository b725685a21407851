"""Timing of work through JAX, which has no events.

On a GPU for which Pallas compiles, a kernel that reads the device's clock stands between the calls. Elsewhere a try is several calls that
are sent off together, by the host's clock from the first to the end of the last, less what the start of the first and the wait for the
last take.
"""

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp

from ..units import DECIMAL, parse

DEVICE_TRY_S, HOST_TRY_S = parse("3 ms", "s"), parse("15 ms", "s")  # by which clock; the host's tells the end of a try later or sooner
HELD_TRY_S = parse("100 ms", "s")  # by the host's clock: the wait for an end leaves a gap
AHEAD = 4  # tries that are sent off before the end of one is waited for: the device never runs out of work
WAITS, WAIT_CALLS = 15, 10  # tries that tell how long a wait is, and calls in each
WAITED_FOR = 1 << 26, 1 << 20  # elements of the array that these calls work on, on a device and on a CPU
MOST_CALLS, FEW, WARM_UP = 1000, 3, 2
REST_S = parse("120 ms", "s")
SAME_CLOCK = 1.2  # between two clocks, over a rest

Work = Callable[[], Any]
WAIT: Callable[[Any], Any] = jax.block_until_ready  # which has no types in JAX


class JaxTimer:
    """Times work on a device of JAX."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self._wait_s: float | None = None
        self.kernels: Any = None
        if device.platform == "gpu":
            try:
                from . import pallas_kernels

                self.kernels = pallas_kernels
            except ImportError:  # without Pallas, what XLA compiles has to do
                pass
        with jax.default_device(device):
            self._clock = self._device_clock() if self.kernels is not None else None

    def each(self, work: Work, tries: int, calls: int) -> list[float]:
        """The seconds of a call in each of some tries of many calls."""
        times = []
        for _ in range(tries):
            began = time.perf_counter()
            WAIT(self._sent(work, calls))
            times.append((time.perf_counter() - began) / calls)
        return times

    def timed(self, work: Work, tries: int, calls: int) -> list[float]:
        """The seconds of a call in each of some tries, without what starts and waits take."""
        if self._clock is None:
            self.each(work, 1, WARM_UP)
            # never less than half, should the wait have been short
            return [max(each - self._wait() / calls, each / 2) for each in self.each(work, tries, calls)]
        self._sent(work, WARM_UP)
        marks = [self._clock()]
        for _ in range(tries):
            self._sent(work, calls)
            marks.append(self._clock())
        return self._between(marks, calls)

    def _between(self, marks: Sequence[Any], calls: int) -> list[float]:
        """The seconds of a call, from readings of the device's clock with so many calls between two of them."""
        stamps = [int(mark[0]) for mark in jax.device_get(marks)]
        return [(end - start) / DECIMAL["G"] / calls for start, end in pairwise(stamps)]

    def _device_clock(self) -> Work | None:
        """The GPU's own clock, where a kernel can read it and it runs as the host's does."""
        try:
            read, anything = self.kernels.clock(), jnp.zeros(self.kernels.CLOCKS, jnp.int64)
            WAIT(read(anything))  # compiles
            began, first = time.perf_counter(), int(WAIT(read(anything))[0])
            time.sleep(REST_S)
            second, ended = int(WAIT(read(anything))[0]), time.perf_counter()
        except Exception:  # whatever a version of Pallas, or a GPU that it does not know, raises
            return None
        agrees = SAME_CLOCK > (second - first) / DECIMAL["G"] / (ended - began) > 1 / SAME_CLOCK
        return (lambda: read(anything)) if agrees else None

    def _sent(self, work: Work, calls: int) -> Any:
        for _ in range(calls):
            result = work()  # the one before goes, and its memory is used again, as a cache would have it
        return result

    def _wait(self) -> float:
        """Seconds of a try outside of its calls: until the first starts, and until the host sees that the last has ended."""
        if self._wait_s is None:
            run, source = jax.jit(lambda x: x + 1), jnp.ones(WAITED_FOR[self.device.platform == "cpu"], jnp.float32)
            self.each(lambda: run(source), 1, WARM_UP)
            self._wait_s = wait_of(lambda calls: self.each(lambda: run(source), 1, calls)[0] * calls)
        return self._wait_s

    def _calls(self, work: Work) -> int:
        """Calls in a try."""
        self.each(work, 1, WARM_UP)
        try_s = HOST_TRY_S if self._clock is None else DEVICE_TRY_S
        return max(1, min(MOST_CALLS, round(try_s / min(self.each(work, FEW, 1)))))

    def _for(self, work: Work, seconds: float, *, rest_s: float = 0.0) -> list[float]:
        """Tries for so many seconds, a few at least: one after the other, or a few after each rest."""
        tries = 1 if rest_s and self._clock is None else FEW  # a burst is short
        calls, times, end = self._calls(work), list[float](), time.monotonic() + seconds
        while len(times) < FEW or time.monotonic() < end:
            time.sleep(rest_s)
            times += self.timed(work, tries, calls)
        return times

    def _held(self, work: Work, seconds: float) -> list[float]:
        """The seconds of a call in each try of the second half of continuous work."""
        calls, end = self._calls(work), time.monotonic() + seconds
        if self._clock is None:  # a wait for a try's end leaves a gap, which is to be short beside it
            calls, times = max(calls, round(calls * HELD_TRY_S / HOST_TRY_S)), list[float]()
            while len(times) < FEW or time.monotonic() < end:
                times += self.timed(work, 1, calls)
            return times[len(times) // 2 :]
        marks = [self._clock()]
        while len(marks) <= FEW or time.monotonic() < end:
            self._sent(work, calls)
            marks.append(self._clock())
            WAIT(marks[max(0, len(marks) - 1 - AHEAD)])  # while the next ones are at work
        times = self._between(marks, calls)
        return times[len(times) // 2 :]


def wait_of(time_of: Callable[[int], float]) -> float:
    """What a try takes besides its calls, from pairs of tries of which one has twice the calls.

    >>> wait_of(lambda calls: 0.5 + 0.1 * calls)
    0.5
    """
    return max(0.0, median(2 * time_of(WAIT_CALLS) - time_of(2 * WAIT_CALLS) for _ in range(WAITS)))
