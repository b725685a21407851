"""The frame of a figure: new axes, their scales, grid and numbers, and the size of the figure around them."""

import math
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from msgspec import Struct

from ..geometry import Extent, Tick, linear_ticks, log_ticks
from .style import LINE_SPACING, NORMAL, SMALL, TYPEFACE, Theme, drawable, text_size, text_style

POINTS = 72.0  # a point is 1/72 inch
WIDTH, HEIGHT = 500.0, 310.0  # of the axes of a new figure, in points
MARGIN = 12.0


class Axis(Struct, frozen=True, kw_only=True):
    """One axis: its label, the dimension of its numbers and the base of their powers, or custom ticks."""

    label: str
    dimension: str = ""
    base: int = 10
    ticks: tuple[Tick, ...] = ()

    def marks(self, low: float, high: float, log: bool) -> tuple[Tick, ...]:
        if self.ticks:
            return self.ticks
        return log_ticks(low, high, self.dimension, base=self.base) if log else linear_ticks(low, high, self.dimension)


def own_axes(height: float) -> Axes:
    """Axes in a new figure that is not registered with pyplot."""
    figure = Figure(figsize=(WIDTH / POINTS, height / POINTS), dpi=100, edgecolor="none", linewidth=0, frameon=True)
    figure.set_layout_engine("none")
    return figure.add_axes((0, 0, 1, 1))


def style_axes(ax: Axes, theme: Theme, outer: Extent, right: float, x: Axis, y: Axis) -> float:
    """Scales, spines, grid and numbers; the x axis ends at ``right``. Returns the width of the widest number on the y axis."""
    # Tick labels are outside the axes, so the figure needs the theme's background too.
    ax.figure.set_facecolor(theme.background)
    ax.set_facecolor(theme.background)
    ax.set_xscale("log" if outer.x_log else "linear")
    ax.set_yscale("log" if outer.y_log else "linear")
    ax.set_xlim(outer.left, outer.right)
    ax.set_ylim(outer.bottom, outer.top)
    for side, spine in ax.spines.items():
        spine.set(visible=side in ("left", "bottom"), color=theme.muted, linewidth=0.8)
    ax.spines["bottom"].set_bounds(outer.left, right)
    ax.set_axisbelow("line")
    ax.grid(False, which="both")
    ax.tick_params(which="major", length=4, width=0.8, pad=3)
    ax.tick_params(which="minor", length=2, width=0.5)
    look: dict[str, Any] = {
        "direction": "out",
        "color": theme.muted,
        "labelcolor": theme.muted,
        "labelsize": SMALL,
        "labelfontfamily": TYPEFACE,
    }
    ax.tick_params(which="both", top=False, right=False, labeltop=False, labelright=False, bottom=True, labelbottom=True, **look)
    ax.tick_params(which="both", left=not y.ticks, labelleft=True)
    wide = ax.bbox.width / ax.figure.dpi * POINTS
    across = _thinned(x.marks(outer.left, right, outer.x_log), outer, wide)
    along = y.marks(outer.bottom, outer.top, outer.y_log)
    for axis, ticks in ((ax.xaxis, across), (ax.yaxis, along)):
        axis.set_ticks([tick.at for tick in ticks if tick.label], [tick.label for tick in ticks if tick.label])
        axis.set_ticks([tick.at for tick in ticks if not tick.label], minor=True)
        axis.set_minor_formatter(NullFormatter())
        for shown in axis.get_ticklabels():
            shown.set(parse_math=False, usetex=False)
    grid: dict[str, Any] = {"colors": theme.grid, "linewidth": 0.6, "linestyle": "solid", "zorder": 0.5}
    ax.vlines([tick.at for tick in across if tick.label], outer.bottom, outer.top, gid="grid-x", **grid)
    if not y.ticks:
        ax.hlines([tick.at for tick in along if tick.label], outer.left, right, gid="grid-y", **grid)
    ax.set_xlabel(drawable(x.label), labelpad=6, x=0.5 * outer.unit(right, outer.top)[0], **text_style(theme.ink))
    ax.set_ylabel(drawable(y.label), labelpad=6, **text_style(theme.ink))
    return max((text_size(tick.label, SMALL)[0] for tick in along), default=0.0)


def _thinned(ticks: tuple[Tick, ...], outer: Extent, wide: float) -> tuple[Tick, ...]:
    """Ticks along x with as many labels as fit on narrow axes: all, every second, every third, …"""
    numbered = [tick for tick in ticks if tick.label]
    for stride in range(1, len(numbered) + 1):
        kept = numbered[::stride]
        ends = [(outer.unit(tick.at, outer.top)[0] * wide, text_size(tick.label, SMALL)[0] / 2 + 2) for tick in kept]
        if all(after - before >= half + other for (before, half), (after, other) in pairwise(ends)):
            break
    return tuple(tick if tick in kept else Tick(tick.at) for tick in ticks) if numbered else ticks


def fit(ax: Axes, width: float, height: float, *, above: float, below: float, left: float) -> None:
    """Resize a new figure to axes of this size and the text around them; all in points."""
    label = NORMAL * LINE_SPACING + 6 if ax.get_ylabel() else 0.0
    west, south = MARGIN + left + 8 + label, MARGIN + below
    # Whole tenths of an inch are whole pixels at common resolutions, so no pixel at the edge is half covered.
    paper_w, paper_h = (math.ceil(side / POINTS * 10) / 10 for side in (west + width + MARGIN + 8, south + height + above + MARGIN))
    if isinstance(ax.figure, Figure):
        ax.figure.set_size_inches(paper_w, paper_h)
    ax.set_position((west / POINTS / paper_w, south / POINTS / paper_h, width / POINTS / paper_w, height / POINTS / paper_h))
