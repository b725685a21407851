"""What if another program replaces the measured one.

Its ops are matched to the measured ones by scope and kind. The time of a group that both have is scaled from its measured time, like that
of a changed op; for ops of a new scope, from that of measured ops of the same kind, if any; other ops take their expected time. If the
other program is fused by roofline's model, the expected time of the measured program uses the same model: the extra stores and copies of
its compiler are in the measured times, and so are carried over.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import hypot, log2

from msgspec import Struct, field
from msgspec.structs import replace

from ...hlo.ir.module import HloModule
from ...hlo.ir.platforms import platform_of
from ...machine import Machine
from ...machines.calibrations import calibration_for
from ...operation import Product, RowWise, Streamed
from ...report import Expected, OpInfo, Report
from ...units import plain, rounded, show
from ...workload import Coverage, IdleReason, Op, Recording, Step, Workload
from .. import assemble
from ..expected_times import predict_op
from .changed_steps import DISPATCH, FIRST_WAIT_S, host_wait_s
from .changed_times import REFORMATTED, anchored, bounds
from .modelled_program import modelled, share_of_step

TRANSPOSE = "transpose"  # elementwise transposes are not representative of other streaming kernels
STREAMED = "streamed"  # streaming kernels, which every compiler fuses differently
Kind = str
Group = tuple[str, Kind]  # a scope and a kind of op


class _Total(Struct):
    """The measured and expected seconds of a group's ops in one step."""

    measured_s: float = 0.0
    expected_s: float = 0.0
    floor_s: float = 0.0
    family: str = ""
    formats: set[str] = field(default_factory=set)  # of products

    def add(self, found: Expected, op: Op, times: float = 1.0) -> None:
        """Add an op that is expected to run ``times`` times."""
        self.family = found.family
        if isinstance(op.operation, Product):
            self.formats.add(op.operation.compute)
        self.expected_s += found.time_s * times
        self.floor_s += found.terms.get("floor", 0.0) * times

    @property
    def prediction(self) -> Expected:
        seconds = self.expected_s
        return Expected(time_s=seconds, low_s=seconds, high_s=seconds, terms={"floor": self.floor_s}, evidence="", family=self.family)


class _Timed(Struct, frozen=True):
    """An op of the other program: its seconds with bounds, and its part of the measured group's seconds."""

    op: Op
    time_s: float
    low_s: float
    high_s: float
    before_s: float
    found: Expected


def replaced(
    measured: Recording, program: Recording, machine: Machine, name: str, programs: Mapping[str, HloModule] | None = None
) -> Report:
    """The report on one step of another program, from the measured times of the one that it replaces.

    ``programs`` are the measured ones, if the other one is not compiled but fused by roofline's model.
    """
    steps = [step for step in measured.steps if step.steady and step.complete and step.followed] or list(measured.steps)
    before = _groups(measured, machine, steps, programs or {})
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
    low, high = bounds((one.found.family, one.time_s, one.low_s, one.high_s) for one in timed)
    if measured.steps:  # the time that the device waits for the host may change
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
    return STREAMED if op.operation is None or isinstance(op.operation, Streamed | RowWise) else type(op.operation).__name__


def _groups(measured: Recording, machine: Machine, steps: Sequence[Step], programs: Mapping[str, HloModule]) -> dict[Group, _Total]:
    """The measured ops of one step by scope and kind, with their expected times; scope ``*`` has all ops of a kind."""
    calibration = calibration_for(machine).for_kernels()
    devices = max(len(measured.devices), 1)
    found: dict[Group, _Total] = {}

    def expect(op: Op, times: float) -> bool:
        predicted = predict_op(op, machine, calibration)
        if predicted is None:
            return False
        for total in totals(op):
            total.add(predicted, op, times)
        return True

    def totals(op: Op) -> list[_Total]:
        return [found.setdefault((scope, _kind(op)), _Total()) for scope in (op.scope, "*")]

    for op, times in modelled(measured, programs, steps, platform_of(machine)):
        expect(op, times)
    for op in measured.workload:
        share = share_of_step(op, steps) / devices
        if expect(op, 0.0 if op.module in programs else share):
            for total in totals(op):
                total.measured_s += share * ((op.time_s or 0.0) if op.self_time_s is None else op.self_time_s)
    return {group: total for group, total in found.items() if total.measured_s and total.expected_s}


def _anchored(ops: Iterable[Op], before: Mapping[Group, _Total], machine: Machine) -> tuple[list[_Timed], list[str]]:
    """The ops with their times, and the names of those without any."""
    calibration = calibration_for(machine).for_kernels()
    predictions = [(op, predict_op(op, machine, calibration)) for op in ops]
    after: dict[Group, _Total] = {}
    for op, found in predictions:
        if found is not None:
            after.setdefault((op.scope, _kind(op)), _Total()).add(found, op)
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
    """The measured over expected time of a group."""
    if not new.expected_s or not old.expected_s:
        return 1.0
    doublings = abs(log2(new.expected_s / old.expected_s))
    return anchored(old.measured_s, old.prediction, new.prediction, doublings)[0] / new.expected_s


def _step(measured: Recording, steps: Sequence[Step]) -> tuple[float, float]:
    """The time and busy time of the average measured step on one device; of the whole run without steps."""
    times = [step.time_s for step in steps if step.time_s is not None]
    if times:
        busy = [step.busy_s for step in steps if step.busy_s is not None]
        return sum(times) / len(times), sum(busy) / len(busy) if busy else 0.0
    devices = max(len(measured.devices), 1)
    spent = sum((op.time_s or 0.0) if op.self_time_s is None else op.self_time_s for op in measured.workload) / devices
    cover = measured.coverage
    return (float(cover.run_s) if cover.run_s else spent), (float(cover.busy_s) / devices if cover.busy_s else spent)


def _idle(measured: Recording, steps: Sequence[Step], more: float) -> tuple[IdleReason, ...]:
    """The idle time of one step: dispatch idle time shrinks as the device's work grows by ``more`` seconds, the rest stays."""
    devices, keys = max(len(measured.devices), 1), {step.step for step in steps}
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
    return replace(row, before_s=one.before_s, expected=expected, excess_s=None)


def _evidence(timed: Sequence[_Timed], before: Mapping[Group, _Total]) -> str:
    own = sum(one.time_s for one in timed if (one.op.scope, _kind(one.op)) in before)
    whole = sum(one.time_s for one in timed)
    return f"{own / whole if whole else 0.0:.0%} of the time is predicted from measured ops of the same scope and kind"


def _summary(name: str, before_s: float, expected: Expected) -> str:
    low, high = (show(rounded(seconds, 3), "s") for seconds in (expected.low_s, expected.high_s))
    old, new = (show(rounded(seconds, 3), "s") for seconds in (before_s, expected.time_s))
    times = before_s / expected.time_s if expected.time_s else 0.0
    how = f"{plain(times, 3)} times as fast" if times >= 1 else f"{plain(1 / times, 3)} times as long" if times else "nothing is left"
    return f"{name} instead: {old} before, {new} per call predicted ({low} to {high}), {how}."
