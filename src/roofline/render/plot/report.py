"""The main chart: every operation of a report on the rooflines of its machine."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter
from msgspec.structs import replace

from ...report import Report
from ...resource import HBM, bound_words
from ...units import percent
from ..boxes import Box, Disc, Scene
from ..chart import Chart, Dot, StripDot, chart
from ..geometry import Extent, Path, linear_ticks, rate_title, title
from ..labels import Label, place_labels, swarm
from ..op_table import efficiency_text
from .captions import Entry
from .frame import Axis
from .roofs import intensity_axis, name_slant
from .sheet import Sheet
from .style import LINE_SPACING, NORMAL, ROOF_WIDTH, SMALL, TYPEFACE, Theme, short_name, text_size, text_style

LARGEST, SMALLEST = 11.0, 2.2  # radii of dots, in points
MOST_LABELS = 10  # of dots
_CROWD = 500  # dots that may hide a roof, which is then drawn over them
LABEL = 40  # letters of an op's label next to its dot
_STRIP, _GAP = 48.0, 10.0  # width of the strip, and of the space between it and the numbers of the axis
_MOST_NUMBERED = 8
_NUMBERED_FROM = 0.001  # of the time: ops in the strip that take less have no number
_NUMBERED_ON = 4.5  # points: the radius of a dot that can hold its number
_NEAR = 5.5  # points: a number farther from its dot could be read as its neighbour's


def roofline_chart(report: Report, *, theme: str = "light", ax: Axes | None = None) -> Axes:
    """Every operation of a report on the roofline: dots by their share of time, coloured by bound.

    Operations without FLOP are in a strip left of the axis (a child of the returned axes), by the fraction of bandwidth they reach.
    """
    drawn = _labelled(chart(report), report)
    ends = [rate_title(one.compute, one.peak) for one in drawn.roofs]
    which = "predicted" if drawn.changes else "achieved" if drawn.timed else "attainable"
    rate = Axis(label=f"{which} rate (FLOP/s)", dimension="FLOP/s")
    sheet = Sheet(ax, theme, drawn.extent, intensity_axis(HBM.name), rate, ends=ends)
    _draw_roofs(sheet, drawn, ends)
    colours, entries = _colours(drawn, sheet.theme)
    _draw_dots(sheet, drawn, colours)
    count = len(drawn.dots) + len(drawn.strip)
    if drawn.program and count > 1:
        sheet.dot(drawn.program.intensity, drawn.program.rate, sheet.theme.ink, radius=6, marker="*", kind="program", z=6)
        entries.append(Entry(text="whole program", colour=sheet.theme.ink, marker="*"))
    left = _draw_strip(sheet, drawn, colours) if drawn.strip else 0.0
    what = "time" if drawn.timed else "minimum time (no measured times: every dot is at its attainable rate)"
    if drawn.changes:
        what = f"predicted time after {' '.join(drawn.changes)}"
    return sheet.finish(
        f"{_counted(count, len(report.ops))} on {drawn.machine}",
        subtitle=f"dot area: {what}",
        legend=entries,
        caption=drawn.caption,
        left=left,
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


def _draw_roofs(sheet: Sheet, drawn: Chart, ends: Sequence[str]) -> None:
    highest = drawn.roofs[0]
    _draw_roof(sheet, drawn, highest.slant(drawn.extent), sheet.theme.memory, title(HBM.name), "slant")
    for one, text in zip(drawn.roofs, ends, strict=True):
        _draw_roof(sheet, drawn, one.flat(drawn.extent), sheet.theme.of_unit(one.compute.partition("/")[0]), one.name, "flat")
        sheet.label_end(text, drawn.extent.right, one.peak)
    name_slant(sheet, highest, drawn.extent, prefer=0.5)


def _draw_roof(sheet: Sheet, drawn: Chart, path: Path, colour: str, name: str, kind: str) -> None:
    crowded = len(drawn.dots) > _CROWD
    if crowded:
        sheet.line(path, sheet.theme.background, width=ROOF_WIDTH + 2, kind="halo", z=5.4, keep_clear=False)
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
        sheet.pointer(dot.intensity, dot.rate, colours[dot.bound])
    for dot in drawn.dots[:MOST_LABELS]:
        x, y = drawn.extent.nearest(dot.intensity, dot.rate)
        sheet.label(_words(dot, drawn, LABEL), x, y, radius=radii[dot], key=_words(dot, drawn, 64), crowd=True)


def _words(dot: Dot, drawn: Chart, letters: int) -> str:
    name = short_name(dot.name, letters) or "unnamed"
    if not drawn.timed or not drawn.total:
        return name
    share = f"{percent(dot.weight / drawn.total)} of time"
    return (
        f"{name}\n{share}" if dot.efficiency is None else f"{name}\n{share}, efficiency {efficiency_text(dot.efficiency, dot.upper_bound)}"
    )


def _draw_strip(sheet: Sheet, drawn: Chart, colours: Mapping[str | None, str]) -> float:
    """Draw ops without FLOP on separate axes, left of the main axis' numbers. Returns their width in points."""
    theme = sheet.theme
    label = NORMAL * LINE_SPACING + 8
    right = sheet.numbers + 8 + label + _GAP
    strip = sheet.ax.inset_axes((-(right + _STRIP) / sheet.width, 0, _STRIP / sheet.width, 1))
    extent = Extent(
        left=0.0, right=_STRIP, bottom=-0.04, top=1.06 * max(1.0, *(dot.share for dot in drawn.strip)), x_log=False, y_log=False
    )
    ticks = linear_ticks(0.0, extent.top, "%")
    strip.set(xlim=(extent.left, extent.right), ylim=(extent.bottom, extent.top), facecolor=theme.background)
    for side, spine in strip.spines.items():
        spine.set(visible=side in ("left", "bottom"), color=theme.muted, linewidth=0.8)
    strip.set_axisbelow("line")
    strip.grid(False, which="both")
    look: dict[str, Any] = {
        "color": theme.muted,
        "labelcolor": theme.muted,
        "labelsize": SMALL,
        "labelfontfamily": TYPEFACE,
        "direction": "out",
    }
    strip.tick_params(which="both", top=False, right=False, bottom=False, labelbottom=False, length=4, width=0.8, pad=3, **look)
    strip.yaxis.set_minor_formatter(NullFormatter())
    strip.set_yticks([tick.at for tick in ticks], [tick.label for tick in ticks])
    strip.axhline(1.0, color=theme.memory, linewidth=1.4, linestyle="solid", marker="none", zorder=2)
    strip.set_xlabel("no FLOP", labelpad=6, **text_style(theme.ink))
    strip.set_ylabel("fraction of bandwidth", labelpad=6, **text_style(theme.ink))
    radii = [min(radius, _STRIP / 7) for radius in _radii(drawn.strip, drawn)]
    heights = [extent.unit(0.0, dot.share)[1] * sheet.height for dot in drawn.strip]
    across = [_STRIP / 2 + shift for shift in swarm(heights, radii, _STRIP - 2 * max(radii))]
    strip.scatter(
        across, [dot.share for dot in drawn.strip], s=[(2 * radius) ** 2 for radius in radii],
        c=[colours[dot.bound] for dot in drawn.strip], marker="o", alpha=0.85, linewidths=0.7, edgecolors=theme.background,
        zorder=5, clip_on=False, gid="strip-dots",
    )  # fmt: skip
    _number_strip(sheet, strip, drawn, list(zip(across, heights, radii, strict=True)), extent.unit(0.0, 1.0)[1] * sheet.height)
    return right + _STRIP + 8 + max(text_size(tick.label, SMALL)[0] for tick in ticks) + label - (sheet.numbers + 8 + label)


def _number_strip(sheet: Sheet, strip: Axes, drawn: Chart, marks: Sequence[tuple[float, float, float]], full: float) -> None:
    """Number the ops of the strip that take most of the time, those of one name once: next to a dot, clear of the line of ``full``
    bandwidth, or on it if it is large. Their names are in the key."""
    top = ((0.0, full), (_STRIP, full))
    scene = Scene(width=_STRIP, height=sheet.height, discs=tuple(Disc(x, y, radius) for x, y, radius in marks), lines=(top,))
    size = text_size("0", SMALL)
    groups = [group for group in _by_name(drawn.strip) if _weight(drawn.strip, group) >= _NUMBERED_FROM * drawn.total][:_MOST_NUMBERED]
    labels = [Label("", *marks[first][:2], size, marks[first][2]) for first, *_ in groups]
    beside = {place.index: place.box for place in place_labels(labels, scene, size).placed if place.number is None}
    taken: list[Box] = list(beside.values())
    for index, group in enumerate(groups):
        x, y, radius = marks[group[0]]
        box = beside.get(index)
        if box is None or box.distance(x, y) > radius + _NEAR:
            box = Box(x, y, *size)
            if radius < _NUMBERED_ON or any(box.overlaps(other) for other in taken):
                continue
            taken.append(box)
        strip.text(
            box.x / _STRIP,
            box.y / sheet.height,
            str(sheet.number(_strip_words([drawn.strip[at] for at in group], drawn))),
            transform=strip.transAxes,
            ha="center",
            va="center",
            zorder=7,
            path_effects=sheet.halo,
            gid="beside-dot" if box is beside.get(index) else "on-dot",
            **text_style(sheet.theme.ink, SMALL),
        )


def _weight(dots: Sequence[StripDot], group: Sequence[int]) -> float:
    return sum(dots[index].weight for index in group)


def _by_name(dots: Sequence[StripDot]) -> list[list[int]]:
    """The numbers of the dots of each name, heaviest first; the name with most time first."""
    groups: dict[tuple[str, str], list[int]] = {}
    for index, dot in enumerate(dots):
        groups.setdefault((dot.name, dot.unit), []).append(index)
    return sorted(groups.values(), key=lambda group: -_weight(dots, group))


def _strip_words(dots: Sequence[StripDot], drawn: Chart) -> str:
    """The ops of one name in the strip: how many, their share of time, and the fraction of bandwidth they reach."""
    shares = [percent(dot.share) for dot in sorted(dots, key=lambda dot: dot.share)]
    reached = shares[0] if shares[0] == shares[-1] else f"{shares[0]} to {shares[-1]}"
    of_time = f"{percent(sum(dot.weight for dot in dots) / drawn.total)} of time, " if drawn.timed and drawn.total else ""
    many = f"{len(dots):,} ops, " if len(dots) > 1 else ""
    return f"{short_name(dots[0].name, 52)}: {many}{of_time}{reached} of {title(dots[0].unit) if dots[0].unit else 'its'} bandwidth"
