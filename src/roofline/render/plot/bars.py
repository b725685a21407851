"""The figure of times: how long each unit of hardware is busy, and the bounds that follow from it."""

from collections.abc import Iterable, Mapping

from matplotlib.axes import Axes

from ...errors import UsageError
from ...placement import Placement
from ...resource import bound_words
from ...units import percent, show
from ..geometry import Extent, title
from .sheet import Axis, Entry, Sheet, bar_height
from .style import short_name, styled

FIGURE_SPACE = "\N{FIGURE SPACE}"  # as wide as a digit

_MOST_GROUPS = 24


@styled
def time_bars(
    placements: Mapping[str, Placement] | Iterable[tuple[str, Placement]], *, theme: str = "light", ax: Axes | None = None
) -> Axes:
    """Seconds on each unit, one group per placement: the minimum time is the longest bar, the serial time the sum of all."""
    groups = tuple(placements.items() if isinstance(placements, Mapping) else placements)
    groups = tuple((name, placed) for name, placed in groups if placed.serial_s > 0)
    if not groups:
        raise UsageError("no placement has a time on any unit: nothing to draw; give operations with FLOP or bytes")
    shown = groups[:_MOST_GROUPS]
    rows = sum(len(placed.times) + 1 for _, placed in shown)  # a line that names the group, and its bars
    longest = max(max(placed.serial_s, placed.time_s or 0.0) for _, placed in shown)
    # Bars show values by length, so the x axis starts at 0; y is minus the number of the row.
    extent = Extent(left=0.0, right=1.04 * longest, bottom=-rows, top=0.0, x_log=False, y_log=False)
    sheet = Sheet(ax, theme, extent, Axis(label="time", dimension="s"), Axis(label=""), height=bar_height(rows))
    widest = max(len(show(time, "s", 3)) for _, placed in shown for _, time in placed.times)
    ticks: list[tuple[float, str]] = []
    top = 0.0
    for name, placed in shown:
        ticks += _draw_group(sheet, name, placed, top, widest)
        top -= len(placed.times) + 1
    sheet.name_rows(ticks)
    ink = sheet.theme.ink
    entries = [
        Entry(text="minimum time (full overlap)", colour=ink),
        Entry(text="serial time (no overlap)", colour=ink, dash=(3, 2)),
        *([Entry(text="measured", colour=ink, marker="D")] if any(placed.time_s for _, placed in shown) else []),
    ]
    machines = sorted({placed.machine.name for _, placed in shown})
    caption = [f"Showing the first {_MOST_GROUPS} of {len(groups):,} operations."] if len(groups) > len(shown) else []
    return sheet.finish(f"Time per unit on {', '.join(machines)}", legend=entries, caption=caption)


def _draw_group(sheet: Sheet, name: str, placed: Placement, top: float, widest: int) -> list[tuple[float, str]]:
    """Draw one placement below ``top``: a line of text, one bar per unit, and the bounds across them. Returns what the bars are of."""
    ticks = []
    for index, (unit, seconds) in enumerate(placed.times):
        sheet.bar(top - 1.5 - index, seconds, sheet.theme.of_unit(unit))
        # The seconds are padded to one width, so that they line up.
        ticks.append((top - 1.5 - index, f"{title(unit)}  {show(seconds, 's', 3).rjust(widest, FIGURE_SPACE)}"))
    high, low = top - 1, top - 1 - len(placed.times)
    sheet.line(((placed.floor_s, low), (placed.floor_s, high)), sheet.theme.ink, width=1.4, kind="floor", z=5)
    sheet.line(((placed.serial_s, low), (placed.serial_s, high)), sheet.theme.ink, width=1.4, dash=(3, 2), kind="serial", z=5)
    if placed.time_s:
        sheet.dot(placed.time_s, (low + high) / 2, sheet.theme.ink, marker="D", radius=4, kind="measured", z=6)
    sheet.name_group(_summary(name, placed), top - 0.5)
    return ticks


def _summary(name: str, placed: Placement) -> str:
    parts = [bound_words(placed.bound)]
    parts += [f"minimum {show(placed.floor_s, 's', 3)}", f"serial {show(placed.serial_s, 's', 3)}"]
    if placed.time_s:
        parts.append(f"measured {show(placed.time_s, 's', 3)} (efficiency {percent(placed.efficiency)})")
    return f"{short_name(name, 34)}: {', '.join(parts)}"
