"""The schedule of a compiled program: its ops in the order of its instructions, with what starts beside the core and where it is awaited.

Instructions that end asynchronous work cost nothing themselves: `copy-done`, `async-done`, `all-gather-done`, and fusions with
`AsyncCollectiveDone`. They name what they end through the tuples and fusions that carry its state.
"""

from collections.abc import Iterator, Mapping

from ...schedule import Loop, Schedule, Turn
from ..ir.module import Computation, HloModule, Instruction
from ..price.compiled import STARTS
from ..price.fused_collectives import DONE
from ..price.pricing import Pricer
from ..price.types import Site

_CARRIES = frozenset(("get-tuple-element", "tuple", "bitcast", "opt-barrier", "optimization-barrier", "async-update", "fusion"))
_MOST_CARRIED = 400  # instructions between a start and its end


def schedule_of(pricer: Pricer, ops: Mapping[tuple[int, int], int], beside: frozenset[int]) -> Schedule:
    """The schedule of the module of a pricer.

    ``ops`` are the numbers of the ops by computation and index of their instructions, ``beside`` those that run beside others.
    """
    unsure: dict[str, None] = {}
    turns = tuple(_turns(pricer, ops, beside, pricer.module.entry, unsure))
    return Schedule(pricer.module.name, turns, tuple(unsure), pricer.module.replica_count * pricer.module.num_partitions)


def _turns(
    pricer: Pricer, ops: Mapping[tuple[int, int], int], beside: frozenset[int], number: int, unsure: dict[str, None]
) -> Iterator[Turn | Loop]:
    computation = pricer.module.computations[number]
    for index, instruction in enumerate(computation.instructions):
        if instruction.opcode == "while":
            trips = pricer.trip_count(Site(pricer.module, computation, instruction, pricer.platform))
            if trips is None:
                unsure[instruction.name] = None
            bodies = (*instruction.called("condition"), *instruction.called("body"))
            body = tuple(turn for called in bodies for turn in _turns(pricer, ops, beside, called, unsure))
            if body and trips != 0:
                yield Loop(1 if trips is None else trips, body)
        elif instruction.opcode == "conditional" and instruction.called("branch_computations"):
            yield from _turns(pricer, ops, beside, pricer.most_expensive(instruction.called("branch_computations")), unsure)
        elif instruction.opcode == "call" and instruction.calls:
            yield from _turns(pricer, ops, beside, instruction.calls[0].computation, unsure)
        else:
            if _ends(pricer.module, instruction):
                yield from (Turn(op, "awaits") for op in _started(number, computation, instruction, ops, beside))
            if (op := ops.get((number, index))) is not None:
                yield Turn(op, "starts" if op in beside else "runs")


def _ends(module: HloModule, instruction: Instruction) -> bool:
    """Whether an instruction ends asynchronous work."""
    if instruction.opcode.endswith("-done"):
        return True
    if instruction.opcode != "fusion" or not instruction.calls:
        return False
    body = module.computations[instruction.calls[0].computation]
    return any(part.opcode == "custom-call" and part.custom_call_target == DONE for part in body)


def _started(
    number: int, computation: Computation, instruction: Instruction, ops: Mapping[tuple[int, int], int], beside: frozenset[int]
) -> list[int]:
    """The ops whose work an instruction ends."""
    numbers: dict[int, None] = {}
    waiting, seen = list(instruction.operands), set[int]()
    while waiting and len(seen) < _MOST_CARRIED:
        index = waiting.pop()
        if index in seen:
            continue
        seen.add(index)
        op = ops.get((number, index))
        if op is not None and op in beside:
            numbers[op] = None
        elif computation[index].opcode in _CARRIES or computation[index].opcode in STARTS:
            waiting += computation[index].operands
    return list(numbers)
