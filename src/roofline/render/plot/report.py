"""The main chart: every operation of a report on the rooflines of its machine."""

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter
from msgspec.structs import replace

from ...report import Report
from ...resource import HBM, bound_words
from ...units import percent
from ..chart import Chart, Dot, StripDot, chart
from ..geometry import Path, rate_title, title
from ..op_table import efficiency_text
from .roofs import intensity_axis, name_slant
from .sheet import Axis, Entry, Sheet, draw_dots, style_axes
from .style import ROOF_WIDTH, Theme, short_name, styled

LARGEST, SMALLEST = 11.0, 2.2  # radii of dots, in points
MOST_LABELS = 10  # of dots
_CROWD = 500  # dots that may hide a roof, which is then drawn over them
LABEL = 40  # letters of an op's label next to its dot
_STRIP = (-0.34, 0, 0.11, 1)  # left, bottom, width and height of the strip, as shares of the axes
_LARGEST_IN_STRIP = 7.0  # radius in points
_GOLDEN = (math.sqrt(5) - 1) / 2  # steps of this share of the width never come close to each other soon
_MOST_NUMBERED = 8
_NUMBERED_FROM = 0.001  # of the time: ops in the strip that take less have no number


@styled
def roofline_chart(report: Report, *, theme: str = "light", ax: Axes | None = None) -> Axes:
    """Every operation of a report on the roofline: dots by their share of time, coloured by bound.

    Operations without FLOP are in a strip left of the axis (a child of the returned axes), by the fraction of bandwidth they reach.
    """
    drawn = _labelled(chart(report), report)
    which = "predicted" if drawn.changes else "achieved" if drawn.timed else "attainable"
    sheet = Sheet(ax, theme, drawn.extent, intensity_axis(HBM.name), Axis(label=f"{which} rate (FLOP/s)", dimension="FLOP/s"))
    _draw_roofs(sheet, drawn)
    colours, entries = _colours(drawn, sheet.theme)
    _draw_dots(sheet, drawn, colours)
    count = len(drawn.dots) + len(drawn.strip)
    if drawn.program and count > 1:
        sheet.dot(drawn.program.intensity, drawn.program.rate, sheet.theme.ink, radius=6, marker="*", kind="program", z=6)
        entries.append(Entry(text="whole program", colour=sheet.theme.ink, marker="*"))
    key = _draw_strip(sheet, drawn, colours) if drawn.strip else []
    what = "time" if drawn.timed else "minimum time (no measured times: every dot is at its attainable rate)"
    if drawn.changes:
        what = f"predicted time after {' '.join(drawn.changes)}"
    return sheet.finish(
        f"{_counted(count, len(report.ops))} on {drawn.machine}",
        subtitle=f"dot area: {what}",
        legend=entries,
        caption=[drawn.caption, *key],
    )


def _counted(drawn: int, every: int) -> str:
    """How many operations are drawn, of how many.

    >>> _counted(1, 1), _counted(20_000, 20_000), _counted(0, 1)
    ('1 operation', '20,000 operations', '0 of 1 operation')
    """
    return f"{drawn:,}{f' of {every:,}' if drawn < every else ''} operation{'' if every == 1 else 's'}"


def _labelled(drawn: Chart, report: Report) -> Chart:
    """The chart with the ops' labels as in tables, instead of the compiler's names."""
    labels: dict[int | None, str] = {op.id: op.label for op in report.ops if op.label}
    dots = tuple(replace(dot, name=labels.get(dot.op, dot.name)) for dot in drawn.dots)
    strip = tuple(replace(dot, name=labels.get(dot.op, dot.name)) for dot in drawn.strip)
    return replace(drawn, dots=dots, strip=strip)


def _draw_roofs(sheet: Sheet, drawn: Chart) -> None:
    highest = drawn.roofs[0]
    _draw_roof(sheet, drawn, highest.slant(drawn.extent), sheet.theme.memory, title(HBM.name), "slant")
    for roof in drawn.roofs:
        _draw_roof(sheet, drawn, roof.flat(drawn.extent), sheet.theme.of_unit(roof.compute.partition("/")[0]), roof.name, "flat")
    sheet.label_ends([(rate_title(roof.compute, roof.peak), roof.peak) for roof in drawn.roofs])
    name_slant(sheet, highest, drawn.extent, prefer=0.5)


def _draw_roof(sheet: Sheet, drawn: Chart, path: Path, colour: str, name: str, kind: str) -> None:
    crowded = len(drawn.dots) > _CROWD
    if crowded:
        sheet.line(path, sheet.theme.background, width=ROOF_WIDTH + 2, kind="halo", z=5.4)
    sheet.line(path, colour, name=name, kind=kind, z=5.5 if crowded else 3)


def _colours(drawn: Chart, theme: Theme) -> tuple[dict[str | None, str], list[Entry]]:
    """A colour for each bound, that of most time first, and the legend; bounds beyond the palette share one grey."""
    weights: dict[str | None, float] = {}
    for dot in drawn.marks:
        weights[dot.bound] = weights.get(dot.bound, 0.0) + dot.weight
    colours: dict[str | None, str] = {}
    for bound in sorted(weights, key=lambda bound: -weights[bound]):
        usual = theme.of_unit(bound)
        free = [colour for colour in theme.series if colour not in colours.values()]
        colours[bound] = usual if usual == theme.muted or usual in free else next(iter(free), theme.muted)
    named = {bound: colour for bound, colour in colours.items() if bound and (colour != theme.muted or bound == "latency")}
    entries = [Entry(text=bound_words(bound), colour=colour, marker="o") for bound, colour in named.items()]
    if len(named) < len(colours):
        text = "no known bound" if set(colours) - set(named) == {None} else "other"
        entries.append(Entry(text=text, colour=theme.muted, marker="o"))
    return colours, entries


def _radii(dots: Sequence[Dot | StripDot], drawn: Chart) -> list[float]:
    """Radii with areas proportional to the weights: the heaviest op of the chart has the largest, and none is too small to see."""
    heaviest = max((dot.weight for dot in drawn.marks), default=0.0)
    return [max(SMALLEST, LARGEST * math.sqrt(dot.weight / heaviest)) if heaviest else SMALLEST * 2 for dot in dots]


def _draw_dots(sheet: Sheet, drawn: Chart, colours: Mapping[str | None, str]) -> None:
    radii = dict(zip(drawn.dots, _radii(drawn.dots, drawn), strict=True))
    outside = set(drawn.outside)
    inside = [dot for dot in drawn.dots if dot not in outside]
    if inside:
        sheet.dots([(dot.intensity, dot.rate) for dot in inside], [radii[dot] for dot in inside], [colours[dot.bound] for dot in inside])
    for dot in drawn.outside:
        x, y = drawn.extent.nearest(dot.intensity, dot.rate)
        marker = "<" if dot.intensity < x else ">" if dot.intensity > x else "v" if dot.rate < y else "^"
        sheet.dot(x, y, colours[dot.bound], marker=marker, kind="pointer")
    for dot in drawn.dots[:MOST_LABELS]:
        x, y = drawn.extent.nearest(dot.intensity, dot.rate)
        sheet.label(_words(dot, drawn), x, y, radius=radii[dot])


def _words(dot: Dot, drawn: Chart) -> str:
    name = short_name(dot.name, LABEL) or "unnamed"
    if not drawn.timed or not drawn.total:
        return name
    share = f"{percent(dot.weight / drawn.total)} of time"
    return (
        f"{name}\n{share}" if dot.efficiency is None else f"{name}\n{share}, efficiency {efficiency_text(dot.efficiency, dot.upper_bound)}"
    )


def _draw_strip(sheet: Sheet, drawn: Chart, colours: Mapping[str | None, str]) -> list[str]:
    """Draw ops without FLOP on axes of their own, left of the main axis' numbers. Returns the key of those that have a number."""
    strip = sheet.ax.inset_axes(_STRIP)
    style_axes(strip, sheet.theme)
    top = 1.06 * max(1.0, *(dot.share for dot in drawn.strip))
    strip.set(xlim=(0, 1), ylim=(-0.04, top), xlabel="no FLOP", ylabel="fraction of bandwidth", xticks=[])
    strip.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    strip.axhline(1.0, color=sheet.theme.memory, linewidth=1.4, zorder=2)
    radii = [min(radius, _LARGEST_IN_STRIP) for radius in _radii(drawn.strip, drawn)]
    across = [0.1 + 0.8 * ((0.5 + index * _GOLDEN) % 1) for index in range(len(drawn.strip))]
    spots = [(x, dot.share) for x, dot in zip(across, drawn.strip, strict=True)]
    draw_dots(strip, spots, radii, [colours[dot.bound] for dot in drawn.strip], gid="strip-dots")
    groups = [group for group in _by_name(drawn.strip) if _weight(group) >= _NUMBERED_FROM * drawn.total][:_MOST_NUMBERED]
    sheet.beside(strip, [(str(number), group[0].share) for number, group in enumerate(groups, 1)])
    return [f"{number}  {_strip_words(group, drawn)}" for number, group in enumerate(groups, 1)]


def _weight(dots: Sequence[StripDot]) -> float:
    return sum(dot.weight for dot in dots)


def _by_name(dots: Sequence[StripDot]) -> list[list[StripDot]]:
    """The dots of each name, heaviest first; the name with most time first."""
    groups: dict[tuple[str, str], list[StripDot]] = {}
    for dot in dots:
        groups.setdefault((dot.name, dot.unit), []).append(dot)
    return sorted(groups.values(), key=lambda group: -_weight(group))


def _strip_words(dots: Sequence[StripDot], drawn: Chart) -> str:
    """The ops of one name in the strip: how many, their share of time, and the fraction of bandwidth they reach."""
    shares = [percent(dot.share) for dot in sorted(dots, key=lambda dot: dot.share)]
    reached = shares[0] if shares[0] == shares[-1] else f"{shares[0]} to {shares[-1]}"
    of_time = f"{percent(_weight(dots) / drawn.total)} of time, " if drawn.timed and drawn.total else ""
    many = f"{len(dots):,} ops, " if len(dots) > 1 else ""
    return f"{short_name(dots[0].name, 52)}: {many}{of_time}{reached} of {title(dots[0].unit) if dots[0].unit else 'its'} bandwidth"
