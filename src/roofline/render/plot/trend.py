"""The figure of a trend: the time of several versions of a program, with the range of their runs."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from ...comparison.runs import Spread, Trend
from ...errors import UsageError
from ...units import show
from ..geometry import Extent
from .sheet import Axis, Sheet
from .style import THIN_WIDTH, drawable, short_name, styled

_MOST_NAMES = 8  # versions that are named below the axis


@styled
def trend_chart(trend: Trend, *, theme: str = "light", ax: Axes | None = None) -> Axes:
    """The headline quantity of each version: its mean as a dot, the range of its runs as a bar."""
    row = [spread for spread in trend.values.get(trend.headline, ()) if spread is not None]
    if len(row) < 2 or len(row) < len(trend.versions):
        raise UsageError("no time, measured or minimum, in all of these reports: nothing to draw")
    unit = trend.units[trend.headline]
    top = 1.15 * max(float(spread.high) for spread in row) or 1.0
    extent = Extent(left=-0.3, right=len(row) - 0.7, bottom=0.0, top=top, x_log=False, y_log=False)
    sheet = Sheet(ax, theme, extent, Axis(label="version"), Axis(label=trend.headline, dimension=unit))
    sheet.ax.set_xticks(*_names(trend.versions))
    ink, range_colour = sheet.theme.of_series(0), sheet.theme.muted
    sheet.line([(place, float(spread.mean)) for place, spread in enumerate(row)], ink, name=trend.headline, kind="trend")
    for place, spread in enumerate(row):
        if spread.high > spread.low:
            sheet.line([(place, float(spread.low)), (place, float(spread.high))], range_colour, width=2 * THIN_WIDTH, kind="range", z=2)
        sheet.dot(place, float(spread.mean), ink, kind="version")
        sheet.label(show(spread.mean, unit, 3), place, float(spread.mean))
    return sheet.finish(f"{trend.headline} of {len(row)} versions{_change(row)}")


def _change(row: Sequence[Spread]) -> str:
    first, last = row[0].mean, row[-1].mean
    return f": {'+' if last >= first else '−'}{abs(last - first) / first:.1%} in total" if first else ""


def _names(versions: Sequence[str]) -> tuple[list[int], list[str]]:
    """The places and names of versions below the axis; of many, only some."""
    every = -(-len(versions) // _MOST_NAMES)
    width = 60 // min(len(versions), _MOST_NAMES)
    names = _without_common_parts(versions)
    shown = list(range(0, len(names), every))
    return shown, [drawable(short_name(names[place], width)) for place in shown]


def _without_common_parts(versions: Sequence[str]) -> list[str]:
    """The names without their common folder and extension, so that they still differ when they are shortened.

    >>> _without_common_parts(["runs/monday/step.json.gz", "runs/tuesday/step.json.gz"])
    ['monday/step', 'tuesday/step']
    """
    folders = [name.split("/") for name in versions]
    same = _same_first([parts[:-1] for parts in folders])
    names = ["/".join(parts[same:]) for parts in folders]
    endings = [name.split(".")[::-1] for name in names]
    same = _same_first([parts[:-1] for parts in endings])
    return [".".join(parts[same:][::-1]) for parts in endings]


def _same_first(rows: Sequence[Sequence[str]]) -> int:
    """The length of the common prefix of all rows."""
    return next((place for place, words in enumerate(zip(*rows, strict=False)) if len(set(words)) > 1), min(map(len, rows)))
