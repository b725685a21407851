"""What the last blocks of a launch leave idle: the share of its time that the same work takes in blocks that fill all cores evenly, and
how long blocks of different length take.
"""

import heapq
from collections.abc import Sequence


def even_share(blocks: int, cores: int) -> float:
    """The share where a core's own units are the limit: the time is that of the core with most blocks, side by side or in turn.

    >>> round(even_share(140, 132), 2)  # 8 cores have two blocks, all others one
    0.53
    """
    return blocks / cores / -(-blocks // cores)


def streamed_share(blocks: int, cores: int, fit: int, port: float) -> float:
    """The share where main memory is the limit: the last ``fit`` times ``cores`` blocks or fewer share its rate, of which a core alone can
    take ``port`` times its part.

    >>> round(streamed_share(140, 132, 1, 3.0), 2)  # the last 8 take 8/132 of the bytes at 8 * 3 / 132 of the rate
    0.8
    """
    full, rest = divmod(blocks / (fit * cores), 1)
    slowed = max(1.0, cores / (port * min(rest * fit * cores, cores))) if rest else 1.0
    return (full + rest) / (full + rest * slowed)


def makespan(sizes: Sequence[float], cores: int, takes: Sequence[float]) -> float:
    """How long blocks of these sizes take that start in this order, each on the core where a place is free first. One of size 1 takes
    ``takes[n - 1]`` where n run on its core all the time.

    >>> makespan([1.0, 1.0, 1.0, 3.0], 2, [10.0])  # the last one starts when the first ones end
    40.0
    >>> makespan([1.0, 3.0], 1, [10.0, 20.0])  # side by side for 20, then the rest alone
    40.0
    """
    order = iter(sizes)
    running: list[list[float]] = [[] for _ in range(cores)]  # on each core, how far it is when each block ends, in sizes
    for _ in takes:
        for ends in running:
            if size := next(order, None):
                heapq.heappush(ends, size)
    far = [0.0] * cores
    first = [(ends[0] * takes[len(ends) - 1], core) for core, ends in enumerate(running) if ends]
    heapq.heapify(first)
    last = 0.0
    while first:
        last, core = heapq.heappop(first)
        ends = running[core]
        far[core] = heapq.heappop(ends)
        if size := next(order, None):
            heapq.heappush(ends, far[core] + size)
        if ends:
            heapq.heappush(first, (last + (ends[0] - far[core]) * takes[len(ends) - 1], core))
    return last
