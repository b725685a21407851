"""``fuse all|SCOPE``: chains of small programs that hand arrays to each other through memory, each step's as one kernel.

The kernel reads what comes from outside once and writes the last array. Its traffic takes as long as that of the part that it is most
alike: one that walks along rows, if there is one, else the fastest. A part that its special functions hold back takes as long as it took,
and overlaps with the traffic only in part.
"""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from ...cost import Cost
from ...operation import Streamed
from ...prediction.terms import joined
from ...resource import HBM, TRANSCENDENTAL
from ...workload import Op
from .state import State
from .words import Words

OVERLAP = 1.5  # between adding up (1) and the longer alone
BOUNDS = (0.8, 1.25)
SLOWER = 0.95  # times the rate of parts without special functions, below which those hold one back
SAME = 2  # arrays from outside that are alike: the first, and one that several parts read
STREAMS = ("elementwise", "loop fusion")  # categories of parts that treat elements one by one


def fuse(state: State, words: Words) -> None:
    """Fuse the chains of programs without products."""
    scope = words.need()
    chosen = [
        (index, op)
        for index, op in state
        if op.takes and op.gives and op.time_s and (scope == "all" or scope in op.scope or scope in op.label or scope in op.module)
    ]
    given = Counter(array for _, op in chosen for array in op.gives)
    taken = Counter(array for _, op in chosen for array in op.takes)
    linked = [(index, op) for index, op in chosen if any(array in given for array in op.takes) or any(array in taken for array in op.gives)]
    if len(linked) < 2:
        known = any(op.takes or op.gives for _, op in state)
        why = "no two programs pass arrays to each other through memory" if known else "the recording does not say which arrays ops share"
        state.notes.append(f"fuse {scope}: {why}")
        return
    runs = min(op.count for _, op in linked)
    keep = linked[-1][0]
    moved = outside([op for _, op in linked])
    traffic, beyond = _traffic_s(moved, [op for _, op in linked]), held_back_s([op for _, op in linked])
    seconds = joined(OVERLAP, traffic, beyond) * runs
    work = Cost.total(op.cost for _, op in linked)
    amounts = {resource: float(amount) for resource, amount in work.amounts}
    amounts[HBM] = moved * runs
    state.put(keep, Cost.of(amounts), Streamed(kind="fusion"), 1.0, fresh=True)
    state.fixed[keep] = (seconds, seconds * BOUNDS[0], seconds * BOUNDS[1])
    for index, _ in linked:
        if index != keep:
            state.remove(index)


def outside(chain: Sequence[Op]) -> float:
    """The bytes that one pass over a chain needs: its first array, others from outside once each, and its results."""
    taken, given = Counter(array for op in chain for array in op.takes), Counter(array for op in chain for array in op.gives)
    results = given - taken
    if not results:  # the last array is like others that are handed on
        results = Counter([max(given, key=lambda array: array.bytes)])
    begun = taken - (given - results)
    read = sum(array.bytes * min(count, SAME) for array, count in begun.items())
    written = sum(array.bytes * count for array, count in results.items())
    arrays = sum(array.bytes * count for array, count in (taken + given).items())
    small = sum(float(op.cost.known(HBM)) / op.count for op in chain) - arrays  # what parts read beside those arrays
    return read + written + max(small, 0.0)


def _rate(op: Op) -> float:
    return float(op.cost.known(HBM)) / op.time_s if op.time_s else 0.0


def _traffic_s(moved: float, chain: Sequence[Op]) -> float:
    """The seconds that the traffic of a fused chain takes, at the rate of the part that it is most alike."""
    rows = [_rate(op) for op in chain if op.category not in STREAMS]
    return moved / (max(rows) if rows else max(map(_rate, chain)))


def held_back_s(chain: Sequence[Op]) -> float:
    """The seconds of one execution of the parts that their special functions hold back."""
    plain = [op for op in chain if not op.cost.known(TRANSCENDENTAL) and op.category in STREAMS]
    found = 0.0
    for op in chain:
        if op.category in STREAMS and float(op.cost.known(TRANSCENDENTAL)):
            peers = [_rate(one) for one in plain if len(one.takes) == len(op.takes)] or [_rate(one) for one in chain if one is not op]
            if _rate(op) < SLOWER * median(peers) and op.time_s:
                found += op.time_s / op.count
    return found
