"""Timing of work through JAX, which has no events.

On a GPU that Pallas supports, a kernel between the calls reads the device's clock. Elsewhere a try is several calls dispatched together,
timed by the host's clock from the first to the end of the last, minus the start-up of the first and the wait for the last.
"""

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp

from ...units import DECIMAL, parse

DEVICE_TRY_S, HOST_TRY_S = parse("3 ms", "s"), parse("15 ms", "s")  # by each clock; the host's is less precise
HELD_TRY_S = parse("100 ms", "s")  # by the host's clock: waiting for the end of a try leaves a gap
AHEAD = 4  # tries dispatched before waiting for the end of one, so that the device always has work
WAITS, WAIT_CALLS = 15, 10  # tries that measure the wait, and calls in each
WAITED_FOR = 1 << 26, 1 << 20  # elements of the array for these calls, on a device and on a CPU
MOST_CALLS, FEW, WARM_UP = 1000, 3, 2
REST_S = parse("120 ms", "s")
SAME_CLOCK = 1.2  # largest ratio of the host's and the device's time over a pause

Work = Callable[[], Any]
WAIT: Callable[[Any], Any] = jax.block_until_ready  # has no type annotations in JAX


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
            except ImportError:  # without Pallas, code compiled by XLA is used
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
        """The seconds of a call in each of some tries, without start-up and waits."""
        if self._clock is None:
            self.each(work, 1, WARM_UP)
            # at least half, in case the wait was shorter this time
            return [max(each - self._wait() / calls, each / 2) for each in self.each(work, tries, calls)]
        self._sent(work, WARM_UP)
        marks = [self._clock()]
        for _ in range(tries):
            self._sent(work, calls)
            marks.append(self._clock())
        return self._between(marks, calls)

    def _between(self, marks: Sequence[Any], calls: int) -> list[float]:
        """The seconds of a call, from readings of the device's clock with ``calls`` calls between two of them."""
        stamps = [int(mark[0]) for mark in jax.device_get(marks)]
        return [(end - start) / DECIMAL["G"] / calls for start, end in pairwise(stamps)]

    def _device_clock(self) -> Work | None:
        """The GPU's clock, if a kernel can read it and it agrees with the host's."""
        try:
            read, anything = self.kernels.clock(), jnp.zeros(self.kernels.CLOCKS, jnp.int64)
            WAIT(read(anything))  # compiles
            began, first = time.perf_counter(), int(WAIT(read(anything))[0])
            time.sleep(REST_S)
            second, ended = int(WAIT(read(anything))[0]), time.perf_counter()
        except Exception:  # versions of Pallas and unsupported GPUs raise various exceptions
            return None
        agrees = SAME_CLOCK > (second - first) / DECIMAL["G"] / (ended - began) > 1 / SAME_CLOCK
        return (lambda: read(anything)) if agrees else None

    def _sent(self, work: Work, calls: int) -> Any:
        for _ in range(calls):
            result = work()  # frees the previous result, so that its memory is reused
        return result

    def _wait(self) -> float:
        """The overhead of a try in seconds: until the first call starts, and from the end of the last until the host notices it."""
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
        """Tries for ``seconds`` seconds, at least a few: continuously, or a few after each pause of ``rest_s``."""
        tries = 1 if rest_s and self._clock is None else FEW  # a burst is short
        calls, times, end = self._calls(work), list[float](), time.monotonic() + seconds
        while len(times) < FEW or time.monotonic() < end:
            time.sleep(rest_s)
            times += self.timed(work, tries, calls)
        return times

    def _held(self, work: Work, seconds: float) -> list[float]:
        """The seconds of a call in each try of the second half of continuous work."""
        calls, end = self._calls(work), time.monotonic() + seconds
        if self._clock is None:  # waiting for the end of a try leaves a gap, which must be short compared with the try
            calls, times = max(calls, round(calls * HELD_TRY_S / HOST_TRY_S)), list[float]()
            while len(times) < FEW or time.monotonic() < end:
                times += self.timed(work, 1, calls)
            return times[len(times) // 2 :]
        marks = [self._clock()]
        while len(marks) <= FEW or time.monotonic() < end:
            self._sent(work, calls)
            marks.append(self._clock())
            WAIT(marks[max(0, len(marks) - 1 - AHEAD)])  # while the next ones run
        times = self._between(marks, calls)
        return times[len(times) // 2 :]


def wait_of(time_of: Callable[[int], float]) -> float:
    """The overhead of a try, from pairs of tries of which one has twice the calls.

    >>> wait_of(lambda calls: 0.5 + 0.1 * calls)
    0.5
    """
    return max(0.0, median(2 * time_of(WAIT_CALLS) - time_of(2 * WAIT_CALLS) for _ in range(WAITS)))
