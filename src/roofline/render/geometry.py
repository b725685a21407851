"""Geometry of roofline charts: extents, roofs, zones and ticks, computed once and drawn by every view.

Everything is in base units (FLOP/B along x, FLOP/s along y) and plain values, independent of any drawing library. A roof is

    P(x) = min(peak, bandwidth x intensity)

drawn on logarithmic axes, where both of its parts are straight and its corner is exactly at the ridge.

    >>> toy = Roof("toy", peak=100.0, bandwidth=10.0)
    >>> toy.polyline(Extent(left=1.0, right=1000.0, bottom=1.0, top=1000.0))
    ((1.0, 10.0), (10.0, 100.0), (1000.0, 100.0))
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from ..errors import MachineError, UsageError
from ..machine import Machine
from ..resource import HBM, Resource
from ..units import DECIMAL, plain, show

Spot = tuple[float, float]  # a position on a chart: (intensity, rate) in base units
Path = tuple[Spot, ...]

# Margin around the data in decades, and its least share of a wide chart's height above and below.
LEFT_OF_RIDGE, RIGHT_OF_RIDGE, AROUND_SPOTS, ABOVE_PEAK, LEAST_SHARE = 2.6, 1.1, 0.5, 0.4, 0.09

_EDGE = 1e-6  # of a step: tolerance for a tick exactly at the end of an axis
_SPELLED = {"nvlink": "NVLink", "pcie": "PCIe", "neuronlink": "NeuronLink", "xelink": "Xe Link", "roce": "RoCE", "xgmi": "xGMI"}
_WORDS = ("matrix", "vector", "compute", "host", "ethernet", "latency")


class Extent(Struct, frozen=True, kw_only=True):
    """The part of the plane that a chart shows; ``x_log`` and ``y_log`` say which axes are logarithmic."""

    left: float
    right: float
    bottom: float
    top: float
    x_log: bool = True
    y_log: bool = True

    def __post_init__(self) -> None:
        finite = all(map(math.isfinite, (self.left, self.right, self.bottom, self.top)))
        positive = (self.left > 0 or not self.x_log) and (self.bottom > 0 or not self.y_log)
        if not (finite and positive and self.left < self.right and self.bottom < self.top):
            raise UsageError(f"a chart from {self.left:g} to {self.right:g} and {self.bottom:g} to {self.top:g} is empty")

    def unit(self, x: float, y: float) -> Spot:
        """A position as fractions of the chart's width and height: (0, 0) bottom left, (1, 1) top right."""
        return _fraction(x, self.left, self.right, self.x_log), _fraction(y, self.bottom, self.top, self.y_log)

    def place(self, across: float, along: float) -> Spot:
        """The position at these fractions of the chart's width and height."""
        return _between(across, self.left, self.right, self.x_log), _between(along, self.bottom, self.top, self.y_log)

    def holds(self, x: float, y: float) -> bool:
        """Whether a position is on the chart."""
        return self.left <= x <= self.right and self.bottom <= y <= self.top

    def nearest(self, x: float, y: float) -> Spot:
        """The position on the chart that is nearest to this one."""
        return min(max(x, self.left), self.right), min(max(y, self.bottom), self.top)


def _fraction(value: float, low: float, high: float, log: bool) -> float:
    if log:
        return math.log(value / low) / math.log(high / low) if value > 0 else -math.inf
    return (value - low) / (high - low)


def _between(share: float, low: float, high: float, log: bool) -> float:
    return low * (high / low) ** share if log else low + share * (high - low)


class Roof(Struct, frozen=True):
    """One compute peak in FLOP/s over one memory level or link in B/s."""

    name: str
    peak: float
    bandwidth: float
    compute: str = ""
    level: str = ""

    def __post_init__(self) -> None:
        if not (0 < self.peak < math.inf and 0 < self.bandwidth < math.inf):
            raise MachineError(f"roof {self.name!r}: peak and bandwidth must be finite and above 0")

    @property
    def ridge(self) -> float:
        """The intensity of the corner, in FLOP/B."""
        return self.peak / self.bandwidth

    @property
    def corner(self) -> Spot:
        return self.ridge, self.peak

    def at(self, intensity: float) -> float:
        """The attainable FLOP/s at this intensity."""
        return min(self.peak, self.bandwidth * intensity)

    def slant(self, extent: Extent, *, beyond: bool = False) -> Path:
        """The sloped part inside the chart, up to the corner or ``beyond`` it; empty when it is outside."""
        start = max(extent.left, extent.bottom / self.bandwidth)
        end = min(extent.right, extent.top / self.bandwidth if beyond else self.ridge)
        return ((start, self.bandwidth * start), (end, self._corner_or_slope(end))) if start < end else ()

    def flat(self, extent: Extent, *, before: bool = False) -> Path:
        """The flat part inside the chart, from the corner or from ``before`` it; empty when it is outside."""
        start = extent.left if before else max(extent.left, self.ridge)
        return ((start, self.peak), (extent.right, self.peak)) if start < extent.right and extent.bottom < self.peak else ()

    def polyline(self, extent: Extent) -> Path:
        """The roof inside the chart, its corner exactly at the ridge."""
        return tuple(dict.fromkeys(self.slant(extent) + self.flat(extent)))

    def _corner_or_slope(self, x: float) -> float:
        # peak / bandwidth * bandwidth may differ from the peak in its last digit, so the corner uses the peak itself.
        return self.peak if x == self.ridge else self.bandwidth * x


def roof(machine: "Machine | Roof", compute: str | None = None, level: str = HBM.name, name: str | None = None) -> Roof:
    """The roof of a machine for one compute resource (its usual matrix unit if none is named) over one level or link."""
    if isinstance(machine, Roof):
        return machine if name is None else replace(machine, name=name)
    if compute is None:
        best = machine.best_matrix
        if best is None:
            raise MachineError(f"{machine.name} has no known compute rate; add one with --set matrix/bf16=…")
        compute = best.resource.name
    return Roof(machine.name if name is None else name, machine.rate(compute), machine.rate(level), compute, level)


def ceilings(machine: Machine, compute: str | None = None, level: str = HBM.name) -> tuple[Roof, ...]:
    """The named lower ceilings of a machine, one per limit, highest peak first, then widest bandwidth."""
    whole = roof(machine, compute, level)
    names = dict.fromkeys(limit.name for limit in machine.limits)
    lowered = [roof(machine.limited(name), whole.compute, level, name) for name in names]
    inside = [one for one in lowered if (one.peak, one.bandwidth) != (whole.peak, whole.bandwidth)]
    return tuple(sorted(inside, key=lambda one: (-one.peak, -one.bandwidth)))


def feasible(one: Roof, extent: Extent) -> tuple[Path, Path]:
    """The area under a roof, in two polygons that meet below the ridge: memory-bound and compute-bound."""
    slant, flat = one.slant(extent), one.flat(extent)
    parts = []
    for edge in (slant, flat):
        parts.append((*edge, (edge[-1][0], extent.bottom), (edge[0][0], extent.bottom)) if edge else ())
    return parts[0], parts[1]


def zone(upper: Roof, lower: Roof, extent: Extent) -> Path:
    """The area between two roofs: attainable under the upper, not under the lower."""
    above, below = upper.polyline(extent), lower.polyline(extent)
    if not above:
        return ()
    corner = ((extent.left, extent.bottom),) if above[0][0] == extent.left and (not below or below[0][0] > extent.left) else ()
    return above + tuple(reversed(below)) + corner


def gain(one: Roof, start: float, end: float) -> Path:
    """The area between a roof and the rate at ``start``, from there to ``end``: the gain from a higher intensity."""
    low, high = sorted((start, end))
    edge = [(low, one.at(low)), (high, one.at(high))]
    if low < one.ridge < high:
        edge.insert(1, one.corner)
    return (*edge, (high, one.at(low)))


def extent_of(roofs: Iterable[Roof], spots: Iterable[Spot] = (), *, right_of_ridge: float = RIGHT_OF_RIDGE) -> Extent:
    """The extent that shows every ridge and every spot, with a margin."""
    drawn, shown = tuple(roofs), tuple(spots)
    check_spots(shown)
    if not drawn:
        raise UsageError("no roofline to draw; name a machine")
    left = min([*(one.ridge / 10**LEFT_OF_RIDGE for one in drawn), *(x / 10**AROUND_SPOTS for x, _ in shown)])
    right = max([*(one.ridge * 10**right_of_ridge for one in drawn), *(x * 10**AROUND_SPOTS for x, _ in shown)])
    low, high = min(one.at(left) for one in drawn), max([*(one.peak for one in drawn), *(y for _, y in shown)])
    lowest = min([low, *(y for _, y in shown)])
    least = LEAST_SHARE * math.log10(high / lowest)
    bottom = min([low, *(y / 10 ** max(AROUND_SPOTS, least) for _, y in shown)])
    return Extent(left=left, right=right, bottom=bottom, top=high * 10 ** max(ABOVE_PEAK, least))


def check_spots(spots: Iterable[Spot]) -> None:
    """Raise an error for a point that cannot be drawn on logarithmic axes."""
    for x, y in spots:
        if not (0 < x < math.inf and 0 < y < math.inf):
            raise UsageError(f"cannot draw a point at {x:g} FLOP/B and {y:g} FLOP/s; give numbers above 0")


def crossings(curve: Sequence[Spot], level: float) -> tuple[float, ...]:
    """Where a curve of (size, intensity) crosses a level, exactly for power laws: straight between samples on log-log axes."""
    found = []
    for (x0, y0), (x1, y1) in pairwise(curve):
        if y0 == level:
            found.append(x0)
        elif (y0 - level) * (y1 - level) < 0:
            share = math.log(level / y0) / math.log(y1 / y0)
            found.append(x0 * (x1 / x0) ** share)
    if curve and curve[-1][1] == level:
        found.append(curve[-1][0])
    return tuple(found)


class Tick(Struct, frozen=True):
    """A mark on an axis; minor ones have no label."""

    at: float
    label: str = ""


def tick_label(dimension: str) -> Callable[[float], str]:
    """The format of numbers on an axis of this dimension: rates as ``10 T``, times as ``10 ms``, others plain below a million."""
    if dimension == "FLOP/s":
        return _prefixed
    if dimension == "s":
        return lambda value: show(value, dimension) if value else "0"
    if dimension == "%":
        return lambda value: f"{value:,.0%}"
    return lambda value: plain(value) if value < DECIMAL["M"] else _prefixed(value)


def _prefixed(value: float) -> str:
    return show(value, "FLOP/s").removesuffix("FLOP/s").strip()


def log_ticks(low: float, high: float, dimension: str = "", *, base: int = 10, most: int = 9) -> tuple[Tick, ...]:
    """At least three labelled ticks on a logarithmic axis: powers of the base, every second or third if there are many,
    or 1-2-5 steps, or plain steps when less than a power is shown; minor ones between."""
    label = tick_label(dimension)
    powers = _powers(low, high, base)
    if len(powers) >= 3:
        stride = -(-len(powers) // most)
        major = [power for power in powers if round(math.log(power, base)) % stride == 0]
        if stride > 1 or base != 10:
            return tuple(Tick(at, label(at) if at in major else "") for at in powers)
        return _merged(major, _multiples(low, high, range(2, 10)), label)
    if base == 10:
        for digits in ((1, 2, 5), (1, 2, 3, 5, 7)):
            if len(major := _multiples(low, high, digits)) >= 3:
                return _merged(major, _multiples(low, high, range(1, 10)), label)
    return linear_ticks(low, high, dimension)


def linear_ticks(low: float, high: float, dimension: str = "") -> tuple[Tick, ...]:
    """Labelled ticks at round steps of 1, 2, 2.5 or 5 times a power of ten; about five of them."""
    rough = (high - low) / 5
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * digit for digit in (1, 2, 2.5, 5, 10) if power * digit >= rough * 0.99)
    label = tick_label(dimension)
    first, last = math.ceil(low / step - _EDGE), math.floor(high / step + _EDGE)
    return tuple(Tick(index * step, label(index * step)) for index in range(first, last + 1))


def _powers(low: float, high: float, base: int) -> list[float]:
    first, last = math.ceil(math.log(low, base) - _EDGE), math.floor(math.log(high, base) + _EDGE)
    return [float(base) ** power for power in range(first, last + 1)]


def _multiples(low: float, high: float, digits: Iterable[int]) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [at for power in decades for digit in digits if low <= (at := digit * 10.0**power) <= high]


def _merged(major: Iterable[float], minor: Iterable[float], label: Callable[[float], str]) -> tuple[Tick, ...]:
    labelled = {at: label(at) for at in major}
    return tuple(Tick(at, labelled.get(at, "")) for at in sorted({*labelled, *minor}))


def title(resource: str) -> str:
    """A resource as written on a chart.

    >>> title("hbm"), title("matrix/bf16"), title("vmem.read"), title("nvlink")
    ('HBM', 'matrix bf16', 'VMEM read', 'NVLink')
    """
    unit, _, kind = resource.partition("/")
    first, _, rest = unit.partition(".")
    spelled = _SPELLED.get(first, first if first in _WORDS else first.upper())
    return " ".join(word for word in (spelled, rest, kind) if word)


def rate_title(resource: str, rate: float) -> str:
    """A roof's part in words: ``HBM 7.2 TB/s``."""
    return f"{title(resource)} {show(rate, Resource(resource).per)}"
