"""What is known of a step beside its profile: how many tokens, samples or requests it handles, and its time without the profiler."""

from collections.abc import Mapping

from msgspec.structs import replace

from ..errors import UsageError
from ..report import Point, Report, Throughput
from ..units import parse
from .summary import summary

HOUR_S = parse("1 h", "s")


def with_throughput(report: Report, per_step: Mapping[str, float], price: float | None = None) -> Report:
    """A report with the throughput of its steps on all devices together; ``per_step`` is how many tokens (samples, …) one step handles,
    ``price`` what an hour of one chip costs.

    A program that was not run is one step at its minimum time, so that its throughput is an upper bound.
    """
    if not per_step:
        return report
    timed = any(point.time_s for point in report.points)
    if timed and all(point.scope != "average" for point in report.points):
        raise UsageError("throughput per step needs steps, and this input has none; mark them with jax.profiler.StepTraceAnnotation")
    devices = report.predicted.devices if report.predicted else len(report.input.devices) or 1
    chips = max(devices / report.machine.devices_per_chip, 1)

    def with_rates(point: Point) -> Point:
        seconds = _seconds(point, timed)
        if not seconds:
            return point
        rates = {word: amount / seconds for word, amount in per_step.items()}
        found = {}
        for word, rate in rates.items():
            per_chip_hour = rate / chips * HOUR_S
            found[word] = Throughput(
                per_s=rate,
                per_device_s=rate / devices,
                per_chip_hour=per_chip_hour,
                per_dollar=per_chip_hour / price if price else None,
            )
        return replace(point, throughput=found)

    return _with_points(report, tuple(with_rates(point) for point in report.points))


def with_unprofiled(report: Report, seconds: float) -> Report:
    """A report with the time of a step without the profiler, if it is known and there are steps."""
    if not seconds or all(point.scope != "average" for point in report.points):
        return report
    points = (replace(point, unprofiled_s=seconds) if point.scope == "average" else point for point in report.points)
    return _with_points(report, tuple(points))


def _with_points(report: Report, points: tuple[Point, ...]) -> Report:
    sentence = summary(points, report.machine, report.input.devices, report.findings, report.predicted)
    return replace(report, points=points, summary=sentence)


def _seconds(point: Point, timed: bool) -> float | None:
    """The time of a step: measured, or the minimum of a program that was not run."""
    if timed:
        return point.time_s if point.scope in ("average", "step") else None
    if point.scope != "total":
        return None
    return point.floor_s if point.floors_s is None else point.floors_s
