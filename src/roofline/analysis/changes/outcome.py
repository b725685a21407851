"""What changes bring: the program after them as it is predicted to run, with the kernels that they add, and how sure that is."""

from collections.abc import Mapping, Sequence
from math import hypot

from msgspec import Struct
from msgspec.structs import replace

from ...operation import Label
from ...workload import Op, Recording
from ..expected_times import predict_op
from .changed_steps import FIRST_WAIT_S, host_bounds, host_wait_s, launching_bounds
from .changed_times import MEASURED, Changed, applied, bounds, changed_op, slowed
from .state import State

REMAINS = 0.1  # of removed idle time: the most that may remain, because a graph has to be launched too (a choice)
REPEATS = 0.03  # of the device's time in a step: variation between recordings of a recompiled program (a choice)
UNCHANGED = "measured"  # prediction family of unchanged ops


class Uncertainty(Struct, frozen=True, kw_only=True):
    """What the bounds of a predicted time are made of.

    ``low_s`` and ``high_s`` are those of the ``ops_s`` seconds of all ops. ``again`` is the share of its time by which a run differs from
    the next. ``host_s`` are the seconds per step that the device waited for the host, which may become less or more; of the ``gone_s``
    seconds of idle time, some may remain. ``launched``, where known, bounds how much shorter or longer a step may be because of launches;
    it is shorter only if the device is fast enough, so both bounds add up. A ``hotter`` chip may be slower by that share, which is
    systematic and so added to the bound.
    """

    ops_s: float
    low_s: float
    high_s: float
    again: float
    host_s: float
    gone_s: float
    launched: tuple[float, float] | None
    hotter: float

    def around(self, time_s: float, busy_s: float, steps: int) -> tuple[float, float]:
        """The bounds of a time, which includes waiting for the host in so many steps."""
        share, again_s = busy_s / self.ops_s if self.ops_s else 0.0, self.again * busy_s
        low, high = hypot(self.low_s * share, again_s), hypot(self.high_s * share, again_s)
        if steps and self.launched:
            low, high = low + self.launched[0] * steps, hypot(high, self.launched[1] * steps, self.gone_s * steps)
        elif steps:
            waits = min(self.host_s * steps, max(time_s - busy_s, 0.0))
            low, high = hypot(low, waits), hypot(high, waits, (self.gone_s + FIRST_WAIT_S) * steps)
        return time_s - low, time_s + high + self.hotter * busy_s


class Outcome(Struct, frozen=True):
    """A program after changes, the ops that changed or were added, by their place in it, and the uncertainty of its times."""

    after: Recording
    changed: dict[int, Changed]
    uncertainty: Uncertainty


def outcome(state: State, before: Recording) -> Outcome:
    """What the changes of a state bring."""
    changed = state.changed()
    added = _added(state, changed)
    after = applied(before, changed, tuple(op for op, _ in added), no_idle=state.no_idle, one_graph=state.one_graph)
    first = len(before.workload)
    changed |= {first + place: new for place, (_, new) in enumerate(added)}
    idle_before, idle_after = (sum(one.time_s for one in each.idle) for each in (before, after))
    low_s, high_s = _op_bounds(after.workload.ops, changed)
    uncertainty = Uncertainty(
        ops_s=sum(op.time_s or 0.0 for op in after.workload.ops),
        low_s=low_s,
        high_s=high_s,
        again=REPEATS if changed else 0.0,
        host_s=host_wait_s(before),
        gone_s=REMAINS * (idle_before - idle_after) / max(len(before.steps) * len(before.devices), 1),
        launched=None if state.one_graph else launching_bounds(before, after) if state.no_idle else host_bounds(before, after),
        hotter=slowed(before, after),
    )
    return Outcome(after, changed, uncertainty)


def _op_bounds(ops: Sequence[Op], changed: Mapping[int, Changed]) -> tuple[float, float]:
    """Bounds of the time of all ops together; an op that does not change is as uncertain as its measurement."""
    parts = []
    for id, op in enumerate(ops):
        time_s, new = op.time_s or 0.0, changed.get(id)
        if new:
            parts.append((new.family, new.time_s, new.low_s, new.high_s))
        else:
            parts.append((UNCHANGED, time_s, time_s * (1 - MEASURED), time_s * (1 + MEASURED)))
    return bounds(parts)


def _added(state: State, changed: Mapping[int, Changed]) -> list[tuple[Op, Changed]]:
    """The kernels that changes added, each with the shares of steps and devices of the op that it runs with (``runs_with``)."""
    found = []
    for each in state.added:
        runs_with = each.runs_with
        cost = each.cost * runs_with.count if each.like is None else state.ops[each.like].cost
        op = replace(
            runs_with,
            name=each.name,
            label=Label(runs_with.label.where, each.word, f"for {runs_with.name}"),
            cost=cost,
            operation=each.operation,
            category=each.word,
            kernels=runs_with.count,
            avoidable=(),
            counters=None,
        )
        predicted = predict_op(op, state.after_machine, state.after_calibration)
        time_s = each.time_s if each.time_s is not None else predicted.time_s if predicted else None
        if time_s and runs_with.time_s and each.like is not None and (new := changed.get(each.like)) is not None:
            time_s *= new.time_s / runs_with.time_s
        if time_s is None or not runs_with.time_s:
            continue
        low, high = (share * time_s for share in each.bounds)
        if predicted and each.time_s is None:
            low, high = predicted.low_s * each.bounds[0], predicted.high_s * each.bounds[1]
        new = Changed(
            time_s=time_s,
            low_s=low,
            high_s=high,
            cost=cost,
            operation=each.operation,
            family=each.word if each.time_s is not None else f"added {predicted.family if predicted else ''}",
            terms=predicted.terms if predicted else {},
            evidence=predicted.evidence if predicted else "",
        )
        found.append((replace(changed_op(op, new), self_time_s=time_s), new))
    return found
