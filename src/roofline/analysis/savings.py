"""Savings of findings on the wall clock: device-seconds divided by devices and steps."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ..report import Finding, StepShare
from .advice import in_order


def with_wall_clock(
    findings: Iterable[Finding], time_s: Sequence[float | None], floor_s: Sequence[float], steps: Iterable[StepShare], devices: int
) -> tuple[Finding, ...]:
    """Findings with their saving per device over the whole run, and per device and step where there are steps, in order.

    Per step counts only the ops' time in steps. ``time_s`` is the time of each op, in the order of ids, ``floor_s`` its minimum, which
    decides on the order of findings without savings about a program that was not run.
    """
    times = [seconds or 0.0 for seconds in time_s]
    in_steps = [0.0] * len(times)
    keys = set()
    for share in steps:
        keys.add(share.step)
        in_steps[share.op] += share.time_s

    def spread(finding: Finding) -> Finding:
        if finding.saving_s is None:
            return finding
        each, per_step = finding.saving_s / max(devices, 1), None
        if keys:
            whole = sum([times[op] for op in finding.ops])
            share = sum([in_steps[op] for op in finding.ops]) / whole if whole else float(not finding.ops)  # idle time belongs to no op
            per_step = each * share / len(keys) if share else None
        if finding.saving_per_step_s is not None:
            per_step = finding.saving_per_step_s
        return replace(finding, saving_per_device_s=each, saving_per_step_s=per_step)

    parts = max(devices, 1) * len(keys)
    mine = [None if whole is None else part / parts for whole, part in zip(time_s, in_steps, strict=True)] if parts else time_s
    return in_order(map(spread, findings), mine, floor_s if not any(times) else ())
