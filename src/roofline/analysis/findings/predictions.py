"""The predicted effect of the changes that findings recommend: the change as ``whatif`` arguments, and the step time after it."""

from collections.abc import Iterable, Mapping

from ...errors import RooflineError
from ...hlo.ir.module import HloModule
from ...machine import Machine
from ...prediction.calibration import Calibration
from ...report import Predicted, PredictedOp
from ...resource import HBM
from ...sources.embedded import programs_behind
from ...workload import Recording
from ..changes import change
from ..changes.changed_times import Changed
from ..changes.outcome import outcome
from ..changes.state import State
from ..op_times import share_in_steps
from .clock import Clock


def predictions(
    changes: Iterable[str], recording: Recording, clock: Clock, machine: Machine, calibration: Calibration
) -> Mapping[str, Predicted]:
    """The predicted effect of each change, for profiles of chips with a calibration."""
    if not calibration.families or not clock.measured:
        return {}
    programs = _programs(recording, machine)
    found: dict[str, Predicted] = {}
    for words in changes:
        state = State(recording, dict(programs), machine, calibration)
        change(state, words.split())
        done = outcome(state, recording)
        ops = recording.workload.ops
        every = (*ops, *done.after.workload.ops[len(ops) :])  # those of the program, then the kernels that the change adds
        shares = {index: share_in_steps(every[index], clock.steps) if clock.per else 1.0 for index in done.changed}
        own = sorted(index for index in done.changed if index < len(ops))
        saved = sum((ops[index].time_s or 0.0) * shares[index] for index in own)
        saved -= sum(new.time_s * shares[index] for index, new in done.changed.items())
        if not own or saved <= 0:
            continue
        time_s = clock.each_s - saved / clock.parts
        busy_s = (clock.busy_s - saved) / clock.parts if clock.busy_s is not None else time_s
        low_s, high_s = done.uncertainty.around(time_s, busy_s, 1 if clock.per else 0)
        found[words] = Predicted(
            change=words,
            before_s=clock.each_s,
            time_s=time_s,
            low_s=low_s,
            high_s=high_s,
            ops=tuple(_predicted(index, done.changed[index]) for index in own),
        )
    return found


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
