"""The idle time of an average step, by reason."""

from collections.abc import Sequence

from msgspec import Struct

from ..workload import IdleReason, Step, averaged

FEW = 1  # steps that must remain if the first is left out


class Waiting(Struct, frozen=True):
    """A reason for idle time: seconds per step and device, and device-seconds of the whole run."""

    reason: IdleReason
    each_s: float
    whole_s: float

    @property
    def recording(self) -> float:
        """The share of it that is profiler overhead."""
        return min(self.reason.recording_s / self.reason.time_s, 1.0) if self.reason.time_s else 0.0


def waiting(idle: Sequence[IdleReason], recorded: Sequence[Step], devices: int, parts: float) -> list[Waiting]:
    """The reasons for idle time, per step where there are steps, else per part of the run's ``parts``.

    A run of five steps has four gaps between them, so seconds of the whole run are not spread over its steps: each step has its own. The
    first step is left out where others remain, because the profiler starts in it and its idle time does not recur. The sum over reasons is
    at most the idle time of the average step.
    """
    steps = averaged(recorded)
    if not steps:
        return [Waiting(reason, reason.time_s / parts, reason.time_s) for reason in idle]
    recurring = _recurring(steps, recorded)
    count, devices = len(recurring), max(devices, 1)
    every = devices * sum(step.complete for step in recorded)
    means = [sum(share.time_s for share in one.by_step if share.key in recurring) / count / devices for one in idle]
    whole, most = sum(means), _idle(steps)
    shown = most / whole if most is not None and whole > most else 1.0
    return [Waiting(reason, each * shown, min(each * shown * every, reason.time_s)) for reason, each in zip(idle, means, strict=True)]


def _idle(steps: Sequence[Step]) -> float | None:
    """The mean idle time of some steps; ``None`` unless it is known for all."""
    idle = [max(step.time_s - step.busy_s, 0.0) for step in steps if step.time_s is not None and step.busy_s is not None]
    return sum(idle) / len(idle) if len(idle) == len(steps) else None


def _recurring(steps: Sequence[Step], recorded: Sequence[Step]) -> set[int]:
    others = {step.step for step in steps if step.step != recorded[0].step}
    return others if len(others) >= FEW else {step.step for step in steps}
