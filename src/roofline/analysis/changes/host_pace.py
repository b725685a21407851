"""How long steps take once their device work changes: the device runs what the host has launched by then.

The host launches one step after the other at its own pace. A step's work begins once it is launched and the device is free, and does not
end before what its last launch brings has run:

    begin[i + 1] = max(end[i], first launch[i + 1] + latency)
    end[i]       = max(begin[i] + busy[i], last launch[i] + delay + tail · busy[i])

The first step takes the host as long as it did: a recording begins with it. In later steps the host is as fast as in its fastest one, since
what slows it down comes and goes. A device that waits though the host launches a step in less time than its work takes has waited at the
beginning, so that all work comes after that. A host that waits for the device, since it reads a value or has launched as far ahead as it
may, shows no pace of its own.

A host that never held up the device may have been slowed down by other work meanwhile, which its calls to launch kernels show. Another
recording has only part of that.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import median

from msgspec import Struct

from ...workload import Step

BEHIND = 0.1  # of a step's work that is left to do when the next step is launched: the device has not waited
AHEAD = 0.05  # of a step by which a host that does not wait gets ahead of a busy device, at least
FIRST = 1.85  # times what the host takes once it has settled, that it takes in the first step of a recording (1.5 to 2.3)
SLOWEST = 2.5  # times as long, or as short, as hosts take to launch the same program in another recording
SLOWEST_XLA = 1.7  # the same of XLA's programs (four that decode, in 5 or 6 recordings each on H200: up to 1.9 between any two)
USUAL_CALL_S = 7e-6  # that a profiled call to launch a kernel takes (PyTorch on hosts of H200s: about 5 to 11 in 70 recordings)
STAYS = 0.5  # of what a host is slower than usual, in logarithms, that it is in another recording (0.7 right after, less in another run)


class Pace(Struct, frozen=True, kw_only=True):
    """How the host launches: the seconds of its first launch before the first step begins, and of each step from its first launch to
    the last and to the next step's first; what the device takes after the last launch, as seconds and as a share of the step's work.
    """

    ahead_s: float
    latency_s: float
    next_s: tuple[float, ...]
    launching_s: tuple[float, ...]
    delay_s: tuple[float, ...]
    tail: tuple[float, ...]


def pace_of(steps: Sequence[Step], waits_s: Mapping[int, float], of: Callable[[Sequence[float]], float] = min) -> Pace | None:
    """The host's pace in measured steps, of which the device waited some seconds for launches, by key; unknown where launches are.

    What it took in the steps after the first is the least `of` them, or their median.
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
        periods.append((one.time_s or 0.0) + lead - after if waits or not keeps else None)
    free = [each for each in periods[1:] if each is not None] or [each for each in periods[:1] if each is not None]
    period = of(free) * (_settling(steps, periods.index(min(free))) if of is min else 1.0) if free else 0.0
    first = period if periods[0] is None else periods[0]
    if of is min and first > FIRST * period:
        first = (first * FIRST * period) ** 0.5
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


def next_time(steps: Sequence[Step]) -> float:
    """How many times as long a host that is slower than usual takes in another recording, by its calls to launch kernels."""
    calls = [one.launch_call_s for one in steps if one.launch_call_s]
    return min(USUAL_CALL_S / median(calls), 1.0) ** (1 - STAYS) if calls else 1.0


def _settling(steps: Sequence[Step], fastest: int) -> float:
    """How much faster the host launches in the last step than in the one in which it took the shortest time: it still settles then."""
    there, last = steps[fastest].launching_s or 0.0, steps[-1].launching_s or 0.0
    return min(last / there, 1.0) if there else 1.0


def _after_launches(step: Step) -> tuple[float, float]:
    """What the device takes after the last launch of a step in which it waited: seconds, and the share of the step's work."""
    busy, after = step.busy_s or 0.0, (step.span_s or 0.0) + (step.lead_s or 0.0) - (step.launching_s or 0.0)
    if (step.launching_s or 0.0) < busy:  # the host was faster, so the device waited at the beginning of the step: all work comes after
        return after - busy, 1.0
    return max(after - busy, 0.0), min(max(after / busy, 0.0), 1.0) if busy else 0.0


def paced(pace: Pace, before_s: Sequence[float], busy_s: Sequence[float], slower: float = 1.0) -> list[float]:
    """How long steps take whose device needs ``before_s`` seconds now and ``busy_s`` then, on a host that is so many times ``slower``."""
    ahead = pace.ahead_s - pace.latency_s
    gained = before_s[0] - pace.next_s[-1]  # by which the host gets ahead in a step
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
