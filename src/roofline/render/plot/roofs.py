"""Figures of machines: one roofline explained, rooflines of several chips, of memory levels, and lower ceilings."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from msgspec.structs import replace

from ...errors import UsageError
from ...machine import Machine
from ...placement import Corrections
from ...resource import HBM, HOST, named
from ...units import number_of, percent, plain, show
from .. import geometry
from ..geometry import Extent, Roof, check_spots, extent_of, feasible, rate_title, roof, title, zone
from .sheet import Axis, Sheet
from .style import DASHES, MARKERS, NORMAL, THIN_WIDTH, Dash, short_name, styled

RATE = Axis(label="attainable rate (FLOP/s)", dimension="FLOP/s")
MOST_LABELS = 24
_REGION = 11.0  # font size of a region's name
_END = 36  # letters of a chip's name at the end of its roof
_WORTH_AN_ARROW = 0.3  # of the natural logarithm of a rate
_MOST_ENDS = 24  # roofs with a label at their end: as many as fit above each other
_MOST_RULES = 12  # operations that get a vertical rule of their own


def intensity_axis(level: str) -> Axis:
    """The x axis of every roofline: FLOP per byte of one memory level or link."""
    return Axis(label=f"arithmetic intensity (FLOP per byte of {title(level)})", dimension="FLOP/B")


@styled
def anatomy(
    machine: Machine | Roof, *, compute: str | None = None, level: str = HBM.name, theme: str = "light", ax: Axes | None = None
) -> Axes:
    """One roofline explained: slope, flat, ridge point, the two regions and the attainable area; of a measured machine, its spread too."""
    one = roof(machine, compute, level)
    extent = extent_of([one])
    sheet = Sheet(ax, theme, extent, intensity_axis(one.level or level), RATE)
    memory, computing = sheet.theme.memory, sheet.theme.compute
    left, right = feasible(one, extent)
    sheet.area(left, memory, kind="memory-bound")
    sheet.area(right, computing, kind="compute-bound")
    spread = _spread_of(machine, one)
    if spread:
        sheet.area(zone(*spread, extent), sheet.theme.ink, kind="spread")
    sheet.line(one.slant(extent, beyond=True), memory, width=THIN_WIDTH, dash=(4, 3), kind="extension", z=2)
    sheet.line(one.flat(extent, before=True), computing, width=THIN_WIDTH, dash=(4, 3), kind="extension", z=2)
    sheet.line(one.slant(extent), memory, width=2.4, name=f"{one.name}: bandwidth", kind="slant")
    sheet.line(one.flat(extent), computing, width=2.4, name=f"{one.name}: peak", kind="flat")
    name_slant(sheet, one, extent, prefer=0.45)
    name_flat(sheet, one)
    draw_ridge(sheet, one, extent)
    _name_regions(sheet, one)
    about = " over ".join(title(part) for part in (one.compute, one.level) if part)
    subtitle = f"{about + '; ' if about else ''}shaded: attainable rates"
    subtitle += "; grey: 5th to 95th percentile of the measurement's tries" if spread else ""
    return sheet.finish(f"Roofline of {one.name}", subtitle=subtitle)


def draw_ridge(sheet: Sheet, one: Roof, extent: Extent) -> None:
    """Mark the ridge point with its intensity, and a rule down to the axis."""
    sheet.line(((one.ridge, extent.bottom), one.corner), sheet.theme.muted, width=0.8, dash=(1, 2), kind="rule", z=2)
    sheet.dot(*one.corner, sheet.theme.ink, radius=4.5, filled=False, kind="ridge")
    sheet.label(f"ridge point\n{show(one.ridge, 'FLOP/B')}", *one.corner, radius=4.5, size=NORMAL)


def _spread_of(machine: Machine | Roof, roof: Roof) -> tuple[Roof, Roof] | None:
    """The roof at the 95th and at the 5th percentile of the tries that measured it; ``None`` if no rate of it was measured."""
    if isinstance(machine, Roof):
        return None
    compute, memory = (found.spread if (found := machine.ceiling(name)) else None for name in (roof.compute, roof.level))
    if compute is None and memory is None:
        return None
    peaks = (compute.p95, compute.p5) if compute else (roof.peak, roof.peak)
    bandwidths = (memory.p95, memory.p5) if memory else (roof.bandwidth, roof.bandwidth)
    upper, lower = (replace(roof, peak=peak, bandwidth=rate) for peak, rate in zip(peaks, bandwidths, strict=True))
    return upper, lower


def _name_regions(sheet: Sheet, roof: Roof) -> None:
    """The bound on either side of the ridge, low under the roofline where the shaded area is wide."""
    left, _ = sheet.inner.unit(*roof.corner)
    for across, name, law, colour in (
        (0.45 * left, "memory-bound", "rate = bandwidth × intensity", sheet.theme.memory),
        (left + 0.1 * (1 - left), "compute-bound", "rate = peak", sheet.theme.compute),
    ):
        sheet.label(name, *sheet.inner.place(across, 0.2), radius=0, size=_REGION, weight="bold", colour=sheet.theme.lettering(colour))
        sheet.label(law, *sheet.inner.place(across, 0.14), radius=0, colour=sheet.theme.muted)


def name_slant(sheet: Sheet, one: Roof, extent: Extent, *, prefer: float) -> None:
    """Write the bandwidth along its slope."""
    text = rate_title(one.level, one.bandwidth) if one.level else show(one.bandwidth, "B/s")
    sheet.label_line(text, one.slant(extent), prefer=prefer)


def name_flat(sheet: Sheet, roof: Roof) -> None:
    """Write the peak at the end of its flat part."""
    text = rate_title(roof.compute, roof.peak) if roof.compute else show(roof.peak, "FLOP/s")
    sheet.label_ends([(text, roof.peak)])


@styled
def rooflines(
    roofs: Iterable[Machine | Roof],
    points: Iterable[tuple[str, float]] = (),
    *,
    theme: str = "light",
    ax: Axes | None = None,
) -> Axes:
    """Several rooflines, and operations (name, intensity), each at its attainable rate on each of them."""
    drawn, ops = tuple(roof(machine) for machine in roofs), tuple(points)
    check_spots((x, 1.0) for _, x in ops)
    extent = extent_of(drawn, [(x, line.at(x)) for _, x in ops for line in drawn])
    sheet = Sheet(ax, theme, extent, intensity_axis(_common_level(drawn)), RATE)
    colours = [sheet.theme.of_series(index) for index in range(len(drawn))]
    dashes = [DASHES[index // len(sheet.theme.series) % len(DASHES)] for index in range(len(drawn))]
    for index, line in enumerate(drawn):
        _draw_roof(sheet, line, colours[index], dashes[index], shared=sum(line.bandwidth == before.bandwidth for before in drawn[:index]))
    for line, colour in zip(drawn, colours, strict=True):
        sheet.dot(*line.corner, colour, radius=3, filled=False, kind="ridge")
    highest = sorted(drawn, key=lambda line: line.peak, reverse=True)[:_MOST_ENDS]
    sheet.label_ends([(f"{short_name(line.name, _END)}: ridge {plain(line.ridge, 3)}", line.peak) for line in drawn if line in highest])
    if len(ops) <= _MOST_RULES:
        for _, x in ops:
            top = max(line.at(x) for line in drawn)
            sheet.line(((x, extent.bottom), (x, top)), sheet.theme.muted, width=0.7, dash=(1, 2.5), kind="rule", z=2)
    for index, (name, x) in enumerate(ops):
        best = _draw_marks(sheet, x, drawn, colours, MARKERS[index % len(MARKERS)] if len(ops) <= len(MARKERS) else "o")
        if index < MOST_LABELS:
            sheet.label(f"{short_name(name)}\n{show(x, 'FLOP/B', 3)}", x, best)
    caption = [f"Only the first {MOST_LABELS} of {len(ops):,} operations are labelled."] if len(ops) > MOST_LABELS else []
    caption += [f"Only the highest {_MOST_ENDS} of {len(drawn):,} rooflines are labelled."] if len(drawn) > _MOST_ENDS else []
    names = f"{len(drawn)} rooflines" if len(drawn) > 1 else f"the roofline of {drawn[0].name}"
    heading = f"{number_of(len(ops), 'operation')} on {names}" if ops else names[0].upper() + names[1:]
    rings = "rings: ridge points (FLOP/B)"
    subtitle = f"marks: attainable rate; {rings}" if ops else rings
    return sheet.finish(heading, subtitle=subtitle, caption=caption)


def _common_level(roofs: Sequence[Roof]) -> str:
    levels = {one.level for one in roofs}
    return levels.pop() if len(levels) == 1 and "" not in levels else HBM.name if levels <= {"", HBM.name} else "memory"


def _draw_roof(sheet: Sheet, one: Roof, colour: str, dash: Dash, *, shared: int) -> None:
    """Draw a roof; where ``shared`` earlier roofs have the same slope, it is dashed over them."""
    if not shared:
        sheet.line(one.polyline(sheet.inner), colour, dash=dash, name=one.name, kind="roof")
        return
    sheet.line(one.slant(sheet.inner), colour, dash=(4, 4 * shared), kind="shared-slant", z=3.1)
    sheet.line(one.flat(sheet.inner), colour, dash=dash, name=one.name, kind="roof")


def _draw_marks(sheet: Sheet, x: float, roofs: Sequence[Roof], colours: Sequence[str], marker: str) -> float:
    """Mark one operation on every roof; roofs with the same rate share a mark. Returns the highest rate."""
    rates: dict[float, list[str]] = {}
    for one, colour in zip(roofs, colours, strict=True):
        rates.setdefault(one.at(x), []).append(colour)
    for rate, shared in rates.items():
        sheet.dot(x, rate, shared[0], marker=marker, other=shared[1] if len(shared) > 1 else None)
    return max(rates)


@styled
def hierarchy(
    machine: Machine,
    levels: Sequence[str] | None = None,
    *,
    compute: str | None = None,
    points: Iterable[tuple[str, float, float]] = (),
    theme: str = "light",
    ax: Axes | None = None,
) -> Axes:
    """Rooflines of the chip's memory levels, the zones between them shaded; points are (name, intensity, measured rate).

    The x axis is the intensity over the slowest level drawn. A kernel between two rooflines reuses data in the faster level.
    """
    own = [ceiling.resource.name for ceiling in machine.memories if ceiling.resource != HOST]
    names = tuple(own if levels is None else levels)
    if not names:
        raise UsageError(f"{machine.name}: no memory level to draw; name one, such as hbm or l2")
    roofs = sorted((roof(machine, compute, name, title(name)) for name in names), key=lambda one: one.bandwidth)
    spots = tuple(points)
    slowest = roofs[0]
    extent = extent_of(roofs, [(x, y) for _, x, y in spots])
    sheet = Sheet(ax, theme, extent, intensity_axis(slowest.level), RATE)
    colours = [sheet.theme.of_series(0 if index == 0 else index + 1) for index in range(len(roofs))]
    for index, (lower, upper) in enumerate(pairwise(roofs)):
        sheet.area(zone(upper, lower, extent), colours[index + 1], kind="zone")
    for one, colour in reversed(list(zip(roofs, colours, strict=True))):
        sheet.line(one.slant(extent), colour, name=f"{machine.name}: {one.name}", kind="slant")
    sheet.line(roofs[-1].flat(extent), sheet.theme.compute, name=f"{machine.name}: {title(slowest.compute)}", kind="flat")
    name_flat(sheet, slowest)
    for one, colour in zip(roofs, colours, strict=True):
        sheet.dot(*one.corner, colour, radius=3.5, filled=False, kind="ridge")
        name = rate_title(one.level, one.bandwidth)
        sheet.label_line(name, one.slant(extent), prefer=0.4)
    for lower, upper in pairwise(roofs):
        _name_zone(sheet, lower, upper)
    for one in roofs:
        sheet.label(f"ridge {plain(one.ridge, 3)}", *one.corner, radius=3.5)
    for name, x, rate in spots:
        below = slowest.at(x)
        sheet.dot(x, below, colours[0], kind="prediction", filled=False)
        sheet.dot(x, rate, sheet.theme.ink, kind="measured")
        if abs(math.log(rate / below)) > _WORTH_AN_ARROW:
            sheet.arrow((x, below), (x, rate), sheet.theme.ink)
        sheet.label(f"{short_name(name)}: {show(rate, 'FLOP/s')}\n{plain(rate / below, 3)}x the {slowest.name} roofline", x, rate)
        sheet.label(f"{slowest.name} roofline: {show(below, 'FLOP/s')}", x, below)
    subtitle = "a kernel in a shaded zone reuses data in the faster level" if len(roofs) > 1 else "one memory level"
    if any(named(one.level).is_link for one in roofs[1:]):
        subtitle = "a kernel in a shaded zone reuses data in the faster memory, or sends it over the faster link"
    return sheet.finish(f"Hierarchical roofline of {machine.name}", subtitle=subtitle)


def _name_zone(sheet: Sheet, lower: Roof, upper: Roof) -> None:
    """Write the name of a zone in the middle of the band between two slopes, parallel to them: a link holds no data to reuse."""
    middle = Roof("", lower.peak, math.sqrt(lower.bandwidth * upper.bandwidth))
    memory = title(upper.level.partition(".")[0])
    text = f"allowed by {upper.name}, not by {lower.name}" if named(upper.level).is_link else f"needs reuse in {memory}"
    sheet.label_line(text, middle.slant(sheet.inner), prefer=0.55, side=0)


@styled
def communication(
    machine: Machine,
    fractions: Sequence[float] = (0.2, 0.4, 0.6),
    *,
    compute: str | None = None,
    level: str = HBM.name,
    theme: str = "light",
    ax: Axes | None = None,
) -> Axes:
    """The roofline of a chip that spends these fractions of its time communicating: P x (1 − fraction), and the ideal one."""
    ideal = roof(machine, compute, level)
    lowered = [(share, roof(Corrections(communication=share).lower(machine), ideal.compute, level)) for share in sorted(fractions)]
    drawn = [("ideal", ideal), *((percent(share), lower) for share, lower in lowered)]
    extent = extent_of([lower for _, lower in drawn])
    sheet = Sheet(ax, theme, extent, intensity_axis(level), RATE)
    sheet.label_ends([(f"{text}: {show(lower.peak, 'FLOP/s')}", lower.peak) for text, lower in drawn])
    for index, (text, lower) in enumerate(drawn):
        colour = sheet.theme.ink if index == 0 else sheet.theme.of_series(index - 1)
        sheet.line(
            lower.polyline(extent), colour, width=2.2 if index == 0 else 1.6, dash=None if index == 0 else (5, 2), name=text, kind="roof"
        )
    name_slant(sheet, ideal, extent, prefer=0.5)
    return sheet.finish(
        f"Roofline of {machine.name} lowered by communication",
        subtitle=f"{title(ideal.compute)} over {title(level)}; dashed: fraction of time spent communicating, no overlap",
    )


@styled
def ceilings(machine: Machine, *, compute: str | None = None, level: str = HBM.name, theme: str = "light", ax: Axes | None = None) -> Axes:
    """The named lower ceilings of a machine: what code without fused multiply-adds, or with strided access, can reach."""
    whole = roof(machine, compute, level)
    inside = geometry.ceilings(machine, whole.compute, level)
    if not inside:
        raise UsageError(f"{machine.name} has no lower ceiling for {whole.compute} or {level}; add limits to its machine file")
    lower_peaks = [ceiling for ceiling in inside if ceiling.peak < whole.peak]
    lower_bands = [ceiling for ceiling in inside if ceiling.bandwidth < whole.bandwidth]
    ends = [(rate_title(whole.compute, whole.peak), whole.peak)]
    ends += [(f"{ceiling.name}: {show(ceiling.peak, 'FLOP/s')}", ceiling.peak) for ceiling in lower_peaks]
    extent = extent_of([whole, *inside])
    sheet = Sheet(ax, theme, extent, intensity_axis(level), RATE)
    sheet.label_ends(ends)
    for part, colour in zip(feasible(whole, extent), (sheet.theme.memory, sheet.theme.compute), strict=True):
        sheet.area(part, colour, strength=0.6, kind="feasible")
    sheet.line(whole.slant(extent), sheet.theme.memory, width=2.4, name=f"{machine.name}: {title(level)}", kind="slant")
    sheet.line(whole.flat(extent), sheet.theme.compute, width=2.4, name=f"{machine.name}: {title(whole.compute)}", kind="flat")
    for ceiling in lower_peaks:
        under = Roof(ceiling.name, ceiling.peak, whole.bandwidth)
        sheet.line(under.flat(extent), sheet.theme.compute, width=THIN_WIDTH, dash=(5, 2), name=ceiling.name, kind="ceiling")
    for ceiling in lower_bands:
        under = Roof(ceiling.name, whole.peak, ceiling.bandwidth)
        sheet.line(under.slant(extent), sheet.theme.memory, width=THIN_WIDTH, dash=(5, 2), name=ceiling.name, kind="ceiling")
    sheet.dot(*whole.corner, sheet.theme.ink, radius=3.5, filled=False, kind="ridge")
    name_slant(sheet, whole, extent, prefer=0.45)
    for ceiling in lower_bands:
        text = f"{ceiling.name}: {show(ceiling.bandwidth, 'B/s')}"
        path = Roof(ceiling.name, whole.peak, ceiling.bandwidth).slant(extent)
        sheet.label_line(text, path, prefer=0.45, side=-1)
    return sheet.finish(
        f"Lower ceilings of {machine.name}",
        subtitle=f"{title(whole.compute)} over {title(level)}; dashed: attainable for code with that limitation",
    )
