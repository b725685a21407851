"""Selection: the parts of a report's ops that ran in some steps, on some devices or on some hosts."""

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from .errors import UsageError
from .op_parts import part
from .report import OpInfo, Report
from .workload import COUNTED, averaged

Words = str | Iterable[str] | None

NUMBERING = r"(?:[._](?:\d+|clone|remat\d*))+$"  # what compilers append to tell copies of one op apart
_NUMBERING = re.compile(NUMBERING)


def stem(name: str) -> str:
    """A name without the numbering that tells copies of one op apart.

    >>> stem("fusion.12"), stem("loop_add_fusion.3.clone.1"), stem("conv2d")
    ('fusion', 'loop_add_fusion', 'conv2d')
    """
    return _NUMBERING.sub("", name) or name


def narrow(
    report: Report,
    *,
    step: Sequence[str | int] | None = None,
    device: Sequence[int] | None = None,
    host: Words = None,
) -> Sequence[OpInfo]:
    """The ops of a report with the part of each that ran in these steps, or on these devices, or on these hosts; longest first.

    A step is the number that the report gives it, or a name that several share. Times are those of the part; count, kernels, work, bytes
    and floors follow the executions that fell into it, self time its time. The bound stays that of the whole op. Steps together with
    devices or hosts need a report with times per step and device, as reports of profiles have.
    """
    if step is None and device is None and host is None:
        return report.ops
    steps = None if step is None else step_keys(report, step)
    devices = None if device is None and host is None else device_ids(report, device, host)
    if steps is None:
        rows = [(share.op, share.count, share.time_s) for share in report.by_device if share.device in (devices or ())]
    elif devices is None or {share.device for share in report.by_device} <= devices:
        rows = [(share.op, share.count, share.time_s) for share in report.by_step if share.step in steps]
    else:
        rows = _steps_on_devices(report, steps, devices)
    parts: dict[int, tuple[float, float]] = {}
    for id, count, time_s in rows:
        had = parts.get(id, (0, 0.0))
        parts[id] = (had[0] + count, had[1] + time_s)
    kept = [_counted_part(op, *parts[op.id]) for op in report.ops if parts.get(op.id, (0, 0.0))[0]]
    return tuple(sorted(kept, key=lambda op: (-(op.time_s or 0.0), op.rank)))


def per_step(
    report: Report,
    *,
    step: Sequence[str | int] | None = None,
    device: Sequence[int] | None = None,
    host: Words = None,
) -> Sequence[OpInfo] | None:
    """The ops of a report as they are in one step on one device: means over the averaged steps, or over those given, longest first.

    ``None`` without steps, or where some devices are selected but the report has no times by step and device at once.
    """
    keys = step_keys(report, step) if step is not None else {one.step for one in averaged(report.steps)}
    if not keys or not report.by_step:
        return None
    every, devices = chosen_devices(report), chosen_devices(report, device, host)
    if devices < every and not report.by_step_and_device:
        return None
    return per_device(narrow(report, step=sorted(keys), device=device, host=host), len(keys) * devices)


def chosen_devices(report: Report, device: Sequence[int] | None = None, host: Words = None) -> int:
    """How many devices ran the ops of a report, or how many of them are selected; 1 where it does not record any."""
    if device is None and host is None:
        return len({share.device for share in report.by_device}) or 1
    return len(device_ids(report, device, host)) or 1


def per_device(ops: Sequence[OpInfo], devices: int) -> Sequence[OpInfo]:
    """Ops as the mean over ``devices`` devices (or over steps times devices): times and amounts divided by that number."""
    if devices == 1:
        return ops
    return tuple(op if op.time_s is None else _counted_part(op, _divided(op.count, devices), op.time_s / devices) for op in ops)


def _divided(count: float, parts: int) -> float:
    """A count divided by ``parts``; whole numbers stay whole where they can."""
    return count // parts if isinstance(count, int) and not count % parts else count / parts


def _steps_on_devices(report: Report, steps: set[int], devices: set[int]) -> list[tuple[int, float, float]]:
    """The parts of ops that ran in these steps on these devices."""
    several = {share.device for share in report.by_device}
    if len(several) > 1 and not report.by_step_and_device:
        raise UsageError("this input has times by step and by device, but not by both at once; filter by one of them")
    return [
        (one.op, count, time_s)
        for one in report.by_step_and_device
        if one.device in devices
        for key, count, time_s in zip(one.steps, one.counts, one.times_s, strict=True)
        if key in steps
    ]


def step_keys(report: Report, words: Sequence[str | int]) -> set[int]:
    keys = {share.step for share in report.by_step}
    if not keys:
        raise UsageError("this input has no steps; mark them with jax.profiler.StepTraceAnnotation")
    found: set[int] = set()
    for word in words:
        named = {one.step for one in report.steps if one.name == word}
        if not named and str(word).isdecimal() and int(word) in keys:
            named = {int(word)}
        if not named:
            raise UsageError(f"no step {word!r}; the steps are {min(keys)} to {max(keys)}{_named_steps(report)}")
        found |= named
    return found


def _named_steps(report: Report) -> str:
    names = dict.fromkeys(one.name for one in report.steps if one.name)
    return f", named {', '.join(map(repr, list(names)[:5]))}" if names else ""


def device_ids(report: Report, device: Sequence[int] | None, host: Words) -> set[int]:
    ids = {share.device for share in report.by_device}
    if not ids:
        raise UsageError("this input does not record devices; leave out device and host")
    wanted = set(ids if device is None else device)
    if missing := sorted(wanted - ids):
        raise UsageError(f"no device {missing[0]}; the devices are {', '.join(map(str, sorted(ids)))}")
    if host is not None:
        hosts = _folded(host)
        known = {one.host.casefold(): one.host for one in report.input.devices if one.host}
        if lost := sorted(hosts - set(known)):
            raise UsageError(f"no host named {lost[0]!r}; the hosts are {', '.join(sorted(known.values())) or 'not named'}")
        wanted &= {one.id for one in report.input.devices if one.host.casefold() in hosts}
    return wanted


def _counted_part(op: OpInfo, count: float, time_s: float) -> OpInfo:
    """An op reduced to some of its executions, with a note on how many."""
    if count == op.count and op.time_s == time_s:
        return op
    return replace(part(op, count, time_s), notes=(*op.notes, f"{COUNTED}{count:g} of {op.count:g} executions"))


def _folded(words: Words) -> frozenset[str]:
    return frozenset(word.casefold() for word in ([words] if isinstance(words, str) else words or ()))
