"""``fuse all|SCOPE``: chains of kernels that pass arrays to each other through memory become one kernel each.

These are small programs that run one after the other, or kernels of one program that its compiler did not fuse (`row_chains`).

The kernel reads its external inputs once and writes the last array. Its bandwidth is that of the most similar part: one that works row by
row, if there is one, else the fastest. If it has to hold rows until their sums are finished, which no part does, it takes longer.

The instructions of all parts remain. In separate kernels each part overlaps its own with its traffic; in one kernel they add up, so for
programs they are counted on chips whose clock is known:

    t = (traffic^3 + instructions^3)^(1/3)
    instructions = (special functions / 6 + other operations / 86 + elements with a mask or gain / 8.6) / (cores · clock)

Otherwise a part that is limited by its instructions, such as special functions, takes as long as before, and overlaps with the traffic only
in part.
"""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from ...cost import NOTHING, Cost
from ...graph.row_chains import Chain, row_chains
from ...operation import Streamed, width
from ...prediction.terms import joined
from ...resource import HBM, TRANSCENDENTAL
from ...workload import Op
from ..findings.program_chains import passed_arrays
from .change_words import Words
from .state import State

OVERLAP = 1.75  # exponent: 1 adds traffic and instructions, ∞ takes the longer (1.6 to 2.5 in three chains that XLA fused, H200)
# Per core and clock: special functions, other operations, and elements to which a small array (a mask, a gain) is applied row by row; and
# the exponent of their overlap with traffic. Fitted on XLA's kernels on H200, 51 that work by rows and 55 that do not (errors of 7% and
# 4%; 8% and 4% for kernels of programs that were left out of the fit). With constants fitted without its program, the time of a fused
# chain is off by 6% on average over 25 pairs of eleven programs, from 19% too short (RMSNorm with SiLU) to 15% too long (softmax).
FUNCTIONS, OPERATIONS, APPLIED, COUNTED_OVERLAP = 6.0, 86.0, 8.6, 3.0
SMALL_ARRAY = 0.01  # of a kernel's bytes: a smaller array is applied to every row (a choice: a mask or a gain has one row of hundreds)
AS_FAST = (1.0, 0.8, 1.25)  # time over the time of its traffic, and bounds as shares of it
# The same for a kernel that needs no, one or two sums of a row before it can write the row: a norm, a softmax (XLA's on H200: 1.2 to 1.9,
# 1.3 to 2.8)
ROWS_HELD = (AS_FAST, (1.5, 0.75, 1.35), (2.3, 0.57, 1.35))
# Choices that decide by which term a slow part counts, compared with the rate of parts without special functions: a slower part with them
# is limited by them, a far slower part without them by index computation for each element, as in reversed order.
SLOWER, FAR_SLOWER = 0.95, 0.7
QUICK_S = 1e-5  # a part with shorter executions is slow because of its launch (a choice: a few launch floors)
SAME = 2  # external inputs of equal shape that are counted at most: the first, and one that several parts read
STREAMS = ("elementwise", "loop fusion")  # categories of elementwise parts

Indexed = list[tuple[int, Op]]  # ops with their indices


def fuse(state: State, words: Words) -> None:
    """Fuse the chains of programs without products, and those of kernels inside programs."""
    scope = words.need()
    chosen = [(index, op) for index, op in state if op.time_s and op.cost != NOTHING and _is_chosen(op, scope)]
    inside = chains_inside(state, chosen)
    for ops, chain in inside:
        moved = float(chain.moved)
        _fused(state, ops, moved, fused_s(state, ops, moved), ROWS_HELD[min(chain.sums, len(ROWS_HELD) - 1)])
    fused = {index for ops, _ in inside for index, _ in ops}
    exchanging = [(index, op) for index, op in chosen if op.takes and op.gives and index not in fused]
    passed = passed_arrays(op for _, op in exchanging)
    linked = [(index, op) for index, op in exchanging if passed.intersection((*op.takes, *op.gives))]
    if len(linked) >= 2:
        moved = compulsory_bytes([op for _, op in linked])
        _fused(state, linked, moved, program_s(state, linked, moved), AS_FAST)
    elif not inside:
        known = bool(state.programs) or any(op.takes or op.gives for _, op in state)
        why = "no two kernels that could be one pass arrays to each other" if known else "the recording does not say which arrays ops share"
        state.notes.append(f"fuse {scope}: {why}")


def _is_chosen(op: Op, scope: str) -> bool:
    """Whether the word after ``fuse`` means an op."""
    return scope == "all" or scope in op.scope or scope in str(op.label) or scope in op.module


def chains_inside(state: State, chosen: Indexed) -> list[tuple[Indexed, Chain]]:
    """The chains of kernels inside programs whose kernels were all chosen; those of equal layers are one in the graph."""
    ops, chains = dict(chosen), []
    for program in filter(None, map(state.graph, state.programs.values())):
        for chain in program.graph.fact(row_chains):
            layers = zip(*(program.ops[kernel] for kernel in chain.kernels), strict=False)
            chains += [([(index, ops[index]) for index in layer], chain) for layer in layers if ops.keys() >= {*layer}]
    return chains


def fused_s(state: State, chain: Indexed, moved: float) -> float:
    """The time of one kernel that replaces a chain and moves ``moved`` bytes, from the measured times of the parts alone."""
    was = [state.recording.workload.ops[index] for index, _ in chain]
    return joined(OVERLAP, _transfer_s(_rate_of(was), moved), instruction_limited_s(was) * grown(state, chain))


def program_s(state: State, chain: Indexed, moved: float) -> float:
    """The time of one program that replaces a chain of programs and moves ``moved`` bytes, with the instructions of all parts."""
    was = [state.recording.workload.ops[index] for index, _ in chain]
    clocks = state.calibration.cores * state.calibration.clock_hz
    if not clocks:
        return fused_s(state, chain, moved)
    rate = _rate_of(was)
    if any(op.category not in STREAMS for op in was):  # all parts that work by rows may be limited by instructions
        rate = max(rate, sustained(state))
    return joined(COUNTED_OVERLAP, _transfer_s(rate, moved), (instructions(was) / clocks + far_slower_s(was)) * grown(state, chain))


def sustained(state: State) -> float:
    """The bytes per second that a compiler's fused kernels sustain on the measured chip; 0 where that is not known."""
    family, bandwidth = state.calibration.family("pointwise", "fusion"), state.machine.resolve(HBM.name)
    return family.values["memory"] * bandwidth.rate if family and bandwidth else 0.0


def instructions(chain: Sequence[Op]) -> float:
    """The clocks of one core that the instructions of one execution of a chain take."""
    amounts = [(resource, float(amount) / op.count) for op in chain for resource, amount in op.cost.amounts]
    functions = sum(amount for resource, amount in amounts if resource == TRANSCENDENTAL)
    operations = sum(amount for resource, amount in amounts if resource.unit == "vector" and resource != TRANSCENDENTAL)
    return functions / FUNCTIONS + operations / OPERATIONS + max(map(_applied, chain), default=0.0) / APPLIED


def _applied(op: Op) -> float:
    """The number of elements of an op's result if it applies a small array, such as a mask or a gain, to every row; else 0."""
    small = float(op.cost.known(HBM)) / op.count - sum(array.bytes for array in (*op.takes, *op.gives))
    if not op.takes or not op.gives or not 0 < small < SMALL_ARRAY * float(op.cost.known(HBM)) / op.count:
        return 0.0
    return max(array.bytes / width(array.shape.partition("[")[0]) for array in op.gives)


def grown(state: State, chain: Indexed) -> float:
    """The bytes of a chain after other changes, over those that its parts moved when they were measured."""
    before, after = (
        sum(float(op.cost.known(HBM)) for op in ops)
        for ops in zip(*[(state.recording.workload.ops[index], op) for index, op in chain], strict=True)
    )
    return after / before if before else 1.0


def _fused(state: State, chain: Indexed, moved: float, once_s: float, slower: tuple[float, float, float]) -> None:
    """Replace a chain by one kernel that moves ``moved`` bytes per execution, unless that is no faster.

    ``once_s`` is the time of its traffic, and ``slower`` the factor for holding rows, with bounds.
    """
    ops = [op for _, op in chain]
    runs, keep = min(op.count for op in ops), chain[-1][0]
    times, *bounds = slower
    seconds = once_s * times * runs
    if seconds >= sum(state.recording.workload.ops[index].time_s or 0.0 for index, _ in chain) * grown(state, chain):
        return
    amounts = {resource: float(amount) for resource, amount in Cost.total(op.cost for op in ops).amounts}
    amounts[HBM] = moved * runs
    state.put(keep, Cost.of(amounts), Streamed(kind="fusion"), 1.0, fresh=True)
    state.fixed[keep] = (seconds, seconds * bounds[0], seconds * bounds[1])
    for index, _ in chain[:-1]:
        state.remove(index)


def compulsory_bytes(chain: Sequence[Op]) -> float:
    """The bytes that one pass over a chain needs: its first array, other external inputs once each, and its results."""
    taken, given = Counter(array for op in chain for array in op.takes), Counter(array for op in chain for array in op.gives)
    results = given - taken
    if not results:  # the last array has the same shape as intermediate ones
        results = Counter([max(given, key=lambda array: array.bytes)])
    begun = taken - (given - results)
    read = sum(array.bytes * min(count, SAME) for array, count in begun.items())
    written = sum(array.bytes * count for array, count in results.items())
    arrays = sum(array.bytes * count for array, count in (taken + given).items())
    small = sum(float(op.cost.known(HBM)) / op.count for op in chain) - arrays  # what parts read besides those arrays
    return read + written + max(small, 0.0)


def _rate(op: Op) -> float:
    return float(op.cost.known(HBM)) / op.time_s if op.time_s else 0.0


def _transfer_s(rate: float, moved: float) -> float:
    return moved / rate if rate else 0.0


def _rate_of(chain: Sequence[Op]) -> float:
    """The bytes per second that a fused chain moves: those of its most similar part."""
    rows = [_rate(op) for op in chain if op.category not in STREAMS]
    return max(rows or map(_rate, chain))


def instruction_limited_s(chain: Sequence[Op]) -> float:
    """The seconds of one execution of the parts that are limited by instructions: slower than others that move as many arrays."""
    plain = [op for op in chain if not op.cost.known(TRANSCENDENTAL) and op.category in STREAMS]
    found = far_slower_s(chain)
    for op in chain:
        if op.category in STREAMS and op.time_s and float(op.cost.known(TRANSCENDENTAL)):
            peers = [_rate(one) for one in plain if len(one.takes) == len(op.takes)] or [_rate(one) for one in chain if one is not op]
            found += op.time_s / op.count if _rate(op) < SLOWER * median(peers) else 0.0
    return found


def far_slower_s(chain: Sequence[Op]) -> float:
    """The seconds of one execution of the parts without special functions that are far slower than others."""
    plain = [op for op in chain if not op.cost.known(TRANSCENDENTAL) and op.category in STREAMS]
    found = 0.0
    for op in plain:
        each_s, others = (op.time_s or 0.0) / op.count, [_rate(one) for one in plain if one is not op]
        if len(others) > 1 and each_s > QUICK_S and _rate(op) < FAR_SLOWER * median(others):
            found += each_s
    return found
