"""Chains of small programs: kernels that pass arrays to each other through memory because each was compiled by itself.

A program cannot be fused with another. Ops that read arrays written by others of the same step (arrays of the same shape and format,
programs without products) would be one kernel in one program, which reads the first array and writes the last: of n executions in a row,
the exchanged bytes of n − 1 are saved.
"""

from collections.abc import Iterable, Sequence

from ...causes import MEMORY
from ...cost import Cost
from ...resource import HBM
from ...workload import Array, Avoidable, Facts, Op, source_line
from ..op_times import OpTime, OpTimes
from .writing import LISTED

KIND = "unfused-chain"


def programs_per_step(ops: Sequence[Op], steps: int) -> float:
    """How many programs a step runs: a program runs as often as its least frequent op."""
    runs: dict[str, float] = {}
    for op in ops:
        if op.module:
            runs[op.module] = min(op.count, runs.get(op.module, op.count))
    return sum(runs.values()) / max(steps, 1)


def passed_arrays(ops: Iterable[Op]) -> set[Array]:
    """The arrays that one op gives and another takes."""
    ops = list(ops)
    return {array for op in ops for array in op.gives} & {array for op in ops for array in op.takes}


def unfused_chains(op_times: OpTimes, ids: Sequence[int], steps: int) -> list[tuple[OpTime, Avoidable]]:
    """The ops that exchange arrays with other programs, each with its cost in one program; ``steps`` is the number of steps."""
    exchanging = [id for id in ids if op_times.ops[id].takes and op_times.ops[id].gives]
    candidates = [timed for timed in map(op_times.__getitem__, exchanging) if timed.cause == MEMORY]
    passed = passed_arrays(one.op for one in candidates)
    linked = [one for one in candidates if passed.intersection((*one.op.takes, *one.op.gives))]
    executions = programs_per_step([one.op for one in linked], steps)
    if executions < 2:
        return []
    avoided = (executions - 1) / executions
    cause = "passed_in_steps" if steps > 1 else "passed"
    callers = dict.fromkeys(source_line(one.op.caller) for one in linked if one.op.caller)
    facts = Facts(programs=executions, callers=", ".join(list(callers)[:LISTED]))
    found = []
    for one in linked:
        read, written = passed.intersection(one.op.takes), passed.intersection(one.op.gives)
        exchanged = sum(array.bytes for array in read) + sum(array.bytes for array in written)
        each = {resource: amount / one.op.count for resource, amount in one.op.cost.amounts}
        each[HBM] = max(each.get(HBM, 0) - exchanged * avoided, 0)
        found.append((one, Avoidable(kind=KIND, instead=Cost.of(each), cause=cause, facts=facts)))
    return found
