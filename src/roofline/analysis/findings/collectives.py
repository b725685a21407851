"""Collectives that the core waits for, although other work could hide them, and products in parts whose loop takes longer than a gather.

Gathers of arguments can start before their use, and sums of gradients end after it: nothing that is computed in between depends on them. A
product in parts sends its operand round while it multiplies what it has; without it devices gather the operand and multiply once.
"""

from collections.abc import Iterator, Mapping, Sequence

from ...graph import NO_KERNEL, Graph
from ...graph.facts.exchanges import Reason, Why, exchanges
from ...workload import ProgramGraph
from ..op_times import OpTimes
from .clock import Clock
from .evidence import LEVERS, Evidence, Saving
from .levers import LOOP
from .reachable import OTHERWISE, REACHABLE

EXPOSED, WINDOWED = "exposed-collectives", "windowed-products"
INDEPENDENT = (Reason.ARGUMENT, Reason.GRADIENT)


def collective_evidence(graphs: Sequence[ProgramGraph], op_times: OpTimes, ids: Sequence[int], clock: Clock) -> list[Evidence]:
    """What of collectives could be hidden or spared, of a program whose schedule was played."""
    found = [evidence for program in graphs for evidence in _windowed(program, op_times, {*ids}, clock)]
    told = {op for evidence in found for op in evidence.ops}
    reasons = {op: why for program in graphs for op, why in _reasons(program.graph, program.ops).items()}
    exposed = _exposed(reasons, op_times, [id for id in ids if id not in told], clock)
    return [*found, *([exposed] if exposed is not None else [])]


def _reasons(graph: Graph, numbers: Sequence[Sequence[int]]) -> Mapping[int, Why]:
    return {op: why for kernel, why in graph.fact(exchanges).items() for op in numbers[kernel]}


def _exposed(reasons: Mapping[int, Why], op_times: OpTimes, ids: Sequence[int], clock: Clock) -> Evidence | None:
    """Collectives without a start of their own, as far as there is other work to hide them under."""
    ops = [id for id in ids if id in reasons and reasons[id].reason in INDEPENDENT and not op_times.ops[id].compiled.beside]
    spent = [op_times.spent_s[id] for id in ops]
    hidden_s = sum(max((op_times.ops[id].time_s or 0.0) - op_times.spent_s[id], 0.0) for id in reasons)
    room_s = sum(op_times.spent_s[id] for id in range(len(op_times)) if id not in reasons) - hidden_s
    share = min(1.0, max(room_s, 0.0) / sum(spent)) if sum(spent) else 0.0
    saved = Saving.of(ops, [seconds * share for seconds in spent], clock)
    if saved.steps_s < clock.notable_s:
        return None
    longest = sorted(ops, key=lambda id: -op_times.spent_s[id])
    looped = sum(op_times.spent_s[id] for id in ops if op_times.ops[id].in_loop)
    return Evidence(kind=EXPOSED, ops=longest, saved=saved, levers=(LOOP, *LEVERS) if 2 * looped > sum(spent) else LEVERS)


def _windowed(program: ProgramGraph, op_times: OpTimes, ids: set[int], clock: Clock) -> Iterator[Evidence]:
    """Products in parts that take longer than a gather and a product would."""
    graph = program.graph
    kernels = _in_parts(graph)
    ops = [op for kernel in sorted(kernels) for op in program.ops[kernel] if op in ids]
    spent_s, apart_s = (sum(seconds) for seconds in ([op_times.spent_s[op] for op in ops], [_at_least(op_times, op) for op in ops]))
    share = max(1 - apart_s / spent_s, 0.0) if spent_s else 0.0
    saved = Saving.of(ops, [op_times.spent_s[op] * share for op in ops], clock)
    if saved.steps_s >= clock.notable_s:
        longest = sorted(ops, key=lambda op: -op_times.spent_s[op])
        yield Evidence(kind=WINDOWED, ops=longest, facts={"apart": apart_s / clock.parts}, saved=saved)


def _in_parts(graph: Graph) -> set[int]:
    """The kernels of products in parts: those that send operands round, multiply them or add up parts, and all others of such a loop."""
    kernels = set[int]()
    for kernel, why in graph.fact(exchanges).items():
        if why.reason == Reason.WINDOWED:
            kernels |= {kernel, *(use.kernel for use in why.uses)}
            region = graph.region_of.get(why.array)
            kernels |= {graph.nodes[place].kernel for place in region.nodes} if region is not None and region.trips != 1 else set()
    return kernels - {NO_KERNEL}


def _at_least(op_times: OpTimes, op: int) -> float:
    """What an op of a loop would take at good rates outside of it: its product, or its part of a gather; other ops are only in the loop."""
    times = op_times.ops[op].cost
    if op_times.multiplies[op]:
        return op_times.floor_s[op] / REACHABLE["matrix"]
    return op_times.floor_s[op] / OTHERWISE if any(resource.is_link for resource, _ in times.amounts) else 0.0
