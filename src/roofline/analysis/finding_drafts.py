"""Findings before they are written: the observations as sentences, the recommended change, and its saving."""

from msgspec import Struct
from msgspec.structs import replace

from ..report import Finding
from .program_clock import Clock


class StepSaving(Struct, frozen=True):
    """The seconds that a change saves in the whole run, and in each step (in the run where there are no steps)."""

    whole_s: float
    each_s: float

    def times(self, share: float) -> "StepSaving":
        return StepSaving(self.whole_s * share, self.each_s * share)

    def plus(self, other: "StepSaving") -> "StepSaving":
        return StepSaving(self.whole_s + other.whole_s, self.each_s + other.each_s)


class FindingDraft(Struct, frozen=True, kw_only=True):
    """A finding whose saving and sentences can still change; without a saving it recommends no change."""

    kind: str
    title: str
    observations: tuple[str, ...]
    change: str = ""
    levers: tuple[str, ...] = ()
    ops: tuple[int, ...] = ()
    saved: StepSaving | None = None

    def saving(self, saved: StepSaving, *sentences: str) -> "FindingDraft":
        """The same draft with another saving and further observations."""
        return replace(self, saved=saved, observations=(*self.observations, *sentences))

    def finding(self, clock: Clock) -> Finding:
        """The finding, written."""
        if self.saved is None:
            return Finding(kind=self.kind, title=self.title, message=" ".join(self.observations), ops=self.ops, levers=self.levers)
        then = clock.after(self.saved.each_s * clock.parts if clock.per else self.saved.whole_s)
        return Finding(
            kind=self.kind,
            title=self.title,
            message=" ".join([*self.observations, f"{self.change}: {then}."]),
            ops=self.ops,
            saving_s=self.saved.whole_s,
            saving_per_step_s=self.saved.each_s if clock.per else None,
            levers=self.levers,
            after_s=max(clock.whole_s - self.saved.whole_s, 0.0),
        )
