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
    first step is left out where others remain, as the profiler starts in it: what only it waited for does not recur. All of them together
    are no longer than the average step is idle.
    """
    steps = averaged(recording.steps)
    if not steps:
        return [Waiting(reason, reason.time_s / parts, reason.time_s) for reason in recording.idle]
    recurring = _recurring(steps, recording.steps)
    count, devices = len(recurring), max(len(recording.devices), 1)
    every = devices * sum(step.complete for step in recording.steps)
    means = [sum(share.time_s for share in one.by_step if share.key in recurring) / count / devices for one in recording.idle]
    whole, most = sum(means), _idle(steps)
    shown = most / whole if most is not None and whole > most else 1.0
    return [
        Waiting(reason, each * shown, min(each * shown * every, reason.time_s)) for reason, each in zip(recording.idle, means, strict=True)
    ]


def _idle(steps: Sequence[Step]) -> float | None:
    """The mean idle time of some steps, if it is known of all."""
    idle = [max(step.time_s - step.busy_s, 0.0) for step in steps if step.time_s is not None and step.busy_s is not None]
    return sum(idle) / len(idle) if len(idle) == len(steps) else None


def _recurring(steps: Sequence[Step], recorded: Sequence[Step]) -> set[int]:
    others = {step.key for step in steps if step.key != recorded[0].key}
    return others if len(others) >= FEW else {step.key for step in steps}
