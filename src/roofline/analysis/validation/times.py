"""The second acceptance check: measured times against [minimum, serial time], and against each other.

No op can be faster than its minimum time; the serial time, of resources used one after the other at the rates that programs sustain, plus
a launch for each kernel, bounds it from above within a factor. Times of steps, devices and ops must add up.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from ...report import OpInfo, Report
from ...units import percent, plain, show
from .acceptance import TIMES, AcceptanceCheck, Problem, made_check

# The thresholds are choices, as `docs/validate.md` gives them: wrong figures are off by far more, right ones by less.
BELOW, BELOW_SHARE = 0.98, 0.01  # of an op's minimum time; of the busy time that faster ops may take
LONGEST = 3.0  # times the serial time: a program that is busy for longer has wrong times
SUSTAINED = 0.75  # of the rates, in the serial time
CACHED = 1.1  # times the memory's rate: faster ops are explained by a cache that can hold their data
CACHES = ("l2", "l3", "slc", "infinity_cache")
MISSING = 0.001  # of the time of a profile's ops that may be missing in the report
ROUNDING = 0.02  # relative difference of times that should be equal
STEP_APART, CPU_STEP_APART = 1.25, 1.5  # allowed factor between steps' ratios of op time to busy time, which concurrent kernels vary
FITS = 0.005  # largest difference of the ratios for steps in the right order
SWAPPED, MOST_SWAPPED, TIMES_APART = 0.001, 0.01, 4  # for swapped steps: least differences, and least factor over those in the right order
COLD = 1.5  # times the later steps: a longer first step ran cold
THOUSAND = (500.0, 2000.0)  # factors that are taken for a wrong unit of time
ALMOST_ALL, UNEXPLAINED = 0.9, 100.0  # of the busy time; times faster than allowed, which neither a cache nor a wrong count explains
NAMED = 3  # ops in a message


def time_bounds(report: Report) -> AcceptanceCheck:
    """Check that ops and the program are within their bounds, and that steps and devices add up."""
    timed = [op for op in report.ops if op.time_s and op.efficiency]
    busy = sum(op.weight_s for op in timed)
    is_estimated = _is_estimated(report)
    longest = LONGEST * LONGEST if is_estimated else LONGEST
    expected = (
        f"at most {percent(BELOW_SHARE)} of the busy time in ops below {BELOW} of their minimum, "
        f"and the program within {longest:g} times its serial time{' by estimated rates' if is_estimated else ''}"
    )
    if not timed or not busy:
        return made_check(TIMES, expected, "no measured times", checked=False)
    below, excused = _below(report, timed)
    launch_s = report.machine.launch_latency_s or 0.0
    bounds = {op.id: (op.serial_s or 0.0) / SUSTAINED + (op.kernels or op.count) * launch_s for op in timed}
    serial = sum(bounds.values())
    above = [op for op in timed if op.weight_s > bounds[op.id]]
    share = sum(op.weight_s for op in below) / busy
    saw = f"{percent(share)} below; the program at {plain(busy / serial, 3)} times its serial time" if serial else f"{percent(share)} below"
    slow = list(_too_slow(timed, bounds)) if serial and busy > LONGEST * serial else []
    is_allowed = busy <= longest * serial
    problems = [
        *(_too_fast(below, share) if share > BELOW_SHARE else ()),
        *(() if is_allowed else slow),
        *_missing_ops(report),
        *_steps(report),
        *_devices(report),
    ]
    notes = [
        *excused,
        *(f"{failure.message}; the rates of this CPU are estimates: run roofline chips measure" for failure in slow if is_allowed),
    ]
    if above:
        most = sorted(above, key=lambda op: -op.weight_s)
        part = sum(op.weight_s for op in above) / busy
        notes.append(f"above their serial time: {len(above):,} ops, {percent(part)} of the busy time: {_named(most)}")
    return made_check(TIMES, expected, saw, problems, notes)


def _is_estimated(report: Report) -> bool:
    return report.machine.kind == "cpu" and any(one.provenance == "derived" for one in report.machine.ceilings)


def _below(report: Report, timed: Sequence[OpInfo]) -> tuple[list[OpInfo], list[str]]:
    """Ops faster than their minimum, and why some of them are excused: a cache can hold their data, or their roof is an estimate."""
    provenance = {one.resource.partition("/")[0]: one.provenance for one in report.machine.ceilings}
    cache_bytes = max((one.bytes for one in report.machine.capacities if one.level in CACHES), default=0.0)
    below, estimated, cached = [], [], []
    for op in timed:
        if (op.efficiency or 0.0) <= 1 / BELOW:
            continue
        if report.machine.kind == "cpu" and provenance.get(str(op.bound), "derived") == "derived":
            estimated.append(op)
        elif op.bound == "hbm" and (op.efficiency or 0.0) < CACHED and (op.bytes.get("hbm") or 0.0) <= cache_bytes * float(op.count):
            cached.append(op)
        else:
            below.append(op)
    notes = []
    if estimated:
        notes.append(
            f"{len(estimated):,} ops are faster than the estimated rates of this CPU allow; run roofline chips measure: {_named(estimated)}"
        )
    if cached:
        notes.append(f"{len(cached):,} ops are up to {percent(CACHED - 1)} faster than main memory allows; a cache can hold their data")
    return below, notes


def _too_fast(below: Sequence[OpInfo], share: float) -> Iterator[Problem]:
    """One problem per bound of ops that are faster than their minimum time, with its likely cause: a wrong count, else the clock."""
    factor = median(op.efficiency or 1.0 for op in below)
    if share > ALMOST_ALL and factor > UNEXPLAINED:
        message = f"{_named(below)}: {plain(factor, 3)} times faster than their resources allow ({percent(share)} of the busy time)"
        yield Problem(input="clock", message=f"{message}: times of another unit (microseconds read as nanoseconds, or the like)")
        return
    for bound in dict.fromkeys(str(op.bound) for op in below):
        mine = [op for op in below if op.bound == bound]
        factor = median(op.efficiency or 1.0 for op in mine)
        wrong, cause = _cause_of_speed(bound, factor)
        message = f"{_named(mine)}: {plain(factor, 3)} times faster than {bound} allows ({percent(share)} of the busy time): {cause}"
        yield Problem(input=wrong, message=message, ops=tuple(op.id for op in mine))


def _cause_of_speed(bound: str, factor: float) -> tuple[str, str]:
    if THOUSAND[0] < factor < THOUSAND[1]:
        return "clock", "times a thousandth of the true ones (microseconds read as nanoseconds, or the like)"
    if bound == "matrix":
        return "FLOP", "FLOP counted twice or with padding, or the peak of a slower format"
    if bound == "vector":
        return "unit", "work of the matrix unit counted on the vector unit, or the peak of a slower format"
    if bound in ("hbm", *CACHES):
        return "cache", "bytes that a cache held are counted as main memory traffic (a cold cache assumed), or bytes are counted twice"
    return "communication", "the link is faster than its rate here, or its bytes are counted twice"


def _too_slow(timed: Sequence[OpInfo], bounds: Mapping[int, float]) -> Iterator[Problem]:
    """Why a program takes longer than its serial time: a few slow ops, else the clock."""
    ratio = sum(op.weight_s for op in timed) / sum(bounds.values())
    slow = sorted((op for op in timed if op.weight_s > LONGEST * bounds[op.id]), key=lambda op: -op.weight_s)
    others = [op for op in timed if op.weight_s <= LONGEST * bounds[op.id]]
    if others and len(slow) <= len(others) and sum(op.weight_s for op in others) <= LONGEST / 2 * sum(bounds[op.id] for op in others):
        slowly = f"{_named(slow)}: so slow for their work that the program takes {plain(ratio, 3)} times its serial time"
        cause = "the rest is near its own: slow kernels, or bytes that were not counted"
        yield Problem(input="bytes", message=f"{slowly}; {cause}", ops=tuple(op.id for op in slow))
        return
    if ratio > THOUSAND[0] / LONGEST:
        cause = "times of the wrong unit (milliseconds read as microseconds, or the like)"
    else:
        cause = "times from the wrong clock (the host's, with compilation or waiting), or missing communication or bytes"
    yield Problem(input="clock", message=f"the program takes {plain(ratio, 3)} times its serial time: {cause}")


def _missing_ops(report: Report) -> Iterator[Problem]:
    """Op time of the profile that is missing in the report, or op time beyond it."""
    busy, whole = sum(op.weight_s for op in report.ops if op.time_s), report.coverage.attributed_s
    if whole and busy < (1 - MISSING) * whole:
        many = len(report.input.devices) > 1
        missing = "with several devices, a collective is likely missing" if many else "an op is missing"
        message = (
            f"{percent(1 - busy / whole)} of the {show(float(whole), 's')} of ops that the profile had belongs to none of these: {missing}"
        )
        yield Problem(input="communication" if many else "counts", message=message)
    elif whole and busy > LONGEST * whole:
        message = f"ops take {plain(busy / whole, 3)} times as long as devices were busy: times of another unit or clock"
        yield Problem(input="clock", message=message)


def _steps(report: Report) -> Iterator[Problem]:
    """Steps whose op times do not match their busy time as in other steps, that are shorter than their busy time, or that ran cold."""
    yield from _unmatched(report)
    short = [one for one in report.steps if one.time_s and one.busy_s and one.busy_s > one.time_s * (1 + ROUNDING)]
    if short:
        names = ", ".join(_step_name(report, one.step) for one in short[:NAMED])
        message = f"steps that are busy for longer than they last: {names}; steps swapped, or a time of another clock"
        yield Problem(input="steps", message=message)
    yield from _cold(report)


def _unmatched(report: Report) -> Iterator[Problem]:
    """Steps whose ratio of op time to busy time is not that of the others.

    Steps are swapped if their ratios are equal once both times are sorted; then smaller differences count.
    """
    devices = max(1, len({share.device for share in report.by_device}) or len(report.input.devices))
    spent: dict[int, float] = {}
    for share in report.by_step:
        spent[share.step] = spent.get(share.step, 0.0) + share.time_s / devices
    busy = {one.step: one.busy_s for one in report.steps if one.busy_s and one.step in spent and one.steady}
    ratios = {step: spent[step] / busy[step] for step in busy}
    if len(ratios) < 2:
        return
    on_cpu = report.machine.kind == "cpu"
    usual, allowed = median(ratios.values()), CPU_STEP_APART if on_cpu else STEP_APART
    ordered = [mine / theirs for mine, theirs in zip(sorted(spent[step] for step in busy), sorted(busy.values()), strict=True)]
    differ = max(ordered) / min(ordered) - 1
    fits = not on_cpu and differ < FITS  # the same times fit in another order
    if fits:
        usual, allowed = median(ordered), 1 + min(max(SWAPPED, TIMES_APART * differ), MOST_SWAPPED)
    odd = [step for step, ratio in ratios.items() if not usual / allowed < ratio < usual * allowed]
    if odd and (fits or len(odd) < len(ratios)):
        listed = ", ".join(f"{_step_name(report, step)} {plain(ratios[step] / usual, 3)} times" for step in odd[:NAMED])
        message = f"the op times of a step do not match its busy time: {listed} the usual ratio; are steps swapped?"
        yield Problem(input="steps", message=message)


def _cold(report: Report) -> Iterator[Problem]:
    """A first step that takes much longer for its work than the later ones of its name."""
    least = {point.step: point.floor_s for point in report.points if point.step is not None and point.infeed_outfeed}
    named: dict[str, list[float]] = {}
    for one in report.steps:
        if one.steady and one.busy_s and (floor := least.get(one.step)):
            named.setdefault(one.name, []).append(one.busy_s / floor)
    for name, slowness in named.items():
        if len(slowness) > 2 and slowness[0] > COLD * (later := median(slowness[1:])):
            times = f"{plain(slowness[0] / later, 3)} times as long for its work as the later ones"
            yield Problem(input="cache", message=f"the first step {name!r} takes {times}: cold caches or a warm-up are included")


def _devices(report: Report) -> Iterator[Problem]:
    """Check the number of listed devices, and of devices in the program's device-seconds, against those that ran ops."""
    listed = {one.id for one in report.input.devices}
    working = {share.device for share in report.by_device}
    if listed and working and listed != working:
        yield Problem(
            input="devices", message=f"{len(listed):,} devices are listed, but ops ran on {len(working):,}: the device count is wrong"
        )
        return
    total = report.total
    if listed and total and total.device_seconds and total.time_s and report.steps:
        count = total.device_seconds / total.time_s
        if abs(count - len(listed)) > 0.1 * len(listed):
            ran = f"the program has the device-seconds of {plain(count, 3)}"
            yield Problem(input="devices", message=f"{len(listed):,} devices are listed, but {ran}: the device count is wrong")


def _step_name(report: Report, step: int) -> str:
    return next(f"step {one.title}" for one in report.steps if one.step == step)


def _named(ops: Sequence[OpInfo]) -> str:
    more = f" and {len(ops) - NAMED:,} more" if len(ops) > NAMED else ""
    return ", ".join(op.label or op.name for op in ops[:NAMED]) + more
