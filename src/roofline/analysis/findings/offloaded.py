"""Tensors that the forward pass copies to the host and the backward pass copies back, though they would fit on the device."""

from collections.abc import Sequence

from ...machine import Machine
from ...resource import PCIE
from ..op_times import OpTimes, values_at
from .clock import Clock
from .evidence import Evidence, Saving
from .kernels import HOST_COPIES

SAVED = "saved"  # the group of words
MOST_OF_MEMORY = 0.5  # of what is free on the device: the rest is for what the recording does not show (a choice)
BOTH_WAYS = 0.8  # of the bytes that the forward pass copies to the host, the share that the backward pass copies back
OUT, BACK = ("out", "forward"), ("in", "backward")


def offloaded_tensors(op_times: OpTimes, ids: Sequence[int], recorded_steps: int, machine: Machine, clock: Clock) -> list[Evidence]:
    """The evidence of saved tensors that are offloaded, with all of the time of their copies; none if they may not fit."""
    ways: dict[tuple[str, str], dict[tuple[tuple[int, ...], ...], list[int]]] = {OUT: {}, BACK: {}}
    for id in ids:
        op = op_times.ops[id]
        if (op.towards, op.phase) in ways and op.shapes:
            ways[op.towards, op.phase].setdefault(op.shapes, []).append(id)
    shapes = ways[OUT].keys() & ways[BACK].keys()
    copies = [id for way in ways.values() for shape in shapes for id in way[shape]]
    out = [id for copied in ways[OUT].values() for id in copied]
    kept = [id for shape in shapes for id in ways[OUT][shape]]
    steps, capacity = max(recorded_steps, 1), machine.capacity()
    moved = float(sum(op_times.ops[id].cost.known(PCIE) for id in kept))
    if not kept or moved < BOTH_WAYS * sum(op_times.ops[id].cost.known(PCIE) for id in out):
        return []
    if capacity is None or moved / steps > MOST_OF_MEMORY * capacity:
        return []
    saved = Saving.of(copies, values_at(op_times.spent_s, copies), clock)
    if saved.steps_s < clock.notable_s:
        return []
    return [Evidence(kind=HOST_COPIES, group=SAVED, ops=tuple(copies), saved=saved, facts={"moved": moved / steps})]
