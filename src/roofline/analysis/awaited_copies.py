"""Copies between host and device, told together with the time in which the device waits for the code that makes them."""

from collections.abc import Sequence

from msgspec.structs import replace

from ..report import Finding
from .idle_time import Waiting
from .op_times import OpTimes
from .program_clock import Clock

COPIES = "host-copies"
AWAITED = ("idle-sync", "idle-transfer")


def with_their_copies(found: Sequence[Finding], idle: Sequence[Waiting], op_times: OpTimes, clock: Clock) -> list[Finding]:
    """The findings, copies joined with the wait of the same function where there is one: what spares the one spares the other."""
    copies = next((one for one in found if one.kind == COPIES and one.saving_s), None)
    place = _place(copies.ops, op_times) if copies is not None else ""
    waits = [one for one in found if one.kind in AWAITED and one.saving_s and place and _longest(one.kind, idle) == place]
    if copies is None or not waits:
        return list(found)
    wait = max(waits, key=lambda one: one.saving_s or 0.0)
    saving_s = (wait.saving_s or 0.0) + (copies.saving_s or 0.0)
    each_s = None if wait.saving_per_step_s is None else wait.saving_per_step_s + (copies.saving_per_step_s or 0.0)
    told, colon, _ = wait.message.rpartition(": ")
    first, dot, change = told.rpartition(". ")
    taken = f"The copies there take another {clock.of(clock.spent(op_times, copies.ops))}"
    then = clock.after(saving_s if each_s is None else each_s * clock.parts)
    joined = replace(
        wait,
        message=f"{first}{dot}{taken}{dot}{change}{colon}{then}.",
        ops=copies.ops,
        saving_s=saving_s,
        saving_per_step_s=each_s,
        after_s=max(clock.whole_s - saving_s, 0.0),
    )
    return [joined if one is wait else one for one in found if one is not copies]


def _place(ops: Sequence[int], op_times: OpTimes) -> str:
    """The source line of most of some ops' time; nothing where there is none."""
    locations, seconds = op_times.words("location"), dict[str, float]()
    for id in ops:
        seconds[locations[id]] = seconds.get(locations[id], 0.0) + op_times.spent_s[id]
    place = max(seconds, key=seconds.__getitem__, default="")
    return place if 2 * seconds.get(place, 0.0) > sum(seconds.values()) else ""


def _longest(kind: str, idle: Sequence[Waiting]) -> str:
    """Where the longest wait of a kind is."""
    mine = [one for one in idle if f"idle-{one.reason.kind}" == kind]
    return max(mine, key=lambda one: one.each_s).reason.location if mine else ""
