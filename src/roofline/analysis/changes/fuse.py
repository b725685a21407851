"""``fuse all|SCOPE``: chains of small programs that hand arrays to each other through memory, each step's as one kernel.

The kernel reads the first array and writes the last. What its parts take beyond their traffic is computation, which stays, and which
overlaps with the traffic only in part.
"""

from collections import Counter

from ...cost import Cost
from ...operation import Streamed
from ...prediction.terms import joined
from ...resource import HBM
from .state import State
from .words import Words

OVERLAP = 1.5  # between adding up (1) and the longer alone
BOUNDS = (0.75, 1.35)


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
        state.notes.append(f"fuse {scope}: no two programs hand arrays to each other through memory")
        return
    runs = min(op.count for _, op in linked)
    keep = linked[-1][0]
    exchanged = sum(array.bytes for _, op in linked for array in (*op.takes, *op.gives))
    ends = exchanged / len(linked)  # one array read and one written
    work = Cost.total(op.cost for _, op in linked)
    moved = max(float(work.known(HBM)) / runs - exchanged + ends, 0.0)  # bytes that were counted wrongly may be fewer than the arrays'
    beyond, slower = 0.0, []
    for index, op in linked:
        before = state.before[index]
        if before is None or not op.time_s:
            continue
        each, memory = op.time_s / op.count, before.terms.get("memory", 0.0) / op.count
        special = before.terms.get("functions", 0.0) / op.count
        if special > memory:
            beyond += special * min(each * op.count / before.time_s, 1.5)
        elif memory:
            slower.append(each / (before.time_s / op.count))
    ratio = sorted(slower)[len(slower) // 2] if slower else 1.0
    rate = state.machine.rate(HBM)
    traffic = moved / (0.85 * rate) * ratio
    seconds = joined(OVERLAP, traffic, beyond) * runs
    amounts = {resource: float(amount) for resource, amount in work.amounts}
    amounts[HBM] = moved * runs
    state.put(keep, Cost.of(amounts), Streamed(kind="fusion"), 1.0, fresh=True)
    state.fixed[keep] = (seconds, seconds * BOUNDS[0], seconds * BOUNDS[1])
    for index, _ in linked:
        if index != keep:
            state.remove(index)
