"""Evidence that belongs together: copies with the idle time that the same code causes, and ops that a change removes with the launches for
which the device waits.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from ...cost import NOTHING
from ...workload import GRAPH_BREAK, PASSES_ARRAYS
from ..idle_time import Waiting
from ..op_times import OpTimes
from .clock import Clock
from .evidence import Evidence, Note, Saving
from .idle import DISPATCH, SYNC, TRANSFER, host_saving_s
from .kernels import HOST_COPIES
from .looped_calls import IMAGES
from .offloaded import SAVED
from .program_chains import KIND as CHAIN

OPTIMIZER = "optimizer"  # the group of findings about kernels that update one parameter each


def with_their_copies(
    found: Sequence[Evidence], kernels: Sequence[Evidence], idle: Sequence[Waiting], op_times: OpTimes, clock: Clock
) -> list[Evidence]:
    """The evidence of both origins, with copies merged into the idle time of the same function, if there is any: one change saves both.

    Copies of JAX have no source line: those belong to the calls that copy their arguments.
    """
    copies = next((one for one in kernels if one.kind == HOST_COPIES and one.saved), None)
    if copies is None or copies.saved is None:
        return [*found, *kernels]
    if copies.group == SAVED:
        return _with_waits_for_saved_tensors(found, kernels, copies, copies.saved, clock)
    place = _place(copies.ops, op_times)
    waits = [
        (one.saved, one)
        for one in found
        if one.saved and (_longest(one.kind, idle) == place if place and one.kind in (SYNC, TRANSFER) else one.group == PASSES_ARRAYS)
    ]
    if not waits:
        return [*found, *kernels]
    saved, wait = max(waits, key=lambda each: each[0].whole_s)
    took = Note("copies", {"seconds": clock.spent(op_times, copies.ops)})
    joined = replace(wait.saving(saved.plus(copies.saved), took), ops=copies.ops)
    return [*(joined if one is wait else one for one in found), *(one for one in kernels if one is not copies)]


def _with_waits_for_saved_tensors(
    found: Sequence[Evidence], kernels: Sequence[Evidence], copies: Evidence, saved: Saving, clock: Clock
) -> list[Evidence]:
    """The evidence of both origins, with the idle time of copies both ways in that of saved tensors that are copied."""
    wait = next((one for one in found if one.kind == TRANSFER and one.saved), None)
    if wait is None or wait.saved is None:
        return [*found, *kernels]
    joined = copies.saving(saved.plus(wait.saved), Note("waits", {"seconds": wait.saved.steps_s / clock.parts}))
    return [*(one for one in found if one is not wait), *(joined if one is copies else one for one in kernels)]


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


def with_removed_launches(
    found: Sequence[Evidence], op_times: OpTimes, ids: Sequence[int], clock: Clock, updating: float = 0.0
) -> list[Evidence]:
    """The evidence, where changes that remove launches also shorten the time of the host, which launches the rest as fast as before.

    An optimizer that is ``updating`` one parameter with each of a share of the launches is a fault of its own, with its kernels.
    """
    waits = next((one for one in found if one.kind == DISPATCH and one.saved), None)
    counts = {id: op_times.launches[id] * clock.share(id) for id in ids} if waits is not None else {}
    every, left, joined = sum(counts.values()), 1.0, list[Evidence]()
    if waits is None or waits.saved is None or not every:
        return list(found)
    waited = waits.saved
    if updating and waits.group != GRAPH_BREAK:
        kernels = next((one for one in found if (one.kind, one.group) == (CHAIN, OPTIMIZER) and one.saved), None)
        updates, left = _updates(waits, waited, kernels, updating, clock), left - updating
        found = [one for one in found if one is not kernels]
        joined.append(updates)
    for one in found:
        removed = sum(counts.get(id, 0.0) * _removed(one, op_times, id) for id in one.ops)
        share = min(removed / every, left)
        fewer_s = host_saving_s(clock, waited.steps_s, share, one.saved.steps_s) if one.saved and share else 0.0
        if one.saved is None or one is waits or fewer_s - one.saved.steps_s < clock.notable_s:
            joined.append(one)
            continue
        left -= share
        more = waited.times((fewer_s - one.saved.steps_s) / waited.steps_s)
        joined.append(one.saving(one.saved.plus(more), Note("launches", {"seconds": more.steps_s / clock.parts})))
    return [one.saving(waited.times(left)) if one is waits and left < 1 else one for one in joined]


def _updates(waits: Evidence, waited: Saving, kernels: Evidence | None, share: float, clock: Clock) -> Evidence:
    """The evidence of an optimizer that launches kernels for one parameter each: what the host and the device take for these."""
    worked_s = kernels.saved.steps_s if kernels is not None and kernels.saved else 0.0
    saved = waited.times(host_saving_s(clock, waited.steps_s, share, worked_s) / waited.steps_s)
    facts = {**waits.facts, "share": share}
    return replace(waits, group=OPTIMIZER, facts=facts, ops=kernels.ops if kernels else (), saved=saved, notes=())


def _removed(one: Evidence, op_times: OpTimes, id: int) -> float:
    """How many launches the change of some evidence removes with each of an op's."""
    if one.group == IMAGES:
        return 1.0
    reasons = [reason for reason in op_times.ops[id].avoidable if reason.kind == one.kind]
    return max((reason.share * (1.0 if reason.instead == NOTHING else reason.removed) for reason in reasons), default=0.0)
