"""Collectives in fusions, and which fusion of an asynchronous one counts its bytes.

XLA for TPUs hides a collective under products: one fusion starts it (its body hands it to `AsyncCollectiveStart`), product fusions that run
in between take it some steps further, and one waits for it (`AsyncCollectiveDone`). Each has a copy of it with the same channel, but it
runs once for each run of the fusion that starts it.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from ..ir.module import Computation, HloModule, Instruction
from .collectives import COLLECTIVES
from .traffic import source

START, DONE = "AsyncCollectiveStart", "AsyncCollectiveDone"  # targets of custom calls
_MOVES = frozenset(("bitcast", "concatenate", "constant", "copy", "dynamic-slice", "pad", "parameter", "reshape", "slice", "transpose"))
Channel = tuple[str, int | None]  # the opcode of a collective and its channel; kinds may number theirs alike


class FusedExchanges(Struct, frozen=True):
    """The collectives of a fused body: those it counts, each with the kind it is counted as, and the instructions whose results are only
    the state of asynchronous ones, handed on to the next fusion.
    """

    counted: tuple[tuple[int, str], ...]
    carried: frozenset[int] = frozenset()
    is_asynchronous: bool = False


def started_channels(module: HloModule) -> frozenset[Channel]:
    """The asynchronous collectives that the fusions of a module start."""
    return frozenset(
        channel_of(computation[index])
        for computation in module
        if any(instruction.custom_call_target == START for instruction in computation if instruction.opcode == "custom-call")
        for index in _handed_to(computation, START)
    )


def fused_exchanges(body: Computation, started: frozenset[Channel]) -> FusedExchanges:
    """The collectives of a fused body; ``started`` are the asynchronous ones of the module."""
    inside = [index for index, instruction in enumerate(body) if instruction.opcode in COLLECTIVES]
    starting, ending = set(_handed_to(body, START)), set(_handed_to(body, DONE))
    going_on = {index for index in inside if index not in starting and (index in ending or channel_of(body[index]) in started)}
    counted = tuple((index, _kind(body, index)) for index in inside if index not in going_on)
    if not (starting or going_on):
        return FusedExchanges(counted)
    calls = {
        index
        for index, instruction in enumerate(body)
        if instruction.opcode == "custom-call" and instruction.custom_call_target in (START, DONE)
    }
    return FusedExchanges(counted, frozenset({*inside, *calls, *body.parameters}), is_asynchronous=True)


def started(parts: Iterable[Instruction]) -> Instruction | None:
    """The collective that a fusion of these parts starts."""
    parts = tuple(parts)
    starts = any(part.opcode == "custom-call" and part.custom_call_target == START for part in parts)
    return next((part for part in parts if part.opcode in COLLECTIVES), None) if starts else None


def exchange_alone(parts: Iterable[Instruction]) -> str:
    """The kind of the collective of a fusion that does nothing else than move its operand and result; empty for any other."""
    body = tuple(parts)
    inside = [index for index, instruction in enumerate(body) if instruction.opcode in COLLECTIVES]
    arrays = {instruction.opcode for instruction in body if instruction.shape.is_array and instruction.shape.rank} - COLLECTIVES
    if len(inside) != 1 or not arrays <= _MOVES:
        return ""
    return _kind(body, inside[0]) or body[inside[0]].opcode


def channel_of(instruction: Instruction) -> Channel:
    return instruction.opcode, instruction.integer("channel_id")


def _handed_to(body: Computation, target: str) -> Iterator[int]:
    """The collectives of a body that are operands of a custom call."""
    for call in body:
        if call.opcode == "custom-call" and call.custom_call_target == target:
            for operand in call.operands:
                index = source(body, operand, ())[0]
                if body[index].opcode in COLLECTIVES:
                    yield index


def _kind(body: Sequence[Instruction] | Computation, index: int) -> str:
    """What a collective is counted as: an all-reduce of which each device keeps its own slice is a reduce-scatter."""
    users = [instruction.opcode for instruction in body if index in instruction.operands]
    return "reduce-scatter" if body[index].opcode == "all-reduce" and users and all(opcode == "dynamic-slice" for opcode in users) else ""
