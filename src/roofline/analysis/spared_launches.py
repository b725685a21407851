"""Launches that a change removes: where the device waits for the host to launch kernels one by one, one kernel less is one wait less."""

from collections.abc import Sequence
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from ..cost import NOTHING
from ..report import Finding
from ..units import rounded, show
from .op_times import OpTimes
from .program_clock import NOTABLE, Clock

DISPATCH = "idle-dispatch"


def is_spared(kind: str, op_times: OpTimes, id: int) -> bool:
    """Whether the change that a kind of finding asks for removes an op completely."""
    return any(reason.kind == kind and reason.instead == NOTHING for reason in op_times.ops[id].avoidable)


def with_spared_launches(found: Sequence[Finding], op_times: OpTimes, ids: Sequence[int], clock: Clock) -> list[Finding]:
    """The findings; those about ops that a change removes get their share of the time waiting for launches, by number of launches."""
    waits = next((one for one in found if one.kind == DISPATCH and one.saving_s), None)
    counts = {id: op_times.launches[id] * clock.share(id) for id in ids} if waits is not None else {}
    every, left = sum(counts.values()), 1.0
    if waits is None or not every:
        return list(found)
    made = []
    for one in found:
        spared = sum(counts.get(id, 0.0) for id in one.ops if is_spared(one.kind, op_times, id)) if one.saving_s else 0.0
        share = min(spared / every, left)
        more = Saved.of(waits).times(share)
        if more.each_s < NOTABLE * clock.each_s:
            made.append(one)
            continue
        left -= share
        added = f"Their launches, for which the device waits, take another {show(rounded(more.each_s, 3), 's')}{clock.per}"
        made.append(_saving(one, Saved.of(one).plus(more), clock, added))
    return [_saving(one, Saved.of(one).times(left), clock) if one is waits and left < 1 else one for one in made]


class Saved(Struct, frozen=True):
    """What a finding saves of the whole run, and of each step, or of the run where there are no steps."""

    whole_s: float
    each_s: float

    @classmethod
    def of(cls, one: Finding) -> Self:
        whole_s = one.saving_s or 0.0
        return cls(whole_s, whole_s if one.saving_per_step_s is None else one.saving_per_step_s)

    def times(self, share: float) -> "Saved":
        return Saved(self.whole_s * share, self.each_s * share)

    def plus(self, other: "Saved") -> "Saved":
        return Saved(self.whole_s + other.whole_s, self.each_s + other.each_s)


def _saving(one: Finding, saved: Saved, clock: Clock, added: str = "") -> Finding:
    """A finding with another saving, and one more sentence before the change that it asks for."""
    told, colon, _ = one.message.rpartition(": ")
    first, dot, change = told.rpartition(". ")
    said = f"{first}{dot}{added}" if added else first
    then = clock.after(saved.each_s * clock.parts if clock.per else saved.whole_s)
    return replace(
        one,
        message=f"{said}{dot}{change}{colon}{then}.",
        saving_s=saved.whole_s,
        saving_per_step_s=None if one.saving_per_step_s is None else saved.each_s,
        after_s=max(clock.whole_s - saved.whole_s, 0.0),
    )
