"""Idle time as an average step has it, by reason."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from ..workload import IdleReason, Recording, Step

FEW = 1  # steps that must be left when the first is left out


class Waiting(Struct, frozen=True):
    """A reason why a device waits: seconds of one step on one device, and device-seconds of the whole run."""

    reason: IdleReason
    each_s: float
    whole_s: float

    @property
    def recording(self) -> float:
        """The share of it that the profiler took itself."""
        return min(self.reason.recording_s / self.reason.time_s, 1.0) if self.reason.time_s else 0.0


def averaged(steps: Iterable[Step]) -> list[Step]:
    """The steps that averages are over: complete, steady, and followed by another, which ends their idle time; else the next best."""
    complete = [step for step in steps if step.complete]
    steady = [step for step in complete if step.steady]
    return [step for step in steady if step.followed] or steady or complete


def waiting(recording: Recording, parts: float) -> list[Waiting]:
    """The reasons of idle time, per step where there are steps, else over the ``parts`` of the run.

    A run of five steps has four gaps between them, so seconds of the whole run are not spread over its steps: each step has its own. The
    first step is left out where others remain, as the profiler starts in it: what only it waited for does not recur.
    """
    steps = averaged(recording.steps)
    if not steps:
        return [Waiting(reason, reason.time_s / parts, reason.time_s) for reason in recording.idle]
    recurring = _recurring(steps, recording.steps)
    count, devices = len(recurring), max(len(recording.devices), 1)
    every = devices * sum(step.complete for step in recording.steps)
    found = []
    for reason in recording.idle:
        each = sum(share.time_s for share in reason.by_step if share.key in recurring) / count / devices
        found.append(Waiting(reason, each, min(each * every, reason.time_s)))
    return found


def _recurring(steps: Sequence[Step], recorded: Sequence[Step]) -> set[int]:
    others = {step.key for step in steps if step.key != recorded[0].key}
    return others if len(others) >= FEW else {step.key for step in steps}
