"""Copies between host and device, merged with the finding about the idle time that the same code causes."""

from collections.abc import Sequence

from msgspec.structs import replace

from ..report import Finding
from ..workload import PASSES_ARRAYS
from .finding_drafts import FindingDraft, StepSaving
from .idle_kinds import BY_CAUSE
from .idle_time import Waiting
from .op_times import OpTimes
from .program_clock import Clock

COPIES = "host-copies"
AWAITED = ("idle-sync", "idle-transfer")


def with_their_copies(
    found: Sequence[FindingDraft], copies: Finding | None, idle: Sequence[Waiting], op_times: OpTimes, clock: Clock
) -> list[FindingDraft] | None:
    """The findings with ``copies`` merged into the idle time of the same function: one change saves both.

    Copies of JAX have no source line: those belong to the calls that copy their arguments. ``None`` without such idle time.
    """
    place = _place(copies.ops, op_times) if copies is not None else ""
    waits = [
        (one.saved, one)
        for one in found
        if one.saved
        and (_longest(one.kind, idle) == place if place and one.kind in AWAITED else one.title == BY_CAUSE[PASSES_ARRAYS].title)
    ]
    if copies is None or not waits:
        return None
    saved, wait = max(waits, key=lambda each: each[0].whole_s)
    copying_s = copies.saving_s or 0.0
    both = saved.plus(StepSaving(copying_s, (copies.saving_per_step_s or 0.0) if clock.per else copying_s))
    took = f"The copies there take another {clock.of(clock.spent(op_times, copies.ops))}."
    joined = replace(wait.saving(both, took), ops=copies.ops)
    return [joined if one is wait else one for one in found]


def _place(ops: Sequence[int], op_times: OpTimes) -> str:
    """The source line with most of the ops' time; empty if none is known."""
    locations, seconds = op_times.words("location"), dict[str, float]()
    for id in ops:
        seconds[locations[id]] = seconds.get(locations[id], 0.0) + op_times.spent_s[id]
    place = max(seconds, key=seconds.__getitem__, default="")
    return place if 2 * seconds.get(place, 0.0) > sum(seconds.values()) else ""


def _longest(kind: str, idle: Sequence[Waiting]) -> str:
    """The source line of the longest idle time of a kind."""
    mine = [one for one in idle if f"idle-{one.reason.kind}" == kind]
    return max(mine, key=lambda one: one.each_s).reason.location if mine else ""
