"""What if: a report on a program as it is predicted to run after changes, in the schema of every other report."""

from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path

from msgspec.structs import replace

from ..cost import NOTHING
from ..errors import UsageError
from ..machine import Machine
from ..machines import load
from ..machines.calibrations import calibration_for
from ..machines.detection import machine_for
from ..placement import IDEAL
from ..quantities import NOTABLE
from ..report import Expected, OpInfo, Point, Report
from ..sources import read
from ..sources.embedded import programs_behind
from ..units import plain, rounded, show
from ..workload import Recording, Workload
from . import assemble, predictions
from .assumed_machine import device_of_program
from .changes import change
from .changes.changed_times import Changed
from .changes.outcome import Uncertainty, outcome
from .changes.state import State
from .evidence import with_evidence
from .expected_times import predict_op
from .findings.writing import listed
from .memory import OUT_OF_MEMORY
from .placed_ops import PlacedOps
from .played.times import loads_of, replayed, with_played_times

BF16, FP8 = "dtype bf16", "dtype fp8"
WIDE = ("fp32", "fp64", "bf16x3", "bf16x6")  # formats of products on a matrix unit that take several times as long as bf16
CANDIDATES = (
    "kernel attention=flash",
    "grouped",
    "remat off",
    "donate",
    "fuse all",
    BF16,
    FP8,
    "dtype int8-weights",
    "graph",
)
GRAPH = "graph"
NEAR = 0.1  # of a time: smaller differences are shown in percent
UNCHANGED_SHARE = 5e-4  # of a time: a smaller difference is shown as unchanged (it would round to 0.0%)
SAME = "unchanged"
WITHIN_UNCERTAINTY = ", within the uncertainty of the prediction"
EVIDENCE = "measured times of ops that stay, and predictions of those that change, anchored on their measured times"


def what_if(source: Report | str | Path, changes: Sequence[str] | str, machine: Machine | str | None = None) -> Report:
    """The report on a profile or program after changes, given as text: ``what_if("run.xplane.pb", "scale batch=x4 dtype fp8")``.

    Every ``time_s`` is predicted, ``before_s`` is the time before; the average step (or the whole run) has a 90% interval as ``expected``.
    For a report, the file that it was made from is used.
    """
    words = changes.split() if isinstance(changes, str) else list(changes)
    before, chip = measured_source(source, machine)
    programs, calibration = programs_behind(before, chip, path_of(source)), calibration_for(chip).for_kernels()

    def after(some: Sequence[str]) -> Report:
        state = State(before, dict(programs), chip, calibration)
        change(state, some)
        return _report(state, before, some)

    return _best(after, _candidates(before, chip)) if words == ["best"] else after(words)


def measured_source(source: Report | str | Path, machine: Machine | str | None = None) -> tuple[Recording, Machine]:
    """A profile or program (for a report, its file) with a time for every op, and the machine it ran on."""
    path = path_of(source)
    target = load(machine) if isinstance(machine, str) else machine
    recording = with_evidence(read(path, target or machine_for))
    chip = device_of_program(target or machine_for(recording.devices), recording.format)
    return timed(recording, chip), chip


def _candidates(before: Recording, chip: Machine) -> list[str]:
    """The changes to try.

    Not bf16 on a TPU whose products run in one pass of bf16 already, as those of fp32 do by default; fp8 where it has a higher rate.
    """
    wide = any(resource.unit == "matrix" and resource.kind in WIDE for op in before.workload.ops for resource, _ in op.cost.amounts)
    narrow, half = chip.ceiling("matrix/fp8"), chip.ceiling("matrix/bf16")
    left_out = [BF16] if chip.kind == "tpu" and not wide else []
    left_out += [] if narrow is not None and (half is None or narrow.rate > half.rate) else [FP8]
    return [words for words in CANDIDATES if words not in left_out]


def _best(after: Callable[[Sequence[str]], Report], candidates: Sequence[str]) -> Report:
    """The combination of changes that helps this program the most; the notes have the time of each change alone.

    Of changes of one kind, such as number formats, only the best is used; a graph also if it helps only after the others have made the
    device faster.
    """
    alone = {words: after(words.split()) for words in candidates}
    before = max((point.before_s or 0.0 for report in alone.values() if (point := _main(report))), default=0.0)
    helping = [words for words in candidates if _time_s(alone[words]) < (1 - NOTABLE) * before]
    helping.sort(key=lambda words: _time_s(alone[words]))
    if not helping:
        return replace(alone[GRAPH], changes=(), summary=f"best: no known change helps this program, which takes {_shown(before)}.")
    chosen, together = helping[:1], alone[helping[0]]
    for words in (*helping[1:], *(() if GRAPH in helping else (GRAPH,))):
        if any(words.split()[0] == other.split()[0] for other in chosen):
            continue
        both = after([word for each in (*chosen, words) for word in each.split()])
        if _time_s(both) < (1 - NOTABLE) * _time_s(together):
            chosen, together = [*chosen, words], both
    each = [words for words in helping if [words] != chosen]  # the summary already gives the effect of a single change
    notes = (*(f"alone: {alone[words].summary}" for words in each), *together.input.notes)
    return replace(together, input=replace(together.input, notes=notes))


def _shown(seconds: float) -> str:
    return show(rounded(seconds, 3), "s")


def _time_s(report: Report) -> float:
    """The predicted time of the average step, or of the whole run; infinite where there is none."""
    point = _main(report)
    return inf if point is None or point.time_s is None else point.time_s


def _main(report: Report) -> Point | None:
    """The point of the average step, or of the whole run."""
    whole = [point for point in report.points if point.infeed_outfeed and point.time_s is not None]
    return next((one for one in whole if one.scope == "average"), next((one for one in whole if one.scope == "total"), None))


def path_of(source: Report | str | Path) -> str:
    """The file of a profile or program, or the one that a report was made from."""
    if not isinstance(source, Report):
        return str(source)
    if len(source.input.files) != 1:
        made = f"{len(source.input.files)} files" if source.input.files else "no file, but a function"
        raise UsageError(f"what_if needs the profile or program itself; this report was made from {made}")
    return source.input.files[0]


def timed(recording: Recording, machine: Machine) -> Recording:
    """A recording with a time for every op: measured, played by the schedule of a program that did not run, or expected.

    An op for which the machine has no rates counts as 0 s, with a note.
    """
    if any(op.time_s is not None for op in recording.workload):
        return recording
    calibration = calibration_for(machine).for_kernels()
    if recording.schedules:
        floor_s = PlacedOps(recording.workload.ops, machine, IDEAL).floor_s
        played = with_played_times(recording, machine, predictions(recording.workload.ops, machine, calibration), floor_s)
        if played.predicted is not None:
            return replace(played, predicted=None)
    ops = recording.workload.ops
    expected = [predict_op(op, machine, calibration) for op in ops]
    after = Workload(tuple(replace(op, time_s=found.time_s if found else 0.0) for op, found in zip(ops, expected, strict=True)))
    unknown = [op.name for op, found in zip(ops, expected, strict=True) if found is None and op.cost != NOTHING]
    notes = (f"{listed(unknown, len(unknown))}: no time is known on {machine.name}, so all times here leave them out",) if unknown else ()
    return replace(recording, workload=after, notes=(*recording.notes, *notes))


def _report(state: State, before: Recording, words: Sequence[str]) -> Report:
    done = outcome(state, before)
    after, played = _replayed(before, done.after, state) if before.schedules else (done.after, None)
    memory = state.memory and replace(state.memory, over_step=())  # the course of the program before the changes
    report = assemble(replace(after, kernels=(), memory=memory), state.after_machine)
    old = assemble(replace(before, kernels=()), state.machine)
    was = {op.id: op for op in old.ops}
    ops = tuple(_op(op, was.get(op.id), done.changed.get(op.id)) for op in report.ops)
    steps = {step.step: step.time_s for step in old.steps}
    too_much = [finding.message for finding in report.findings if finding.kind == OUT_OF_MEMORY]
    notes = tuple(dict.fromkeys((*too_much, *report.input.notes, *state.notes, *state.failures)))
    found = replace(
        report,
        points=tuple(_point(point, old, done.uncertainty, played) for point in report.points),
        ops=ops,
        steps=tuple(replace(step, before_s=steps.get(step.step)) for step in report.steps),
        changes=tuple(words),
        input=replace(report.input, notes=notes),
        findings=(),
    )
    host_notes = _host_note(found, done.uncertainty.launched, state.no_idle)
    return replace(
        found, summary=_summary(found, is_measured=played is None), input=replace(found.input, notes=(*host_notes, *found.input.notes))
    )


def _replayed(before: Recording, after: Recording, state: State) -> tuple[Recording, tuple[float, float]]:
    """A program after changes whose schedule was played: what was hidden may be exposed now, and the other way round. And its time where
    all ops take the low or the high bound of their predictions, as before the changes.
    """
    ops = before.workload.ops
    predicted = predictions(ops, state.machine, state.calibration)
    floor_s = PlacedOps(ops, state.machine, IDEAL).floor_s
    middle, low, high = (
        replayed(before, after, loads_of(ops, predicted, floor_s, state.machine, bound)) for bound in ("time_s", "low_s", "high_s")
    )
    time_s = middle.coverage.run_s or 0.0
    return middle, (min(low.coverage.run_s or 0.0, time_s), max(high.coverage.run_s or 0.0, time_s))


def _host_note(report: Report, launched: tuple[float, float] | None, no_idle: bool) -> tuple[str, ...]:
    """A note on how far launches limit a predicted step, where they are known."""
    point = _main(report)
    if launched is None or point is None or point.scope != "average" or not point.time_s or point.busy_s is None:
        return ()
    if point.time_s > (1 + NEAR) * point.busy_s:
        more = "; no-idle graph removes that too" if no_idle else ""
        return (f"the device is busy for {_shown(point.busy_s)} of the predicted step and waits for launches in the rest{more}",)
    return ()


def _op(op: OpInfo, was: OpInfo | None, new: Changed | None) -> OpInfo:
    """An op with its time before, and its prediction where it changed."""
    seconds = was.time_s if was else 0.0
    if new is None:
        return replace(op, before_s=seconds)
    least = min(op.floor_s or 0.0, new.time_s)
    expected = Expected(
        time_s=new.time_s, low_s=max(new.low_s, least), high_s=new.high_s, terms=dict(new.terms), evidence=new.evidence, family=new.family
    )
    return replace(op, before_s=seconds, expected=expected, excess_s=None)


def _point(point: Point, old: Report, uncertainty: Uncertainty, played: tuple[float, float] | None) -> Point:
    """A point with its time before, and bounds of its predicted time: those of a schedule that was ``played``, where it was."""
    same = [one for one in old.points if (one.scope, one.step, one.infeed_outfeed) == (point.scope, point.step, point.infeed_outfeed)]
    before = same[0].time_s if same else None
    if point.time_s is None:
        return replace(point, before_s=before)
    steps = 0
    if point.infeed_outfeed and point.busy_s is not None and old.steps:
        steps = len(old.steps) if point.scope == "total" else 1
    low_s, high_s = uncertainty.around(point.time_s, point.time_s if point.busy_s is None else point.busy_s, steps)
    if played is not None:
        low_s, high_s = played
    least = point.floor_s or 0.0
    expected = Expected(
        time_s=point.time_s,
        low_s=max(low_s, least if least < point.time_s else 0.0),
        high_s=high_s,
        evidence=EVIDENCE,
    )
    return replace(point, before_s=before, expected=expected)


def _summary(report: Report, *, is_measured: bool) -> str:
    """The effect of the changes on a step, or on the whole run, in one sentence. Two predictions share their errors."""
    point = _main(report)
    words = " ".join(report.changes)
    if point is None or point.expected is None or not point.before_s or point.time_s is None:
        return f"{words}: no time can be predicted"
    per = " per step" if point.scope == "average" else ""
    low, high = _shown(point.expected.low_s), _shown(point.expected.high_s)
    how = _compared(point.before_s, point.time_s)
    before, after = _shown(point.before_s), _shown(point.time_s)
    if is_measured and point.expected.low_s < point.before_s < point.expected.high_s and how != SAME:
        how += WITHIN_UNCERTAINTY
    return f"{words}: {before} before, {after}{per} predicted ({low} to {high}), {how}."


def _compared(before_s: float, time_s: float) -> str:
    """A time compared with the time before, as words: in percent where they are close.

    >>> _compared(2.0, 1.0), _compared(1.0, 1.04), _compared(1.0, 1.0)
    ('2 times as fast', '4.0% longer', 'unchanged')
    """
    if not time_s:
        return "nothing is left"
    share = time_s / before_s - 1
    if abs(share) < UNCHANGED_SHARE:
        return SAME
    if abs(share) < NEAR:
        return f"{abs(share):.1%} {'longer' if share > 0 else 'shorter'}"
    return f"{plain(1 + share, 3)} times as long" if share > 0 else f"{plain(1 / (1 + share), 3)} times as fast"
