"""What if another program took the place of the one that was measured.

Its ops are matched to the measured ones by scope and kind. A group that both have is anchored on its measured time, as an op that changes
is; ops of a scope that was not there take what such ops take here, if any were measured; the others take their expected time.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import hypot, log2

from msgspec import Struct, field
from msgspec.structs import replace

from ..changed_times import DISPATCH, FIRST_WAIT_S, REFORMATTED, anchored, bounds, host_wait_s
from ..machine import Machine
from ..machines.calibrations import calibration_for
from ..operation import Product, Streamed
from ..prediction import Prediction
from ..report import Expected, OpInfo, Report
from ..units import rounded, show
from ..workload import Coverage, IdleReason, Op, Recording, Step, Workload
from . import assemble
from .expectation import expectation

TRANSPOSE = "transpose"  # what is taken element by element says nothing about other streams
Kind = str
Group = tuple[str, Kind]  # a scope and a kind of op


class _Total(Struct):
    """The ops of a group in one step: their measured and expected seconds."""

    measured_s: float = 0.0
    expected_s: float = 0.0
    floor_s: float = 0.0
    family: str = ""
    formats: set[str] = field(default_factory=set)  # of products

    def add(self, seconds: float, found: Prediction, op: Op) -> None:
        self.family = found.family
        if isinstance(op.operation, Product):
            self.formats.add(op.operation.compute)
        self.measured_s += seconds
        self.expected_s += found.time_s
        self.floor_s += found.terms.get("floor", 0.0)

    @property
    def prediction(self) -> Prediction:
        seconds = self.expected_s
        return Prediction(time_s=seconds, low_s=seconds, high_s=seconds, terms={"floor": self.floor_s}, evidence="", family=self.family)


class _Timed(Struct, frozen=True):
    """An op of the other program: its seconds and their bounds, and those of its part of the measured group."""

    op: Op
    time_s: float
    low_s: float
    high_s: float
    before_s: float
    found: Prediction


def replaced(measured: Recording, program: Recording, machine: Machine, name: str) -> Report:
    """The report on one step of another program, by the measured times of the one whose place it takes."""
    steps = [step for step in measured.steps if step.steady and step.complete and step.followed] or list(measured.steps)
    before = _groups(measured, machine, steps)
    timed, unknown = _anchored(program.workload.ops, before, machine)
    busy = sum(one.time_s for one in timed)
    step_s, busy_s = _step(measured, steps)
    idle = _idle(measured, steps, busy - busy_s)
    whole = busy + sum(one.time_s for one in idle)
    coverage = Coverage(wall_s=whole, run_s=whole, busy_s=busy, attributed_s=busy, priced_s=busy)
    ops = tuple(replace(one.op, time_s=one.time_s) for one in timed)
    after = replace(program, workload=Workload(ops), coverage=coverage, idle=idle, devices=measured.devices)
    report = assemble(after, machine)
    rows = tuple(_row(row, timed) for row in report.ops)
    low, high = bounds({place: (one.found.family, one.time_s, one.low_s, one.high_s) for place, one in enumerate(timed)})
    if measured.steps:  # the device may wait less for the host, or longer
        waits = min(host_wait_s(measured), whole - busy)
        low, high = hypot(low, waits), hypot(high, waits, FIRST_WAIT_S)
    expected = Expected(time_s=whole, low_s=max(whole - low, 0.0), high_s=whole + high, evidence=_evidence(timed, before))
    points = tuple(replace(one, before_s=step_s, expected=expected) if one.scope == "total" else one for one in report.points)
    notes = [*report.input.notes, *([f"no expected time, left out: {', '.join(sorted(set(unknown)))}"] if unknown else [])]
    summary = _summary(name, step_s, expected)
    return replace(
        report,
        ops=rows,
        points=points,
        changes=("program", name),
        findings=(),
        summary=summary,
        input=replace(report.input, notes=tuple(notes)),
    )


def _kind(op: Op) -> Kind:
    if isinstance(op.operation, Streamed) and op.operation.kind == TRANSPOSE:
        return TRANSPOSE
    return type(op.operation).__name__ if op.operation is not None else "other"


def _share(op: Op, steps: Sequence[Step]) -> float:
    """The part of an op's executions that one of these steps has on average, on one device."""
    if not steps or not op.by_step or not op.time_s:
        return 1.0 / max(len(steps), 1)
    keys = {step.key for step in steps}
    return sum(share.time_s for share in op.by_step if share.key in keys) / op.time_s / len(steps)


def _groups(measured: Recording, machine: Machine, steps: Sequence[Step]) -> dict[Group, _Total]:
    """The measured ops of one step by scope and kind; under the scope ``*`` all of a kind."""
    calibration = calibration_for(machine).for_kernels()
    devices = max(len(measured.devices), 1)
    found: dict[Group, _Total] = {}
    for op in measured.workload:
        predicted = expectation(op, machine, calibration)
        own = (op.time_s or 0.0) if op.self_time_s is None else op.self_time_s
        if predicted is None or not own:
            continue
        share = _share(op, steps) / devices
        scaled = replace(predicted, time_s=predicted.time_s * share, terms={key: term * share for key, term in predicted.terms.items()})
        for group in ((op.scope, _kind(op)), ("*", _kind(op))):
            found.setdefault(group, _Total()).add(own * share, scaled, op)
    return found


def _anchored(ops: Iterable[Op], before: Mapping[Group, _Total], machine: Machine) -> tuple[list[_Timed], list[str]]:
    """The ops with their times, and the names of those that nothing is known about."""
    calibration = calibration_for(machine).for_kernels()
    predictions = [(op, expectation(op, machine, calibration)) for op in ops]
    after: dict[Group, _Total] = {}
    for op, found in predictions:
        if found is not None:
            after.setdefault((op.scope, _kind(op)), _Total()).add(0.0, found, op)
    timed: list[_Timed] = []
    unknown = [op.name for op, found in predictions if found is None and op.cost.amounts]
    for op, found in predictions:
        if found is None:
            continue
        new = after[op.scope, _kind(op)]
        own = before.get((op.scope, _kind(op)))
        old = own or before.get(("*", _kind(op)))
        ratio = _ratio(old, new) if old else 1.0
        was = own.measured_s * found.time_s / new.expected_s if own and new.expected_s else 0.0
        power = REFORMATTED if old and isinstance(op.operation, Product) and op.operation.compute not in old.formats else 1.0
        low, high = ((each / found.time_s) ** power * found.time_s * ratio for each in (found.low_s, found.high_s))
        timed.append(_Timed(op, found.time_s * ratio, low, high, was, found))
    return timed, unknown


def _ratio(old: _Total, new: _Total) -> float:
    """By how much ops of a group take longer than expected, judged by those that were measured."""
    if not new.expected_s or not old.expected_s:
        return 1.0
    doublings = abs(log2(new.expected_s / old.expected_s))
    return anchored(old.measured_s, old.prediction, new.prediction, doublings)[0] / new.expected_s


def _step(measured: Recording, steps: Sequence[Step]) -> tuple[float, float]:
    """The seconds of the average step that was measured, and those it was busy, on one device; without steps of the whole."""
    times = [step.time_s for step in steps if step.time_s is not None]
    if times:
        busy = [step.busy_s for step in steps if step.busy_s is not None]
        return sum(times) / len(times), sum(busy) / len(busy) if busy else 0.0
    devices = max(len(measured.devices), 1)
    spent = sum((op.time_s or 0.0) if op.self_time_s is None else op.self_time_s for op in measured.workload) / devices
    cover = measured.coverage
    return (float(cover.run_s) if cover.run_s else spent), (float(cover.busy_s) / devices if cover.busy_s else spent)


def _idle(measured: Recording, steps: Sequence[Step], more: float) -> tuple[IdleReason, ...]:
    """The idle time of one step: that of dispatch shrinks as the device's work grows by ``more`` seconds, the other stays."""
    devices, keys = max(len(measured.devices), 1), {step.key for step in steps}
    found = []
    for one in measured.idle:
        seconds = sum(share.time_s for share in one.by_step if share.key in keys) / len(steps) if steps else one.time_s
        seconds /= devices
        if one.kind == DISPATCH and seconds:
            seconds, more = max(seconds - more, 0.0), max(more - seconds, 0.0)
        if seconds:
            found.append(replace(one, time_s=seconds, by_step=()))
    return tuple(found)


def _row(row: OpInfo, timed: Sequence[_Timed]) -> OpInfo:
    one = timed[row.id]
    expected = Expected(
        time_s=one.time_s,
        low_s=one.low_s,
        high_s=one.high_s,
        terms=dict(one.found.terms),
        evidence=one.found.evidence,
        family=one.found.family,
    )
    return replace(row, before_s=one.before_s, expected=expected, inherent_s=None, excess_s=None)


def _evidence(timed: Sequence[_Timed], before: Mapping[Group, _Total]) -> str:
    own = sum(one.time_s for one in timed if (one.op.scope, _kind(one.op)) in before)
    whole = sum(one.time_s for one in timed)
    return f"{own / whole if whole else 0.0:.0%} of the time is in ops that match measured ones by scope and kind, and is anchored on them"


def _summary(name: str, before_s: float, expected: Expected) -> str:
    low, high = (show(rounded(seconds, 3), "s") for seconds in (expected.low_s, expected.high_s))
    old, new = (show(rounded(seconds, 3), "s") for seconds in (before_s, expected.time_s))
    times = before_s / expected.time_s if expected.time_s else 0.0
    how = f"{times:.3g} times as fast" if times >= 1 else f"{1 / times:.3g} times as long" if times else "nothing is left"
    return f"{name} in its place: {old} before, {new} a call predicted ({low} to {high}), {how}."
