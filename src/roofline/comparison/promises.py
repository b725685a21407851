"""What the findings of a report promised, and what arrived, from the report before a change and the one after it.

A finding is matched with those of the report after by kind and title, with their savings summed. It is gone where less than a quarter of
its saving is left. The step became shorter by what all findings that are gone brought together, so each has a figure of its own only where
it is the only one; findings about what binds kernels count only where no other is gone, because their kernels change with every decision.

A profiler adds to the time of a step, and to a changed program another amount. Where both reports know the time of a step without it, that
is what is compared; a CPU runs its ops in the time that it shares with the profiler, so their savings shrink in proportion, and so do those
of a device that worked longer than a step takes without the profiler.
"""

from collections.abc import Iterable, Sequence
from math import hypot

import msgspec
from msgspec import Struct

from ..causes import CAUSES, IDLE
from ..errors import SourceError
from ..report import Finding, Number, Point, Report

SCHEMA = "roofline.promise/1"
GONE = 0.25  # of a saving: the most that is left of a finding that is gone (a choice)
NEAR = 0.25  # of the measured time: predictions that are off by less are near it (a choice)
KERNELS = frozenset((*CAUSES, "products"))  # kinds of findings about what binds kernels, not about one decision
# What came of a saving without a predicted change, as shares of it: the interval of 90% of captures with planted faults on an H200,
# recorded with and without the fault (`benchmarks/faults/README.md`, by split-conformal): 24 of work on the device, 14 of idle time.
ARRIVES, ARRIVES_IDLE = (0.74, 1.35), (0.63, 1.59)
REPEATS = 0.03  # of the time: by how much the next recording of an unchanged program differs, as in what-ifs
MORE_WORK = 2.0  # times the FLOP of a step before: steps of more are not the same, such as a token and a whole text (a choice)
LEAST = 0.01  # of the time: smaller savings are no promise (a choice)


class Promise(Struct, frozen=True, kw_only=True):
    """A finding of the report before: the seconds that it promised with their interval, and those that are ``left_s`` of it.

    ``arrived_s`` is by how much the time became shorter, where this is the only finding that is gone.
    """

    kind: str
    title: str
    where: str = ""
    change: str = ""
    promised_s: Number
    low_s: Number
    high_s: Number
    left_s: Number = 0
    arrived_s: Number | None = None

    @property
    def is_gone(self) -> bool:
        return self.left_s < GONE * self.promised_s


class Kept(Struct, frozen=True, kw_only=True):
    """The promises of a report and what arrived: the times of a step (else of the run, as ``per`` says) before and after.

    ``promised_s`` is the time that the findings which are gone promised together, with its interval; ``None`` if none is gone.
    ``unprofiled`` is whether the times are those without the profiler.
    """

    schema: str = SCHEMA
    files: tuple[str, str]
    chip: str
    per: str
    before_s: Number
    after_s: Number
    promised_s: Number | None = None
    low_s: Number | None = None
    high_s: Number | None = None
    findings: tuple[Promise, ...] = ()
    unprofiled: bool = False

    @property
    def gone(self) -> tuple[Promise, ...]:
        return tuple(one for one in self.findings if one.is_gone)

    @property
    def error(self) -> float | None:
        """The promised time over the measured one, minus 1."""
        return None if self.promised_s is None or not self.after_s else self.promised_s / self.after_s - 1

    @property
    def holds(self) -> bool | None:
        """Whether the time is inside the interval; ``None`` if no finding is gone."""
        return None if self.low_s is None or self.high_s is None else self.low_s <= self.after_s <= self.high_s


class PromiseSum(Struct, frozen=True, kw_only=True):
    """Promises summed up: mean error of the promised times, the share that is near, and the share inside the interval."""

    pairs: int
    mean_error: float | None
    near: float | None
    inside: float | None


def promises_kept(before: Report, after: Report, files: tuple[str, str] = ("before", "after")) -> Kept | None:
    """What the findings of one report promised and what the other shows; ``None`` where a time is missing."""
    was, now = before.main_point, after.main_point
    if was is None or now is None or was.scope != now.scope or not was.time_s or not now.time_s or before.predicted or after.predicted:
        return None
    if more_work(before, after):
        return None
    is_step, unprofiled = was.scope == "average", bool(was.unprofiled_s and now.unprofiled_s)
    before_s, after_s = (_without_profiler(point) if unprofiled else point.time_s or 0.0 for point in (was, now))
    shrunk = before_s / was.time_s if before.machine.kind == "cpu" else min(before_s / (was.busy_s or before_s), 1.0)
    left = _summed(after.findings, is_step)
    promised = _promised(before.findings, is_step, was.time_s)
    found = [msgspec.structs.replace(one, left_s=left.get((one.kind, one.title), 0.0)) for one in promised]
    gone = [one for one in found if one.is_gone]
    gone = [one for one in gone if one.kind not in KERNELS] or gone
    found = [_with_kernels_left(one, gone) for one in found]
    arrived_s = before_s - after_s
    if len(gone) == 1:
        found = [msgspec.structs.replace(one, arrived_s=arrived_s) if one is gone[0] else one for one in found]
    worked_s = sum(one.promised_s for one in gone if not one.kind.startswith(IDLE))
    busy_s = shrunk * max((was.busy_s or 0.0) - worked_s, 0.0)  # what the device still works, however little it waits
    saved_s = min(shrunk * sum(one.promised_s for one in gone), max(before_s - busy_s, 0.0))
    low_s, high_s = _interval(gone, saved_s, shrunk, REPEATS * before_s)
    return Kept(
        files=files,
        chip=before.machine.name,
        per="step" if is_step else "run",
        before_s=before_s,
        after_s=after_s,
        promised_s=before_s - saved_s if gone else None,
        low_s=max(before_s - high_s, 0.0) if gone else None,
        high_s=before_s - low_s if gone else None,
        findings=tuple(found),
        unprofiled=unprofiled,
    )


def more_work(before: Report, after: Report) -> float:
    """How many times the FLOP of a step before one after has, if that is far more: no advised change adds as much; else 0."""
    was, now = before.main_point, after.main_point
    if was is None or now is None or was.scope != "average" or not was.flops or not now.flops:
        return 0.0
    return now.flops / was.flops if now.flops > MORE_WORK * was.flops else 0.0


def _without_profiler(point: Point) -> float:
    """The time of a step without the profiler, which never makes it shorter."""
    return float(min(point.unprofiled_s or point.time_s or 0.0, point.time_s or 0.0))


def _saved_s(finding: Finding, is_step: bool) -> float:
    seconds = finding.saving_per_step_s if is_step else finding.saving_per_device_s
    return float((finding.saving_s if seconds is None else seconds) or 0.0)


def _summed(findings: Iterable[Finding], is_step: bool) -> dict[tuple[str, str], float]:
    sums: dict[tuple[str, str], float] = {}
    for one in findings:
        sums[one.kind, one.title] = sums.get((one.kind, one.title), 0.0) + _saved_s(one, is_step)
    return sums


def _promised(findings: Iterable[Finding], is_step: bool, whole_s: float) -> list[Promise]:
    """The promises of a report: one for each kind and title of findings."""
    sums, found = _summed(findings, is_step), list[Promise]()
    for one in findings:
        saved_s = sums.pop((one.kind, one.title), 0.0)
        predicted = one.predicted
        if saved_s < LEAST * whole_s:
            continue
        low, high = ARRIVES_IDLE if one.kind.startswith(IDLE) else ARRIVES
        found.append(
            Promise(
                kind=one.kind,
                title=one.title,
                where=one.where,
                change=predicted.change if predicted else "",
                promised_s=predicted.before_s - predicted.time_s if predicted else saved_s,
                low_s=predicted.before_s - predicted.high_s if predicted else low * saved_s,
                high_s=predicted.before_s - predicted.low_s if predicted else min(high * saved_s, whole_s),
            )
        )
    return found


def _with_kernels_left(one: Promise, gone: Sequence[Promise]) -> Promise:
    """A finding about kernels is not counted as gone if a decision is: its kernels run otherwise, or not at all."""
    return msgspec.structs.replace(one, left_s=one.promised_s) if one.is_gone and one not in gone else one


def _interval(gone: Sequence[Promise], saved_s: float, shrunk: float, again_s: float) -> tuple[float, float]:
    """The interval of the savings of findings together: their errors, and how much recordings differ, are independent."""
    below = hypot(again_s, *(shrunk * (one.promised_s - one.low_s) for one in gone))
    above = hypot(again_s, *(shrunk * (one.high_s - one.promised_s) for one in gone))
    return saved_s - below, saved_s + above


def summed_promises(kept: Iterable[Kept]) -> PromiseSum:
    """How well promises were kept, over pairs in which a finding is gone."""
    pairs = [one for one in kept if one.error is not None]
    errors = [abs(one.error or 0.0) for one in pairs]
    inside = [bool(one.holds) for one in pairs]
    return PromiseSum(
        pairs=len(pairs),
        mean_error=sum(errors) / len(errors) if errors else None,
        near=sum(error <= NEAR for error in errors) / len(errors) if errors else None,
        inside=sum(inside) / len(inside) if inside else None,
    )


def promise_line(kept: Kept) -> bytes:
    """A pair as a line of a file of promises."""
    return msgspec.json.encode(kept) + b"\n"


def read_promises(text: bytes, file: str) -> list[Kept]:
    """The pairs of a file of promises."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            one = msgspec.json.decode(line, type=Kept)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SourceError(f"{file}: line {number} is not a promise kept by roofline compare --record: {error}") from None
        if one.schema != SCHEMA:
            raise SourceError(f"{file}: line {number} has the schema {one.schema!r}; this version reads {SCHEMA!r}")
        found.append(one)
    return found
