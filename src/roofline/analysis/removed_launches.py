"""Launches that a change removes: where the device waits for each launch, removing a kernel also saves its wait."""

from collections.abc import Sequence

from ..cost import NOTHING
from ..units import rounded, show
from .finding_drafts import FindingDraft
from .op_times import OpTimes
from .program_clock import NOTABLE, Clock

DISPATCH = "idle-dispatch"


def is_removed(kind: str, op_times: OpTimes, id: int) -> bool:
    """Whether the change that a kind of finding recommends removes an op completely."""
    return any(reason.kind == kind and reason.instead == NOTHING for reason in op_times.ops[id].avoidable)


def with_removed_launches(found: Sequence[FindingDraft], op_times: OpTimes, ids: Sequence[int], clock: Clock) -> list[FindingDraft]:
    """The findings, where those that remove ops also save their share of the time waiting for launches, by number of launches."""
    waits = next((one for one in found if one.kind == DISPATCH and one.saved), None)
    counts = {id: op_times.launches[id] * clock.share(id) for id in ids} if waits is not None else {}
    every, left = sum(counts.values()), 1.0
    if waits is None or waits.saved is None or not every:
        return list(found)
    made = []
    for one in found:
        removed = sum(counts.get(id, 0.0) for id in one.ops if is_removed(one.kind, op_times, id))
        share = min(removed / every, left)
        more = waits.saved.times(share)
        if one.saved is None or more.each_s < NOTABLE * clock.each_s:
            made.append(one)
            continue
        left -= share
        took = f"Their launches, for which the device waits, take another {show(rounded(more.each_s, 3), 's')}{clock.per}."
        made.append(one.saving(one.saved.plus(more), took))
    return [one.saving(waits.saved.times(left)) if one is waits and left < 1 else one for one in made]
