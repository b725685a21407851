"""The chart of a report: rooflines, dots and the number of ops left out, as values for figures and pages to draw.

A dot is placed at its intensity over one memory level or link and at its achieved rate; without a measured time, at its attainable
rate. An op whose cost is an upper bound is on its roofline where it would be above. Ops without FLOP cannot be shown on a logarithmic
axis: they are in a strip next to it, by the fraction of bandwidth they reach. The axes leave out dots that are far away and take little
time, which would squeeze the others; these are marked at the edge.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate

from msgspec import Struct

from ..cost import sum_or_unknown
from ..machine import Ceiling, Machine
from ..report import Amounts, MachineInfo, OpInfo, Point, Report
from ..resource import HBM, Resource
from ..units import number_of, percent
from ..workload import is_upper_bound
from .geometry import Extent, Roof, extent_of, roof, title

OUTSIDE = 0.01  # of the weight of all dots, at most, that the axes may leave out
# Decades left of the lowest ridge and below the lowest peak from which dots are left out that make up few of the weight: scalar work on
# large arrays has 1e-8 FLOP/B. The page has the same limits.
FAR_LEFT, FAR_BELOW, FEW = 4, 6, 0.1


class Dot(Struct, frozen=True, kw_only=True):
    """One operation on the chart; its area shows ``weight``, the self time or else the minimum time, in seconds."""

    name: str
    intensity: float
    rate: float
    weight: float
    bound: str | None = None
    efficiency: float | None = None
    upper_bound: bool = False  # its cost is one, and so is its efficiency
    op: int | None = None


class StripDot(Struct, frozen=True, kw_only=True):
    """One operation without FLOP, at its share of the bandwidth of one unit; 1 without a measured time."""

    name: str
    share: float
    unit: str
    weight: float
    bound: str | None = None
    op: int | None = None


class Chart(Struct, frozen=True, kw_only=True):
    """A report's roofline over main memory: heaviest dots first; ``left_out`` counts ops by the reason why.

    ``total`` is the weight of all ops, drawn or not, in seconds; shares are relative to it.
    """

    machine: str
    roofs: tuple[Roof, ...]
    extent: Extent
    dots: tuple[Dot, ...] = ()
    strip: tuple[StripDot, ...] = ()
    program: Dot | None = None
    timed: bool = True
    changes: tuple[str, ...] = ()  # the times are predicted for a program after these
    left_out: tuple[tuple[str, int], ...] = ()
    covered: tuple[tuple[str, float], ...] = ()
    total: float = 0.0

    @property
    def marks(self) -> tuple[Dot | StripDot, ...]:
        """Everything drawn, on the chart and in the strip."""
        return self.dots + self.strip

    @property
    def outside(self) -> tuple[Dot, ...]:
        """The dots beyond the axes."""
        return tuple(dot for dot in self.dots if not self.extent.holds(dot.intensity, dot.rate))

    @property
    def caption(self) -> str:
        """How much of busy time is matched to ops and has a known cost, what is not drawn, and what is beyond the axes."""
        shares = [f"{percent(share)} of {'it' if index else 'busy time'} {what}" for index, (what, share) in enumerate(self.covered)]
        sentences = [f"{'; '.join(shares)}."] if shares else []
        if self.left_out:
            sentences.append(f"Not drawn: {', '.join(number_of(number, 'op') + ' ' + why for why, number in self.left_out)}.")
        if far := self.outside:
            share = f" ({percent(_weight(far) / self.total)} of {'time' if self.timed else 'minimum time'})"
            sentences.append(f"At the edge: {number_of(len(far), 'op')}{share if self.total else ''} beyond the axes.")
        return " ".join(sentences)


def chart(report: Report) -> Chart:
    """The chart of a report over main memory."""
    machine = _machine(report.machine)
    dots: list[Dot] = []
    strip: list[StripDot] = []
    left_out: Counter[str] = Counter()
    used: dict[str, None] = {}
    for op in report.ops:
        placed = _place(op)
        if isinstance(placed, str):
            left_out[placed] += 1
            continue
        if isinstance(placed, StripDot):
            strip.append(placed)
            continue
        dots.append(placed)
        if compute := _compute(op, machine):
            used[compute] = None
    usual = roof(machine)
    # Of several roofs of equal height only the first is drawn.
    peaks = {machine.rate(name): name for name in reversed(used)} or {usual.peak: usual.compute}
    roofs = tuple(roof(machine, name, name=title(name)) for _, name in sorted(peaks.items(), reverse=True))
    dots.sort(key=lambda dot: -dot.weight)
    strip.sort(key=lambda dot: -dot.weight)
    program = next((found for point in report.points if (found := _program(point))), None)
    shown = [(dot.intensity, dot.rate) for dot in (*_central(_near(dots, roofs)), *([program] if program else []))]
    return Chart(
        machine=report.machine.title or report.machine.name,
        roofs=roofs,
        extent=extent_of(roofs, shown),
        dots=tuple(dots),
        strip=tuple(strip),
        program=program,
        timed=any(op.time_s for op in report.ops),
        changes=report.changes,
        left_out=tuple(left_out.most_common()),
        covered=_covered(report),
        total=sum(op.weight_s for op in report.ops),
    )


def _near(dots: Sequence[Dot], roofs: Sequence[Roof]) -> Sequence[Dot]:
    """The dots without those very far from any ridge, unless these make up more than `FEW` of the weight."""
    left, bottom = min(one.ridge for one in roofs) / 10**FAR_LEFT, min(one.peak for one in roofs) / 10**FAR_BELOW
    near = [dot for dot in dots if dot.intensity >= left and dot.rate >= bottom]
    return near if near and _weight(near) >= (1 - FEW) * _weight(dots) else dots


def _weight(dots: Iterable[Dot]) -> float:
    return sum(dot.weight for dot in dots)


def _central(dots: Sequence[Dot]) -> list[Dot]:
    """The dots without those farthest left, right, up and down that make up at most a quarter of `OUTSIDE` of the weight each."""
    left, right = _middle([(dot.intensity, dot.weight) for dot in dots])
    bottom, top = _middle([(dot.rate, dot.weight) for dot in dots])
    return [dot for dot in dots if left <= dot.intensity <= right and bottom <= dot.rate <= top]


def _middle(weighted: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The values between which all but a quarter of `OUTSIDE` of the weight on either side is."""
    spare = OUTSIDE / 4 * sum(weight for _, weight in weighted)

    def first(ordered: Iterable[tuple[float, float]], otherwise: float) -> float:
        passed = accumulate(ordered, lambda before, one: (one[0], before[1] + one[1]))
        return next((value for value, weight in passed if weight > spare), otherwise)

    return first(sorted(weighted), -math.inf), first(sorted(weighted, reverse=True), math.inf)


def _machine(info: MachineInfo) -> Machine:
    """A `Machine` with the rates of the report's machine, so that the same fallbacks apply as in placement."""
    ceilings = (Ceiling(resource=Resource(one.resource), rate=one.rate, provenance=one.provenance) for one in info.ceilings)
    return Machine(name=info.name, kind=info.kind, matrix_unit=info.matrix_unit, ceilings=tuple(ceilings))


def _place(op: OpInfo) -> Dot | StripDot | str:
    """The dot of an op, or the reason why it has none."""
    if op.flops is None:
        return "with unknown work"
    moved = _bytes(op.bytes)
    weight = op.weight_s
    upper_bound = is_upper_bound(op.notes)
    if not op.flops:
        if op.efficiency is None and not op.floor_s:
            return "without work or bytes"
        share = 1.0 if op.efficiency is None else min(op.efficiency, 1.0) if upper_bound else op.efficiency
        unit = max(op.times, key=lambda unit: op.times[unit], default="")
        return StripDot(name=op.name, share=share, unit=unit, weight=weight, bound=op.bound, op=op.id)
    if moved is None:
        return f"with unknown {title(HBM.name)} traffic"
    if not moved:
        return f"without {title(HBM.name)} traffic"
    seconds = max(op.time_s, op.floor_s or 0.0) if op.time_s and upper_bound else op.time_s or op.floor_s
    if not seconds:
        return "without a measured or minimum time"
    return Dot(
        name=op.name,
        intensity=op.flops / moved,
        rate=op.flops / seconds,
        weight=weight,
        bound=op.bound,
        efficiency=op.efficiency,
        upper_bound=upper_bound,
        op=op.id,
    )


def _program(point: Point) -> Dot | None:
    """The whole program as a dot, where its work, bytes and time are known."""
    moved = _bytes(point.bytes)
    if point.scope != "total" or not (point.flops and moved and point.time_s):
        return None
    return Dot(
        name="whole program",
        intensity=point.flops / moved,
        rate=point.flops / (point.device_seconds or point.time_s),
        weight=point.time_s,
        bound=point.bound,
        efficiency=point.efficiency,
    )


def _bytes(amounts: Amounts) -> float | None:
    """Bytes of main memory, read and written; ``None`` when any of them is unknown."""
    mine = [amount for name, amount in amounts.items() if name == HBM.name or name.startswith(f"{HBM.name}.")]
    return sum_or_unknown(mine)


def _compute(op: OpInfo, machine: Machine) -> str | None:
    """The resource whose roof an op's arithmetic runs under: where it takes the most time."""
    times: dict[str, float] = {}
    for name, amount in op.work.items():
        resource = Resource(name)
        if amount and resource.is_arithmetic and (ceiling := machine.resolve(resource)):
            times[ceiling.resource.name] = times.get(ceiling.resource.name, 0.0) + amount / ceiling.rate
    return max(times, key=lambda name: times[name], default=None)


def _covered(report: Report) -> tuple[tuple[str, float], ...]:
    coverage = report.coverage
    known: Iterable[tuple[str, float | None]] = (("is matched to ops", coverage.attributed_s), ("has a known cost", coverage.priced_s))
    return tuple((what, seconds / coverage.busy_s) for what, seconds in known if seconds is not None and coverage.busy_s)
