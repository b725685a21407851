"""The figure of times: how long each unit of hardware is busy, and the bounds that follow from it."""

from collections.abc import Iterable, Mapping, Sequence

from matplotlib.axes import Axes

from ...errors import UsageError
from ...placement import Placement
from ...resource import bound_words
from ...units import percent, show
from ..geometry import Extent, Tick, title
from .captions import Entry
from .frame import Axis
from .sheet import Sheet
from .style import short_name

FIGURE_SPACE = "\N{FIGURE SPACE}"  # as wide as a digit

_ROW, _HEAD, _SPACE = 17.0, 17.0, 9.0  # points: one bar, the line that names a group, the space below it
_MOST_GROUPS = 24


def time_bars(
    placements: Mapping[str, Placement] | Iterable[tuple[str, Placement]], *, theme: str = "light", ax: Axes | None = None
) -> Axes:
    """Seconds on each unit, one group per placement: the minimum time is the longest bar, the serial time the sum of all."""
    groups = tuple(placements.items() if isinstance(placements, Mapping) else placements)
    groups = tuple((name, placed) for name, placed in groups if placed.serial_s > 0)
    if not groups:
        raise UsageError("no placement has a time on any unit: nothing to draw; give operations with FLOP or bytes")
    shown = groups[:_MOST_GROUPS]
    heights = [_HEAD + _ROW * len(placed.times) + _SPACE for _, placed in shown]
    longest = max(max(placed.serial_s, placed.time_s or 0.0) for _, placed in shown)
    # Bars show values by length, so the x axis starts at 0; y is in points from the bottom of the figure.
    extent = Extent(left=0.0, right=1.04 * longest, bottom=0.0, top=sum(heights), x_log=False, y_log=False)
    tops = [sum(heights[index:]) for index in range(len(heights))]
    sheet = Sheet(ax, theme, extent, Axis(label="time", dimension="s"), Axis(label="", ticks=_rows(shown, tops)), height=sum(heights))
    for (name, placed), top in zip(shown, tops, strict=True):
        _draw_group(sheet, name, placed, top)
    ink = sheet.theme.ink
    entries = [
        Entry(text="minimum time (full overlap)", colour=ink),
        Entry(text="serial time (no overlap)", colour=ink, dash=(3, 2)),
        *([Entry(text="measured", colour=ink, marker="D")] if any(placed.time_s for _, placed in shown) else []),
    ]
    machines = sorted({placed.machine.name for _, placed in shown})
    caption = f"Showing the first {_MOST_GROUPS} of {len(groups):,} operations." if len(groups) > len(shown) else ""
    return sheet.finish(f"Time per unit on {', '.join(machines)}", legend=entries, caption=caption)


def _rows(groups: Sequence[tuple[str, Placement]], tops: Sequence[float]) -> tuple[Tick, ...]:
    """Each bar's position, unit and seconds, the seconds padded to one width so that they line up."""
    seconds = [show(time, "s", 3) for _, placed in groups for _, time in placed.times]
    wide = max(map(len, seconds))
    places = [
        (_middle(top, index), unit) for (_, placed), top in zip(groups, tops, strict=True) for index, (unit, _) in enumerate(placed.times)
    ]
    return tuple(Tick(y, f"{title(unit)}  {time.rjust(wide, FIGURE_SPACE)}") for (y, unit), time in zip(places, seconds, strict=True))


def _middle(top: float, index: int) -> float:
    return top - _HEAD - _ROW * (index + 0.5)


def _draw_group(sheet: Sheet, name: str, placed: Placement, top: float) -> None:
    """Draw one placement below ``top``: a line of text, one bar per unit, and the bounds across them."""
    for index, (unit, seconds) in enumerate(placed.times):
        sheet.bar(_middle(top, index), seconds, sheet.theme.of_unit(unit), thickness=_ROW - 6)
    high, low = top - _HEAD, top - _HEAD - _ROW * len(placed.times)
    sheet.line(((placed.floor_s, low), (placed.floor_s, high)), sheet.theme.ink, width=1.4, kind="floor", z=5)
    sheet.line(((placed.serial_s, low), (placed.serial_s, high)), sheet.theme.ink, width=1.4, dash=(3, 2), kind="serial", z=5)
    if placed.time_s:
        sheet.dot(placed.time_s, (low + high) / 2, sheet.theme.ink, marker="D", radius=4, kind="measured", z=6)
    sheet.words(_summary(name, placed), *sheet.place(5, sheet.spot(0.0, top - _HEAD / 2)[1]), align="left")


def _summary(name: str, placed: Placement) -> str:
    parts = [bound_words(placed.bound)]
    parts += [f"minimum {show(placed.floor_s, 's', 3)}", f"serial {show(placed.serial_s, 's', 3)}"]
    if placed.time_s:
        parts.append(f"measured {show(placed.time_s, 's', 3)} (efficiency {percent(placed.efficiency)})")
    return f"{short_name(name, 34)}: {', '.join(parts)}"
