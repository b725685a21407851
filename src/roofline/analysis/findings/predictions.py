"""The predicted effect of the changes that findings recommend: the change as ``whatif`` arguments, and the step time after it.

A change of ops that another change with a larger saving has changed already, or that needs another one first, is predicted after that one:
the times of such findings are those of a sequence, and their savings never sum to more than the time.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from ...errors import RooflineError
from ...hlo.ir.module import HloModule
from ...machine import Machine
from ...prediction.calibration import Calibration
from ...report import Predicted, PredictedOp
from ...resource import HBM
from ...sources.embedded import programs_behind
from ...workload import Op, Recording
from ..changes import change
from ..changes.changed_times import Changed
from ..changes.outcome import Outcome, outcome
from ..changes.state import State
from ..op_times import share_in_steps
from .clock import Clock


class Wanted(Struct, frozen=True):
    """A change that findings recommend, and one that it ``needs`` first, both as ``whatif`` arguments."""

    change: str
    needs: str = ""


class _Step(Struct, frozen=True):
    """A step after changes, with its bounds, the ops of the program that changed, and what came out."""

    time_s: float
    low_s: float
    high_s: float
    own: frozenset[int]
    outcome: Outcome


def predictions(
    wanted: Iterable[Wanted], recording: Recording, clock: Clock, machine: Machine, calibration: Calibration
) -> Mapping[str, Predicted]:
    """The predicted effect of each change, the one with the largest saving first; for profiles of chips with a calibration."""
    if not calibration.families or not clock.measured:
        return {}
    programs, ops = _programs(recording, machine), recording.workload.ops

    def after(words: Sequence[str]) -> _Step:
        state = State(recording, dict(programs), machine, calibration)
        change(state, [word for each in words for word in each.split()])
        return _step(outcome(state, recording), ops, clock)

    found: dict[str, Predicted] = {}
    alone: dict[str, _Step] = {}
    for each in wanted:
        alone[each.change] = step = after([each.change])
        shared = [words for words in found if not step.own.isdisjoint(alone[words].own)]
        earlier = list(dict.fromkeys([*([each.needs] if each.needs else []), *shared]))
        before_s = clock.each_s
        if earlier:
            before_s, step = after(earlier).time_s, after([*earlier, each.change])
        if not step.own or step.time_s >= min(before_s, clock.each_s):  # slower, be it with what it needs
            continue
        changed = step.outcome.changed
        found[each.change] = Predicted(
            change=each.change,
            after=" ".join(earlier),
            before_s=before_s,
            time_s=step.time_s,
            low_s=step.low_s,
            high_s=step.high_s,
            ops=tuple(_predicted(index, changed[index]) for index in sorted(step.own)),
        )
    return found


def _step(done: Outcome, ops: Sequence[Op], clock: Clock) -> _Step:
    every = (*ops, *done.after.workload.ops[len(ops) :])  # those of the program, then the kernels that the change adds
    shares = {index: share_in_steps(every[index], clock.steps) if clock.per else 1.0 for index in done.changed}
    own = frozenset(index for index in done.changed if index < len(ops))
    saved = sum(ops[index].own_s * shares[index] for index in own)
    saved -= sum(done.after.workload.ops[index].own_s * shares[index] for index in done.changed)
    time_s = clock.each_s - saved / clock.parts
    busy_s = (clock.busy_s - saved) / clock.parts if clock.busy_s is not None else time_s
    return _Step(time_s, *done.uncertainty.around(time_s, busy_s, 1 if clock.per else 0), own, done)


def _programs(recording: Recording, machine: Machine) -> dict[str, HloModule]:
    """The programs of the analyzed file; empty where the file no longer exists, or there are several."""
    if len(recording.files) != 1 or recording.format != "xspace":
        return {}
    try:
        return programs_behind(recording, machine, recording.files[0])
    except (RooflineError, OSError):
        return {}


def _predicted(index: int, new: Changed) -> PredictedOp:
    return PredictedOp(op=index, time_s=new.time_s, flops=float(new.cost.flops or 0), hbm=float(new.cost.known(HBM)))
