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

BEHIND = 0.1  # of a step's work: if more than this remains when the next step is launched, the device has not waited
AHEAD = 0.05  # of a step: a host that does not wait gets ahead of a busy device by at least this much per step
FIRST_STEP = 1.85  # host time of the first step of a recording over that of later steps (1.5 to 2.3)
HOST_VARIATION = 2.5  # factor by which hosts are slower or faster to launch the same program in another recording
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


def pace_of(steps: Sequence[Step], waits_s: Mapping[int, float], of: Callable[[Sequence[float]], float] = min) -> Pace | None:
    """The host's pace in measured steps; ``None`` where launches are not known.

    ``waits_s`` is how long the device waited for launches, by step key. The steps after the first are summarized with ``of``: their minimum
    or median.
    """
    launched = [one for one in steps if one.lead_s is not None and one.launching_s is not None and one.span_s and one.busy_s and one.time_s]
    if len(launched) < 2 or len(launched) < len(steps):
        return None
    leads = [one.lead_s or 0.0 for one in steps]
    latency = min(leads)
    periods = list[float | None]()
    for (one, lead), (_, after) in pairwise(zip(steps, leads, strict=True)):
        waits = waits_s.get(one.key, 0.0) > 0
        keeps = after > BEHIND * (one.busy_s or 0.0) and after - lead < AHEAD * (one.time_s or 0.0)
        periods.append(max((one.time_s or 0.0) + lead - after, 0.0) if waits or not keeps else None)
    free = [each for each in periods[1:] if each is not None] or [each for each in periods[:1] if each is not None]
    period = of(free) * (_warm_up(steps, periods.index(min(free))) if of is min else 1.0) if free else 0.0
    first = period if periods[0] is None else periods[0]
    if of is min and first > FIRST_STEP * period:
        first = (first * FIRST_STEP * period) ** 0.5
    found = [_after_launches(one) if waits_s.get(one.key, 0.0) > 0 else None for one in steps]
    rest = [each for each in found[1:] if each] or [each for each in found[:1] if each] or [(0.0, 0.0)]
    usual = of([delay for delay, _ in rest]), median(tail for _, tail in rest)
    chosen = [found[0] or usual, *[usual] * (len(steps) - 1)]
    launching = [one.launching_s or 0.0 for one in steps]
    return Pace(
        ahead_s=leads[0],
        latency_s=latency,
        next_s=(first, *[period] * (len(steps) - 1)),
        launching_s=(launching[0], *[of(launching[1:])] * (len(steps) - 1)),
        delay_s=tuple(delay for delay, _ in chosen),
        tail=tuple(tail for _, tail in chosen),
    )


def recovery(steps: Sequence[Step]) -> float:
    """The factor (at most 1) on the host's time in another recording if its launch calls were slower than usual in this one."""
    calls = [one.launch_call_s for one in steps if one.launch_call_s]
    return min(USUAL_CALL_S / median(calls), 1.0) ** (1 - REMAINING) if calls else 1.0


def _warm_up(steps: Sequence[Step], fastest: int) -> float:
    """The launching time of the last step over that of the fastest step, at most 1: a host that still warms up gets faster."""
    there, last = steps[fastest].launching_s or 0.0, steps[-1].launching_s or 0.0
    return min(last / there, 1.0) if there else 1.0


def _after_launches(step: Step) -> tuple[float, float]:
    """The device's time after the last launch of a step in which it waited: fixed seconds, and a share of the step's work."""
    busy, after = step.busy_s or 0.0, (step.span_s or 0.0) + (step.lead_s or 0.0) - (step.launching_s or 0.0)
    if (step.launching_s or 0.0) < busy:  # the host was faster, so the device waited at the beginning of the step, before all work
        return after - busy, 1.0
    return max(after - busy, 0.0), min(max(after / busy, 0.0), 1.0) if busy else 0.0


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
