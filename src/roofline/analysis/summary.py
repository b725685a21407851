"""The first two lines of a report: how long and how far from the minimum, and what to do first."""

from collections.abc import Iterable, Sequence

from ..causes import UNPRICED
from ..quantities import NOTABLE
from ..report import Device, Finding, MachineInfo, Point, main_point
from ..schedule import PredictedTime
from ..units import approximate, percent, rounded, show
from .findings.single_ops import ABOVE_ROOF, UNKNOWN
from .memory import OUT_OF_MEMORY

SLOWED = 1.1  # time of a profiled step over that of one without the profiler which is worth a word (a choice)
CPU = "CPU"  # device name of a host CPU
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def summary(
    points: tuple[Point, ...],
    machine: MachineInfo,
    devices: Sequence[Device],
    findings: Sequence[Finding],
    predicted: PredictedTime | None = None,
) -> str:
    """The time of a step or of the program and its minimum time in one line, what to do first in the next."""
    count = predicted.devices if predicted else len(devices)
    point = main_point(points)
    if point is None:
        return ""
    per = f"{' per step' if point.scope == 'average' else ''}{'' if point.infeed_outfeed else ' without infeed and outfeed'}"
    where = _machines(machine, devices)
    if not point.time_s:
        least_s = point.floor_s if point.floors_s is None else point.floors_s
        partly = None in (*point.work.values(), *point.bytes.values())
        if partly and not least_s:
            return f"The minimum time{per} on {where} is not known: no op has a known cost."
        first = f"Minimum time {'at least ' if partly else ''}{show(rounded(least_s, 3), 's')}{per} on {where}"
        first += "; the cost of some ops is not known." if partly else "."
        return _lines([first, _utilization(point), *_throughput(point, count, "At most ")], _start(findings, None))
    how = " predicted" if predicted else ""
    first = f"{show(rounded(point.time_s, 3), 's')}{per}{how}{_unprofiled(point)} on {where}{_minimum(point, findings)}."
    return _lines([first, _utilization(point), *_throughput(point, count)], _start(findings, point))


def _lines(sentences: Iterable[str], start: str) -> str:
    return "\n".join(filter(None, [" ".join(filter(None, sentences)), start]))


def _unprofiled(point: Point) -> str:
    """The time without the profiler, where that slowed the host."""
    if not point.time_s or not point.unprofiled_s or point.time_s < SLOWED * point.unprofiled_s:
        return ""
    return f" (profiled; {show(rounded(point.unprofiled_s, 3), 's')} without the profiler)"


def _minimum(point: Point, findings: Sequence[Finding]) -> str:
    """The minimum time of the program, as far as the costs of its ops are known."""
    assert point.time_s
    if point.at_roof_s is None:
        return ""
    if not point.at_roof_s:
        return "; its minimum is not known"
    if findings and findings[0].kind == ABOVE_ROOF and point.floor_s is not None and point.floor_s > point.time_s:
        return f", faster than its minimum allows ({show(rounded(point.floor_s, 3), 's')}): check the counts and the ceilings"
    least = show(rounded(point.at_roof_s, 3), "s")
    if point.lost.get(UNPRICED, 0.0) >= NOTABLE * point.time_s:
        return f"; {least} is the minimum of the ops that have one"
    best = next((finding for finding in findings if finding.saving_s), None)
    after_s = point.time_s - (best.saving_per_step_s or best.saving_per_device_s or best.saving_s or 0.0) if best else point.time_s
    written = " as written" if after_s < point.at_roof_s else ""  # the first finding reduces the work below that
    return f"; {least} is its minimum{written}"


def _throughput(point: Point, devices: int, most: str = "") -> Iterable[str]:
    """Throughput in tokens, samples or requests, where their number per step was given."""
    for word, found in point.throughput.items():
        each = f", {approximate(found.per_device_s)} per device" if devices > 1 else ""
        dollar = f", {approximate(found.per_dollar)} per dollar" if found.per_dollar else ""
        yield f"{most}{approximate(found.per_s)} {word}/s{each}, {approximate(found.per_chip_hour)} per chip-hour{dollar}."


def _machines(machine: MachineInfo, devices: Sequence[Device]) -> str:
    count, title = len(devices) or 1, machine.title or machine.name
    assumed = " (assumed)" if machine.assumed and machine.ceilings else ""
    hosts = len({device.host for device in devices})
    if hosts < len(devices) and all(device.name == CPU for device in devices):  # one CPU can be several devices
        return f"{_number(count)} devices of {_number(hosts)} {title}{assumed}"
    if machine.scope == "device" and machine.devices_per_chip > 1:
        plural = "s" if count > 1 else ""
        return f"{_number(count)} device{plural} of {title} ({_number(machine.devices_per_chip)} a chip){assumed}"
    return f"{_number(count)} {title}{assumed}"


def _number(count: int) -> str:
    return _NUMBERS[count] if count < len(_NUMBERS) else f"{count:,}"


def _utilization(point: Point) -> str:
    shares = [f"{word} {percent(value)}" for word, value in (("MFU", point.mfu), ("HFU", point.hfu)) if value]
    if len(shares) == 2 and shares[0].removeprefix("MFU") == shares[1].removeprefix("HFU"):
        shares = shares[:1]
    return f"{', '.join(shares)}." if shares else ""


def _start(findings: Sequence[Finding], point: Point | None) -> str:
    """Where to start: what to record, if most is not known, else the first finding with a saving."""
    if findings and findings[0].kind == UNKNOWN and findings[0].levers:
        return f"To know more, {findings[0].levers[0]}."
    if findings and findings[0].kind == OUT_OF_MEMORY:
        return f"Does not fit into {findings[0].title}."
    best = next((finding for finding in findings if finding.saving_s), None)
    if best is None:
        if point is not None and point.scope == "average":
            return "No single change saves more than 1%."
        return ""
    return f"First: {best.title} ({_effect(best, point)})."


def _effect(best: Finding, point: Point | None) -> str:
    """What a change does: the time before and after it, else what it saves."""
    if best.predicted is not None:
        return f"{show(rounded(best.predicted.before_s, 3), 's')} to {show(rounded(best.predicted.time_s, 3), 's')}"
    if point is not None and point.time_s and point.scope == "average" and best.saving_per_step_s:
        return f"{show(rounded(point.time_s, 3), 's')} to {show(rounded(point.time_s - best.saving_per_step_s, 3), 's')}"
    return f"saves about {show(rounded(best.saving_per_device_s or best.saving_s, 2), 's')}"
