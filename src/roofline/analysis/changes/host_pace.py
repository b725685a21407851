"""How long steps take after their device work changes, given when the host launches it.

The host launches one step after the other at its own pace. A step's work begins once it is launched and the device is free, and ends after
the work of its last launch:

    begin[i + 1] = max(end[i], first launch[i + 1] + latency)
    end[i]       = max(begin[i] + busy[i], last launch[i] + delay + tail · busy[i])

The host's time in the first step stays as measured, because every recording begins with one. In later steps the host is as fast as in its
fastest one, because disturbances are temporary. If the device waits although the host launches a step in less time than its work takes, it
waited at the beginning of the step, before all of its work. The pace of a host that waits for the device, because it reads a value or its
launch queue is full, cannot be measured. A host that never delayed the device may have been slowed down by other work, which shows in the
duration of its launch calls; in another recording only part of that slowdown is assumed.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import median

from msgspec import Struct

from ...workload import Step

# How a host that waits for the device is told from one that is ahead of it, both choices: of a step's work, more than this remains when the
# next step is launched, so that the device has not waited; and a host that does not wait gets ahead by at least this share of each step.
BEHIND, AHEAD = 0.1, 0.05
FIRST_STEP = 1.85  # host time of the first step of a recording over that of later steps (1.5 to 2.3)
HOST_VARIATION = 2.5  # factor by which hosts are slower or faster to launch a program in another recording (PyTorch: half to twice as long)
HOST_VARIATION_XLA = 1.7  # the same for XLA programs (four decoders, in 5 or 6 recordings each on H200: up to 1.9 between any two)
USUAL_CALL_S = 7e-6  # duration of a profiled launch call (PyTorch on hosts of H200s: about 5 to 11 µs in 70 recordings)
REMAINING = 0.5  # part of a host's slowdown, in logarithms, that recurs in another recording (0.7 right after, less in another run)


class Pace(Struct, frozen=True, kw_only=True):
    """When the host launches the work of steps.

    ``ahead_s`` is from its first launch to the start of the first step and ``latency_s`` the least of that over steps; for each step,
    ``launching_s`` is from its first launch to its last and ``next_s`` to the next step's first. After a step's last launch the device
    takes ``delay_s`` plus the share ``tail`` of the step's work.
    """

    ahead_s: float
    latency_s: float
    next_s: tuple[float, ...]
    launching_s: tuple[float, ...]
    delay_s: tuple[float, ...]
    tail: tuple[float, ...]


class _Launched(Struct, frozen=True):
    """A step whose launches are known, and whether the device waited for them."""

    lead_s: float
    launching_s: float
    span_s: float
    busy_s: float
    time_s: float
    waits: bool

    @classmethod
    def of(cls, step: Step, waits_s: Mapping[int, float]) -> "_Launched | None":
        if step.lead_s is None or step.launching_s is None or not step.span_s or not step.busy_s or not step.time_s:
            return None
        return cls(step.lead_s, step.launching_s, step.span_s, step.busy_s, step.time_s, waits_s.get(step.step, 0.0) > 0)

    def next_s(self, following: "_Launched") -> float | None:
        """The host's time from this step's first launch to the next step's; ``None`` if it waited for the device in between."""
        is_behind = following.lead_s > BEHIND * self.busy_s and following.lead_s - self.lead_s < AHEAD * self.time_s
        return None if is_behind and not self.waits else max(self.time_s + self.lead_s - following.lead_s, 0.0)

    def after_launches(self) -> tuple[float, float] | None:
        """The device's time after the step's last launch, fixed seconds and a share of the step's work; ``None`` if it did not wait."""
        if not self.waits:
            return None
        after = self.span_s + self.lead_s - self.launching_s
        if self.launching_s < self.busy_s:  # the host was faster, so the device waited at the beginning of the step, before all work
            return after - self.busy_s, 1.0
        return max(after - self.busy_s, 0.0), min(max(after / self.busy_s, 0.0), 1.0)


def pace_of(steps: Sequence[Step], waits_s: Mapping[int, float], of: Callable[[Sequence[float]], float] = min) -> Pace | None:
    """The host's pace in measured steps; ``None`` where launches are not known.

    ``waits_s`` is how long the device waited for launches, by step key. The steps after the first are summarized with ``of``: their minimum
    or median.
    """
    launched = [one for one in (_Launched.of(step, waits_s) for step in steps) if one is not None]
    if len(launched) < 2 or len(launched) < len(steps):
        return None
    later = len(steps) - 1
    first_s, period_s = _periods(launched, of)
    found = [one.after_launches() for one in launched]
    rest = [each for each in found[1:] if each] or [each for each in found[:1] if each] or [(0.0, 0.0)]
    usual = of([delay for delay, _ in rest]), median(tail for _, tail in rest)
    after_launches = [found[0] or usual, *[usual] * later]
    return Pace(
        ahead_s=launched[0].lead_s,
        latency_s=min(one.lead_s for one in launched),
        next_s=(first_s, *[period_s] * later),
        launching_s=(launched[0].launching_s, *[of([one.launching_s for one in launched[1:]])] * later),
        delay_s=tuple(delay for delay, _ in after_launches),
        tail=tuple(tail for _, tail in after_launches),
    )


def _periods(steps: Sequence[_Launched], of: Callable[[Sequence[float]], float]) -> tuple[float, float]:
    """The host's time from one step's first launch to the next step's: for the first step, and for later ones."""
    periods = [one.next_s(following) for one, following in pairwise(steps)]
    known = [each for each in periods[1:] if each is not None] or [each for each in periods[:1] if each is not None]
    if not known:
        return 0.0, 0.0
    if of is not min:
        period = of(known)
        return period if periods[0] is None else periods[0], period
    period = min(known) * _warm_up(steps, periods.index(min(known)))
    first = period if periods[0] is None else periods[0]
    return (first * FIRST_STEP * period) ** 0.5 if first > FIRST_STEP * period else first, period


def recovery(steps: Sequence[Step]) -> float:
    """The factor (at most 1) on the host's time in another recording if its launch calls were slower than usual in this one."""
    calls = [one.launch_call_s for one in steps if one.launch_call_s]
    return min(USUAL_CALL_S / median(calls), 1.0) ** (1 - REMAINING) if calls else 1.0


def _warm_up(steps: Sequence[_Launched], fastest: int) -> float:
    """The launching time of the last step over that of the fastest step, at most 1: a host that still warms up gets faster."""
    there, last = steps[fastest].launching_s, steps[-1].launching_s
    return min(last / there, 1.0) if there else 1.0


def paced(pace: Pace, before_s: Sequence[float], busy_s: Sequence[float], slower: float = 1.0) -> list[float]:
    """The times of steps whose busy time changes from ``before_s`` to ``busy_s``, on a host that is ``slower`` by that factor."""
    ahead = pace.ahead_s - pace.latency_s
    gained = before_s[0] - pace.next_s[-1]  # how far the host gets ahead of the device in a step
    if gained > 0:
        ahead *= max(busy_s[0] - pace.next_s[-1] * slower, 0.0) / gained
    begin, first, times = 0.0, -ahead - pace.latency_s, list[float]()
    for busy, launching, delay, tail, next_s in zip(busy_s, pace.launching_s, pace.delay_s, pace.tail, pace.next_s, strict=True):
        end = max(begin + busy, first + (launching + delay) * slower + tail * busy)
        first += next_s * slower
        after = max(end, first + pace.latency_s) if len(times) + 1 < len(busy_s) else end
        times.append(after - begin)
        begin = after
    return times
