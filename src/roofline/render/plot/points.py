"""Figures of operations under one roof: where fusion moves them, and how far measurements fall short."""

from collections.abc import Iterable

from matplotlib.axes import Axes

from ...errors import UsageError
from ...fusing import Fusion
from ...machine import Machine
from ...quantities import CLOSE, FAR
from ...resource import HBM
from ...units import number_of, percent, plain, show
from ..geometry import Extent, Roof, check_spots, extent_of, feasible, gain, roof, title
from .roofs import MOST_LABELS, draw_ridge, intensity_axis, name_flat, name_slant
from .sheet import Axis, Entry, Sheet
from .style import MARKERS, NORMAL, short_name, styled

BOW = 0.35  # how far the arrow of a fusion path bends, as a share of its length
RATE = Axis(label="rate (FLOP/s)", dimension="FLOP/s")


@styled
def fusion_path(
    machine: Machine | Roof, scenarios: Iterable[Fusion | tuple[str, float]], *, theme: str = "light", ax: Axes | None = None
) -> Axes:
    """The same arithmetic in fewer kernels: scenarios along the roofline, unfused first, and the gain between first and last.

    A scenario is (name, intensity), at its attainable rate, or a `Fusion`, at the rate of its kernels run one after the other.
    """
    given = tuple(scenarios)
    one = roof(machine, _fused_compute(machine, given))
    steps = tuple(_step(one, scenario) for scenario in given)
    if not steps:
        raise UsageError("nothing to draw; give scenarios, the unfused one first")
    extent = extent_of([one], [(x, rate) for _, x, rate in steps], right_of_ridge=0.5)
    sheet = Sheet(ax, theme, extent, intensity_axis(one.level or HBM.name), RATE)
    _draw_roof(sheet, one, extent)
    draw_ridge(sheet, one, extent)
    (_, first, slow), (_, last, fast) = steps[0], steps[-1]
    if fast != slow:
        sheet.area(gain(one, first, last), sheet.theme.good, strength=1.8, kind="gain")
        sheet.arrow((first, slow), (last, fast), sheet.theme.ink, bend=-BOW)
    for index, (name, x, rate) in enumerate(steps):
        colour = sheet.theme.good if index == len(steps) - 1 else sheet.theme.compute if index == 0 else sheet.theme.ink
        sheet.line(((extent.left, rate), (x, rate)), colour, width=1.0, dash=(1, 2), kind="rule", z=2)
        sheet.dot(x, rate, colour, radius=5, marker=MARKERS[index % len(MARKERS)])
        gained = f", {_times(rate / slow)}" if rate != slow else ""
        sheet.label(f"{short_name(name)}{gained}\n{show(x, 'FLOP/B', 3)}, {show(rate, 'FLOP/s', 3)}", x, rate, radius=5)
    return sheet.finish(
        f"Fusion on {one.name}: same FLOP, fewer bytes, {_times(fast / slow)} the rate",
        subtitle="memory-bound kernels gain rate with arithmetic intensity; shaded: the gain",
    )


def _step(one: Roof, scenario: Fusion | tuple[str, float]) -> tuple[str, float, float]:
    if not isinstance(scenario, Fusion):
        name, intensity = scenario
        check_spots([(intensity, 1.0)])
        return name, intensity, one.at(intensity)
    count = len(scenario.kernels)
    if scenario.intensity is None or not scenario.intensity or scenario.attainable is None:
        raise UsageError("a chain without FLOP or with unknown traffic has no arithmetic intensity to draw")
    return number_of(count, "kernel"), scenario.intensity, scenario.attainable


def _fused_compute(machine: Machine | Roof, scenarios: Iterable[Fusion | tuple[str, float]]) -> str | None:
    """The unit that a fused chain's arithmetic runs on, if the machine has a rate for it."""
    costs = [scenario.cost for scenario in scenarios if isinstance(scenario, Fusion)]
    if isinstance(machine, Roof) or not costs:
        return None
    rated = [(float(amount / ceiling.rate), ceiling) for resource, amount in costs[0].amounts if (ceiling := machine.resolve(resource))]
    computing = [(seconds, ceiling.resource.name) for seconds, ceiling in rated if ceiling.resource.is_arithmetic]
    return max(computing)[1] if computing else None


def _times(ratio: float) -> str:
    return f"{plain(ratio, 3)}x"


@styled
def prediction_and_measurement(
    machine: Machine | Roof, points: Iterable[tuple[str, float, float]], *, theme: str = "light", ax: Axes | None = None
) -> Axes:
    """Attainable and achieved rates: points (name, intensity, measured rate), each joined to the roofline above it."""
    one, measured = roof(machine), _measured(points)
    sheet = _measured_sheet(one, measured, theme, ax)
    colour = sheet.theme.series[3]
    for _, x, rate in measured:
        _draw_gap(sheet, one, x, rate, colour)
    for name, x, rate in measured[:MOST_LABELS]:
        sheet.label(f"{short_name(name)}\nefficiency {percent(rate / one.at(x))}", x, rate)
    caption = [f"Only the first {MOST_LABELS} of {len(measured):,} points are labelled."] if len(measured) > MOST_LABELS else []
    entries = [
        Entry(text="attainable", colour=sheet.theme.ink, marker="o", filled=False),
        Entry(text="achieved", colour=colour, marker="o"),
    ]
    return sheet.finish(
        f"Achieved and attainable rates on {one.name}",
        subtitle="the gap to the roofline is the room for improvement",
        legend=entries,
        caption=caption,
    )


@styled
def distance_to_roof(
    machine: Machine | Roof, points: Iterable[tuple[str, float, float]], *, theme: str = "light", ax: Axes | None = None
) -> Axes:
    """Points (name, intensity, measured rate) coloured by their roofline efficiency."""
    one, measured = roof(machine), _measured(points)
    sheet = _measured_sheet(one, measured, theme, ax)
    for _, x, rate in measured:
        share = rate / one.at(x)
        colour = sheet.theme.good if share >= CLOSE else sheet.theme.compute if share < FAR else sheet.theme.series[3]
        _draw_gap(sheet, one, x, rate, colour, radius=5)
    for _, x, rate in measured:
        sheet.label(_gap(rate / one.at(x)), x, (rate * one.at(x)) ** 0.5, radius=4, size=NORMAL + 2, weight="bold")
    for name, x, rate in measured:
        which = "memory" if x < one.ridge else "compute"
        sheet.label(f"{short_name(name)}\n{which}-bound, efficiency {percent(rate / one.at(x))}", x, rate, radius=5, size=NORMAL)
    entries = [
        Entry(text=f"efficiency {percent(CLOSE)} or more", colour=sheet.theme.good, marker="o"),
        Entry(text=f"{percent(FAR)} to {percent(CLOSE)}", colour=sheet.theme.series[3], marker="o"),
        Entry(text=f"below {percent(FAR)}", colour=sheet.theme.compute, marker="o"),
    ]
    return sheet.finish(
        f"Roofline efficiency on {one.name}",
        subtitle="achieved rate over attainable rate, for memory-bound and compute-bound kernels alike",
        legend=entries,
    )


def _gap(share: float) -> str:
    return f"{percent(1 - share)} gap" if share <= 1 else f"{percent(share - 1)} above roofline"


def _measured(points: Iterable[tuple[str, float, float]]) -> tuple[tuple[str, float, float], ...]:
    measured = tuple(points)
    if not measured:
        raise UsageError("no measured point to draw; give --point NAME,INTENSITY,RATE")
    check_spots((x, rate) for _, x, rate in measured)
    return measured


def _measured_sheet(one: Roof, measured: Iterable[tuple[str, float, float]], theme: str, ax: Axes | None) -> Sheet:
    extent = extent_of([one], [(x, rate) for _, x, rate in measured])
    sheet = Sheet(ax, theme, extent, intensity_axis(one.level or HBM.name), RATE)
    _draw_roof(sheet, one, extent)
    return sheet


def _draw_roof(sheet: Sheet, one: Roof, extent: Extent) -> None:
    """A roofline in its two colours, with the attainable area and the names of its parts."""
    for part, colour in zip(feasible(one, extent), (sheet.theme.memory, sheet.theme.compute), strict=True):
        sheet.area(part, colour, strength=0.55, kind="feasible")
    slant, flat = one.slant(extent), one.flat(extent)
    sheet.line(slant, sheet.theme.memory, name=f"{one.name}: {title(one.level) or 'bandwidth'}", kind="slant")
    sheet.line(flat, sheet.theme.compute, name=f"{one.name}: {title(one.compute) or 'peak'}", kind="flat")
    name_slant(sheet, one, extent, prefer=0.75)
    name_flat(sheet, one)


def _draw_gap(sheet: Sheet, one: Roof, x: float, rate: float, colour: str, *, radius: float = 4.0) -> None:
    """Draw the attainable point, the measured point, and a line between them."""
    best = one.at(x)
    sheet.dot(x, best, sheet.theme.ink, filled=False, radius=radius - 0.5, kind="prediction")
    sheet.dot(x, rate, colour, radius=radius, kind="measured", z=6)
    sheet.line(((x, best), (x, rate)), sheet.theme.muted, width=1.0, kind="gap", z=3.5)
